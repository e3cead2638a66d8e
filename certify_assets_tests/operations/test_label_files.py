from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.label_files import (
    Imported,
    export_queue,
    export_studio,
    import_labels,
)
from certify_assets.operations.labels import resolve_labels
from certify_assets.storage.store import Store
from certify_assets.tables.cells import TableError
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.writing import write_table_file
from certify_assets_tests.review_builders import labels_of, queue_of, session_batch


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "root"))
    session_batch(made)
    return made


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def imported(store: Store, path: Path, **more: Any) -> Imported:
    return import_labels(Corpus(store, "c"), path, **more)


def votes(store: Store) -> dict[str, dict[str, int]]:
    return {name: dict(one.votes) for name, one in resolve_labels(labels_of(store)).items()}


def test_an_exported_queue_filled_in_comes_back_as_labels(store: Store, tmp_path: Path) -> None:
    path, filled = tmp_path / "queue.csv", tmp_path / "filled.csv"
    export_queue(path, Corpus(store, "c"), queue_of(store))
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    text = (tmp_path / frame["run"].iloc[0]).read_text("utf-8")
    assert text.startswith("TASK\n  Do audit-0\n") and "agent-a" not in text
    frame.loc[[0, 2], "outcome"] = ["1", "failure"]
    frame.loc[2, ["reviewer", "comment"]] = ["Bob", "it stopped early"]
    frame.to_csv(filled, index=False)
    done = imported(store, filled, reviewer="Ann")
    assert (done.added, done.without_outcome) == (2, len(frame) - 2)
    assert done.reviewers == ("Ann", "Bob")
    first, third = frame["trajectory_id"].iloc[[0, 2]]
    assert votes(store) == {first: {"Ann": 1}, third: {"Bob": 0}}
    assert labels_of(store)[1].comment == "it stopped early"
    again = imported(store, filled, reviewer="Ann")
    assert (again.added, again.stood_already) == (0, 2) and len(labels_of(store)) == 2
    assert len(queue_of(store).frame) == len(frame) - 2
    export_queue(path.with_suffix(".jsonl"), Corpus(store, "c"), queue_of(store))
    assert all((tmp_path / file).exists() for file in frame["run"]), "texts of another file"
    # texts of runs that wait no more go, and nothing else
    (notes := tmp_path / "queue.csv_runs" / "notes.txt").write_text("mine", "utf-8")
    export_queue(path, Corpus(store, "c"), queue_of(store))
    texts = {tmp_path / file for file in pd.read_csv(path)["run"]}
    assert {*notes.parent.iterdir()} == {notes, *texts} and len(texts) == len(frame) - 2


def test_an_export_does_not_write_over_labels(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for _ in range(2):
        export_queue(path, Corpus(store, "c"), queue_of(store))
    filled = pd.DataFrame({"trajectory_id": ["open-0/0", "open-1/0"], "outcome": ["1", ""]})
    write_table_file(path, filled)
    with pytest.raises(InputError, match=r"a\.csv holds 1 label\. Name another file"):
        export_queue(path, Corpus(store, "c"), queue_of(store))
    # a spreadsheet's é, and a comment with a comma: unreadable, but not empty
    for unreadable in ("outcome,comment\n1,caf\xe9\n", "outcome,comment\n1,slow, but right\n"):
        path.write_bytes(unreadable.encode("latin-1"))
        with pytest.raises(InputError, match=r"may hold labels\. Name another file"):
            export_queue(path, Corpus(store, "c"), queue_of(store))
        assert path.read_bytes() == unreadable.encode("latin-1")


def test_one_file_is_not_two_peoples_labels(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "trajectory_id,outcome", "open-0/0,1")
    imported(store, path, reviewer="ann")
    with pytest.raises(
        InputError,
        match=r"was imported before as the labels of ann\. It cannot be imported as the labels of bob too",
    ):
        imported(store, path, reviewer="bob")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            ["open-1/0,2,ann"],
            r"row 2 \(line 3\), column outcome: '2' is not an outcome. Write 1 or success",
        ),
        (
            ["open-9/9,1,ann"],
            r"row 2 \(line 3\), column trajectory_id: 'open-9/9' is in no decided batch",
        ),
        ([",1,ann"], "column trajectory_id is empty. Name the labelled run"),
        (
            ["open-1/0,1,"],
            "column reviewer is empty. Fill it in, or name the reviewer with --reviewer NAME",
        ),
        (
            ["open-1/0,1,", "open-2/0,1,"],
            r"row 2 \(line 3\), column reviewer is empty.*NAME\. The same in 1 other row\.",
        ),
        (
            ["open-0/0,0,Ann"],
            r"Ann labels 'open-0/0' a second time \(first in row 1 \(line 2\)\)"
            r"|ann labels 'open-0/0' a second time",
        ),
        (["open-1/0,1,an\u202en"], "column reviewer: the reviewer's name .* unreadable"),
    ],
)
def test_a_row_at_fault_is_named_and_nothing_is_imported(
    store: Store, tmp_path: Path, rows: list[str], words: str
) -> None:
    path = write(tmp_path / "a.csv", "trajectory_id,outcome,reviewer", "open-0/0,1,ann", *rows)
    with pytest.raises(InputError, match=words) as refused:
        imported(store, path)
    assert str(path) in str(refused.value) and labels_of(store) == []


