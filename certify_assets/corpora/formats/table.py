"""Any table of runs (CSV, Excel, JSON, Parquet): a task, an outcome, and what was done."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    Record,
    begins_json,
    iter_lines,
    json_value,
    listed_records,
    parquet_names,
    parquet_rows,
)
from certify_assets.corpora.formats.texts import (
    Message,
    first_prompt,
    from_first,
    is_list_of_objects,
    steps_of_messages,
    text_of,
)
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets.tables.cells import MISSING_ID, name_of
from certify_assets.tables.delimited import DelimitedText
from certify_assets.tables.sheets import find_sheet
from certify_assets.tables.table import likely_column, matched, refuse_repeated, renamed

_FIELDS = frozenset(
    words("task_id outcome text steps messages trajectory_id agent attempt instruction")
)
_TEXTS = ("text", "steps", "messages")
#: what a column of each field may be called otherwise
_KINDS = {"task_id": "task", "outcome": "outcome", "text": "text"}
_MISSING = frozenset({"", "nan", "none", "null", "na", "n/a"})
_FIRST_ROWS = 100
_PARQUET, _DELIMITED = (".parquet", ".pq"), (".csv", ".tsv")
_SHEETS = (".xlsx", ".xlsm")

_HEAD = 64
_BATCH_ROWS = 1024

_Row = tuple[int, Record | str]


class _NoTableError(InputError):
    """A file holds no row that can be used."""


class _Unusable(NamedTuple):
    """Why a row is left out: the reason that is counted, and what is wrong with it in words."""

    reason: str
    words: str


class _Table(NamedTuple):
    """A file as it was opened: what it calls its columns, and the rows of some of them."""

    names: list[str]
    rows: Callable[[list[str]], Iterator[_Row]]
    read_as: tuple[str, ...] = ()


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
        _called(file, _opened(file, _FIELDS).names, _columns({}))
    except InputError as error:
        return str(error)
    return None


@corpus_format(
    title="table of runs (CSV, Excel, JSON, JSON lines or Parquet)",
    suffixes=(*_DELIMITED, *_SHEETS, ".json", ".jsonl", ".ndjson", *_PARQUET),
    fits=_fits,
    explain=_explain,
    label_source="the column outcome",
    options={
        "columns": "names of the columns, by field",
        "agent": "agent of rows that name none",
    },
)
def table(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read one run a row or line."""
    columns = _columns(reading.options.get("columns") or {})
    needed = ("task_id",) if reading.options.get("keep_unlabelled") else ("task_id", "outcome")
    for file in files:
        if _is_other_json(file):
            reading.other(file, "holds no list of runs.")
            continue
        try:
            found = _opened(file, frozenset(columns.values()))
        except (BrokenFileError, _NoTableError) as error:
            reading.drop("file_unreadable", str(error))
            continue
        texts = frozenset(columns[name] for name in _TEXTS)
        if file.suffix == ".json" and not matched(found.names, texts):
            reading.other(file, "holds no list of runs.")
            continue
        called = _called(file, found.names, columns, needed)
        reading.sha256(file)
        for row, values in found.rows(list(called.values())):
            draft = (
                _unreadable(values)
                if isinstance(values, str)
                else _draft(
                    {name: values.get(called.get(column, "")) for name, column in columns.items()},
                    columns["outcome"],
                    reading.origin(file, row),
                    reading,
                )
            )
            if isinstance(draft, _Unusable):
                reading.drop(draft.reason, f"{file.name} row {row} cannot be used: {draft.words}.")
            else:
                yield draft
        reading.understood(file, (*found.read_as, *renamed(called)))


def _unreadable(words: str) -> _Unusable:
    return _Unusable("unreadable_record", words)


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
    file: SourceFile,
    names: list[str],
    columns: Mapping[str, str],
    needed: tuple[str, ...] = ("task_id", "outcome"),
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
        taken = {*matched(names, frozenset(columns.values())).values(), *given.values()}
        given[name] = likely_column(_KINDS[name], names, taken).get(_KINDS[name], "…")
    raise InputError(
        f"{file.name} has {lacks} {its}; rename them, or name them with --format table --option "
        f"'columns={json.dumps(given, ensure_ascii=False)}'."
    )


def _opened(file: SourceFile, wanted: AbstractSet[str]) -> _Table:
    """Open a file; refuse one that holds no table."""
    if file.suffix in _PARQUET:
        if (found := parquet_names(file)) is None:
            raise _NoTableError(f"{file.name} is not a Parquet file; write it again.")
        return _Table(
            sorted(found),
            lambda columns: parquet_rows(file, sorted(columns), batch_rows=_BATCH_ROWS),
        )
    read_as: tuple[str, ...] = ()
    if file.suffix in _SHEETS:
        sheet = find_sheet(file.name, io.BytesIO(file.read()), wanted)
        read_as = (sheet.read_as,)

        def rows() -> Iterator[_Row]:
            return ((line, dict(zip(sheet.header, row, strict=False))) for line, row in sheet.rows)

    elif file.suffix in _DELIMITED:
        read_as, _ = csv_rows(file, wanted)

        def rows() -> Iterator[_Row]:
            return csv_rows(file, wanted)[1]

    else:

        def rows() -> Iterator[_Row]:
            return _json_rows(file)

    first = [values for _, values in islice(rows(), _FIRST_ROWS)]
    names = list(dict.fromkeys(name for row in first if isinstance(row, dict) for name in row))
    if not names:
        said = f"row 1 cannot be used: {first[0]}" if first else "it is empty, or has no row"
        raise _NoTableError(
            f"{file.name} holds no table ({said}); write one row a run, with the columns task_id, "
            "outcome and text or steps."
        )
    return _Table(names, lambda _: rows(), read_as)


