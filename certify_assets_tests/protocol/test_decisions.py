from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.protocol.decisions import write_table_file


def _frame(name: str) -> pd.DataFrame:
    return pd.DataFrame({"task_id": ["t", name], "agent": ["a", "b"], "score": [-0.5, 1.0]})


@pytest.mark.parametrize("name", ["=1+1", "@sum", "-2+3|x", "+a", " =1", "＝1", "\tx"])
def test_a_name_that_a_spreadsheet_would_run_is_not_written_as_csv(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot hold the task_id .* would run it as a formula; choose a name that ends in \.jsonl"):
        write_table_file(tmp_path / "q.csv", _frame(name))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["-5", "007", "τ, 'x' \"y\"", "-1.5"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_come_back_as_they_are(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"q.{suffix}"
    write_table_file(path, _frame(name))
    if suffix == "csv":
        again = pd.read_csv(path, dtype={"task_id": str})
    else:
        again = pd.read_json(path, lines=True, dtype={"task_id": str}) if suffix == "jsonl" else pd.read_parquet(path)
    assert again["task_id"].tolist() == ["t", name]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_other_formats_hold_what_looks_like_a_formula(tmp_path: Path, suffix: str) -> None:
    write_table_file(tmp_path / f"q.{suffix}", _frame("=1+1"))
    path = tmp_path / f"q.{suffix}"
    again = pd.read_json(path, lines=True) if suffix == "jsonl" else pd.read_parquet(path)
    assert again["task_id"].tolist() == ["t", "=1+1"]


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not end in"):
        write_table_file(tmp_path / "q.xlsx", _frame("a"))
