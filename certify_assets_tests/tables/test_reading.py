"""Score tables as people write them: read right, or refused with what would read them right."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from certify_assets.errors import InputError
from certify_assets.tables.cells import TableError
from certify_assets.tables.score_table import ScoreTable, read_labels, read_score_table
from certify_assets.tables.settings import COLUMNS, ReadingOptions, TableSettings, checked_columns
from certify_assets_tests.tables.ways import Way, Write, book, file_of, text, ways, words

# the third run has no score, and no score is whole: a percentage of it has decimals as well
TASKS = ["tür 1", "tür 1", "b-2", "c", "c", "d"]
SCORES = [0.125, 0.9375, np.nan, 0.5625, 0.0625, 0.8125]
OUTCOMES = [0, 1, 1, 0, 1, 0]
IDS = [f"r{place}" for place in range(6)]
PLAIN = pd.DataFrame({"task_id": TASKS, "score": SCORES, "outcome": OUTCOMES, "trajectory_id": IDS})
HEADER = "task_id,score,outcome,trajectory_id"


def scores(form: str, scale: float = 1.0, comma: bool = False) -> pd.DataFrame:
    written = ["" if np.isnan(score) else form.format(score * scale) for score in SCORES]
    return PLAIN.assign(score=[text.replace(".", ",") if comma else text for text in written])


def lines(*rows: str) -> Write:
    return lambda path: path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="")


def cells(column: str, *values: Any, ending: str = "csv") -> tuple[str, Write]:
    """A table in which one column holds these values."""
    size = len(values)
    frame = pd.DataFrame(
        {"task_id": ["a-long-name"] * size, "score": 0.5, "outcome": 1, "trajectory_id": IDS[:size]}
    )
    return f"a.{ending}", file_of(frame.assign(**{column: list(values)}))


def merged(*rows: list[Any]) -> Write:
    """A sheet whose second and third cells of the header are one."""

    def write(path: Path) -> None:
        made = Workbook()
        for row in rows:
            made.worksheets[0].append(row)
        made.worksheets[0].merge_cells("B1:C1")
        made.save(path)

    return write


def raw(data: bytes) -> Write:
    return lambda path: path.write_bytes(data)


WAYS = [
    *ways(PLAIN, "csv jsonl json parquet pq arrow feather xlsx"),
    *(
        Way("a.csv", text(frame, sep=separator))
        for separator in ",;\t|"
        for frame in (PLAIN, scores("{:.4f}", comma=True))
    ),
    Way("a.csv", text(scores("{:.6e}"))),
    Way("a.csv", text(scores("+{:.4f}"))),
    Way("a.csv", text(PLAIN, na_rep="N/A")),
    Way("a.txt", text(PLAIN, lineterminator="\n\n")),
    Way("a.parquet", lambda path: PLAIN.set_index("trajectory_id").to_parquet(path)),
    Way("a.xlsx", book(About=pd.DataFrame({"about": ["judge of March"]}), Runs=PLAIN)),
    *(
        Way("a.csv", text(words(PLAIN, *pair).rename(columns={"outcome": name})), {"outcome": name})
        for name in ("default", "success_flag", "harmless", "normal", "lossless")
        for pair in ((1, 0), ("yes", "no"))
    ),
    *(
        Way("a.csv", text(PLAIN.rename(columns={"outcome": name})), {"outcome": name}, "1")
        for name in (
            "attack_success", "reward_hacking", "privacy breach", "stuck", "needs_human",
            "rejected", "is_bad", "Hallucinated", "not_ok", "timed-out",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_packed_table_is_the_table(tmp_path: Path, ending: str) -> None:
    file_of(PLAIN)(plain := tmp_path / f"a.{ending}")
    packed = tmp_path / f"a.{ending}.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = read_score_table(packed)
    assert table.path == packed and table.labels.tolist() == OUTCOMES
    packed.write_bytes(gzip.compress(plain.read_bytes())[:-9])
    with pytest.raises(InputError, match=r"gz cannot be unpacked"):
        read_score_table(packed)


@pytest.mark.parametrize("way", WAYS)
def test_a_table_is_read_right_or_refused_with_a_remedy(way: Way, tmp_path: Path) -> None:
    way.write(path := tmp_path / way.file)
    fields = {name: field for field, name in COLUMNS.items()}
    columns = {fields[name]: column for name, column in way.columns.items()}
    told: dict[str, Any] = {"columns": columns}
    if "task" in columns:
        with pytest.raises(TableError, match=r"no column 'task_id'.*; its columns are ") as refused:
            read_score_table(path)
        assert refused.value.options == columns
    if way.success:
        with pytest.raises(TableError) as refused:
            read_score_table(path, ReadingOptions(columns))
        options = refused.value.options
        assert options.items() <= {"success": "VALUE", "threshold": "NUMBER"}.items() and options
        if columns:
            assert "can be read in two ways" in str(refused.value)
        told["settings"] = TableSettings(success=(way.success,))
    table = read_score_table(path, ReadingOptions(**told))
    assert [task.strip() for task in table.tasks] == TASKS
    np.testing.assert_array_equal(table.scores, SCORES)
    assert table.labels.tolist() == OUTCOMES
    assert table.trajectories is not None and table.trajectories.tolist() == IDS


def arrow(**columns: Any) -> Write:
    return lambda path: pq.write_table(pa.table(columns), path)


BROKEN = pa.Array.from_buffers(pa.string(), 2, pa.array([b"t", b"\xff\xfe"]).buffers())
NOT_A_NUMBER = "row 1.*, column 'score': .* is not a number. Give"
TWO_SHEETS = "the table in several sheets \\('March', 'April'\\); keep one"
#: a table, and what is said of it: what is wrong, where, what to do
REFUSED: list[tuple[tuple[str, Write], str]] = [
    (cells("outcome", 0.5), r"row 1 \(line 2\), column 'outcome': '0.5' is not an outcome"),
    (cells("outcome", "maybe"), "'maybe' is not an outcome. .* --set no_label=maybe"),
    *((cells("outcome", value), "row 1 .*not an outcome")
      for value in ("1e-400", "0.9999999999999999999999", "yess")),
    (cells("outcome", 1.0, np.nan, 0.5, ending="parquet"), "row 3, column 'outcome': 0.5 is not"),
    (cells("score", "1e999"), "row 1 .*the score is infinite. Give a finite number"),
    (cells("score", 0.1, np.inf, ending="parquet"), "row 2, column 'score': the score is infinite"),
    *((cells("score", value), NOT_A_NUMBER) for value in ("1_0", "high", "1/2", "0x1f", "1 2")),
    *((cells("score", *values), NOT_A_NUMBER) for values in (
        ("50%", "40%"), ("0,5", "0.5", "0,25"), ("1.234,5", "0,5", "1"))),
    *((cells("score", value, value, ending="jsonl"), NOT_A_NUMBER)
      for value in (True, [1, 2], {"a": 1}, "x")),
    (cells("score", True, False, ending="parquet"), "column 'score': True is not a number"),
    (cells("score", "50%", 7, ending="jsonl"), NOT_A_NUMBER),
    # a thousand, or one and a bit
    (cells("score", "1,234", "2,500"), "'1,234' may be a thousand or a decimal. Write every"),
    (cells("score", "1.234", "987", "2.100"), "'1.234' may be a thousand or a decimal. Write ev"),
    *((cells("task_id", value, ending=ending), "row 1, column 'task_id': .* is a \\w+, not a name.")
      for value in (True, ["a"], {"a": 1}) for ending in ("jsonl", "parquet")),
    *((cells("task_id", *values, ending="parquet"), "row 2, column 'task_id' is empty. Every")
      for values in ((1.0, np.nan, 2.0), ("a-long-name", " \t nan \n "), ("b", "<NA>"))),
    (cells("trajectory_id", "r", "r\u200b"), "two spellings. .* or give each run its own id"),
    (cells("trajectory_id", "a", "b", "a"), "row 3.* 'a' was already used in row 1.*. Give every"),
    (cells("agent", "a", "b\0", ending="parquet"), "row 2, column 'agent'.* holds a NUL or half"),
    (("a.csv", lines(HEADER, "t\0,.5,1,a")), r"row 1 \(line 2\), column 'task_id': .*NUL"),
    (("a.jsonl", lines(r'{"task_id": "\ud800", "score": 1}')), "row 1, .* half a character. Corr"),
    # rows and headers
    (("a.csv", lines("task_id,score", "t,.5,9")), r"row 1 \(line 2\) .* 3 cells, the header has 2"),
    (("a.csv", lines(HEADER, "t,.5,1,a", "t,.5")), r"row 2 \(line 3\) .* 2 cells.*; save"),
    (("a.csv", lines(HEADER, "", "t,.5,1,a", "   ", "t,high,1,b")), r"row 2 \(line 5\).*'high'"),
    (("a.csv", lines("task_id,score,n", 't,.5,"two', 'lines"', "t,x,y")), r"row 2 \(line 4\).*'x'"),
    (("a.csv", lines(HEADER, 't,.5,1,"a')), "line 2. cannot be read: it is not CSV .*; save it"),
    (("a.csv", lines(HEADER, 't,.5,1,"a"b')), "line 2. cannot be read: it is not CSV"),
    (("a.csv", lines("task_id,outcome", "t,1")), "no column 'score'; its columns are task_id, out"),
    (("a.csv", lines("task_id,score\tscore,outcome", "t,.5\t.5,1")), "no column 'score'"),
    (("a.csv", lines("task_id,score,score", "t,.1,.2")), "two columns called 'score'; keep one"),
    (("a.csv", lines("task_id,score,Score", "t,.1,.2")), "2 columns for score: 'score', 'Score'."),
    (("a.csv", lines("task_id,score,Group,GROUP", "t,.1,a,b")), "2 columns for group: 'Group', 'G"),
    (("a.jsonl", lines('{"task_id": "t", "score": 1, "outcome": 1, "Outcome": 0}')),
     "2 columns for outcome: 'outcome', 'Outcome'. Keep one of them"),
    (("a.csv", lines("t\0ask_id,score", "t,.1")), "no column 'task_id'"),
    (("a.csv", lines("task_id;x|score", "t;1|2")), "no column 'score'"),
    (("a.csv", lines("All runs,,,", HEADER, "t,.5,1,a")),
     "or 'outcome'; its columns are All runs. Delete the lines above"),
    (("a.csv", lines(",value", "0,.5")), "'task_id' or 'score' or 'outcome'; its columns are value. Rename yours"),
    (("a.csv", lines("task_id,p,,", "t,.5,,")), "'score' or 'outcome'; its columns are task_id, p. Rename yours,"),
    (("a.csv", lines(HEADER, "t,.5,1,a", "Total,.5,17,")), r"row 2 \(line 3\)"),
    (("a.csv", lines(HEADER)), "a header but no rows; write one row"),
    (("a.csv", lines("", "  ")), "blank lines only; write a header"),
    *(((f"a.{ending}", raw(b"")), "is empty") for ending in ("csv", "jsonl", "parquet", "xlsx")),
    # files
    (("a.csv", raw(b"task_id,score\n\xff\xfe,1\n")), r"row 1 \(line 2\) .*not UTF-8; save it as CSV"),
    (("a.csv", text(PLAIN, "cp1252")), "not UTF-8; save it as CSV in UTF-8"),
    (("a.csv", raw(b"\xff\xfet\x00a")), "is not UTF-16 text"),
    (("a.jsonl", raw(b"\xff\xfe\n")), "is not UTF-8 text; save it"),
    (("a.parquet", raw(b"PAR1 not really")), "cannot be read as Parquet .*; write the table again"),
    (("a.arrow", raw(b"ARROW1 not really")), "cannot be read as Arrow"),
    (("a.xlsx", raw(b"zip")), "cannot be read as an Excel workbook .*; save the sheet as CSV"),
    (("a.jsonl", lines('{"task_id": "t"')), "line 1 is not a JSON object"),
    (("a.jsonl", lines("[1, 2]")), "line 1 is not a JSON object. Write one object a line"),
    (("a.jsonl", lines(f'{{"score": {"9" * 5000}}}')), "line 1 .*integer of 5000 digits"),
    (("a.jsonl", lines('{"score": 1, "score": 2}')), "line 1 .*the key 'score' twice"),
    (("a.jsonl", lines("[" * 200_000)), "is not a JSON object .*nested too deeply"),
    (("a.json", lines("{}")), "no column 'task_id'"),
    (("a.pickle", lines("x")), "does not end in .csv, .*; save"),
    (("a.csv", Path.mkdir), "is a folder; name a file"),
    (("a.csv", lambda _: None), "does not exist"),
    (("a.parquet", arrow(task_id=BROKEN, score=[1, 2])),
     r"cannot be read as Parquet .*; write the table again"),
    # workbooks
    (("a.xlsx", book(March=PLAIN, April=PLAIN)), TWO_SHEETS),
    (("a.xlsx", book(Runs=PLAIN.head(0))), "a header but no rows"),
    *((cells(column, "=1", "=2", ending="xlsx"), f"line 2, column '{column}': the formula has no v")
      for column in ("task_id", "score", "outcome")),
    (("a.xlsx", merged(["task_id", "score"], ["t", 0.1, 0.2])),
     "the name 'score' is merged over two columns with values. Give each"),
    *((cells(column, pd.Timestamp("2026-03-01"), ending="xlsx"), "is a datetime, not a name. Give")
      for column in ("task_id", "trajectory_id")),
    (cells("score", "#N/A", 1, ending="xlsx"), "column 'score': '#N/A' is not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_a_table_that_can_be_misread_is_refused(
    given: tuple[str, Write], said: str, tmp_path: Path
) -> None:
    file, write = given
    write(tmp_path / file)
    with pytest.raises(InputError, match=said) as refused:
        read_score_table(tmp_path / file)
    assert file in str(refused.value)


@pytest.mark.parametrize(
    ("given", "column", "expected"),
    [
        (cells("score", "1.234", "2.500"), "scores", [1.234, 2.5]),
        (cells("score", "1.234", ""), "scores", [1.234, np.nan]),
        (cells("score", 1, None, 0.5, ending="jsonl"), "scores", [1, np.nan, 0.5]),
        (cells("score", ".1", "n/a", "NaN"), "scores", [0.1, np.nan, np.nan]),
        (cells("outcome", 1, "", "n/a"), "outcomes", [1, -1, -1]),
        (cells("task_id", "007", "7a"), "tasks", ["007", "7a"]),
        *(
            (cells("task_id", kind(7), kind(8), ending=ending), "tasks", ["7", "8"])
            for kind in (int, float)
            for ending in ("jsonl", "parquet", "xlsx")
        ),
        (cells("agent", "a", None, ending="parquet"), "agents", ["a", ""]),
        (
            cells("task_id", pd.Timestamp("2026-03-01"), ending="parquet"),
            "tasks",
            ["2026-03-01 00:00:00"],
        ),
        (("a.csv", lines("task_id,score,Note,note", "a,.1,x,y")), "scores", [0.1]),
        (("a.xlsx", merged(["task_id", "score"], ["a", 0.1])), "scores", [0.1]),
        (("a.xlsx", merged(["score", "task_id"], [0.1, "a"])), "scores", [0.1]),
        # what the path says is no column
        (("split=cal.parquet", file_of(PLAIN)), "splits", None),
        (
            ("a.csv", lines("", "task_id,score,note", "", f"a,.1,{'x' * 200_000}", "b,.2,y", "")),
            "tasks",
            ["a", "b"],
        ),
        (
            (
                "a.parquet",
                arrow(task_id=["a", "b"], score=[1, 2], note=BROKEN),
            ),
            "tasks",
            ["a", "b"],
        ),
    ],
)
def test_a_value_is_read_as_it_is_meant(
    given: tuple[str, Write], column: str, expected: list[Any] | None, tmp_path: Path
) -> None:
    file, write = given
    write(tmp_path / file)
    found = getattr(read_score_table(tmp_path / file), column)
    np.testing.assert_array_equal(found, expected)


def test_of_two_columns_alike_one_can_be_named(tmp_path: Path) -> None:
    lines("task_id,score,Score", "t,.1,.2")(path := tmp_path / "a.csv")
    found = read_score_table(path, ReadingOptions({"score": "Score"}))
    assert found.scores.tolist() == [0.2]


def test_what_was_understood_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    frame = words(scores("{:.4f}", comma=True), "pass", "fail")
    text(frame.rename(columns={"task_id": "Task ID"}), sep=";")(path)
    assert read_score_table(path).read_as == (
        "semicolons between fields",
        "column 'Task ID' as task_id",
        "scores with decimal commas",
        "outcome counts 'pass' as 1 and 'fail' as 0",
    )
    text(PLAIN)(path)
    assert read_score_table(path).read_as == ()
    book(Runs=PLAIN)(path := tmp_path / "a.xlsx")
    assert read_score_table(path).read_as == ("Excel workbook, sheet 'Runs'",)


def test_every_fault_of_a_table_is_named_at_once(tmp_path: Path) -> None:
    given = [(".5", "1"), ("x", "1"), ("inf", "odd"), (".5", "0"), *[("y", "0")] * 8, (".5", "no!")]
    rows = ["instance,task_id,score,outcome,trajectory_id"]
    for number, (score, end) in enumerate(given):
        rows.append(f"i,{'' if number in (4, 9) else 't'},{score},{end},r{number % 11}")
    lines(*rows)(path := tmp_path / "a.csv")
    expected = [
        ("row 2 (line 3), column 'score': 'x' is not a number", " 9 rows have such a cell."),
        ("row 3 (line 4), column 'outcome': 'odd'", " 2 rows have such a cell."),
        ("row 5 (line 6), column 'task_id' is empty", " 2 rows have such a cell."),
        ("row 12 (line 13), column 'trajectory_id': 'r0' was", " 2 rows have such a cell."),
    ]
    with pytest.raises(TableError) as refused:
        read_score_table(path)
    for problem, (first, rest) in zip(refused.value.problems, expected, strict=True):
        assert first in problem and problem.endswith(rest)
    with pytest.raises(TableError, match=r"no column 'model'.*\n.*'x' is not a number"):
        read_score_table(path, ReadingOptions({"agent": "model"}))


def test_a_label_next_to_another_word_for_success_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def read(success: str, *outcomes: Any) -> list[int]:
        text(PLAIN.head(3).assign(outcome=outcomes))(path)
        settings = TableSettings(success=(success,))
        return [*read_score_table(path, ReadingOptions(settings=settings)).labels]

    with pytest.raises(InputError, match=r"row 2 .*'Passed' means a success as well"):
        read("pass", "pass", "Passed", "fail")
    # a grade above a pass, and grades that are numbers
    assert [read(label, label, "pass", 1) for label in ("good", "2")] == [[1, 0, 0], [1, 0, 0]]


def test_percentages_are_probabilities_where_that_is_said(tmp_path: Path) -> None:
    def read(frame: pd.DataFrame, scale: str | None = None) -> ScoreTable:
        text(frame)(path := tmp_path / "a.csv")
        return read_score_table(path, ReadingOptions(score_scale=scale))

    percent = scores("{:.2f}", 100)
    np.testing.assert_array_equal(read(percent).scores, np.array(SCORES) * 100)
    assert read(percent).read_as == (
        "scores up to 93.75 as they are (--set score_scale=probability takes them for percentages)",
    )
    assert read(percent, "log-odds").read_as == () == read(PLAIN, "probability").read_as
    probable = read(percent, "probability")
    np.testing.assert_array_equal(probable.scores, SCORES)
    assert probable.read_as == ("scores in percent, divided by 100",)
    for value in (-0.5, 100.5):
        with pytest.raises(InputError, match=r"row 6 .*neither a probability nor a percentage"):
            read(PLAIN.assign(score=[*SCORES[:5], value]), "probability")


def test_labels_of_a_draw_are_read_as_score_tables_are(tmp_path: Path) -> None:
    odd = words(PLAIN, "good", "bad")[["trajectory_id", "outcome"]]
    text(odd.rename(columns=str.title), sep=";")(path := tmp_path / "labels.csv")
    with pytest.raises(TableError) as refused:
        read_labels(path)
    assert refused.value.options == {"success": "VALUE"}
    good = ReadingOptions(settings=TableSettings(success=("good",)))
    found = read_labels(path, good)
    assert found.ids.tolist() == IDS and found.outcomes.tolist() == OUTCOMES
    assert "outcome counts 'good' as 1 and 'bad' as 0" in found.table.read_as
    # of columns that are called otherwise those that alone can be meant are read
    text(odd.rename(columns={"trajectory_id": "run", "outcome": "resolved"}))(path)
    found = read_labels(path, good)
    assert found.ids.tolist() == IDS and found.outcomes.tolist() == OUTCOMES
    assert {"column 'run' as trajectory_id", "column 'resolved' as outcome"} <= set(
        found.table.read_as
    )
    named = replace(good, columns={"id": "id of the score table"})
    assert read_labels(path, named).ids.tolist() == IDS


def test_outcomes_and_splits_are_refused_where_they_are_needed(tmp_path: Path) -> None:
    lines("task_id,score,outcome,split", "t,.1,1,cal", "t2,.2,,test")(path := tmp_path / "a.csv")
    table = read_score_table(path)
    with pytest.raises(InputError, match=r"row 2 \(line 3\) has no outcome"):
        table.labelled()
    assert table.choose_split("test").tasks.tolist() == ["t2"]
    with pytest.raises(InputError, match=r"splits found: cal, test. Give a table that has it"):
        table.choose_split("train")
    lines("task_id,score", "t1,.1")(path)
    bare = read_score_table(path)
    assert bare.choose_split("cal") is bare
    with pytest.raises(InputError, match=r"no outcome column.* --columns outcome=NAME"):
        bare.labelled()


@pytest.mark.parametrize("names", [{"task": "score"}, {"task": "x", "score": "x", "outcome": "x"}])
def test_one_column_is_not_two_things(names: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"gives \w+ and \w+ the column '\w+'. Give each a col"):
        checked_columns(names.items())
