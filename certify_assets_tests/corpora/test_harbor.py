from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.formats.harbor import agent_step, put, result, trajectory, write

read = reader("harbor")


def trials(root: Path, *records: dict[str, Any]) -> Path:
    for number, record in enumerate(records):
        document = trajectory("Sort.", agent_step("Go", f"sort {number}", "done"))
        put(root / "job" / str(record["trial_name"]), record, {"agent/trajectory.json": document})
    return root


def test_a_trajectory_becomes_steps(tmp_path: Path) -> None:
    write(tmp_path / "jobs")
    runs = {run.trajectory_id: run for run in from_frame(read(tmp_path / "jobs").frame)}
    assert set(runs) == {
        "0000-sort__a",
        "0000-sort__b",
        "0000-key__a",
        "0000-key__b",
        "0000-stages__a",
    }
    run = runs["0000-sort__a"]
    assert run.task_id == "sort"
    assert run.agent == "hand maker/model-x"
    assert run.attempt == 0
    assert run.instruction == "Sort the names."
    assert run.steps == (
        Step('I think about sort names.\nFirst\nbash({"command": "sort names"})', "a"),
    )
    assert runs["0000-sort__b"].attempt == 1 and runs["0000-sort__b"].outcome == 0, (
        "out of time is the agent's own failure"
    )


def test_a_run_goes_on_in_further_documents_and_stages(tmp_path: Path) -> None:
    write(tmp_path / "jobs")
    imported = read(tmp_path / "jobs")
    runs = {run.trajectory_id: run for run in from_frame(imported.frame)}
    assert [step.observation for step in runs["0000-key__a"].steps] == ["x", "key"], (
        "copied context is not repeated"
    )
    assert runs["0000-stages__a"].instruction == "Plan first."
    assert [step.observation for step in runs["0000-stages__a"].steps] == [
        "a room\nuser: Now act.",
        "done",
    ]
    assert imported.notes == {
        "runs of subagents left out": 1,
        "outcomes between 0 and 1 counted as failures; "
        "the option threshold says where success begins": 1,
        "tasks whose runs have unlike instructions": 1,
    }


def test_exceptions_decide_whether_a_reward_is_valid(tmp_path: Path) -> None:
    failed = {"exception_info": {"exception_type": "NonZeroAgentExitCodeError"}}
    staged = {
        "step_results": [
            {"step_name": "one", "exception_info": {"exception_type": "VerifierTimeoutError"}},
            "broken",
        ]
    }
    records = [
        result("a", "t", {"reward": 1}),
        result("b", "t", {"reward": 1}, None, **failed),
        result("c", "t", {"reward": 1}, None, **staged),
    ]
    path = trials(tmp_path / "x", *records)
    imported = read(path)
    assert len(imported.frame) == 1 and imported.dropped["infrastructure_error"] == 2


@pytest.mark.parametrize(
    ("rewards", "outcome"),
    [
        ({"reward": 1.0}, 1),
        ({"reward": 1 - 1e-9}, 1),
        ({"reward": 0.99}, 0),
        ({"reward": 0}, 0),
        ({"reward": True, "speed": 3.0}, 1),
        ({"speed": 1}, 1),
        ({"reward": "1"}, 1),
    ],
)
def test_rewards(tmp_path: Path, rewards: dict[str, Any], outcome: int) -> None:
    assert read(trials(tmp_path / "x", result("a", "t", rewards))).frame["outcome"].tolist() == [
        outcome
    ]


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ({"reward": float("nan")}, "no_label"),
        ({}, "no_label"),
        (None, "no_label"),
    ],
)
def test_rewards_that_say_nothing(
    tmp_path: Path, rewards: dict[str, Any] | None, reason: str
) -> None:
    path = trials(tmp_path / "x", result("a", "t", rewards), result("b", "t", {"reward": 1}))
    assert read(path).dropped[reason] == 1


def test_several_rewards_need_a_name(tmp_path: Path) -> None:
    path = trials(tmp_path / "x", result("a", "t", {"tests": 0.0, "style": 1.0}))
    with pytest.raises(
        InputError,
        match=r"has the rewards style, tests; name the one that counts with the option reward",
    ):
        read(path)
    assert read(path, reward="style").frame["outcome"].tolist() == [1]


def test_copies_and_broken_files(tmp_path: Path) -> None:
    path = trials(tmp_path / "x", *(result(name, "t", {"reward": 1}) for name in "abc"))
    put(
        path / "copy" / "a",
        result("a", "t", {"reward": 1}),
        {"agent/trajectory.json": trajectory("Sort.", agent_step("Go", "sort 0", "done"))},
    )
    (path / "job" / "b" / "agent" / "trajectory.json").write_text("null")
    (path / "job" / "c" / "result.json").write_text("{")
    (path / "elsewhere.json").write_text("{}")
    imported = read(path)
    dropped = {
        reason: count for reason, count in imported.dropped.items() if reason != "file_other_format"
    }
    assert dropped == {"duplicate": 1, "file_unreadable": 2, "no_label": 1}
    assert len(imported.frame) == 1
