"""Success criteria next to the run: which files are read, and which are refused with the remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certify_assets.errors import InputError
from certify_assets.operations.review_criteria import MOST_CHARS, read_criteria


def test_one_text_for_all_tasks(tmp_path: Path) -> None:
    path = tmp_path / "criteria.md"
    path.write_text("# Refunds\n- asked first <b>", "utf-8")
    found = read_criteria(path)
    assert found.of("anything") == "# Refunds\n- asked first <b>" and found.lacking(["a"]) == 0


@pytest.mark.parametrize("name", ["c.csv", "c.jsonl", "c.json"])
def test_one_text_a_task(tmp_path: Path, name: str) -> None:
    given = {"7": "Two, three", "b": "line\nline"}
    rows = [{"task_id": task, "criterion": text} for task, text in given.items()]
    lines = ["task_id,criterion", '7,"Two, three"', 'b,"line\nline"']
    text = {
        "c.json": json.dumps(rows),
        "c.jsonl": "\n".join(map(json.dumps, rows)),
        "c.csv": "\n".join(lines),
    }[name]
    path = tmp_path / name
    path.write_text(text, "utf-8")
    found = read_criteria(path)
    assert dict(found.by_task) == given
    assert found.of("none") == "" and found.lacking(["7", "b", "none", "none"]) == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.json", '[{"task_id": "a", "criterion": 3}]', "the criterion is empty or no text"),
        ("c.csv", "task_id,criterion\na,x\na,y\n", "row 2 (line 3): task 'a' is there twice"),
        ("c.csv", "task_id,text\na,x\n", "has no column 'criterion'"),
        ("c.csv", "task_id,criterion\n,x\n", "task_id is empty"),
        ("c.md", " ", "the criterion is empty"),
        ("c.txt", "x" * (MOST_CHARS + 1), "give at most 20,000"),
        ("c.pdf", "x", "does not end in"),
    ],
)
def test_what_cannot_be_a_criterion_is_one_sentence(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as refused:
        read_criteria(path)
    assert words in str(refused.value) and str(path) in str(refused.value)


def test_other_encodings_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.md"
    path.write_bytes("Rückgabe".encode("latin-1"))
    for given in (path, tmp_path / "none.md"):
        with pytest.raises(InputError, match=r"is not UTF-8|cannot be read"):
            read_criteria(given)
