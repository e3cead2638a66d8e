"""Any table of runs (CSV, Excel, JSON, Parquet): a task, an outcome, and what was done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    unusable,
    words,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.messages import (
    first_prompt,
    from_first,
    messages_of,
    steps_of_messages,
)
from certify_assets.corpora.formats.records import (
    DELIMITED,
    JSON,
    PARQUET,
    SHEETS,
    Opened,
    Record,
    begins_json,
    opened,
)
from certify_assets.corpora.formats.texts import is_list_of_objects, parsed, text_of
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets.tables.cells import MISSING_ID, name_of
from certify_assets.tables.table import likely_column, matched, renamed

_FIELDS = frozenset(
    words("task_id outcome text steps messages trajectory_id agent attempt instruction")
)
_TEXTS = ("steps", "messages", "text")
#: what a column of each field may be called otherwise
_KINDS = {"task_id": "task", "outcome": "outcome", "text": "text"}
_HEAD = 64


class _NoTableError(BrokenFileError):
    """A file holds no row that can be used."""


def _fits(file: SourceFile) -> bool:
    if _is_other_json(file):
        return False
    try:
        names = matched(_opened(file, _FIELDS).names, _FIELDS)
    except InputError:
        return False
    return {"task_id", "outcome"} <= names.keys() and not names.keys().isdisjoint(_TEXTS)


def _explain(file: SourceFile) -> str | None:
    if _is_other_json(file):
        return None
    try:
        _called(file, _opened(file, _FIELDS).names, _columns({}), ("task_id", "outcome"))
    except InputError as error:
        return str(error)
    return None


@corpus_format(
    title="table of runs (CSV, Excel, JSON, JSON lines or Parquet)",
    suffixes=(*DELIMITED, *SHEETS, *JSON, *PARQUET),
    fits=_fits,
    explain=_explain,
    label_source="the column outcome",
    options={
        "columns": "names of the columns, by field",
        "agent": "agent of rows that name none",
    },
)
def table(files: FileSet, reading: Reading) -> Drafts:
    """Read one run a row or line."""
    columns = _columns(reading.options.get("columns") or {})
    needed = ("task_id",) if reading.options.get("keep_unlabelled") else ("task_id", "outcome")
    texts = frozenset(columns[name] for name in _TEXTS)
    for file in files:
        try:
            found = None if _is_other_json(file) else _opened(file, frozenset(columns.values()))
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
            continue
        if found is None or (file.suffix == ".json" and not matched(found.names, texts)):
            reading.other(file.name, "holds no list of runs.")
            continue
        called = _called(file, found.names, columns, needed)
        reading.sha256(file)
        fields = {name: called.get(column, "") for name, column in columns.items()}
        draft = partial(_draft, fields=fields, outcome_name=columns["outcome"], reading=reading)
        rows = reading.placed(file, found.rows(list(called.values())))
        yield from reading.runs(rows, draft)
        reading.understood(file.name, (*found.read_as, *renamed(called)))


def _columns(mapping: Any) -> dict[str, str]:
    if not isinstance(mapping, Mapping):
        raise InputError(
            f"the option columns is {mapping!r}; give an object such as {{'task_id': 'problem'}}."
        )
    if unknown := sorted(set(mapping) - _FIELDS):
        raise InputError(
            f"the option columns names {unknown[0]!r}, which no trajectory has; map "
            f"{', '.join(sorted(_FIELDS))}."
        )
    return {name: str(mapping.get(name, name)) for name in _FIELDS}


def _called(
    file: SourceFile, names: list[str], columns: Mapping[str, str], needed: tuple[str, ...]
) -> dict[str, str]:
    """Return what a file calls the wanted columns; refuse one that lacks any that is needed."""
    called = matched(names, frozenset(columns.values()))
    missing = [name for name in needed if columns[name] not in called]
    if called.keys().isdisjoint(columns[name] for name in _TEXTS):
        missing += ["text", "steps"]
    if not missing:
        return called
    *others, last = (f"no column {columns[name]!r}" for name in missing)
    lacks = f"{', '.join(others)} and {last}" if others else last
    its = f"(its columns are {', '.join(sorted(names)) or 'none'})"
    if missing == ["text", "steps"] and matched(names, {"score"}):
        raise InputError(
            f"{file.name} has scores of runs but {lacks} with what the runs did {its}; for a "
            "table of scores use `certify certificate`, and for a corpus add one of these columns."
        )
    # those that are missing as they may be called
    given = {name: column for name, column in columns.items() if column != name}
    for name in (name for name in missing if name in _KINDS):
        taken = {*called.values(), *given.values()}
        given[name] = likely_column(_KINDS[name], names, taken).get(_KINDS[name], "…")
    raise InputError(
        f"{file.name} has {lacks} {its}; rename them, or name them with --format table --option "
        f"'columns={json.dumps(given, ensure_ascii=False)}'."
    )


def _opened(file: SourceFile, wanted: frozenset[str]) -> Opened:
    """Open a file; refuse one that holds no table."""
    found = opened(file, wanted)
    first = None if file.suffix in PARQUET else next(found.rows(found.names), None)
    if found.names and (first or file.suffix in PARQUET):
        return found
    problem = f"row 1 cannot be used: {first[1]}" if first else "it is empty, or has no row"
    raise _NoTableError(
        f"{file.name} holds no table ({problem}); write one row a run, with the columns task_id, "
        "outcome and text or steps."
    )


def _is_other_json(file: SourceFile) -> bool:
    """Whether a file holds JSON that is no list, as those of many formats do."""
    return file.suffix == ".json" and not begins_json(file.head(_HEAD), b"[")


def _draft(
    record: Record,
    origin: Origin,
    *,
    fields: Mapping[str, str],
    outcome_name: str,
    reading: Reading,
) -> Draft:
    row = {name: record.get(column) for name, column in fields.items()}
    if (task := _identity(row["task_id"])) is None:
        raise unusable("it has no task_id")
    instruction, steps = _said(row, reading)
    if not any(step.action.strip() or step.observation.strip() for step in steps):
        raise LeftOutError("no_trajectory", "cannot be used: nothing of it was recorded")
    return Draft(
        task_id=task,
        agent=_identity(row["agent"]) or str(reading.options.get("agent") or "unknown"),
        instruction=instruction,
        steps=steps,
        outcome=row["outcome"],
        outcome_name=outcome_name,
        origin=origin,
        trajectory_id=_identity(row["trajectory_id"]),
        attempt=_attempt(row["attempt"]),
        # rows of one table are runs of their own, however alike, unless the table says by an id
        # that they are the same
        repetition=str(origin.row),
        named_agent=_identity(row["agent"]) or "",
    )


def _identity(value: Any) -> str | None:
    """Return an id as text: 3 and 3.0 of a numeric column are "3"; None where it is missing."""
    text = (name_of(value) or "").strip()
    return None if text.lower() in MISSING_ID else text


def _attempt(value: Any) -> int | None:
    text = _identity(value)
    if text is None:
        return None
    if not text.removesuffix(".0").isdecimal() or len(text) > 10:
        raise unusable(f"its attempt is {str(value)[:40]!r}, not a number from 0")
    return int(text.removesuffix(".0"))


def _said(row: Record, reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return instruction and steps: of messages, of pairs of action and observation, or a text."""
    instruction = text_of(row["instruction"])
    name = next((name for name in _TEXTS if row[name] not in (None, "")), "text")
    value = row[name] if name == "text" else parsed(row[name])
    if is_list_of_objects(value) and all("role" in record for record in value):
        chat = messages_of(value, tools_by_call=False)
        if not any(message.role == "assistant" for message in chat):
            raise LeftOutError(
                "no_trajectory", "cannot be used: it holds no message with the role assistant"
            )
        if instruction:
            return instruction, steps_of_messages(chat, reading)
        # what was asked is no step, as in other formats
        spoken = from_first(chat, "assistant", "tool")
        return first_prompt(chat), steps_of_messages(spoken, reading)
    if name == "steps":
        if not isinstance(value, list):
            raise unusable("its steps are not a list in JSON")
        return instruction, tuple(_pair(step, place) for place, step in enumerate(value, 1))
    if not isinstance(value, str | None):
        raise unusable("it has neither steps nor text")
    return instruction, (Step("", value or ""),)


def _pair(step: Any, place: int) -> Step:
    values = [step.get("action"), step.get("observation")] if isinstance(step, dict) else step
    pair = isinstance(values, list | tuple) and len(values) == 2 and values != [None, None]
    if not pair or not all(isinstance(value, str | None) for value in values):
        raise unusable(f"its step {place} is not an action with an observation")
    return Step(values[0] or "", values[1] or "")
