"""Inspect AI logs written by hand, byte by byte where zipfile cannot write them."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

STORED, DEFLATED, ZSTD = 0, 8, 93


def packed(data: bytes, method: int) -> bytes:
    if method == DEFLATED:
        squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
        return squeeze.compress(data) + squeeze.flush()
    return bytes(pa.compress(data, "zstd", asbytes=True)) if method == ZSTD else data


def zip_bytes(members: Mapping[str, bytes], method: int = DEFLATED) -> bytes:
    """Write a zip archive with one method for all members."""
    body, directory = b"", b""
    for name, data in members.items():
        content, encoded = packed(data, method), name.encode()
        fields = struct.pack(
            "<HHHHHIIIHH",
            20,
            0x800,
            method,
            0,
            33,
            zlib.crc32(data),
            len(content),
            len(data),
            len(encoded),
            0,
        )
        directory += (
            b"PK\x01\x02"
            + struct.pack("<H", 20)
            + fields
            + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
            + encoded
        )
        body += b"PK\x03\x04" + fields + encoded + content
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive that `zip_bytes` wrote."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {member.filename: _content(data, member) for member in archive.infolist()}


def _content(data: bytes, member: zipfile.ZipInfo) -> bytes:
    begin = member.header_offset + 30 + len(member.filename.encode())
    content = data[begin : begin + member.compress_size]
    if member.compress_type == ZSTD:
        return bytes(pa.decompress(content, member.file_size, "zstd", asbytes=True))
    return zlib.decompress(content, -15) if member.compress_type == DEFLATED else content


def header(task: str = "sums", status: str = "success", **about: Any) -> dict[str, Any]:
    shared = {
        "task": task,
        "task_id": "t1",
        "run_id": f"run-{task}",
        "eval_id": f"eval-{task}",
        "model": "maker/model-x",
    }
    shared["created"] = "2026-01-31T12:00:00+00:00"
    return {"version": 2, "status": status, "eval": shared | {"dataset": {}, "config": {}} | about}


def sample(
    identity: int | str, value: Any = "C", epoch: int = 1, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    """One sample: a question, a thought with a call, its result (an attachment), an answer."""
    messages = [
        {"role": "system", "content": "attachment://" + "d" * 32},
        {"role": "user", "source": "input", "content": f"What is {identity} + 1?"},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "reasoning": "I add."},
                {"type": "text", "text": "Let me see."},
            ],
            "tool_calls": [
                {
                    "id": "c",
                    "function": "calc",
                    "arguments": {"sum": f"{identity}+1"},
                    "type": "function",
                }
            ],
        },
        {
            "role": "tool",
            "function": "calc",
            "tool_call_id": "c",
            "content": "attachment://" + "a" * 32,
        },
        {
            "role": "assistant",
            "content": f"It is {identity}1 in epoch {epoch}.",
            "metadata": {"note": canary},
        },
    ]
    score = {"value": value, "answer": canary, "explanation": canary, "metadata": {"note": canary}}
    return {
        "id": identity,
        "epoch": epoch,
        "input": f"What is {identity} + 1?",
        "target": canary or "2",
        "messages": messages,
        "output": {"choices": [{"message": messages[-1], "stop_reason": "stop"}]},
        "scores": {"match": score},
        "metadata": {"solution": canary},
        "store": {"note": canary},
        "setup": canary,
        "files": [canary or "a.txt"],
        "events": [{"event": "score", "score": score}],
        "attachments": {"a" * 32: "two", "c" * 32: canary or "", "d" * 32: "You add."},
        "error": None,
        "limit": None,
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
