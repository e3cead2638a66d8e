"""The Parquet tables of SWE-rebench (OpenHands) and of SWE-agent trajectories by Nebius."""

from __future__ import annotations

import re
from typing import NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Origin,
    Reading,
    corpus_format,
    parquet_records,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.swe_reports import issue_text, task_of
from certify_assets.corpora.formats.texts import (
    Message,
    calls_text,
    first_prompt,
    from_first,
    message_text,
    name_of,
    objects,
    steps_of_messages,
    text_of,
)

_BATCH_ROWS = 32
_MESSAGE_FIELDS = frozenset(
    {"role", "content", "text", "name", "tool_calls", "function", "arguments"}
)
_OF_MESSAGES = frozenset({"trajectory", "list", "element", "item"})
_SCAFFOLD = "OpenHands Qwen3-Coder-480B-A35B-Instruct"


class _Schema(NamedTuple):
    label: str | None
    agent: str | None
    identity: str | None


def _schema(leaves: list[str]) -> _Schema | None:
    names = {leaf.split(".")[0] for leaf in leaves}
    if not {"instance_id", "trajectory"} <= names:
        return None
    label = next((label for label in ("resolved", "target") if label in names), None)
    # new runs may have no label; their messages tell them from other tables
    if label is None and not any(re.match(r"trajectory\b.*\.role$", leaf) for leaf in leaves):
        return None
    identity = "trajectory_id" if "trajectory_id" in names else None
    agent = "model_name" if "model_name" in names else None
    return _Schema(label, agent, identity)


def _leaves(file: SourceFile) -> list[str] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with file.open() as stream:
            schema = pq.ParquetFile(stream).schema
            return [schema.column(number).path for number in range(len(schema))]
    except (pa.ArrowException, OSError, ValueError):
        return None


def _wanted(leaves: list[str], schema: _Schema) -> list[str]:
    plain = {"instance_id", *filter(None, schema)}
    return [
        leaf
        for leaf in leaves
        if leaf in plain or (leaf.startswith("trajectory") and _is_said(leaf))
    ]


def _is_said(leaf: str) -> bool:
    return all(part in _MESSAGE_FIELDS for part in leaf.split(".") if part not in _OF_MESSAGES)


def _fits(file: SourceFile) -> bool:
    leaves = _leaves(file)
    return leaves is not None and _schema(leaves) is not None


def _explain(file: SourceFile) -> str | None:
    if file.size > file.limit:
        return (
            f"{file.name} has {file.size:,} bytes and was not looked into; raise the option "
            "max_file_mb or name its format."
        )
    return _other(file) if "instance_id" in (_leaves(file) or ()) else None


def _other(file: SourceFile) -> str:
    return (
        f"{file.name} has no columns instance_id, trajectory and resolved (or target), as the "
        "tables of SWE-rebench have."
    )


@corpus_format(
    title="SWE-rebench OpenHands and SWE-agent trajectories (Parquet)",
    suffixes=(".parquet", ".pq"),
    domain="software",
    fits=_fits,
    explain=_explain,
    label_source="tests of the instance, run on the agent's patch",
)
def swe_rebench(files: FileSet, reading: Reading) -> Drafts:
    """Read the rows of trajectory tables."""
    for file in files:
        leaves = _leaves(file)
        schema = _schema(leaves) if leaves else None
        if leaves is None:
            reading.drop("file_unreadable", f"{file.name} is not a Parquet file; fetch it again.")
        elif schema is None:
            reading.tally.other(file.name, _other(file))
        else:
            yield from _read_table(file, _wanted(leaves, schema), schema, reading)


def _read_table(file: SourceFile, columns: list[str], schema: _Schema, reading: Reading) -> Drafts:
    reading.sha256(file)
    for origin, values in parquet_records(file, columns, reading, batch_rows=_BATCH_ROWS):
        task, messages = values.get("instance_id"), values.get("trajectory")
        if not isinstance(task, str) or not task.strip() or not isinstance(messages, list):
            reading.unusable(origin, "it has no instance_id or no trajectory")
        else:
            yield from _draft(values, schema, origin, reading)


def _draft(values: Record, schema: _Schema, origin: Origin, reading: Reading) -> Drafts:
    messages = [_message(message) for message in objects(values["trajectory"])]
    steps = steps_of_messages(from_first(messages, "assistant"), reading)
    if not steps:
        reading.drop("no_trajectory", f"{origin} holds a run in which the agent said nothing.")
    else:
        agent = text_of(values.get(schema.agent)) if schema.agent else ""
        yield Draft(
            task_id=task_of(values["instance_id"]),
            agent=(name_of(agent) or "unknown") if schema.agent else _SCAFFOLD,
            instruction=issue_text(first_prompt(messages)),
            steps=steps,
            outcome=values.get(schema.label) if schema.label else None,
            outcome_name=schema.label or "outcome",
            origin=origin,
            trajectory_id=name_of(values.get(schema.identity)) if schema.identity else None,
            # a row is a run of its own, however alike
            repetition=str(origin.row),
            named_agent=agent,
        )


def _message(record: Record) -> Message:
    role, content = text_of(record.get("role")), record.get("content")
    return Message(
        "assistant" if role == "ai" else role,
        message_text(record.get("text") if content is None else content),
        calls_text(record.get("tool_calls")),
        str(record.get("name") or ""),
    )
