"""LangSmith runs of two traces in JSON lines, a page of its API, and feedback in a file."""

import json
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=5, tasks=3, successes=2, dropped={"no_label": 1, "label_without_trace": 1}
)


def run_id(name: str) -> str:
    return str(uuid5(NAMESPACE_OID, name))


def runs(name: str, task: str, attempt: int = 0, canary: str | None = None) -> list[dict[str, Any]]:
    """The runs of one trace as the API gives them: a chain, a model, a tool, the model again."""
    system = {"type": "system", "content": "You book flights."}
    human = {"type": "human", "content": f"Cancel booking {task}."}
    call = {
        "type": "ai",
        "content": "I look first.",
        "tool_calls": [{"id": "c1", "name": "find", "args": {"id": task}, "type": "tool_call"}],
    }
    found = {"type": "tool", "name": "find", "tool_call_id": "c1", "content": f"{task} is open"}
    answer = {"type": "ai", "content": f"Cancelled {task} in attempt {attempt}."}

    def said(message: dict[str, Any]) -> dict[str, Any]:
        return {"generations": [[{"text": message["content"], "message": message}]]}

    rows: list[tuple[Any, ...]] = [
        ("root", "chain", "", {"input": human["content"]}, {"output": answer["content"]}),
        ("agent", "chain", "root", {"messages": [human]}, {"messages": [call]}),
        ("model", "llm", "agent", {"messages": [[system, human]]}, said(call)),
        ("find", "tool", "root", {"input": json.dumps({"id": task})}, {"output": found}),
        ("next", "chain", "root", {"messages": [human, call, found]}, {"output": "agent"}),
        ("model2", "llm", "root", {"messages": [[system, human, call, found]]}, said(answer)),
    ]
    identity = {row[0]: run_id(f"{name}/{row[0]}") for row in rows}
    parents = {row[0]: row[2] for row in rows}
    orders: dict[str, str] = {}
    made = []
    for number, (own, kind, parent, asked, answered) in enumerate(rows):
        part = f"20260301T10000{number}000000Z{identity[own]}"
        orders[own] = f"{orders[parent]}.{part}" if parent else part
        metadata = {"task_id": task, "attempt": attempt, "solution": canary} if not parent else {}
        made.append(
            {
                "id": identity[own],
                "trace_id": identity["root"],
                "parent_run_id": identity[parents[own]] if parent else None,
                "dotted_order": orders[own],
                "name": own.removesuffix("2"),
                "run_type": kind,
                "start_time": f"2026-03-01T10:00:0{number}.000000",
                "inputs": asked,
                "outputs": answered,
                "error": None,
                "extra": {"metadata": {**metadata, "note": canary}},
                "tags": [canary] if canary else [],
                "session_id": run_id("project"),
                "status": "success",
            }
        )
    return made


def feedback(
    name: str, score: float | bool | None, source: str = "app", canary: str | None = None
) -> dict[str, Any]:
    """One judgement of a trace."""
    return {
        "id": run_id(f"{name}/{source}"),
        "run_id": run_id(f"{name}/root"),
        "trace_id": run_id(f"{name}/root"),
        "key": "correct",
        "score": score,
        "value": None,
        "comment": canary,
        "correction": {"output": canary},
        "feedback_source": {"type": source, "metadata": {"note": canary}},
        "created_at": "2026-03-01T11:00:00.000000",
    }


def write(root: Path, canary: str | None = None) -> None:
    some = [
        *runs("x1", "a", 0, canary),
        *runs("x2", "a", 1, canary),
        *runs("x3", "b", 0, canary),
    ]
    write_lines(root / "runs.jsonl", some)
    page = {"runs": runs("x4", "b", 1, canary), "cursors": {"next": None}}
    write_json(root / "page.json", page)
    nested = runs("x5", "c", 0, canary)
    for run in nested[1:]:
        parent = next(item for item in nested if item["id"] == run["parent_run_id"])
        parent.setdefault("child_runs", []).append(run)
    write_json(root / "tree.json", nested[0])
    write_lines(root / "more.jsonl", runs("x6", "c", 1, canary))
    write_lines(
        root / "feedback.jsonl",
        [
            feedback("x1", 1, canary=canary),
            feedback("x1", 0, "model", canary),
            feedback("x2", 0, canary=canary),
            feedback("x3", True, canary=canary),
            feedback("x4", 0.0, canary=canary),
            feedback("x5", False, canary=canary),
            feedback("x6", 1, "api", canary),
            feedback("elsewhere", 1, canary=canary),
        ],
    )
