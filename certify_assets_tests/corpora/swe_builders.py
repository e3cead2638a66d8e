"""Runs and reports of code repair harnesses, written by hand."""

from pathlib import Path
from typing import Any

ISSUE = "`total` forgets the last row\nIt adds all rows but one."
SWE_PROMPT = (
    "We're currently solving the following issue within our repository. Here's the issue "
    "text:\nISSUE:\n"
    f"{ISSUE}\n\nINSTRUCTIONS:\nNow solve it on your own.\n(Open file: n/a)\nbash-$"
)


def traj(text: str = "look", canary: str | None = None, **changes: Any) -> dict[str, Any]:
    """A SWE-agent run."""
    demonstration = {"role": "user", "content": canary or "another task, shown", "is_demo": True}
    done = ("thought", "action", "observation")
    steps = (
        (f"I {text}.\n", "open sums.py\n", "1: def total(rows):"),
        ("", "submit", "diff --git a/sums.py b/sums.py"),
    )
    return {
        "trajectory": [dict(zip(done, step, strict=True)) for step in steps],
        "history": [
            {"role": "system", "content": "work"},
            demonstration,
            {"role": "user", "content": SWE_PROMPT},
        ],
        "info": {"exit_status": canary, "submission": canary},
    } | changes


def report(
    resolved: list[str], *, others: list[str] | None = None, **changes: Any
) -> dict[str, Any]:
    """A report that names every instance it knows."""
    submitted = [*resolved, *(others or [])]
    return {
        "total_instances": len(submitted),
        "submitted_instances": len(submitted),
        "submitted_ids": submitted,
        "resolved_ids": resolved,
        "unresolved_ids": others or [],
    } | changes


def openhands(
    identity: str, resolved: Any = True, text: str = "look", **changes: Any
) -> dict[str, Any]:
    """A record of output.jsonl, with events."""
    record: dict[str, Any] = {
        "instance_id": identity,
        "test_result": {"git_patch": "diff --git a/sums.py"},
        "instruction": f"<issue_description>\n{ISSUE}\n</issue_description>\nFix it.",
        "instance": {"repo": "org/name", "problem_statement": ISSUE},
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "maker/model-1"}},
        "history": [
            {"source": "agent", "action": "system", "args": {"content": "You are an agent."}},
            {"source": "user", "action": "message", "args": {"content": "Fix it."}},
            {"source": "agent", "action": "run"}
            | {"args": {"command": "ls", "thought": f"I {text}.", "hidden": False}},
            {"source": "agent", "observation": "run", "content": "sums.py"},
            {"source": "environment", "observation": "agent_state_changed", "content": ""},
            {"source": "agent", "action": "finish"}
            | {"args": {"final_thought": "Fixed.", "task_completed": "true"}},
        ],
        "error": None,
    }
    if resolved is not None:
        record["report"] = {"resolved": resolved, "empty_generation": False}
    return record | changes


def save_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    return path


def rebench_row(
    identity: str, resolved: int | None = 1, number: int = 0, canary: str | None = None
) -> dict[str, Any]:
    """A row of SWE-rebench OpenHands trajectories."""

    def message(role: str, content: str, **more: Any) -> dict[str, Any]:
        return {"role": role, "content": content, "tool_calls": None, "name": None} | more

    call = {"id": "c", "function": {"name": "execute_bash", "arguments": '{"command": "ls"}'}}
    return {
        "trajectory_id": f"chat-{identity}-{number}",
        "instance_id": identity,
        "trajectory": [
            message("system", "You are an agent."),
            message("user", f"<issue_description>\n{ISSUE}\n</issue_description>\nFix it."),
            message("assistant", f"I look, {number}.", tool_calls=[call]),
            message("tool", "sums.py", name="execute_bash"),
            message("assistant", "Fixed."),
        ],
        "model_patch": canary or "diff",
        "exit_status": canary or "submit",
        "resolved": resolved,
    }


def swe_agent_row(
    identity: str, target: bool | None = True, number: int = 0, canary: str | None = None
) -> dict[str, Any]:
    """A row of the SWE-agent trajectories of Nebius."""

    def message(role: str, text: str | None, system: str | None = None) -> dict[str, Any]:
        return {"role": role, "text": text, "system_prompt": system}

    return {
        "instance_id": identity,
        "model_name": "small-model",
        "target": target,
        "trajectory": [
            message("system", None, canary or "You are an agent."),
            message("user", SWE_PROMPT),
            message("ai", f"I look, {number}.\n```\nls\n```"),
            message("user", "sums.py"),
            message("ai", "submit"),
        ],
        "exit_status": canary or "submitted",
        "generated_patch": canary or "diff",
        "eval_logs": canary or "1 passed",
    }
