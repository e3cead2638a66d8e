"""Tables that commands write: no spreadsheet runs a name in them, and decisions are those of scores."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import certify, decide
from certify_assets.errors import InputError
from certify_assets.tables.decisions import decide_table
from certify_assets.tables.score_table import read_score_table
from certify_assets.tables.writing import is_formula, write_table_file
from certify_assets_tests.builders import score_rows


def _frame(name: str) -> pd.DataFrame:
    return pd.DataFrame({"task_id": ["t", name], "agent": ["a", "b"], "score": [-0.5, 1.0]})


@pytest.mark.parametrize("column", ["task_id", "source_file"])
@pytest.mark.parametrize(
    "text",
    ["=1+1", "@sum", "-2+3|x", " =1", "＝1", "\tx", "n12;=1+1", 'n;"=1+1', "n\r=1+1", "\ufeff=1"],
)
def test_no_cell_of_a_csv_holds_a_formula_or_a_part_that_is_one(
    tmp_path: Path, column: str, text: str
) -> None:
    frame = _frame("a").assign(**{column: ["fine", text]})
    with pytest.raises(InputError, match=rf"cannot hold the {column} .* run it as a formula"):
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


@pytest.mark.parametrize("name", ["-5", "007", "τ, 'x' \"y\"", "=1+1"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_names_come_back_as_they_are(tmp_path: Path, name: str, suffix: str) -> None:
    if (name, suffix) == ("=1+1", "csv"):
        return
    path = tmp_path / f"q.{suffix}"
    write_table_file(path, _frame(name))
    text = {"task_id": str}
    again = {
        "csv": lambda: pd.read_csv(path, dtype=text),
        "jsonl": lambda: pd.read_json(path, lines=True, dtype=text),
        "parquet": lambda: pd.read_parquet(path),
    }[suffix]()
    assert again["task_id"].tolist() == ["t", name]


def test_a_table_is_decided_as_its_scores_are() -> None:
    rows = score_rows(tasks=60, attempts=8)
    columns = rows["score"], rows["outcome"], rows["task_id"]
    given = [certify(*columns, side=side, alpha=0.2) for side in ("reject", "release")]
    rows.loc[::9, "score"] = np.nan
    table = read_score_table(rows)
    decided, plain = decide_table(given, table).columns(slice(None)), decide(given, table.scores)
    assert decided["decision"].tolist() == plain.decisions.tolist()
    assert decided["reason"].tolist() == plain.reasons.tolist()
    assert set(decided["certificate_sha256"]) == {";".join(item.sha256 for item in given)}
