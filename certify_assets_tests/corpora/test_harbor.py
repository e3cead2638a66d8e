from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.trajectory import Step
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
    imported = read(tmp_path / "jobs")
    runs = {run.trajectory_id.removeprefix("0000-"): run for run in from_frame(imported.frame)}
    assert set(runs) == {"sort__a", "sort__b", "key__a", "key__b"}
    run = runs["sort__a"]
    assert (run.task_id, run.agent, run.attempt) == ("sort", "hand maker/model-x", 0)
    assert run.instruction == "Sort the names."
    said = 'I think about sort names.\nFirst\nbash({"command": "sort names"})'
    assert run.steps == (Step(said, "a"),)
    # out of time is the agent's own failure
    assert (runs["sort__b"].attempt, runs["sort__b"].outcome) == (1, 0)
    # a run goes on in further documents, whose copied context is not repeated
    assert [step.observation for step in runs["key__a"].steps] == ["x", "key"]
    assert imported.notes["runs of subagents left out"] == 1


def test_exceptions_decide_whether_a_reward_is_valid(tmp_path: Path) -> None:
    def ended(kind: str) -> dict[str, Any]:
        return {"exception_info": {"exception_type": kind}}

    staged = [{"step_name": "one"} | ended("VerifierTimeoutError"), "broken"]
    path = trials(
        tmp_path / "x",
        result("a", "t", {"reward": 1}),
        result("b", "t", {"reward": 1}, None, **ended("NonZeroAgentExitCodeError")),
        result("c", "t", {"reward": 1}, None, step_results=staged),
    )
    imported = read(path)
    assert len(imported.frame) == 1 and imported.dropped["infrastructure_error"] == 2


def test_several_rewards_need_a_name(tmp_path: Path) -> None:
    path = trials(tmp_path / "x", result("a", "t", {"tests": 0.0, "style": 1.0}))
    with pytest.raises(InputError, match=r"\(tests, style\)\. Name one with --option reward=NAME"):
        read(path)
    assert read(path, reward="style").frame["outcome"].tolist() == [1]
