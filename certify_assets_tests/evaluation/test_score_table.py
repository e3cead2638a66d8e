import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import read_score_table
from certify_assets_tests.builders import score_rows, write_scores

HEADER = "task_id,score,outcome,trajectory_id"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER, "t1,0.5,0.5,a"], ["row 1", "'outcome'"]),
        ([HEADER, "t1,0.5,maybe,a"], ["row 1", "'outcome'", "'maybe'", "--set no_label=maybe"]),
        ([HEADER, "t1,1e999,1,a"], ["row 1", "infinite"]),
        ([HEADER, "t1,1_0,1,a"], ["row 1", "'score'"]),
        (["task_id,outcome", "t1,1"], ["no column 'score'", "task_id, outcome"]),
        (["task_id,score,score", "t,.1,.2"], ["two columns called 'score'"]),
        ([HEADER], ["no rows"]),
        (["task_id,score", "t1,.5,9"], ["row 1 (line 2)", "has 3 fields, its header has 2"]),
        ([HEADER, "t1,.5,1,a", "t1,.5"], ["row 2 (line 3)", "has 2 fields, its header has 4"]),
        ([HEADER, "", "t1,.5,1,a", "   ", "t1,high,1,b"], ["row 2 (line 5)", "'high'"]),
        (["task_id,score,note", 't1,.5,"two', 'lines"', "t1,high,x"], ["row 2 (line 4)", "'high'"]),
        ([HEADER, 't1,.5,1,"a'], ["cannot be read as CSV", "line 2"]),
        (["task_id,score\tscore,outcome", "t1,.5\t.5,1"], ["no column 'score'"]),
        (["task_id,score", "t\0,.5"], ["row 1 (line 2)", "'task_id'", "NUL"]),
        (["", "  "], ["blank lines only"]),
    ],
)
def test_bad_tables_get_one_sentence(tmp_path: Path, lines: list[str], words: list[str]) -> None:
    path = write_scores(tmp_path / "bad.csv", lines)
    with pytest.raises(InputError) as caught:
        read_score_table(path)
    message = str(caught.value)
    assert "bad.csv" in message and "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("empty.csv", b"", "is empty"),
        ("a.csv", b"task_id,score\n\xff\xfe,1\n", "UTF-8"),
        ("a.parquet", b"PAR1 not really", "Parquet"),
        ("a.jsonl", b'{"task_id": "t"\n', "line 1"),
        ("a.jsonl", b"[1, 2]\n", "line 1"),
        (
            "a.jsonl",
            b'{"task_id": "t", "score": ' + b"9" * 5000 + b"}\n",
            "line 1 is not JSON .*integer of 5000 digits",
        ),
        (
            "a.jsonl",
            b'{"task_id": "t", "score": 1, "score": 2}\n',
            "line 1 is not JSON .*the key 'score' twice",
        ),
        ("a.jsonl", b"[" * 200_000, "line 1 is not JSON .*nested too deeply"),
        (
            "a.jsonl",
            b'{"task_id": "\\ud800", "score": 1}\n',
            "row 1, column 'task_id'.*half a character",
        ),
        ("a.jsonl", b"\xff\xfe\n", "UTF-8"),
        ("a.xlsx", b"zip", "cannot be read as an Excel workbook"),
        ("a.arrow", b"ARROW1 not really", "cannot be read as Arrow"),
        ("a.json", b"{}", "not a list of JSON objects"),
        ("a.pickle", b"x", "does not end in"),
    ],
)
def test_unreadable_files_get_one_sentence(
    tmp_path: Path, name: str, content: bytes, word: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=word):
        read_score_table(tmp_path / name)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_score_table(tmp_path / "none.csv")
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(InputError, match="not a file"):
        read_score_table(tmp_path / "dir.csv")


def test_unscored_rows_are_kept_as_nan(tmp_path: Path) -> None:
    table = read_score_table(
        write_scores(tmp_path / "a.csv", [HEADER, "t1,,1,a", "t1,NaN,0,b", "t2,.5,1,c"])
    )
    assert np.isnan(table.scores).tolist() == [True, True, False]


def test_a_missing_outcome_is_refused_only_where_labels_are_needed(tmp_path: Path) -> None:
    table = read_score_table(write_scores(tmp_path / "a.csv", [HEADER, "t1,.1,1,a", "t1,.2,,b"]))
    assert table.outcomes is not None and table.outcomes.tolist() == [1, -1]
    with pytest.raises(InputError, match=r"row 2 \(line 3\) has no outcome"):
        table.labelled()
    bare = read_score_table(write_scores(tmp_path / "b.csv", ["task_id,score", "t1,.1"]))
    with pytest.raises(InputError, match="no outcome column"):
        bare.labelled()


