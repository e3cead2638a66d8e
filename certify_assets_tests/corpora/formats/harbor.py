"""Harbor: trials that succeed, fail, run out of time, break, or continue."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=4,
    tasks=2,
    successes=2,
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

    def trial(name: str, rewards: dict[str, Any] | None, documents: Any, **more: Any) -> None:
        task = name.partition("__")[0]
        put(job / name, result(name, task, rewards, canary, **more), documents, canary)

    def ended(kind: str) -> dict[str, Any]:
        return {"exception_type": kind, "exception_message": canary}

    def told(asked: str | None, *steps: tuple[str, str, str], **more: Any) -> dict[str, Any]:
        made = [agent_step(*step, canary) for step in steps]
        return trajectory(asked, *made, canary=canary, **more)

    first = "agent/trajectory.json"
    whole = {first: told("Sort the names.", ("First", "sort names", "a"))}
    trial("sort__a", {"reward": 1.0}, whole)
    trial("sort__b", {"reward": 0}, whole, exception_info=ended("AgentTimeoutError"))
    trial("sort__c", {"reward": 0.0}, whole, exception_info=ended("SandboxBuildFailedError"))
    trial("sort__d", None, whole)
    trial("sort__e", {"reward": 1.0}, {})
    trial("sort__f", {"reward": None, "note": canary}, whole)
    trial("sort__g", {"reward": 1.0}, {first: told("Sort.")})
    again = told(None, ("copied", "ls", "copied"), ("Two", "keygen", "key"))
    again["steps"][1]["is_copied_context"] = True
    again["subagent_trajectories"] = [{"steps": [{"message": canary}]}]
    continued = {
        first: told(
            "Make a key.", ("One", "ls", "x"), continued_trajectory_ref="trajectory.cont-1.json"
        ),
        "agent/trajectory.cont-1.json": again,
        "agent/other.json": {"note": canary},
    }
    trial("key__a", {"reward": 0.5}, continued)
    trial("key__b", {"score": 1}, whole)
