"""Formats that are a mapping: which field of a record holds the task, the outcome, the texts.

A format whose records are runs needs no function::

    mapped_format(
        "deck",
        {"task_id": "deck_run", "agent": "agent", "outcome": "result.solved", "messages": "chat"},
        title="Deck logs",
        suffixes=JSON,
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from typing import Any

from certify_assets.corpora.formats.base import (
    CorpusFormat,
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import (
    chat_of_items,
    first_prompt,
    from_first,
    messages_of,
    steps_of_messages,
)
from certify_assets.corpora.formats.records import (
    Record,
    has_fields,
    inside,
    is_list_of_objects,
    parsed,
    text_of,
)
from certify_assets.corpora.trajectory import Step
from certify_assets.tables.cells import MISSING_ID, name_of
from certify_assets.tables.reading import SHEETS

#: what a record may hold of a run
FIELDS = frozenset(
    words("task_id outcome text steps messages trajectory_id agent attempt instruction")
)
#: fields that hold what was done, the first that is there
TEXTS = ("steps", "messages", "text")


def mapped_format(
    name: str,
    fields: Mapping[str, str],
    *,
    adjusted: Callable[[Draft, Record], Draft] = lambda draft, record: draft,
    **about: Any,
) -> CorpusFormat:
    """Register a format whose records are runs.

    Parameters
    ----------
    name : str
        Value of the option `format`.
    fields : mapping of str to str
        For some of `FIELDS`, the key in a record. Dots lead into objects. Bars separate alternative
        keys; the first one present counts. A file has this format if its records have the keys of
        task and texts.
    adjusted : callable
        Changes a run, if copying fields is not enough.
    **about
        Title, suffixes and the other fields of `CorpusFormat`.
    """
    keys = {field: [path.split(".")[0] for path in fields[field].split("|")] for field in fields}
    needed = {keys[field][0] for field in ("task_id", *TEXTS) if field in keys}
    every = [key for several in keys.values() for key in several]

    def read(files: FileSet, reading: Reading) -> Drafts:
        def draft(record: Record, origin: Origin) -> Draft:
            return adjusted(draft_of(record, origin, fields=fields, reading=reading), record)

        found = reading.records(files, lambda record: record.keys() >= needed, fields=every)
        yield from reading.runs(found, draft)

    read.__name__ = name
    return corpus_format(fits=lambda file: has_fields(file, needed), **about)(read)


def _value(record: Record, paths: str) -> tuple[str, Any]:
    """Return the first path that is present, and its value."""
    # a column without a name is no field
    if not paths:
        return paths, None
    if paths in record:
        return paths, record[paths]
    for path in paths.split("|"):
        if (value := inside(record, *path.split("."))) is not None:
            return path, value
    return paths, None


def draft_of(
    record: Record, origin: Origin, *, fields: Mapping[str, str], reading: Reading
) -> Draft:
    """Make a run from the fields of a record; `fields` as for `mapped_format`."""
    found = {name: _value(record, fields.get(name, "")) for name in FIELDS}
    row = {name: value for name, (_, value) in found.items()}
    for name in ("task_id", "trajectory_id"):
        # Excel makes dates of names such as 3-1
        if origin.file.lower().endswith(SHEETS) and isinstance(row[name], date | time):
            raise LeftOutError(f"its {name} is a date; give it as text")
    if (task := _identity(row["task_id"])) is None:
        raise LeftOutError("it has no task_id")
    instruction, steps = _said(row, reading)
    said = any(step.action.strip() or step.observation.strip() for step in steps)
    if not said and not reading.judged:
        raise LeftOutError("cannot be used: nothing of it was recorded", "no_trajectory")
    agent = _identity(row["agent"]) or ""
    return Draft(
        task_id=task,
        agent=agent or str(reading.options.get("agent") or "unknown"),
        instruction=instruction,
        steps=steps,
        outcome=row["outcome"],
        outcome_name=found["outcome"][0] or "outcome",
        origin=origin,
        trajectory_id=_identity(row["trajectory_id"]),
        attempt=_attempt(row["attempt"]),
        named_agent=agent,
    )


def _identity(value: Any) -> str | None:
    """Return an id as text: 3 and 3.0 of a numeric column are "3"; None if it is missing."""
    text = (name_of(value) or "").strip()
    return None if text.lower() in MISSING_ID else text


def _attempt(value: Any) -> int | None:
    text = _identity(value)
    if text is None:
        return None
    if not text.removesuffix(".0").isdecimal() or len(text) > 9:
        raise LeftOutError(f"its attempt is {str(value)[:40]!r}, not a number from 0")
    return int(text.removesuffix(".0"))


def _said(row: Record, reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return instruction and steps: from messages, pairs of action and observation, or a text."""
    instruction = text_of(row["instruction"])
    name = next((name for name in TEXTS if row[name] not in (None, "")), "text")
    value = row[name] if name == "text" else parsed(row[name])
    if is_list_of_objects(value):
        value = chat_of_items(value)
    if is_list_of_objects(value) and all("role" in record for record in value):
        chat = messages_of(value, tools_by_call=False)
        if not any(message.role == "assistant" for message in chat):
            said = "cannot be used: it holds no message with the role assistant"
            raise LeftOutError(said, "no_trajectory")
        if instruction:
            return instruction, steps_of_messages(chat, reading)
        # what was asked is no step, as in other formats
        spoken = from_first(chat, "assistant", "tool")
        return first_prompt(chat), steps_of_messages(spoken, reading)
    if name == "steps":
        if not isinstance(value, list):
            raise LeftOutError("its steps are not a list in JSON")
        return instruction, tuple(_pair(step, place) for place, step in enumerate(value, 1))
    if not isinstance(value, str | None):
        raise LeftOutError("it has no text, and neither steps nor messages with roles")
    return instruction, (Step("", value or ""),)


def _pair(step: Any, place: int) -> Step:
    values = [step.get("action"), step.get("observation")] if isinstance(step, dict) else step
    pair = isinstance(values, list | tuple) and len(values) == 2 and values != [None, None]
    if not pair or not all(isinstance(value, str | None) for value in values):
        raise LeftOutError(f"its step {place} is not an action with an observation")
    return Step(values[0] or "", values[1] or "")
