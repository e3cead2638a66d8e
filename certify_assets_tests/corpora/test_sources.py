import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.imported import import_sha256
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import parquet_bytes
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import corpus, from_frame, reader, write_lines
from certify_assets_tests.paths import shared_data

TABLE = "task_id,outcome,text,agent\na,1,went well,x\na,0,went badly,y\nb,1,fine,x\n"

read = reader()


def test_a_csv_of_texts(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(TABLE, "utf-8")
    imported = read(tmp_path / "runs.csv")
    rows = from_frame(imported.frame)
    assert imported.format == "table" and imported.dropped == {}
    found = [(row.task_id, row.agent, row.attempt, row.outcome) for row in rows]
    assert found == [("a", "x", 0, 1), ("a", "y", 0, 0), ("b", "x", 0, 1)]
    assert rows[0].steps == (Step("", "went well"),) and rows[0].trajectory_id == "a/x/0"
    assert {row.source_file for row in rows} == {"runs.csv"}
    assert {row.source_sha256 for row in rows} == set(imported.files.values())


def test_json_lines_and_parquet_with_steps_hold_the_same(tmp_path: Path) -> None:
    records = [
        {
            "task_id": number // 2,
            "outcome": number % 2,
            "trajectory_id": f"r{number}",
            "attempt": number,
            "steps": [
                {"action": "go", "observation": f"page {number}"},
                {"action": "stop", "observation": None},
            ],
        }
        for number in range(4)
    ]
    as_text = [record | {"steps": json.dumps(record["steps"])} for record in records]
    write_lines(tmp_path / "runs.jsonl", records)
    for name, rows in (("runs", records), ("text", as_text)):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    lines, parquet, text = (
        read(tmp_path / name).frame.drop(columns=["source_file", "source_sha256"])
        for name in ("runs.jsonl", "runs.parquet", "text.parquet")
    )
    assert lines.equals(parquet) and lines.equals(text)
    assert lines["task_id"].tolist() == ["0", "0", "1", "1"]
    assert from_frame(parquet.assign(source_file="", source_sha256="0" * 64))[0].steps == (
        Step("go", "page 0"),
        Step("stop", ""),
    )


def test_a_corpus_of_ours_is_a_table(tmp_path: Path) -> None:
    frame = corpus(tasks=4)
    (tmp_path / "own.parquet").write_bytes(parquet_bytes(frame))
    again = read(tmp_path / "own.parquet").frame
    assert again["trajectory_id"].tolist() == frame["trajectory_id"].tolist()
    assert again["steps"].tolist() == frame["steps"].tolist()


def test_columns_of_other_names(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("problem,solved,log\np,true,a\nq,false,b\n", "utf-8")
    table = reader("table")
    mapping = {"task_id": "problem", "outcome": "solved", "text": "log"}
    frame = table(path, columns=mapping, agent="gpt").frame
    assert frame["outcome"].tolist() == [1, 0] and frame["agent"].tolist() == ["gpt", "gpt"]
    asked = (
        r"runs\.csv has no column 'task_id', no column 'outcome', .* \(its columns are log, "
        r"problem, solved\); .* --option 'columns=\{\"task_id\": \"problem\", \"outcome\": "
        r"\"solved\", \"text\": \"log\"\}'"
    )
    for columns, words in (
        ({}, asked),
        (
            {"task_id": "problem", "outcome": "solved"},
            "no column 'steps', no column 'messages' and no",
        ),
        ({"reward": "solved"}, "names 'reward'"),
    ):
        with pytest.raises(InputError, match=words):
            table(path, columns=columns)


@pytest.mark.parametrize(
    ("row", "reason", "words"),
    [
        (",1,x,y", "unreadable_record", "no task_id"),
        ("a,1,x", "unreadable_record", "3 cells, the header has 4"),
        ('a,1,"x" y,z', "unreadable_record", "not CSV"),
    ],
)
def test_a_broken_row_costs_that_row(tmp_path: Path, row: str, reason: str, words: str) -> None:
    (tmp_path / "runs.csv").write_text(TABLE + row + "\n" + "c,0,x,y\n", "utf-8")
    imported = read(tmp_path / "runs.csv")
    assert len(imported.frame) == 4 and imported.dropped == {reason: 1}
    assert "runs.csv row 5" in imported.examples[reason] and words in imported.examples[reason]


@pytest.mark.parametrize("steps", ["{", '"go"', '[["a"]]', '[{"act": "x"}]', '[["a", 3]]'])
def test_steps_that_are_none_cost_their_row(tmp_path: Path, steps: str) -> None:
    rows = [{"task_id": "a", "outcome": 1, "steps": value} for value in ([["go", "page"]], steps)]
    imported = read(write_lines(tmp_path / "runs.jsonl", rows))
    assert len(imported.frame) == 1 and imported.dropped == {"unreadable_record": 1}
    assert "step" in imported.examples["unreadable_record"]


def test_ids_of_a_table(tmp_path: Path) -> None:
    header = "task_id,outcome,text,trajectory_id\n"
    (tmp_path / "a.csv").write_text(header + "t,1,x,r1\nt,1,x,r2\n", "utf-8")
    (tmp_path / "b.csv").write_text(header + "t,1,x,r1\n", "utf-8")
    imported = read([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert imported.frame["trajectory_id"].tolist() == ["r1", "r2"]
    assert imported.dropped == {"duplicate": 1}
    (tmp_path / "b.csv").write_text(header + "t,0,y,r1\n", "utf-8")
    with pytest.raises(
        InputError, match=r"b\.csv row 2 has the trajectory_id 'r1' of a\.csv row 2"
    ):
        read([tmp_path / "a.csv", tmp_path / "b.csv"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("runs.csv", b"task,text\na,x\n", "runs.csv has no column 'task_id'"),
        ("runs.csv", b"", "runs.csv holds no table (it is empty"),
        (
            "runs.csv",
            b"task_id,outcome,text\n",
            "runs.csv holds no table (it is empty, or has no row)",
        ),
        ("runs.csv", b"task_id,outcome,text,text\n", "two columns called 'text'"),
        ("runs.jsonl", b'{"task_id": "a"', "row 1 cannot be used: it is not JSON"),
        ("runs.jsonl", '{"task_id": "a"}'.encode("utf-16"), "is in UTF-16; save it as UTF-8."),
        ("runs.parquet", b"PAR1", "not a Parquet file"),
        ("runs.tar.gz", b"", "runs.tar.gz is broken"),
        ("runs.docx", b"x", "runs.docx has the suffix .docx, which this format does not use."),
    ],
)
def test_a_file_that_is_no_table_is_diagnosed(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="no known format fits") as caught:
        read(tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"paths": "none.csv"}, "does not exist"),
        ({"name": " "}, "no name"),
        ({"format": "xml"}, "no format 'xml'"),
        ({"options": {"domian": "retail"}}, "no option 'domian'"),
        ({"options": {"drop_copies": "perhaps"}}, "give true or false"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    (tmp_path / "runs.csv").write_text(TABLE, "utf-8")
    with pytest.raises(InputError, match=words):
        import_corpus(**({"paths": tmp_path, "name": "c"} | arguments))


def test_links_in_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "runs.csv").write_text(TABLE, "utf-8")
    (tmp_path / "secret.csv").write_text(TABLE, "utf-8")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "in" / "loop").symlink_to(tmp_path, target_is_directory=True)
    imported = read(tmp_path / "in")
    assert list(imported.files) == ["in/runs.csv"] and imported.dropped == {"file_not_regular": 2}


def test_an_import_does_not_depend_on_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "runs" / ".git").mkdir(parents=True)
        (tmp_path / place / "runs" / "runs.csv").write_text(TABLE, "utf-8")
        (tmp_path / place / "runs" / ".git" / "index.csv").write_text(place, "utf-8")
    imported = read(tmp_path / "here" / "runs")
    assert list(imported.files) == ["runs/runs.csv"] and imported.dropped == {"file_hidden": 1}
    assert imported.examples["file_hidden"].startswith("runs/.git is a hidden folder")
    monkeypatch.chdir(tmp_path / "here")
    places = ("runs", "./runs", str(tmp_path / "here" / "runs"), str(tmp_path / "there" / "runs"))
    assert len({import_sha256([place], "auto", {}) for place in places} - {""}) == 1
    one = import_sha256(["runs"], "auto", {})
    (tmp_path / "here" / "runs" / "runs.csv").write_text(TABLE + "z,1,x,y\n", "utf-8")
    assert import_sha256(["runs"], "auto", {}) != one


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one, two = (tmp_path / folder / "runs.csv" for folder in ("one", "two"))
    for path in (one, two):
        path.parent.mkdir()
        path.write_text(TABLE + f"{path.parent.name},1,x,y\n", "utf-8")
    assert sorted(read([two, one, one]).files) == ["one/runs.csv", "two/runs.csv"]


@pytest.mark.slow
def test_the_published_retail_runs() -> None:
    imported = read(sorted(shared_data("taubench_retail").glob("*.tar.gz")))
    frame = imported.frame
    assert (len(frame), frame["task_id"].nunique(), imported.format) == (1284, 115, "taubench_v1")
    assert imported.dropped == {"duplicate": 200, "infrastructure_error": 51}
    profile = profile_corpus(frame)
    assert round(profile.success_rate, 3) == 0.725 and profile.attempts == (8, 12)
    assert profile.icc == pytest.approx(0.118, abs=0.001)
    assert profile.n_eff == pytest.approx(579.3, abs=0.1)
    assert profile.same_instruction == (("retail/93", "retail/95"),)
    assert frame["agent"].nunique() == 12 and frame["task_id"].str.startswith("retail/").all()
