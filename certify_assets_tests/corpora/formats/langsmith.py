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
    calls = [{"id": "c1", "name": "find", "args": {"id": task}}]
    call = {"type": "ai", "content": "I look first.", "tool_calls": calls}
    found = {"type": "tool", "name": "find", "tool_call_id": "c1", "content": f"{task} is open"}
    answer = {"type": "ai", "content": f"Cancelled {task} in attempt {attempt}."}

    def said(message: dict[str, Any]) -> dict[str, Any]:
        return {"generations": [[{"text": message["content"], "message": message}]]}

    rows: list[tuple[Any, ...]] = [
        ("root", "chain", None, {"input": human["content"]}, {"output": answer["content"]}),
        ("agent", "chain", "root", {"messages": [human]}, {"messages": [call]}),
        ("model", "llm", "agent", {"messages": [[system, human]]}, said(call)),
        ("find", "tool", "root", {"input": json.dumps({"id": task})}, {"output": found}),
        ("next", "chain", "root", {"messages": [human, call, found]}, {"output": "agent"}),
        ("model2", "llm", "root", {"messages": [[system, human, call, found]]}, said(answer)),
    ]
    about = {"task_id": task, "attempt": attempt, "solution": canary}
    return [
        {
            "id": run_id(f"{name}/{own}"),
            "trace_id": run_id(f"{name}/root"),
            "parent_run_id": run_id(f"{name}/{parent}") if parent else None,
            "name": own.removesuffix("2"),
            "run_type": kind,
            "start_time": f"2026-03-01T10:00:0{number}.000000",
            "inputs": asked,
            "outputs": answered,
            "error": None,
            "extra": {"metadata": {"note": canary} | ({} if parent else about)},
            "tags": [canary],
            "session_id": run_id("project"),
        }
        for number, (own, kind, parent, asked, answered) in enumerate(rows)
    ]


def feedback(
    name: str, score: float | bool, source: str = "app", *, canary: str | None = None
) -> dict[str, Any]:
    """One judgement of a trace."""
    return {
        "run_id": run_id(f"{name}/root"),
        "trace_id": run_id(f"{name}/root"),
        "key": "correct",
        "score": score,
        "value": None,
        "comment": canary,
        "correction": {"output": canary},
        "feedback_source": {"type": source, "metadata": {"note": canary}},
    }


def write(root: Path, canary: str | None = None) -> None:
    places = {f"x{n + 1}": ("aabbcc"[n], n % 2) for n in range(6)}
    made = {name: runs(name, *place, canary) for name, place in places.items()}
    write_lines(root / "runs.jsonl", [*made["x1"], *made["x2"], *made["x3"]])
    write_json(root / "page.json", {"runs": made["x4"], "cursors": {"next": None}})
    by_id = {run["id"]: run for run in made["x5"]}
    for run in made["x5"][1:]:
        by_id[run["parent_run_id"]].setdefault("child_runs", []).append(run)
    write_json(root / "tree.json", made["x5"][0])
    write_lines(root / "more.jsonl", made["x6"])
    said: list[tuple[Any, ...]] = [
        ("x1", 1),
        ("x1", 0, "model"),
        ("x2", 0),
        ("x3", True),
        ("x4", 0.0),
        ("x5", False),
    ]
    said += [("x6", 1, "api"), ("elsewhere", 1)]
    write_lines(root / "feedback.jsonl", [feedback(*one, canary=canary) for one in said])
