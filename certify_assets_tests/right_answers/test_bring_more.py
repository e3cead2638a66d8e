"""The number of tasks that a gate asks for is the number that opens it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.certificates import diagnose
from certify_assets.certificates.diagnosis import approximate
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.splits import extend_manifest, make_manifest, tasks_to_add
from certify_assets_tests.builders import score_rows, write_runs
from certify_assets_tests.cli.calling import Call


def test_the_import_counts_what_certifies_and_asks_for_what_opens_the_gate(
    tmp_path: Path, call: Call
) -> None:
    runs = write_runs(tmp_path / "all.jsonl", tasks=120, attempts=3).read_text("utf-8").splitlines()

    def gates(name: str, tasks: int) -> list[dict[str, object]]:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(runs[: 3 * tasks]), "utf-8")
        command = f"corpus import {path} --name {name} --root {tmp_path / 'root'} --json"
        return list(call(command).json["gates"])

    strict, wide = (gate for gate in gates("few", 60) if gate["split"] == "rl and cal")
    assert strict["reason"] == (
        "30 tasks are available to certify (RL and CAL); 39 are needed at α = 0.1. "
        "Bring 17 more tasks to the corpus: 9 of them will certify."
    )
    assert str(wide["reason"]).startswith(
        "30 tasks are available to certify (RL and CAL); 19 are needed at α = 0.2"
    )
    assert ": enough." in str(wide["reason"])
    more = int(str(strict["tasks_to_add"]))
    assert not gates("short", 60 + more - 1)[0]["possible"]
    assert gates("enough", 60 + more)[0]["possible"]


@pytest.mark.parametrize("tasks", [8, 43, 60, 77, 101])
@pytest.mark.parametrize(("profile", "train_rl"), [("certify", True), ("paper", False)])
@pytest.mark.parametrize("lacking", [1, 10, 61])
def test_so_many_more_and_not_one_less(
    tasks: int, profile: str, train_rl: bool, lacking: int
) -> None:
    names = [f"t{number}" for number in range(2000)]
    before = make_manifest(names[:tasks], "c", profile, train_rl=train_rl)

    def certify(more: int) -> int:
        after = extend_manifest(before, names[: tasks + more])
        return sum(len(after.tasks[split]) for split in CERTIFYING)

    have, more = certify(0), tasks_to_add(lacking, CERTIFYING, before)
    assert certify(more) >= have + lacking > certify(more - 1)


def test_a_corpus_without_splits_is_told_the_whole_number(tmp_path: Path, call: Call) -> None:
    path = write_runs(tmp_path / "runs.jsonl", tasks=2, attempts=3)
    gate = call(f"corpus import {path} --name c --root {tmp_path / 'root'} --json").json["gates"][0]
    assert (gate["possible"], gate["tasks_to_add"]) == (False, 75)
    assert gate["reason"].startswith(
        "0 tasks are available to certify (no split yet); 39 are needed"
    )


def test_what_is_missing_is_said_in_tasks_of_the_corpus() -> None:
    table = score_rows(tasks=12, attempts=6, seed=2)
    found = diagnose(table["score"], table["outcome"], table["task_id"], alpha=0.1)
    assert found.stopped_by == "tasks" and found.tasks_needed is not None
    more = found.tasks_needed - 12
    assert (
        f"About {approximate(more)} more tasks like these would give an even chance"
        in found.sentence
    )
    # of a corpus of 30 tasks these 12 certify
    in_corpus = replace(found, corpus_tasks=30)
    assert in_corpus.more_tasks == math.ceil(more * 30 / 12)
    added = approximate(in_corpus.more_tasks)
    said = f"About {added} more tasks in the corpus ({approximate(more)} of them certify)"
    assert said in in_corpus.sentence and f"to {2 * found.tasks_needed}" not in in_corpus.sentence
