"""Which runs and tasks an import counts: copies, retries, settings, runs without a text."""

import json
from pathlib import Path

from certify_assets.storage.store import Store
from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.swe_builders import openhands, report
from certify_assets_tests.paths import shared_data
from certify_assets_tests.right_answers.importing import Import, imported, inspect_log

__all__ = ["imported"]


def _change(path: Path, **changes: object) -> Path:
    """Change the first sample of a log."""
    document = json.loads(path.read_text("utf-8"))
    document["samples"][0] |= changes
    path.write_text(json.dumps(document), "utf-8")
    return path


def test_settings_of_a_task_that_change_its_question_make_two_tasks(
    imported: Import, tmp_path: Path
) -> None:
    one = inspect_log(tmp_path / "a.json", "C", task_args={"domain": "biology", "limit": 3})
    other = inspect_log(tmp_path / "b.json", "I", task_args={"domain": "chemistry", "limit": 3})
    same = imported(one, other).json
    assert (same["trajectories"], same["tasks"], same["notes"]) == (2, 1, {})
    _change(other, input="What is an acid?")
    assert imported(one, other).json["tasks"] == 2
    tasks = Store(str(tmp_path / "root")).read_bytes("corpora/c2/trajectories.parquet")
    assert b"sums/1 domain=biology" in tasks and b"sums/1 domain=chemistry" in tasks
    inspect_log(tmp_path / "b.json", "I", task_args={"domain": "biology", "limit": 3}, task_id="u")
    noted = imported(one, _change(other, input="What is an acid?")).json
    assert noted["tasks"] == 1 and noted["notes"] == {
        "tasks whose runs have unlike instructions": 1
    }


def test_a_retry_repeats_the_samples_that_had_ended(imported: Import, tmp_path: Path) -> None:
    first = inspect_log(tmp_path / "a.json", "C", "I", eval_id="e1", run_id="r1")
    retried = inspect_log(tmp_path / "b.json", "C", "I", "C", eval_id="e2", run_id="r2")
    answer = imported(first, retried).json
    assert (answer["trajectories"], answer["dropped"]) == (3, {"duplicate": 2})
    again = inspect_log(tmp_path / "b.json", "C", "I", "C", eval_id="e2", task_id="u")
    assert imported(first, again).json["trajectories"] == 5


def test_attempts_that_a_critic_rejected_are_superseded(imported: Import, tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    tasks = [f"org__name-{number}" for number in range(1, 5)]
    last = [openhands(task, None, f"last {task}") for task in tasks]
    first = [openhands(task, None, f"first {task}") for task in tasks]
    write_lines(folder / "output.critic_attempt_1.jsonl", first)
    write_lines(folder / "output.critic_attempt_2.jsonl", last[:1])
    write_json(folder / "output.report.json", report(tasks[:1], others=tasks[1:]))
    write_lines(folder / "output.jsonl", last)
    answer = imported(folder).json
    assert (answer["trajectories"], answer["success_rate"]) == (4, 0.25)
    assert answer["dropped"] == {"superseded": 5}


def test_the_reported_logs(imported: Import) -> None:
    tasks = imported(shared_data("reported", "f7_a.json"), shared_data("reported", "f7_b.json"))
    assert tasks.json["tasks"] == 2
    retry = [shared_data("reported", f"retry2_{name}.json") for name in "ab"]
    assert imported(*retry).json["trajectories"] == 4
    critic = imported(shared_data("reported", "openhands_critic")).json
    assert (critic["trajectories"], round(critic["success_rate"], 3)) == (12, 0.333)
    assert critic["dropped"] == {"superseded": 15}
