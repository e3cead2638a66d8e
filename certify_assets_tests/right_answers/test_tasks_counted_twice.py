"""One task under several ids, and one run under several tasks, are not more evidence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call

_CHECK = "separate_tasks of corpora/trajectories stops the pipeline"


def _rewritten(path: Path, change: Callable[[dict[str, Any]], None], copies: int = 1) -> Path:
    """Write runs, and a changed copy of them."""
    given = write_runs(path, tasks=60, attempts=4).read_text("utf-8").splitlines()
    runs = [json.loads(line) for _ in range(copies) for line in given]
    for number, record in enumerate(runs):
        if number >= (copies - 1) * len(given):
            change(record)
    path.write_text("\n".join(map(json.dumps, runs)) + "\n", "utf-8")
    return path


def _attempt_is_task(record: dict[str, Any]) -> None:
    record["task_id"] = record["trajectory_id"]


def _renamed(record: dict[str, Any]) -> None:
    record["task_id"] = f"b-{record['task_id']}"
    record["trajectory_id"] = f"b-{record['trajectory_id']}"


@pytest.mark.parametrize(
    ("change", "copies", "option", "said", "tasks", "runs"),
    [
        (_attempt_is_task, 1, "merge_same_instruction", "240 task ids share 60 ", 60, 240),
        (_renamed, 2, "drop_copies", "240 of 480 runs repeat a run of another task", 60, 240),
    ],
)
def test_the_import_says_it_and_the_option_settles_it(
    tmp_path: Path,
    call: Call,
    change: Callable[[dict[str, Any]], None],
    copies: int,
    option: str,
    said: str,
    tasks: int,
    runs: int,
) -> None:
    path, root = _rewritten(tmp_path / "runs.jsonl", change, copies), tmp_path / "root"
    command = f"corpus import {path} --name c --root {root} --set rl=false"
    answer = call(command)
    assert answer.code == 0 and said in answer.out and f"--option {option}=true" in answer.out
    settled = call(f"{command} --replace --option {option}=true --json").json
    assert (settled["tasks"], settled["trajectories"]) == (tasks, runs)
    assert settled["overlap"] == {"tasks": 60, "instructions": 60, "runs": 240, "copies": 0}


@pytest.mark.slow
@pytest.mark.smoke
def test_it_stops_the_pipeline_until_a_reason_is_given(tmp_path: Path, call: Call) -> None:
    path, root = _rewritten(tmp_path / "runs.jsonl", _attempt_is_task), tmp_path / "root"
    command = ("corpus", "import", path, "--name", "c", "--root", root, "--set")
    call(*command, "rl=false")
    stopped = call(f"run c --root {root}")
    assert stopped.code == 3 and _CHECK in stopped.err and "240 task ids" in stopped.err
    call(*command, "accept_shared_tasks=the data base differs", "--replace")
    done = call(f"run c --root {root}")
    assert done.code == 0 and "Accepted: the data base differs" in " ".join(done.out.split())
    found = json.loads((root / "pages/judges/lexical/c/certificates.json").read_text("utf-8"))
    codes = {item["code"] for item in found["certificates"][0]["findings"]}
    assert {"accepted_shared_tasks", "one_run_a_task"} <= codes
    carried = found["certificates"][0]["provenance"]["accepted_shared_tasks"]
    assert carried.startswith("240 task ids share 60 instructions")
    assert carried.endswith("Accepted: the data base differs")
    assert (
        "Accepted: the data base differs" in (root / "pages/judges/lexical/c/page.html").read_text()
    )


def test_tasks_are_merged_along_a_chain_of_instructions(tmp_path: Path, call: Call) -> None:
    texts = {"a": ["one", "two"], "b": ["two", "three"], "c": ["three", "four"], "d": ["five"]}
    path = tmp_path / "runs.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for task, instructions in texts.items():
            for number, instruction in enumerate(instructions):
                record = {"task_id": task, "trajectory_id": f"{task}{number}", "agent": "x"}
                text = {"instruction": instruction, "text": f"run {number}", "outcome": number}
                file.write(json.dumps(record | text) + "\n")
    option = "--option merge_same_instruction=true"
    done = call(f"corpus import {path} --name c --root {tmp_path / 'root'} {option} --json")
    assert done.json["tasks"] == 2


@pytest.mark.parametrize("name", ["miniwob_mixed", "miniwob_weak"])
def test_the_embedded_corpora_pass(name: str, tmp_path: Path) -> None:
    corpus = Corpus(Store(str(tmp_path)), name)
    corpus.import_trajectories()
    overlap = corpus.task_overlap()
    assert (overlap.tasks, overlap.sentences) == (125, ())
    assert overlap.instructions >= 120 and overlap.copies < 20
