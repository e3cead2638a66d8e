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
        "agent_info": {"name": "hand", "model_info": {"name": "model-x", "provider": "maker"}},
        "agent_result": {"metadata": {"note": canary}},
        "verifier_result": {"rewards": rewards} if rewards is not None else None,
        "exception_info": None,
    } | more


def agent_step(
    message: str, command: str, seen: str, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": command}}
    return {
        "source": "agent",
        "message": message,
        "reasoning_content": f"I think about {command}.",
        "tool_calls": [call],
        "observation": {"results": [{"content": seen, "extra": {"note": canary}}]},
        "extra": {"note": canary},
    } | more


def trajectory(
    asked: str | None, *steps: dict[str, Any], canary: str | None = None, **more: Any
) -> dict[str, Any]:
    begin = [{"source": "system", "message": "You are at a terminal."}]
    begin += [{"source": "user", "message": asked}] if asked else []
    about = {"notes": canary, "extra": {"note": canary}}
    return {"schema_version": "ATIF-v1.6", "steps": begin + list(steps)} | about | more


def put(
    folder: Path,
    record: dict[str, Any],
    documents: dict[str, Any],
    canary: str | None = None,
) -> None:
    names = ("verifier/reward.json", "verifier/test-stdout.txt", "trial.log", "exception.txt")
    texts = dict.fromkeys(names, canary or "{}")
    for name, document in {"config.json": {}, "result.json": record, **documents}.items():
        texts[name] = json.dumps(document)
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