def _is_other_json(file: SourceFile) -> bool:
    """Whether a file holds JSON that is no list, as those of many formats do."""
    return file.suffix == ".json" and not begins_json(file.head(_HEAD), b"[")


def _json_rows(file: SourceFile) -> Iterator[_Row]:
    data = file.read()
    if file.suffix != ".json":
        return iter_lines(data)
    try:
        return listed_records(json_value(data))
    except ValueError as error:
        raise BrokenFileError(f"{file.name} cannot be used: {error}; correct it.") from None


def csv_rows(file: SourceFile, wanted: AbstractSet[str]) -> tuple[tuple[str, ...], Iterator[_Row]]:
    """Return what was understood of a CSV file, and its rows."""
    text = DelimitedText(file.name, file.read(), wanted)
    names = [name.strip() for name in text.header]
    refuse_repeated(file.name, names)
    rows = (
        (line, cells if isinstance(cells, str) else dict(zip(names, cells, strict=True)))
        for line, cells in text.rows(text.opened())
    )
    return text.read_as, rows


def _draft(row: Record, outcome_name: str, origin: Origin, reading: Reading) -> Draft | _Unusable:
    task, trajectory = _identity(row["task_id"]), _identity(row["trajectory_id"])
    attempt = _attempt(row["attempt"])
    instruction, chat = text_of(row["instruction"]), _chat(row)
    if not instruction and chat:
        # what was asked is no step, as in other formats
        instruction, chat = first_prompt(chat), [*from_first(chat, "assistant", "tool")]
    steps = _steps(row) if chat is None else steps_of_messages(chat, reading)
    if task is None:
        return _unreadable("it has no task_id")
    if isinstance(attempt, str):
        return _unreadable(attempt)
    if isinstance(steps, str):
        return _unreadable(steps)
    if not any(step.action.strip() or step.observation.strip() for step in steps):
        return _Unusable("no_trajectory", "nothing of it was recorded")
    if chat is not None and not any(step.action for step in steps):
        return _Unusable("no_trajectory", "it holds no message with the role assistant")
    return Draft(
        task_id=task,
        agent=_identity(row["agent"]) or str(reading.options.get("agent") or "unknown"),
        instruction=instruction,
        steps=steps,
        outcome=row["outcome"],
        outcome_name=outcome_name,
        origin=origin,
        trajectory_id=trajectory,
        attempt=attempt,
        # rows of one table are runs of their own, however alike, unless the table says by an id
        # that they are the same
        repetition=str(origin.row),
        named_agent=_identity(row["agent"]) or "",
    )


def _identity(value: Any) -> str | None:
    """Return an id as text: 3 and 3.0 of a numeric column are "3"; None where it is missing."""
    text = (name_of(value) or "").strip()
    return None if text.lower() in MISSING_ID else text


def _attempt(value: Any) -> int | str | None:
    if value is None or str(value).strip().lower() in _MISSING:
        return None
    text = str(value).strip().removesuffix(".0")
    return (
        int(text)
        if text.isdecimal() and len(text) < 10
        else f"its attempt is {str(value)[:40]!r}, not a number from 0"
    )


def _chat(row: Record) -> list[Message] | None:
    """Return the messages of a chat, in whatever column of texts they are."""
    for name in _TEXTS:
        value = row[name]
        if isinstance(value, str) and name == "messages":
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        if is_list_of_objects(value) and all("role" in record for record in value):
            return [Message.of(record) for record in value]
    return None


def _steps(row: Record) -> tuple[Step, ...] | str:
    steps, text = row["steps"], row["messages"] if row["text"] is None else row["text"]
    if isinstance(steps, str) and steps.strip():
        try:
            steps = json.loads(steps)
        except (ValueError, RecursionError):
            return "its steps are not JSON"
    if steps is None or steps == "":
        if not isinstance(text, str | None):
            return "it has neither steps nor text"
        return (Step("", text or ""),)
    if not isinstance(steps, list):
        return "its steps are not a list"
    pairs = [_pair(step) for step in steps]
    if None in pairs:
        return f"its step {pairs.index(None) + 1} is not an action with an observation"
    return tuple(Step(*pair) for pair in pairs if pair is not None)


def _pair(step: Any) -> tuple[str, str] | None:
    values = [step.get("action"), step.get("observation")] if isinstance(step, Mapping) else step
    if not isinstance(values, list | tuple) or len(values) != 2 or values == [None, None]:
        return None
    if not all(value is None or isinstance(value, str) for value in values):
        return None
    return values[0] or "", values[1] or ""
