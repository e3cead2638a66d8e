from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import certify, decide
from certify_assets.certificates.decision import REASONS
from certify_assets.errors import InputError
from certify_assets.evaluation.decisions import decide_table
from certify_assets.evaluation.score_table import read_score_table
from certify_assets.tables.table_files import write_table_file
from certify_assets_tests.builders import score_rows


def _frame(name: str) -> pd.DataFrame:
    return pd.DataFrame({"task_id": ["t", name], "agent": ["a", "b"], "score": [-0.5, 1.0]})


@pytest.mark.parametrize("name", ["=1+1", "@sum", "-2+3|x", "+a", " =1", "＝1", "\tx"])
def test_a_name_that_a_spreadsheet_would_run_is_not_written_as_csv(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(
        InputError,
        match=r"cannot hold the task_id .* run it as a formula; choose a name that ends in \.jsonl",
    ):
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
        again = (
            pd.read_json(path, lines=True, dtype={"task_id": str})
            if suffix == "jsonl"
            else pd.read_parquet(path)
        )
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


def test_a_table_is_decided_as_its_scores_are(tmp_path: Path) -> None:
    """Every code of a decision, in text columns with the bytes on disk of Python strings."""
    rows = score_rows(tasks=60, attempts=8)
    certificates = [
        certify(rows["score"], rows["outcome"], rows["task_id"], side=side, alpha=0.2)
        for side in ("reject", "release")
    ]
    crossed = [replace(certificates[0], threshold=1.0), replace(certificates[1], threshold=-1.0)]
    nothing = [certify([0.0, 1.0], [0, 1], ["a", "b"], side=side) for side in ("reject", "release")]
    rows.loc[::9, "score"] = np.nan
    rows.to_parquet(tmp_path / "rows.parquet")
    table, seen = read_score_table(tmp_path / "rows.parquet"), set()
    for number, given in enumerate(
        (certificates, certificates[:1], certificates[1:], crossed, nothing)
    ):
        decided, plain = decide_table(given, table).frame, decide(given, table.scores)
        seen |= set(plain.reasons.tolist())
        again = decided.assign(
            decision=plain.decisions,
            reason=plain.reasons,
            certificate_sha256=";".join(item.sha256 for item in given),
        )
        pd.testing.assert_frame_equal(decided, again)
        for name, frame in (("a", decided), ("b", again)):
            write_table_file(tmp_path / f"{name}{number}.parquet", frame)
        assert (tmp_path / f"a{number}.parquet").read_bytes() == (
            tmp_path / f"b{number}.parquet"
        ).read_bytes()
    assert seen == set(REASONS)
