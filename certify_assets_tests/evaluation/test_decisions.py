from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import certify, decide
from certify_assets.certificates.decision import REASONS
from certify_assets.errors import InputError
from certify_assets.evaluation.decisions import decide_table
from certify_assets.tables.score_table import read_score_table
from certify_assets.tables.writing import is_formula, write_table_file
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


@pytest.mark.parametrize(
    "text",
    [
        "n12;=1+1",
        "n;\u00a0@x",
        'n;"=1+1',
        "n\r=1+1",
        "n\n-cmd|x",
        "n\t+a",
        "\ufeff=1",
        '"=1',
        "-0.5x",
    ],
)
@pytest.mark.parametrize("column", ["source_file", "reason", "anything"])
def test_no_column_of_a_csv_holds_a_formula_or_a_part_that_is_one(
    tmp_path: Path, column: str, text: str
) -> None:
    frame = _frame("a").assign(**{column: ["fine", text]})
    with pytest.raises(InputError, match=rf"cannot hold the {column} .* of row 2 \(1 such\)"):
        write_table_file(tmp_path / "q.csv", frame)
    assert not list(tmp_path.iterdir())


def test_no_header_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot hold the column name '=1'"):
        write_table_file(tmp_path / "q.csv", _frame("a").rename(columns={"score": "=1"}))


def test_numbers_with_signs_stay_numbers_in_a_csv(tmp_path: Path) -> None:
    texts = ["-0.5", "+.5", "-1e-05", "-", "+0.012 (−0.010 to 0.034)"]
    numbers = [-0.5, -1e-05, -np.inf, -3.0, np.nan]
    columns = {"text": np.array(texts, dtype=object), "score": np.array(numbers)}
    mixed = {"mixed": np.array([-0.5, -1, None, "-1", True], dtype=object)}
    write_table_file(tmp_path / "q.csv", columns | mixed)
    again = pd.read_csv(tmp_path / "q.csv")
    assert again["text"].tolist() == texts
    np.testing.assert_array_equal(again["score"], numbers)
    assert "\n-0.5,-0.5,-0.5\n" in (tmp_path / "q.csv").read_text("utf-8")


def test_a_separator_of_other_spreadsheets_is_within_quotes(tmp_path: Path) -> None:
    write_table_file(tmp_path / "q.csv", _frame("left; then right"))
    text = (tmp_path / "q.csv").read_text("utf-8")
    assert text.splitlines()[1:] == ["t,a,-0.5", '"left; then right",b,1.0']
    assert pd.read_csv(tmp_path / "q.csv").equals(_frame("left; then right"))


def test_a_long_name_is_looked_at_in_time_proportional_to_it() -> None:
    # a pattern that begins again at each separator looks at every rest of the name
    for text in ("\t" * 400_000, "a" + ";\u00a0" * 200_000, "-" + "1" * 400_000 + "x"):
        is_formula(text)
    assert is_formula("a" + "; " * 200_000 + "=1") and not is_formula("a" + "; " * 200_000 + "1")


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
    rows = score_rows(tasks=60, attempts=8)
    certificates = [
        certify(rows["score"], rows["outcome"], rows["task_id"], side=side, alpha=0.2)
        for side in ("reject", "release")
    ]
    crossed = [certificates[0].replace(threshold=1.0), certificates[1].replace(threshold=-1.0)]
    nothing = [certify([0.0, 1.0], [0, 1], ["a", "b"], side=side) for side in ("reject", "release")]
    rows.loc[::9, "score"] = np.nan
    rows.to_parquet(tmp_path / "rows.parquet")
    table, seen = read_score_table(tmp_path / "rows.parquet"), set()
    for given in (certificates, certificates[:1], certificates[1:], crossed, nothing):
        decided, plain = (
            decide_table(given, table).columns(slice(None)),
            decide(given, table.scores),
        )
        seen |= set(plain.reasons.tolist())
        assert decided["decision"].tolist() == plain.decisions.tolist()
        assert decided["reason"].tolist() == plain.reasons.tolist()
        assert set(decided["certificate_sha256"]) == {";".join(item.sha256 for item in given)}
    assert seen == set(REASONS)
