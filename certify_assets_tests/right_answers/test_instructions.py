"""One instruction in two spellings is one instruction, and runs without one are named."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets_tests.cli.calling import Call
from certify_assets_tests.right_answers.importing import Import, imported

__all__ = ["imported"]

ASKED = "Réserve un vol pour {}, s'il te plaît"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "a final dot": "{}.".format,
    "a zero-width sign": lambda text: text[:3] + "\u200b" + text[3:],
    "decomposed accents": lambda text: unicodedata.normalize("NFD", text),
    "quotes": "“{}”".format,
    "other spaces": lambda text: text.replace(" ", "\u00a0  "),
}


def write(path: Path, prefix: str, change: Callable[[str], str] = str, tasks: int = 20) -> Path:
    """Write two runs of every task as a table."""
    rows = [
        {
            "task_id": f"{prefix}{task}",
            "trajectory_id": f"{prefix}{task}/{attempt}",
            "instruction": change(ASKED.format(f"ville {task}")),
            "text": f"{prefix} {task} {attempt}",
            "outcome": (task + attempt) % 2,
        }
        for task in range(tasks)
        for attempt in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.parametrize("name", SPELLINGS)
def test_known_tasks_in_another_spelling_are_refused(
    call: Call, imported: Import, tmp_path: Path, name: str
) -> None:
    assert imported(write(tmp_path / "a.jsonl", "t")).code == 0
    new = write(tmp_path / "b.jsonl", "new", SPELLINGS[name])
    answer = call(f"ops ingest c1 {new} --root {tmp_path}/root --dry-run --json")
    assert answer.code == 2 and "have the instruction of a task of c1" in answer.err


@pytest.mark.parametrize("name", SPELLINGS)
def test_tasks_that_ask_the_same_in_another_spelling_are_one(
    imported: Import, tmp_path: Path, name: str
) -> None:
    paths = write(tmp_path / "a.jsonl", "t"), write(tmp_path / "b.jsonl", "new", SPELLINGS[name])
    answer = imported(*paths)
    assert (answer.json["overlap"]["tasks"], answer.json["overlap"]["instructions"]) == (40, 20)
    assert imported(*paths, "--option", "merge_same_instruction=true").json["tasks"] == 20


def test_signs_of_arithmetic_make_another_instruction(imported: Import, tmp_path: Path) -> None:
    rows = [
        {"task_id": sign, "instruction": f"What is 3 {sign} 1?", "text": sign, "outcome": 1}
        for sign in "+-*/"
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert imported(path).json["overlap"]["instructions"] == 4


def test_runs_without_an_instruction_are_named(
    call: Call, imported: Import, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", "t", lambda text: "")
    assert imported(path).json["notes"] == {"runs have no instruction": 40}
    new = write(tmp_path / "b.jsonl", "new", lambda text: " ")
    answer = call(f"ops ingest c1 {new} --root {tmp_path}/root --dry-run")
    # no judge is deployed, so that nothing would be decided
    assert answer.code == 3 and "40 runs have no instruction." in answer.out