def test_task_labels_are_text_whatever_their_type(tmp_path: Path) -> None:
    for kind in (int, float):
        frame = pd.DataFrame({"task_id": [kind(7), kind(8)], "score": [0.1, 0.2]})
        frame.to_parquet(tmp_path / "a.parquet")
        frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
        for name in ("a.parquet", "a.jsonl"):
            assert read_score_table(tmp_path / name).tasks.tolist() == ["7", "8"]
    leading = read_score_table(write_scores(tmp_path / "a.csv", ["task_id,score", "007,1"]))
    assert leading.tasks.tolist() == ["007"]


def test_splits_are_chosen_by_name(tmp_path: Path) -> None:
    path = write_scores(
        tmp_path / "a.csv", ["task_id,score,outcome,split", "t1,.1,1,cal", "t2,.2,0,test"]
    )
    table = read_score_table(path)
    assert table.choose_split("test").tasks.tolist() == ["t2"]
    with pytest.raises(InputError, match="splits found: cal, test"):
        table.choose_split("train")
    whole = read_score_table(write_scores(tmp_path / "b.csv", ["task_id,score,outcome", "t1,.1,1"]))
    assert whole.choose_split("cal") is whole


@pytest.mark.parametrize("value", [True, [1, 2], {"a": 1}, "x"])
def test_json_values_that_are_no_numbers_are_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps({"task_id": "t", "score": value})] * 2), "utf-8")
    with pytest.raises(InputError, match=r"row 1, column 'score': .* is not a number"):
        read_score_table(path)


@pytest.mark.parametrize("value", [True, ["a"], {"a": 1}])
def test_a_task_that_is_no_name_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"task_id": value, "score": 0.5}), "utf-8")
    pq.write_table(pa.table({"task_id": [value], "score": [0.5]}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        with pytest.raises(InputError, match=r"row 1, column 'task_id': .* is no name but a"):
            read_score_table(tmp_path / name)


def test_parquet_text_that_is_not_utf8_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"t", b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"task_id": broken, "score": [0.5, 0.6]}), tmp_path / "a.parquet")
    with pytest.raises(
        InputError,
        match=r"a\.parquet, row 2, column 'task_id' cannot be read \(its text is not UTF-8\)",
    ):
        read_score_table(tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"task_id": ["a", "b"], "score": [0.5, 0.6], "note": broken}),
        tmp_path / "b.parquet",
    )
    assert len(read_score_table(tmp_path / "b.parquet")) == 2


def test_the_path_adds_no_column_to_a_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "split=cal").mkdir()
    pd.DataFrame({"task_id": ["a"], "score": [0.1]}).to_parquet(
        tmp_path / "split=cal" / "a.parquet"
    )
    assert read_score_table(tmp_path / "split=cal" / "a.parquet").splits is None


def test_blank_lines_and_long_fields_of_a_csv_are_no_rows_and_no_trouble(tmp_path: Path) -> None:
    path = write_scores(
        tmp_path / "a.csv",
        ["", "task_id,score,note", "", f"a,.1,{'x' * 200_000}", "", "b,.2,y", ""],
    )
    table = read_score_table(path)
    assert table.tasks.tolist() == ["a", "b"] and table.rows.name(1) == "row 2 (line 6)"


@pytest.mark.parametrize("names", [{"task": "score"}, {"task": "x", "score": "x", "outcome": "x"}])
def test_one_column_is_not_two_things(tmp_path: Path, names: dict[str, str]) -> None:
    path = write_scores(tmp_path / "a.csv", ["task_id,score,outcome,x", "a,.1,1,1"])
    with pytest.raises(
        InputError, match=r"gives \w+ and .* the column '\w+'. Give each a column of its own"
    ):
        read_score_table(path, columns=names)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("score", [0.1, np.inf, 0.2], "row 2, column 'score': the score is infinite"),
        ("score", [True, False, True], "row 1, column 'score': True is not a number"),
        ("outcome", [1.0, np.nan, 0.5], "row 3, column 'outcome': 0.5 is not an outcome"),
        ("task_id", ["a-long-name", "b", " \t nan \n "], "row 3, column 'task_id' is empty"),
        ("task_id", [1.0, np.nan, 2.0], "row 2, column 'task_id' is empty"),
        ("trajectory_id", ["a", "b", "a"], "row 3, column .*: 'a' was already used in row 1"),
        ("agent", ["a", "b\0", "c"], "row 2, column 'agent'.*NUL"),
    ],
)
def test_a_bad_value_of_a_typed_column_is_named(
    column: str, values: list[object], words: str, tmp_path: Path
) -> None:
    frame = score_rows(tasks=3, attempts=1)
    frame[column] = values
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=words):
        read_score_table(tmp_path / "a.parquet")
