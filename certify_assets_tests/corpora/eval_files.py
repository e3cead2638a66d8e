"""Inspect AI logs written by hand."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# it teaches zipfile Zstandard, in which Inspect AI packs its logs
import zipfile_zstd  # type: ignore[import-untyped] # noqa: F401

STORED, DEFLATED, ZSTD = 0, 8, 93


def zip_bytes(members: Mapping[str, bytes], method: int = DEFLATED) -> bytes:
    """Write a zip archive with one method for all members."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return sink.getvalue()


def header(task: str = "sums", status: str = "success", **about: Any) -> dict[str, Any]:
    names = {"task": task, "task_id": "t1", "run_id": "r", "eval_id": "e", "model": "maker/model-x"}
    empty = {"created": "2026-01-31T12:00:00+00:00", "dataset": {}, "config": {}}
    return {"version": 2, "status": status, "eval": names | empty | about}


def sample(
    identity: int | str, value: Any = "C", epoch: int = 1, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    """One sample: a question, a thought with a call, its result (an attachment), an answer."""
    thought = [
        {"type": "reasoning", "reasoning": "I add."},
        {"type": "text", "text": "Let me see."},
    ]
    arguments = {"sum": f"{identity}+1"}
    call = {"id": "c", "function": "calc", "arguments": arguments, "type": "function"}
    asked, answer = f"What is {identity} + 1?", f"It is {identity}1 in epoch {epoch}."
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "attachment://" + "d" * 32},
        {"role": "user", "source": "input", "content": asked},
        {"role": "assistant", "content": thought, "tool_calls": [call]},
        {"role": "tool", "function": "calc", "content": "attachment://" + "a" * 32},
        {"role": "assistant", "content": answer, "metadata": {"note": canary}},
    ]
    score = {"value": value, "answer": canary, "explanation": canary, "metadata": {"note": canary}}
    return {
        "id": identity,
        "epoch": epoch,
        "input": asked,
        "target": canary or "2",
        "messages": messages,
        "output": {"choices": [{"message": messages[-1], "stop_reason": "stop"}]},
        "scores": {"match": score},
        "metadata": {"solution": canary},
        "store": {"note": canary},
        "setup": canary,
        "events": [{"event": "score", "score": score}],
        "attachments": {"a" * 32: "two", "c" * 32: canary or "", "d" * 32: "You add."},
    } | more


def eval_bytes(
    document: Mapping[str, Any] | None,
    samples: list[dict[str, Any]],
    method: int = DEFLATED,
    **extra: Any,
) -> bytes:
    """Write a .eval log; without a document, one that is still being written."""
    documents: dict[str, Any] = {
        "_journal/start.json": {"version": 2, "eval": header("unfinished")["eval"], "plan": {}}
    }
    documents |= {f"samples/{item['id']}_epoch_{item['epoch']}.json": item for item in samples}
    documents |= extra
    if document is not None:
        documents["header.json"] = document
    return zip_bytes(
        {name: json.dumps(content).encode() for name, content in documents.items()}, method
    )


def write_eval(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
