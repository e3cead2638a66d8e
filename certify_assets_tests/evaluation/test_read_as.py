"""One table written in a hundred ways: read right, or refused with what would read it right."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import read_labels, read_score_table
from certify_assets.tables.columns import TableError
from certify_assets.tables.settings import TableSettings

# the third run has no score, and no score is whole: a percentage of it has decimals as well
TASKS = ["tür 1", "tür 1", "b-2", "c", "c", "d"]
SCORES = [0.125, 0.9375, np.nan, 0.5625, 0.0625, 0.8125]
OUTCOMES = [0, 1, 1, 0, 1, 0]
IDS = [f"r{place}" for place in range(6)]
PLAIN = pd.DataFrame({"task_id": TASKS, "score": SCORES, "outcome": OUTCOMES, "trajectory_id": IDS})

Write = Callable[[Path], None]
#: name of the file, how it is written, what the commands must be told (nothing: it is read unasked)
Way = tuple[str, Write, dict[str, Any]]


def text(frame: pd.DataFrame, encoding: str = "utf-8", **how: Any) -> Write:
    def write(path: Path) -> None:
        path.write_bytes(frame.to_csv(index=False, **how).encode(encoding))

    return write


def words(success: Any, failure: Any) -> pd.DataFrame:
    return PLAIN.assign(outcome=[success if outcome else failure for outcome in OUTCOMES])


def scores(form: str, scale: float = 1.0, comma: bool = False) -> pd.DataFrame:
    def shown(value: float) -> str:
        said = "" if np.isnan(value) else form.format(value * scale)
        return said.replace(".", ",") if comma else said

    return PLAIN.assign(score=[shown(value) for value in SCORES])


def ways() -> Iterator[tuple[str, Way]]:
    separators = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
    encodings = {"utf8": "utf-8", "bom": "utf-8-sig", "utf16": "utf-16", "cp1252": "cp1252"}
    for name, separator in separators.items():
        for code, encoding in encodings.items():
            yield f"{name}-{code}", ("a.csv", text(PLAIN, encoding, sep=separator), {})
        for ending in ("tsv", "txt"):
            yield f"{name}-{ending}", (f"a.{ending}", text(PLAIN, sep=separator), {})
        yield f"{name}-quoted", ("a.csv", text(PLAIN, sep=separator, quoting=1), {})
        yield f"{name}-crlf", ("a.csv", text(PLAIN, sep=separator, lineterminator="\r\n"), {})
        yield (
            f"{name}-comma-decimals",
            (
                "a.csv",
                text(scores("{:.4f}", comma=True), sep=separator),
                {},
            ),
        )
        yield f"{name}-percent", ("a.csv", text(scores("{:.2f}%", 100), sep=separator), {})
        yield (
            f"{name}-percent-comma",
            (
                "a.csv",
                text(scores("{:.2f} %", 100, comma=True), sep=separator),
                {},
            ),
        )
    yield "hundred", ("a.csv", text(scores("{:.2f}", 100)), {})
    yield "exponent", ("a.csv", text(scores("{:.6e}")), {})
    yield "plus", ("a.csv", text(scores("+{:.4f}")), {})
    yield "na", ("a.csv", text(PLAIN, na_rep="N/A"), {})
    for success, failure in (
        ("yes", "no"), ("Y", "N"), ("true", "false"), ("TRUE", "FALSE"), ("t", "f"),
        ("pass", "fail"), ("Passed", "Failed"), ("success", "failure"), ("resolved", "unresolved"),
        ("correct", "incorrect"), ("solved", "unsolved"), ("1.0", "0.0"), (" 1", "0 "),
        ("succeeded", "failed"), ("successful", "unsuccessful"),
    ):  # fmt: skip
        yield f"word-{success.strip()}", ("a.csv", text(words(success, failure)), {})
    for success, failure in (("good", "bad"), ("ok", "timeout"), ("2", "1"), ("A", "B")):
        asked = {"settings": TableSettings(success=(success,))}
        yield f"label-{success}", ("a.csv", text(words(success, failure)), asked)
    contrary = PLAIN.assign(outcome=["no" if outcome else "yes" for outcome in OUTCOMES])
    yield (
        "contrary",
        (
            "a.csv",
            text(contrary.rename(columns={"outcome": "failed"})),
            {"columns": {"outcome": "failed"}, "settings": TableSettings(success=("no",))},
        ),
    )
    for name, (success, failure) in {
        "0": (0, 1),
        "false": (False, True),
        "0.0": (0.0, 1.0),
    }.items():
        failed = words(success, failure).rename(columns={"outcome": "failed"})
        asked = {"columns": {"outcome": "failed"}, "settings": TableSettings(success=(name,))}
        yield f"contrary-{name}", ("a.csv", text(failed), asked)
        yield f"contrary-{name}-parquet", ("a.parquet", failed.to_parquet, asked)
    for name, change in {
        "upper": str.upper,
        "title": str.title,
        "spaces": lambda name: name.replace("_", " ").title(),
        "hyphens": lambda name: name.replace("_", "-"),
        "padded": lambda name: f" {name} ",
    }.items():
        named = PLAIN.rename(columns=change)
        yield f"header-{name}", ("a.csv", text(named), {})
        yield (
            f"header-{name}-jsonl",
            (
                "a.jsonl",
                lambda path, named=named: named.to_json(path, orient="records", lines=True),
                {},
            ),
        )
        yield f"header-{name}-parquet", ("a.parquet", named.to_parquet, {})
    for name, columns in {
        "instances": {"task_id": "instance_id", "score": "probability"},
        "problems": {"task_id": "problem", "score": "judge_score"},
    }.items():
        named = PLAIN.rename(columns=columns)
        asked = {"columns": {"task": columns["task_id"], "score": columns["score"]}}
        yield f"names-{name}", ("a.csv", text(named), asked)
        yield f"names-{name}-parquet", ("a.parquet", named.to_parquet, asked)
    yield "order", ("a.csv", text(PLAIN[PLAIN.columns[::-1]]), {})
    yield "others", ("a.csv", text(PLAIN.assign(note="a;b|c\td, e", Score_of_another=7)), {})
    yield "blank-lines", ("a.csv", lambda path: _spaced(path), {})
    yield "json", ("a.json", lambda path: PLAIN.to_json(path, orient="records"), {})
    yield "json-true", ("a.json", lambda path: _records(path, bool), {})
    yield (
        "json-words",
        (
            "a.jsonl",
            lambda path: words("pass", "fail").to_json(path, orient="records", lines=True),
            {},
        ),
    )
    yield "arrow", ("a.arrow", PLAIN.to_feather, {})
    yield "feather", ("a.feather", words("yes", "no").to_feather, {})
    yield "parquet-bool", ("a.parquet", PLAIN.astype({"outcome": bool}).to_parquet, {})
    yield "parquet-float", ("a.pq", PLAIN.astype({"outcome": float}).to_parquet, {})
    yield "xlsx", ("a.xlsx", lambda path: _book(path, {"Runs": PLAIN}), {})
    yield "xlsx-words", ("a.xlsx", lambda path: _book(path, {"Runs": words("Pass", "Fail")}), {})
    other = pd.DataFrame({"about": ["judge of March"]})
    yield "xlsx-sheets", ("a.xlsx", lambda path: _book(path, {"Read me": other, "Runs": PLAIN}), {})


def _spaced(path: Path) -> None:
    lines = PLAIN.to_csv(index=False).splitlines()
    path.write_text("\n" + "\n\n".join(lines) + "\n\n", encoding="utf-8")


def _records(path: Path, outcome: Callable[[int], Any]) -> None:
    rows = json.loads(PLAIN.to_json(orient="records"))
    path.write_text(json.dumps([{**row, "outcome": outcome(row["outcome"])} for row in rows]))


def _book(path: Path, sheets: dict[str, pd.DataFrame]) -> None:
    with pd.ExcelWriter(path) as book:
        for name, frame in sheets.items():
            frame.to_excel(book, sheet_name=name, index=False)


WAYS = dict(ways())

SETTLED = {"success": "VALUE", "threshold": "NUMBER"}


def test_there_are_a_hundred_ways() -> None:
    assert len(WAYS) >= 100


@pytest.mark.parametrize("name", WAYS)
def test_a_table_is_read_right_or_refused_with_a_remedy(name: str, tmp_path: Path) -> None:
    file, write, asked = WAYS[name]
    path = tmp_path / file
    write(path)
    if asked:
        told = {"columns": asked["columns"]} if name.startswith("contrary") else {}
        with pytest.raises(TableError) as refused:
            read_score_table(path, **told)
        remedy = asked.get("columns", {})
        options = refused.value.options
        assert options and options.items() <= {**remedy, **SETTLED}.items()
    table = read_score_table(path, **asked)
    assert [task.strip() for task in table.tasks] == TASKS
    scale = np.nanmax(table.scores) / np.nanmax(SCORES)
    assert scale == (100 if name == "hundred" else 1)
    np.testing.assert_array_equal(table.scores, np.array(SCORES) * scale)
    assert table.outcomes is not None and table.outcomes.tolist() == OUTCOMES
    assert table.trajectories is not None and table.trajectories.tolist() == IDS


@pytest.mark.parametrize(
    "name",
    [
        "attack_success", "prompt_injected", "reward_hacking", "cheated", "data_leak",
        "privacy breach", "malicious", "deceptive", "misaligned", "poisoned", "jailbreak", "stuck",
        "gave_up", "needs_human", "handoff", "exploited", "compromised", "biased", "denied",
    ],
)  # fmt: skip
def test_a_name_whose_yes_is_a_failure_is_asked_about(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text(PLAIN.rename(columns={"outcome": name}))(path)
    columns = {"outcome": name}
    with pytest.raises(TableError) as refused:
        read_score_table(path, columns=columns)
    assert refused.value.options == {"success": "VALUE"}
    table = read_score_table(path, columns=columns, settings=TableSettings(success=("1",)))
    assert table.outcomes is not None and table.outcomes.tolist() == OUTCOMES


def test_what_was_understood_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = scores("{:.4f}", comma=True).assign(outcome=words("pass", "fail")["outcome"])
    text(frame.rename(columns={"task_id": "Task ID"}), "cp1252", sep=";")(path)
    assert read_score_table(path).read_as == (
        "Windows-1252 text",
        "semicolons between fields",
        "column 'Task ID' as task_id",
        "scores with decimal commas",
        "outcome: 'pass' as 1 and 'fail' as 0",
    )
    text(PLAIN)(path)
    assert read_score_table(path).read_as == ()
    _book(tmp_path / "a.xlsx", {"Runs": PLAIN})
    assert read_score_table(tmp_path / "a.xlsx").read_as == ("Excel workbook, sheet 'Runs'",)


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
    not_numbers, infinite, outcomes, tasks, ids = refused.value.problems
    assert "row 2 (line 3), column 'score': 'x' is not a number" in not_numbers
    assert not_numbers.endswith(
        "The same holds of row 5 (line 6), row 6 (line 7), row 7 (line 8), row 8 (line 9), "
        "row 9 (line 10), and 3 more."
    )
    assert "row 3 (line 4), column 'score': the score is infinite" in infinite
    assert "row 3 (line 4), column 'outcome': 'odd'" in outcomes
    assert outcomes.endswith("The same holds of row 13 (line 14).")
    assert "row 5 (line 6), column 'task_id' is empty" in tasks
    assert tasks.endswith("The same holds of row 10 (line 11).")
    assert "row 12 (line 13), column 'trajectory_id': 'r0' was already used in row 1" in ids
    assert ids.endswith("Rows that repeat an id: 2.")


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
    path = tmp_path / "a.csv"
    pd.DataFrame({"task_id": ["a", "b", "c"], "score": values}).to_csv(path, index=False)
    with pytest.raises(TableError, match=said):
        read_score_table(path)


@pytest.mark.parametrize("values", [["1.234", "2.500"], ["1.234", "3.5", "2"], ["1.234", ""]])
def test_decimals_that_are_no_thousands(values: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    pd.DataFrame({"task_id": "a", "score": values}).to_csv(path, index=False)
    found = read_score_table(path).scores
    np.testing.assert_array_equal(found, [float(value or "nan") for value in values])


def test_percentages_with_three_decimals_are_no_thousands(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task_id;score\na;24,897 %\nb;62,500 %\n", encoding="utf-8")
    assert read_score_table(path).scores.tolist() == [0.24897, 0.625]


def test_outcomes_that_are_almost_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for value in ("1e-400", "0.9999999999999999999999", "yess"):
        path.write_text(f"task_id,score,outcome\nt,.5,{value}\n", encoding="utf-8")
        with pytest.raises(TableError, match="not an outcome"):
            read_score_table(path)


def test_a_label_that_no_run_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text(words("good", "bad"))(path)
    with pytest.raises(InputError, match="has no 'god', which --set success names"):
        read_score_table(path, settings=TableSettings(success=("god",)))


def test_a_label_next_to_another_word_for_success_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task_id,score,outcome\na,.5,pass\nb,.2,Passed\nc,.1,fail\n", "utf-8")
    with pytest.raises(InputError, match=r"row 2 .*'Passed' means a success as well"):
        read_score_table(path, settings=TableSettings(success=("pass",)))
    # a grade above a pass, and grades that are numbers
    for label in ("good", "2"):
        rows = f"task_id,score,outcome\na,.5,{label}\nb,.2,pass\nc,.1,1\n"
        path.write_text(rows, "utf-8")
        table = read_score_table(path, settings=TableSettings(success=(label,)))
        assert table.outcomes is not None and table.outcomes.tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["rejected", "is_bad", "Hallucinated", "not_ok", "timed-out"])
def test_a_yes_that_may_mean_a_failure_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    PLAIN.rename(columns={"outcome": name}).to_csv(path, index=False)
    columns = {"outcome": name}
    with pytest.raises(TableError, match="can be read in two ways"):
        read_score_table(path, columns=columns)
    table = read_score_table(path, columns=columns, settings=TableSettings(success=("1",)))
    assert table.outcomes is not None and table.outcomes.tolist() == OUTCOMES


@pytest.mark.parametrize("name", ["default", "success_flag", "harmless", "normal", "lossless"])
def test_a_yes_under_any_other_name_is_a_success(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    PLAIN.rename(columns={"outcome": name}).to_csv(path, index=False)
    table = read_score_table(path, columns={"outcome": name})
    assert table.outcomes is not None and table.outcomes.tolist() == OUTCOMES


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


def test_two_sheets_with_the_table_are_refused(tmp_path: Path) -> None:
    _book(tmp_path / "a.xlsx", {"March": PLAIN, "April": PLAIN})
    with pytest.raises(InputError, match="'March', 'April'"):
        read_score_table(tmp_path / "a.xlsx")


def test_percentages_are_read_as_probabilities_where_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text(scores("{:.2f}", 100))(path)
    plain = read_score_table(path)
    assert plain.read_as == (
        "scores up to 93.75 as they are (--score-scale probability takes them for percentages)",
    )
    assert read_score_table(path, score_scale="log-odds").read_as == ()
    probable = read_score_table(path, score_scale="probability")
    np.testing.assert_array_equal(probable.scores, SCORES)
    assert probable.read_as == ("scores in percent, divided by 100",)
    text(PLAIN)(path)
    assert read_score_table(path, score_scale="probability").read_as == ()
    for value in (-0.5, 100.5):
        text(PLAIN.assign(score=[*SCORES[:5], value]))(path)
        with pytest.raises(InputError, match=r"row 6 .*neither a probability nor a percentage"):
            read_score_table(path, score_scale="probability")


def test_labels_of_a_draw_are_read_as_score_tables_are(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    odd = words("good", "bad")[["trajectory_id", "outcome"]]
    text(odd.rename(columns=str.title), sep=";")(path)
    with pytest.raises(TableError) as refused:
        read_labels(path)
    assert refused.value.options == {"success": "VALUE"}
    ids, outcomes, rows = read_labels(path, settings=TableSettings(success=("good",)))
    assert ids.tolist() == IDS and outcomes.tolist() == OUTCOMES
    assert "outcome: 'good' as 1 and 'bad' as 0" in rows.read_as
    text(odd.rename(columns={"trajectory_id": "run", "outcome": "resolved"}))(path)
    with pytest.raises(TableError, match=r"'trajectory_id'.*\n.*'outcome'") as refused:
        read_labels(path)
    assert refused.value.options == {"id": "run", "outcome": "resolved"}
