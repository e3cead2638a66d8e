"""One table written in a hundred ways: read right, or refused with what would read it right."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ScoreTable, read_labels, read_score_table
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import TableError

# the third run has no score, and no score is whole: a percentage of it has decimals as well
TASKS = ["tür 1", "tür 1", "b-2", "c", "c", "d"]
SCORES = [0.125, 0.9375, np.nan, 0.5625, 0.0625, 0.8125]
OUTCOMES = [0, 1, 1, 0, 1, 0]
IDS = [f"r{place}" for place in range(6)]
PLAIN = pd.DataFrame({"task_id": TASKS, "score": SCORES, "outcome": OUTCOMES, "trajectory_id": IDS})


class Way(NamedTuple):
    """A table, its file, and what the commands must be told; nothing: it is read unasked."""

    table: pd.DataFrame
    file: str = "a.csv"
    how: Mapping[str, Any] = MappingProxyType({})
    columns: Mapping[str, str] = MappingProxyType({})
    success: str = ""

    def write(self, path: Path) -> None:
        if path.suffix in (".csv", ".tsv", ".txt"):
            self.table.to_csv(path, index=False, **self.how)
        elif path.suffix in (".json", ".jsonl"):
            self.table.to_json(path, orient="records", lines=path.suffix == ".jsonl")
        elif path.suffix == ".xlsx":
            _book(path, {"Runs": self.table})
        elif path.suffix in (".arrow", ".feather"):
            self.table.to_feather(path)
        else:
            self.table.to_parquet(path)

    @property
    def told(self) -> dict[str, Any]:
        settings = {"settings": TableSettings(success=(self.success,))} if self.success else {}
        return settings | ({"columns": self.columns} if self.columns else {})


def words(success: Any, failure: Any) -> pd.DataFrame:
    return PLAIN.assign(outcome=[success if outcome else failure for outcome in OUTCOMES])


def scores(form: str, scale: float = 1.0, comma: bool = False) -> pd.DataFrame:
    def shown(value: float) -> str:
        said = "" if np.isnan(value) else form.format(value * scale)
        return said.replace(".", ",") if comma else said

    return PLAIN.assign(score=[shown(value) for value in SCORES])


def ways() -> Iterator[tuple[str, Way]]:
    for separator in ",;\t|":
        sep = {"sep": separator}
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
            yield f"{encoding}", Way(PLAIN, how={**sep, "encoding": encoding})
        for ending in ("tsv", "txt"):
            yield ending, Way(PLAIN, f"a.{ending}", how=sep)
        yield "quoted", Way(PLAIN, how={**sep, "quoting": 1})
        yield "crlf", Way(PLAIN, how={**sep, "lineterminator": "\r\n"})
        yield "comma-decimals", Way(scores("{:.4f}", comma=True), how=sep)
        yield "percent", Way(scores("{:.2f}%", 100), how=sep)
        yield "percent-comma", Way(scores("{:.2f} %", 100, comma=True), how=sep)
    yield "hundred", Way(scores("{:.2f}", 100))
    yield "exponent", Way(scores("{:.6e}"))
    yield "plus", Way(scores("+{:.4f}"))
    yield "na", Way(PLAIN, how={"na_rep": "N/A"})
    for success, failure in (
        ("yes", "no"), ("Y", "N"), ("true", "false"), ("TRUE", "FALSE"), ("t", "f"),
        ("Passed", "Failed"), ("success", "failure"), ("resolved", "unresolved"), (" 1", "0 "),
    ):  # fmt: skip
        yield f"word-{success}", Way(words(success, failure))
    for success, failure in (("good", "bad"), ("ok", "timeout"), ("2", "1"), ("A", "B")):
        yield f"label-{success}", Way(words(success, failure), success=success)
    columns = {"outcome": "failed"}
    for name, values in {
        "no": ("no", "yes"), "0": (0, 1), "false": (False, True), "0.0": (0.0, 1.0)
    }.items():  # fmt: skip
        for file in ("a.csv", "a.parquet"):
            failed = words(*values).rename(columns={"outcome": "failed"})
            yield f"contrary-{name}-{file}", Way(failed, file, columns=columns, success=name)
    for file in ("a.csv", "a.jsonl", "a.parquet"):
        for change in (
            str.upper,
            str.title,
            lambda name: name.replace("_", " ").title(),
            lambda name: name.replace("_", "-"),
            lambda name: f" {name} ",
        ):
            yield "header", Way(PLAIN.rename(columns=change), file)
        for task, score in (("instance_id", "probability"), ("problem", "judge_score")):
            named = PLAIN.rename(columns={"task_id": task, "score": score})
            yield f"names-{task}", Way(named, file, columns={"task": task, "score": score})
    yield "order", Way(PLAIN[PLAIN.columns[::-1]])
    yield "others", Way(PLAIN.assign(note="a;b|c\td, e", Score_of_another=7))
    yield "blank-lines", Way(PLAIN, how={"lineterminator": "\n\n"})
    for ending in ("json", "jsonl", "arrow", "feather", "parquet", "pq", "xlsx"):
        for table in (
            PLAIN,
            words("Pass", "Fail"),
            PLAIN.astype({"outcome": bool}),
            PLAIN.astype({"outcome": float}),
        ):
            yield f"format-{ending}", Way(table, f"a.{ending}")


def _book(path: Path, sheets: dict[str, pd.DataFrame]) -> None:
    with pd.ExcelWriter(path) as book:
        for name, frame in sheets.items():
            frame.to_excel(book, sheet_name=name, index=False)


WAYS = [pytest.param(name, way, id=f"{name}-{place}") for place, (name, way) in enumerate(ways())]

SETTLED = {"success": "VALUE", "threshold": "NUMBER"}


def read(path: Path, table: pd.DataFrame, **told: Any) -> ScoreTable:
    """Write a table as a CSV file, and read it."""
    table.to_csv(path, index=False)
    return read_score_table(path, **told)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_a_table_is_read_right_or_refused_with_a_remedy(
    name: str, way: Way, tmp_path: Path
) -> None:
    path = tmp_path / way.file
    way.write(path)
    if way.told:
        # a column of failures is asked about once it is named
        named = {"columns": way.columns} if name.startswith("contrary") else {}
        with pytest.raises(TableError) as refused:
            read_score_table(path, **named)
        options = refused.value.options
        assert options and options.items() <= {**way.columns, **SETTLED}.items()
    table = read_score_table(path, **way.told)
    assert [task.strip() for task in table.tasks] == TASKS
    scale = 100 if name == "hundred" else 1
    np.testing.assert_array_equal(table.scores, np.array(SCORES) * scale)
    assert table.labels.tolist() == OUTCOMES
    assert table.trajectories is not None and table.trajectories.tolist() == IDS


def test_a_sheet_of_a_workbook_is_found_or_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    _book(path, {"Read me": pd.DataFrame({"about": ["judge of March"]}), "Runs": PLAIN})
    assert read_score_table(path).labels.tolist() == OUTCOMES
    _book(path, {"Runs": PLAIN})
    assert read_score_table(path).read_as == ("Excel workbook, sheet 'Runs'",)
    _book(path, {"March": PLAIN, "April": PLAIN})
    with pytest.raises(InputError, match="'March', 'April'"):
        read_score_table(path)


@pytest.mark.parametrize(
    "name",
    [
        "attack_success", "reward_hacking", "privacy breach", "stuck", "needs_human", "rejected",
        "is_bad", "Hallucinated", "not_ok", "timed-out",
    ],
)  # fmt: skip
def test_a_name_whose_yes_may_be_a_failure_is_asked_about(name: str, tmp_path: Path) -> None:
    table, columns = PLAIN.rename(columns={"outcome": name}), {"outcome": name}
    with pytest.raises(TableError, match="can be read in two ways") as refused:
        read(tmp_path / "a.csv", table, columns=columns)
    assert refused.value.options == {"success": "VALUE"}
    settings = TableSettings(success=("1",))
    found = read(tmp_path / "a.csv", table, columns=columns, settings=settings)
    assert found.labels.tolist() == OUTCOMES


def test_what_was_understood_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = scores("{:.4f}", comma=True).assign(outcome=words("pass", "fail")["outcome"])
    odd = frame.rename(columns={"task_id": "Task ID"})
    odd.to_csv(path, index=False, encoding="cp1252", sep=";")
    assert read_score_table(path).read_as == (
        "Windows-1252 text",
        "semicolons between fields",
        "column 'Task ID' as task_id",
        "scores with decimal commas",
        "outcome: 'pass' as 1 and 'fail' as 0",
    )
    assert read(path, PLAIN).read_as == ()


def test_every_fault_of_a_table_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("instance,score,outcome,trajectory_id\nt,high,maybe,r\nu,.5,1,r\n")
    with pytest.raises(TableError) as refused:
        read_score_table(path)
    message = str(refused.value)
    for said in ("no column 'task_id'", "'high' is not a number", "'maybe'", "was already used"):
        assert said in message
    assert refused.value.options == {"task": "instance", "no_label": "maybe"}


def test_every_faulty_cell_of_a_column_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    cells = [(".5", "1"), ("x", "1"), ("inf", "odd"), (".5", "0"), *[("y", "0")] * 8, (".5", "no!")]
    rows = ["task_id,score,outcome,trajectory_id"]
    for number, (score, end) in enumerate(cells):
        rows.append(f"{'' if number in (4, 9) else 't'},{score},{end},r{number % 11}")
    path.write_text("\n".join(rows))
    with pytest.raises(TableError) as refused:
        read_score_table(path)
    for problem, first, rest in zip(
        refused.value.problems,
        (
            "row 2 (line 3), column 'score': 'x' is not a number",
            "row 3 (line 4), column 'score': the score is infinite",
            "row 3 (line 4), column 'outcome': 'odd'",
            "row 5 (line 6), column 'task_id' is empty",
            "row 12 (line 13), column 'trajectory_id': 'r0' was already used in row 1",
        ),
        (
            "The same holds of row 5 (line 6), row 6 (line 7), row 7 (line 8), row 8 (line 9), "
            "row 9 (line 10), and 3 more.",
            "",
            "The same holds of row 13 (line 14).",
            "The same holds of row 10 (line 11).",
            "Rows that repeat an id: 2.",
        ),
        strict=True,
    ):
        assert first in problem and problem.endswith(rest)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        # a thousand, or one and a bit
        (["1,234", "2,500", "3,100"], "'1,234' is not a number in only one way"),
        (["1.234", "987", "2.100"], "'1.234' may be a thousand"),
        (["50%", "0.5", "40%"], "'50%' is not a number"),
        (["0,5", "0.5", "0,25"], "'0,5' is not a number"),
        (["1.234,5", "0,5", "1"], "'1.234,5' is not a number"),
        (["1/2", "0", "1"], "'1/2' is not a number"),
    ],
)
def test_scores_that_can_be_read_in_two_ways_are_refused(
    values: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(TableError, match=said):
        read(tmp_path / "a.csv", pd.DataFrame({"task_id": "a", "score": values}))


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1.234", "2.500"], [1.234, 2.5]),
        (["1.234", ""], [1.234, np.nan]),
        (["24,897 %", "62,500 %"], [0.24897, 0.625]),
    ],
)
def test_decimals_that_are_no_thousands(
    values: list[str], numbers: list[float], tmp_path: Path
) -> None:
    found = read(tmp_path / "a.csv", pd.DataFrame({"task_id": "a", "score": values})).scores
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize("value", ["1e-400", "0.9999999999999999999999", "yess"])
def test_outcomes_that_are_almost_none_are_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="not an outcome"):
        read(tmp_path / "a.csv", PLAIN.assign(outcome=value))


def test_a_label_next_to_another_word_for_success_is_refused(tmp_path: Path) -> None:
    path, three = tmp_path / "a.csv", PLAIN.head(3)
    with pytest.raises(InputError, match=r"row 2 .*'Passed' means a success as well"):
        settings = TableSettings(success=("pass",))
        read(path, three.assign(outcome=["pass", "Passed", "fail"]), settings=settings)
    # a grade above a pass, and grades that are numbers
    for label in ("good", "2"):
        settings = TableSettings(success=(label,))
        table = read(path, three.assign(outcome=[label, "pass", 1]), settings=settings)
        assert table.labels.tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["default", "success_flag", "harmless", "normal", "lossless"])
def test_a_yes_under_any_other_name_is_a_success(name: str, tmp_path: Path) -> None:
    table = PLAIN.rename(columns={"outcome": name})
    found = read(tmp_path / "a.csv", table, columns={"outcome": name})
    assert found.labels.tolist() == OUTCOMES


def test_a_line_that_names_the_separator_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for separator in ",;\t|":
        table = f"sep={separator}\r\n{PLAIN.to_csv(index=False, sep=separator)}"
        path.write_text(table, encoding="utf-8")
        assert read_score_table(path).tasks.tolist() == TASKS


@pytest.mark.parametrize("column", ["task_id", "score", "outcome"])
def test_a_formula_without_a_value_is_not_empty(column: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    _book(path, {"Scores": PLAIN.astype(object).assign(**{column: "=1"})})
    with pytest.raises(InputError, match=f"line 2, column '{column}': the formula has no value"):
        read_score_table(path)


def test_percentages_are_read_as_probabilities_where_that_is_said(tmp_path: Path) -> None:
    path, percent = tmp_path / "a.csv", scores("{:.2f}", 100)
    assert read(path, percent).read_as == (
        "scores up to 93.75 as they are (--score-scale probability takes them for percentages)",
    )
    assert read(path, percent, score_scale="log-odds").read_as == ()
    probable = read(path, percent, score_scale="probability")
    np.testing.assert_array_equal(probable.scores, SCORES)
    assert probable.read_as == ("scores in percent, divided by 100",)
    assert read(path, PLAIN, score_scale="probability").read_as == ()
    for value in (-0.5, 100.5):
        with pytest.raises(InputError, match=r"row 6 .*neither a probability nor a percentage"):
            beyond = PLAIN.assign(score=[*SCORES[:5], value])
            read(path, beyond, score_scale="probability")


def test_labels_of_a_draw_are_read_as_score_tables_are(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    odd = words("good", "bad")[["trajectory_id", "outcome"]]
    odd.rename(columns=str.title).to_csv(path, index=False, sep=";")
    with pytest.raises(TableError) as refused:
        read_labels(path)
    assert refused.value.options == {"success": "VALUE"}
    ids, outcomes, rows = read_labels(path, settings=TableSettings(success=("good",)))
    assert ids.tolist() == IDS and outcomes.tolist() == OUTCOMES
    assert "outcome: 'good' as 1 and 'bad' as 0" in rows.read_as
    odd.rename(columns={"trajectory_id": "run", "outcome": "resolved"}).to_csv(path, index=False)
    with pytest.raises(TableError, match=r"'trajectory_id'.*\n.*'outcome'") as refused:
        read_labels(path)
    assert refused.value.options == {"id": "run", "outcome": "resolved"}