@pytest.mark.parametrize(
    ("comment", "words"), [("a\0b", r"U\+0000"), ("a\ud800b", "half a character")]
)
def test_a_comment_that_cannot_be_stored_is_refused_by_its_row(
    store: Store, tmp_path: Path, comment: str, words: str
) -> None:
    rows = [
        {"trajectory_id": f"open-{n}/0", "outcome": 1, "comment": text}
        for n, text in enumerate(("good", comment))
    ]
    path = write(tmp_path / "a.jsonl", *map(json.dumps, rows))
    with pytest.raises(InputError, match=rf"a\.jsonl, row 2.*, column comment: .*{words}"):
        imported(store, path, reviewer="ann")
    assert labels_of(store) == []


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.docx", "x", "does not end in .csv, .tsv, .parquet, .jsonl, .json"),
        ("a.csv", "task_id,outcome\na,1", "has no column 'trajectory_id'"),
        ("a.csv", "trajectory_id,outcome", "holds nothing to import"),
        ("a.json", "[]", "holds nothing to import"),
        ("a.json", "{", "is not a JSON document"),
        ("a.json", '[{"trajectory_id": "a", "outcome": "success"}]', "not as JSON-MIN"),
        (
            "a.json",
            '[{"data": {}, "annotations": 3}]',
            "task 1 is not from an export of Label Studio",
        ),
    ],
)
def test_a_file_of_another_kind_is_refused(
    store: Store, tmp_path: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        imported(store, write(tmp_path / name, text), reviewer="ann")
    with pytest.raises(InputError, match="does not exist"):
        imported(store, tmp_path / "nothing.csv", reviewer="ann")


def test_every_mistyped_word_is_named_with_its_row(store: Store, tmp_path: Path) -> None:
    rows = [f"open-{n}/0,{word}" for n, word in enumerate(("failure", "sucess", "maybe"))]
    path = write(tmp_path / "a.csv", "trajectory_id,outcome", *rows)
    with pytest.raises(TableError) as refused:
        imported(store, path, reviewer="ann")
    second, third = refused.value.problems
    assert "row 2 (line 3), column outcome: 'sucess' is not an outcome. Write 1 or" in second
    assert "row 3 (line 4), column outcome: 'maybe' is not an outcome. Write 1 or" in third
    assert refused.value.options == {}


def test_a_table_in_other_words_is_read_and_says_how(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Trajectory ID;Outcome", "open-0/0;good", "open-1/0;bad")
    with pytest.raises(TableError) as refused:
        imported(store, path)
    # the label that is unknown and the reviewer that is missing, each once
    assert "'bad', 'good'" in str(refused.value)
    assert refused.value.options == {"success": "VALUE"}
    done = imported(store, path, reviewer="ann", settings=TableSettings(success=("good",)))
    assert done.read_as == (
        "semicolons between fields",
        "column 'Outcome' as outcome",
        "column 'Trajectory ID' as trajectory_id",
        "outcome counts 'good' as 1 and 'bad' as 0",
    )
    assert votes(store) == {"open-0/0": {"ann": 1}, "open-1/0": {"ann": 0}}
    with pytest.raises(InputError, match="has no 'god', which --set success names"):
        imported(store, path, reviewer="ann", settings=TableSettings(success=("god",)))


def answered(name: str, kind: str, **value: list[str]) -> dict[str, Any]:
    return {"from_name": name, "to_name": "run", "type": kind, "value": value}


def annotation(choice: str | None, who: Any, comment: str = "") -> dict[str, Any]:
    result = [answered("outcome", "choices", choices=[choice])] if choice else []
    if comment:
        result.append(answered("comment", "textarea", text=[comment]))
    return {"id": 7, "completed_by": who, "was_cancelled": choice is None, "result": result}


def test_tasks_for_label_studio_come_back_as_its_export(store: Store, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    export_studio(tasks, Corpus(store, "c"), queue_of(store))
    made = json.loads(tasks.read_text(encoding="utf-8"))
    assert [set(task["data"]) for task in made] == [
        {"trajectory_id", "task_id", "batch", "run"}
    ] * 9
    assert made[0]["data"]["run"].startswith(
        "TASK\n  Do audit-0\nSTEP 1\nACTION\n  click('the button')"
    )
    assert "agent-a" not in tasks.read_text(encoding="utf-8")
    ann, bob = {"id": 1, "email": "ann@example.org"}, 2
    made[0]["annotations"] = [annotation("success", ann, "as asked"), annotation("failure", bob)]
    made[1]["annotations"] = [annotation("failure", ann), annotation(None, bob)]
    export = write(tmp_path / "export.json", json.dumps(made))
    done = imported(store, export)
    assert (done.added, done.without_outcome, done.reviewers) == (
        3,
        1,
        ("Label Studio user 2", "ann@example.org"),
    )
    assert done.waiting == ("Tied now: 1 labelled run. A third reviewer settles each.",)
    assert votes(store)["audit-0/0"] == {"Label Studio user 2": 0, "ann@example.org": 1}
    assert labels_of(store)[0].comment == "as asked" and {
        label.via for label in labels_of(store)
    } == {"label_studio"}
    assert imported(store, export).added == 0
    assert queue_of(store).frame["trajectory_id"].iloc[0] == "audit-0/0", "the two are tied"


def test_the_answer_to_another_question_is_no_label(store: Store, tmp_path: Path) -> None:
    other = answered("needs_followup", "choices", choices=["yes"])
    alone, both = annotation("failure", 1), annotation("failure", 1)
    alone["result"] = [other]
    both["result"].append(other)
    tasks = [
        {"data": {"trajectory_id": name}, "annotations": [one]}
        for name, one in (("open-0/0", alone), ("open-1/0", both))
    ]
    path = write(tmp_path / "export.json", json.dumps(tasks))
    done = imported(store, path)
    assert (done.added, done.without_outcome) == (1, 1)
    assert votes(store) == {"open-1/0": {"Label Studio user 1": 0}}


def test_a_name_is_given_to_the_one_annotator_of_a_project(store: Store, tmp_path: Path) -> None:
    tasks = [{"data": {"trajectory_id": "open-0/0"}, "annotations": [annotation("success", 1)]}]
    assert imported(
        store, write(tmp_path / "one.json", json.dumps(tasks)), reviewer="Ann"
    ).reviewers == ("Ann",)
    tasks[0]["annotations"].append(annotation("success", 2))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="has labels of 2 annotators, who are named by their ids"):
        imported(store, write(tmp_path / "two.json", json.dumps(tasks)), reviewer="Ann")


def test_two_choices_in_one_annotation_are_refused(store: Store, tmp_path: Path) -> None:
    both = annotation("success", 1)
    both["result"][0]["value"]["choices"].append("failure")
    tasks = [{"data": {"trajectory_id": "open-0/0"}, "annotations": [both]}]
    with pytest.raises(
        InputError, match="task 1, annotation 1, choices: 2 choices, but one is needed"
    ):
        imported(store, write(tmp_path / "a.json", json.dumps(tasks)))
