"""The Parquet tables of SWE-rebench (OpenHands) and of SWE-agent trajectories by Nebius."""

from __future__ import annotations

from functools import partial

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Origin,
    Reading,
    corpus_format,
    unusable,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet
from certify_assets.corpora.formats.messages import (
    first_prompt,
    from_first,
    messages_of,
    steps_of_messages,
)
from certify_assets.corpora.formats.records import PARQUET, Record, has_fields, opened
from certify_assets.corpora.formats.swe_reports import issue_text, task_of
from certify_assets.corpora.formats.texts import name_of, objects, text_of

_REQUIRED = ("instance_id", "trajectory")
_LABELS = ("resolved", "target")
_COLUMNS = {*_REQUIRED, *_LABELS, "model_name", "trajectory_id"}
_SCAFFOLD = "OpenHands Qwen3-Coder-480B-A35B-Instruct"


@corpus_format(
    title="SWE-rebench OpenHands and SWE-agent trajectories (Parquet)",
    suffixes=PARQUET,
    domain="software",
    fits=lambda file: has_fields(file, _REQUIRED),
    label_source="tests of the instance, run on the agent's patch",
)
def swe_rebench(files: FileSet, reading: Reading) -> Drafts:
    """Read the rows of trajectory tables."""
    for file in files:
        try:
            found = opened(file)
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
            continue
        if not set(found.names).issuperset(_REQUIRED):
            reading.other(file.name, "has no columns instance_id and trajectory.")
            continue
        rows = reading.placed(file, found.rows(_COLUMNS.intersection(found.names)))
        yield from reading.runs(rows, partial(_draft, reading=reading))


def _draft(row: Record, origin: Origin, *, reading: Reading) -> Draft:
    task = name_of(row["instance_id"])
    if task is None or not isinstance(row["trajectory"], list):
        raise unusable("it has no instance_id or no trajectory")
    said = (
        {"content": message.get("text"), **_set(message)} for message in objects(row["trajectory"])
    )
    messages = messages_of(list(said))
    label = next((name for name in _LABELS if name in row), "outcome")
    agent = text_of(row.get("model_name"))
    return Draft(
        task_id=task_of(task),
        agent=(name_of(agent) or "unknown") if "model_name" in row else _SCAFFOLD,
        instruction=issue_text(first_prompt(messages)),
        steps=steps_of_messages(from_first(messages, "assistant"), reading),
        outcome=row.get(label),
        outcome_name=label,
        origin=origin,
        trajectory_id=name_of(row.get("trajectory_id")),
        # a row is a run of its own, however alike
        repetition=str(origin.row),
        named_agent=agent,
    )


def _set(message: Record) -> Record:
    """Leave out fields that Parquet gives to every message."""
    return {name: value for name, value in message.items() if value is not None}
