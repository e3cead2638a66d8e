"""Langfuse traces as its API gives them, and the same kind of traces as its blob storage export."""

import json
import re
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=6, tasks=3, successes=3, dropped={"no_label": 1, "label_without_trace": 1}
)


def trace(
    identity: str,
    task: str,
    attempt: int = 0,
    correct: int | None = 1,
    canary: str | None = None,
) -> dict[str, Any]:
    """A whole trace: an agent that calls a model, a tool and the model again, then is judged."""
    question = [
        {"role": "system", "content": "You book flights."},
        {"role": "user", "content": f"Cancel booking {task}."},
    ]
    function = {"name": "find", "arguments": json.dumps({"id": task})}
    calls = [{"id": "c1", "type": "function", "function": function}]
    call = {"role": "assistant", "content": "I look first.", "tool_calls": calls}
    found = {"role": "tool", "tool_call_id": "c1", "content": f"booking {task} is open"}
    answer = {"role": "assistant", "content": f"Cancelled {task} in attempt {attempt}."}
    verdict = (canary or "?", canary or "right")
    rows: list[tuple[Any, ...]] = [
        ("root", "AGENT", None, "travel", {"messages": question}, answer),
        ("llm1", "GENERATION", "root", "chat", question, call),
        ("tool", "TOOL", "root", "find", {"id": task}, found["content"]),
        ("llm2", "GENERATION", "root", "chat", [*question, call, found], answer),
        ("judge", "EVALUATOR", "root", "judge", *verdict),
        ("judge1", "GENERATION", "judge", "judge model", *verdict),
    ]
    observations = [
        {
            "id": f"{identity}-{name}",
            "traceId": identity,
            "type": kind,
            "name": called,
            "model": "model-x" if called == "chat" else None,
            "startTime": f"2026-03-01T10:00:0{number}.000Z",
            "parentObservationId": parent and f"{identity}-{parent}",
            "input": asked,
            "output": answered,
            "metadata": {"note": canary},
        }
        for number, (name, kind, parent, called, asked, answered) in enumerate(rows)
    ]
    said = [("EVAL", 0 if correct else 1), ("ANNOTATION", correct)]
    scores = [
        {
            "id": f"{identity}-{source}",
            "traceId": identity,
            "observationId": None,
            "name": "correct",
            "source": source,
            "dataType": "BOOLEAN",
            "value": value,
            "comment": canary,
        }
        for source, value in said
        if value is not None
    ]
    return {
        "id": identity,
        "timestamp": "2026-03-01T10:00:00.000Z",
        "name": "travel",
        "userId": None,
        "sessionId": f"session-{task}",
        "public": False,
        "tags": [canary],
        "metadata": {"task_id": task, "attempt": attempt, "solution": canary},
        "input": f"Cancel booking {task}.",
        "output": answer["content"],
        "observations": observations,
        "scores": scores,
    }


def exported(whole: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of a trace in an export to blob storage, where input and output are texts."""

    def row(record: dict[str, Any]) -> dict[str, Any]:
        made = {re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in record.items()}
        for key in ("input", "output"):
            if not isinstance(made.get(key, ""), str):
                made[key] = json.dumps(made[key])
        return made

    own = {key: value for key, value in whole.items() if key not in ("observations", "scores")}
    found = {name: [row(item) for item in whole[name]] for name in ("observations", "scores")}
    return {"traces": [row(own) | {"bookmarked": False, "project_id": "p"}], **found}


def write(root: Path, canary: str | None = None) -> None:
    whole = [
        trace("t1", "a", 0, 1, canary),
        trace("t2", "a", 1, 0, canary),
        trace("t3", "b", 0, None, canary),
    ]
    page = {"data": whole[:2], "meta": {"page": 1, "limit": 50, "totalItems": 2, "totalPages": 1}}
    write_json(root / "page.json", page)
    write_json(root / "t3.json", whole[2])
    blob = [exported(trace(f"t{n}", task, n, n % 2, canary)) for n, task in ((4, "b"), (5, "c"))]
    for name in ("traces", "observations"):
        write_lines(root / "blob" / f"{name}.jsonl", [row for rows in blob for row in rows[name]])
    # enriched observations repeat what there is to say of their trace
    enriched = [
        exported(trace(identity, "c", attempt, attempt, canary))
        for identity, attempt in (("t6", 0), ("t7", 1))
    ]
    write_lines(
        root / "observations_v2" / "part.jsonl",
        [
            row | {"trace_name": "travel", "session_id": "s", "metadata": {"task_id": "c"}}
            for rows in enriched
            for row in rows["observations"]
        ],
    )
    scores = [row for rows in (*blob, *enriched) for row in rows["scores"]]
    lost = {**scores[-1], "id": "lost", "trace_id": "elsewhere"}
    session = {**scores[-1], "id": "of-session", "trace_id": None, "session_id": "s"}
    write_lines(root / "scores.jsonl", [*scores, lost, session])
