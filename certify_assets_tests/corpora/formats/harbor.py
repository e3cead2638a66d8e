"""Harbor: trials that succeed, fail, run out of time, break, continue, or have stages."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=5,
    tasks=3,
    successes=3,
    dropped={"infrastructure_error": 1, "no_label": 2, "no_trajectory": 2},
)


def result(
    name: str, task: str, rewards: dict[str, Any] | None, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "id": f"0000-{name}",
        "task_name": task,
        "trial_name": name,
        "trial_uri": f"file:///jobs/{name}",
        "task_id": {"path": f"tasks/{task}"},
        "source": "demo-bench",
        "task_checksum": "ab12",
        "config": {},
        "agent_info": {
            "name": "hand",
            "version": "1",
            "model_info": {"name": "model-x", "provider": "maker"},
        },
        "agent_result": {"metadata": {"note": canary}},
        "verifier_result": {"rewards": rewards} if rewards is not None else None,
        "exception_info": None,
        "step_results": None,
    } | more


def agent_step(
    message: str, command: str, seen: str, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "step_id": 2,
        "source": "agent",
        "message": message,
        "reasoning_content": f"I think about {command}.",
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": command}}
        ],
        "observation": {
            "results": [{"source_call_id": "c1", "content": seen, "extra": {"note": canary}}]
        },
        "metrics": {"prompt_tokens": 5},
        "extra": {"note": canary},
    } | more


def trajectory(
    asked: str | None, *steps: dict[str, Any], canary: str | None = None, **more: Any
) -> dict[str, Any]:
    begin = [{"step_id": 1, "source": "system", "message": "You are at a terminal."}]
    begin += [{"step_id": 2, "source": "user", "message": asked}] if asked else []
    about = {
        "notes": canary,
        "final_metrics": {"extra": {"note": canary}},
        "extra": {"note": canary},
    }
    return (
        {
            "schema_version": "ATIF-v1.6",
            "session_id": "s",
            "agent": {"name": "hand", "version": "1"},
            "steps": begin + list(steps),
        }
        | about
        | more
    )


def put(
    folder: Path,
    record: dict[str, Any] | None,
    documents: dict[str, Any],
    canary: str | None = None,
) -> None:
    verifier = {
        "reward.txt": "1",
        "reward.json": '{"reward": 1}',
        "test-stdout.txt": "1 passed",
        "ctrf.json": '{"results": {}}',
    }
    texts = {f"verifier/{name}": f"{text}{canary or ''}" for name, text in verifier.items()}
    texts |= {name: json.dumps(document) for name, document in documents.items()}
    texts |= {"config.json": "{}", "trial.log": canary or "", "exception.txt": canary or ""}
    if record is not None:
        texts["result.json"] = json.dumps(record)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def write(root: Path, canary: str | None = None) -> None:
    job = root / "jobs" / "monday"
    put(job, {"id": "j", "n_total_trials": 9, "stats": {"evals": {canary or "a": 1}}}, {})
    whole = {
        "agent/trajectory.json": trajectory(
            "Sort the names.", agent_step("First", "sort names", "a", canary), canary=canary
        )
    }
    put(job / "sort__a", result("sort__a", "sort", {"reward": 1.0}, canary), whole, canary)
    late = {"exception_type": "AgentTimeoutError", "exception_message": canary}
    put(
        job / "sort__b",
        result("sort__b", "sort", {"reward": 0}, canary, exception_info=late),
        whole,
        canary,
    )
    broken = {"exception_type": "SandboxBuildFailedError", "exception_message": canary}
    put(
        job / "sort__c",
        result("sort__c", "sort", {"reward": 0.0}, canary, exception_info=broken),
        whole,
        canary,
    )
    put(job / "sort__d", result("sort__d", "sort", None, canary), whole, canary)
    put(job / "sort__e", result("sort__e", "sort", {"reward": 1.0}, canary), {}, canary)
    put(
        job / "sort__f",
        result("sort__f", "sort", {"reward": None, "note": canary}, canary),
        whole,
        canary,
    )
    silent = {"agent/trajectory.json": trajectory("Sort.", canary=canary)}
    put(job / "sort__g", result("sort__g", "sort", {"reward": 1.0}, canary), silent, canary)
    again = agent_step("copied", "ls", "copied", canary, is_copied_context=True)
    continued = {
        "agent/trajectory.json": trajectory(
            "Make a key.",
            agent_step("One", "ls", "x", canary),
            continued_trajectory_ref="trajectory.cont-1.json",
        ),
        "agent/trajectory.cont-1.json": trajectory(
            None,
            again,
            agent_step("Two", "keygen", "key", canary),
            subagent_trajectories=[{"steps": [{"message": canary}]}],
        ),
        "agent/other.json": {"note": canary},
    }
    put(job / "key__a", result("key__a", "key", {"reward": 0.5}, canary), continued, canary)
    put(job / "key__b", result("key__b", "key", {"score": 1}, canary), whole, canary)
    stages = [
        {"step_name": name, "verifier_result": {"rewards": {"reward": 1, "note": canary}}}
        for name in ("plan", "act")
    ]
    staged = {
        "steps/act/agent/trajectory.json": trajectory(
            "Now act.", agent_step("Act", "run", "done", canary)
        ),
        "steps/plan/agent/trajectory.json": trajectory(
            "Plan first.", agent_step("Plan", "look", "a room", canary)
        ),
        "steps/act/verifier/result.json": {"note": canary},
    }
    put(
        job / "stages__a",
        result("stages__a", "stages", {"reward": 1.0}, canary, step_results=stages),
        staged,
        canary,
    )
