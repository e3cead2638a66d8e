"""Any table of runs (CSV, JSON lines, Parquet): a task, an outcome, and text or steps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Origin,
    Reading,
    corpus_format,
    excerpt,
    words,
)
from certify_assets.corpora.formats.files import BrokenFileError, SourceFile
from certify_assets.corpora.formats.records import Record, iter_lines, parquet_names, parquet_rows
from certify_assets.corpora.formats.texts import text_of
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets.tables.delimited import SEPARATORS, long_fields

_FIELDS = words("task_id outcome text steps trajectory_id agent attempt instruction")
_OUTCOMES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_MISSING = frozenset({"", "nan", "none", "null", "na", "n/a"})
_NOT_UTF8 = frozenset(map(chr, range(0xDC80, 0xDD00)))

_FIRST_LINES = 100
_BATCH_ROWS = 1024

_Row = tuple[int, Record | str]


class _Unusable(NamedTuple):
    """Why a row is left out: the reason that is counted, and what is wrong with it in words."""

    reason: str
    words: str


def _fits(file: SourceFile) -> bool:
    try:
        names = _column_names(file)
    except InputError:
        return False
    return names is not None and {"task_id", "outcome"} <= names and bool({"text", "steps"} & names)


def _explain(file: SourceFile) -> str | None:
    try:
        names = _column_names(file)
        if names is None:
            return _no_table(file)
        _check_columns(file, names, _columns({}))
    except InputError as error:
        return str(error)
    return None


def _no_table(file: SourceFile) -> str:
    if not file.size:
        return (
            f"{file.name} is empty; write one row a run, with the columns task_id, outcome and "
            "text or steps."
        )
    if file.suffix in (".parquet", ".pq"):
        return f"{file.name} is not a Parquet file; write it again."
    for row, values in _rows(file, set()):
        if isinstance(values, str):
            return f"{file.name} row {row} cannot be used: {values}; correct it."
    return (
        f"{file.name} has no row; write one row a run, with the columns task_id, outcome and text "
        "or steps."
    )


@corpus_format(
    title="table of runs (CSV, JSON lines or Parquet)",
    suffixes=(".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq"),
    fits=_fits,
    explain=_explain,
    label_source="the column outcome",
    options={"columns": "names of the columns, by field", "agent": "agent of rows that name none"},
)
def table(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read one run a row or line."""
    columns = _columns(reading.options.get("columns") or {})
    needed = ("task_id",) if reading.options.get("keep_unlabelled") else ("task_id", "outcome")
    for file in files:
        try:
            names = _column_names(file)
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
            continue
        if names is None:
            reading.drop("file_unreadable", _no_table(file))
            continue
        _check_columns(file, names, columns, needed)
        reading.sha256(file)
        for row, values in _rows(file, names & set(columns.values())):
            draft = (
                _unreadable(values)
                if isinstance(values, str)
                else _draft(values, columns, reading.origin(file, row), reading)
            )
            if isinstance(draft, _Unusable):
                reading.drop(draft.reason, f"{file.name} row {row} cannot be used: {draft.words}.")
            else:
                yield draft


def _unreadable(words: str) -> _Unusable:
    return _Unusable("unreadable_record", words)


def _columns(mapping: Any) -> dict[str, str]:
    if not isinstance(mapping, Mapping):
        raise InputError(
            f"the option columns is {mapping!r}; give an object such as {{'task_id': 'problem'}}."
        )
    if unknown := sorted(set(mapping) - set(_FIELDS)):
        raise InputError(
            f"the option columns names {unknown[0]!r}, which no trajectory has; map "
            f"{', '.join(_FIELDS)}."
        )
    return {name: str(mapping.get(name, name)) for name in _FIELDS}


def _check_columns(
    file: SourceFile,
    names: set[str],
    columns: Mapping[str, str],
    needed: tuple[str, ...] = ("task_id", "outcome"),
) -> None:
    found = f"(its columns are {', '.join(sorted(names)) or 'none'})"
    for name in needed:
        if columns[name] not in names:
            raise InputError(
                f"{file.name} has no column {columns[name]!r} {found}; {_remedy(name)}."
            )
    if columns["text"] not in names and columns["steps"] not in names:
        raise InputError(
            f"{file.name} has no column {columns['text']!r} and no column "
            f"{columns['steps']!r} {found}; {_remedy('text')}."
        )


def _remedy(name: str) -> str:
    return f'rename one, or name it with --format table --option \'columns={{"{name}": "…"}}\''


def _column_names(file: SourceFile) -> set[str] | None:
    """Return the names of a table's columns (of JSON lines: the keys of the first good lines)."""
    if file.suffix in (".parquet", ".pq"):
        return parquet_names(file)
    if file.suffix in (".csv", ".tsv"):
        return next((set(values) for _, values in csv_rows(file) if isinstance(values, dict)), None)
    good = [
        values
        for _, values in islice(iter_lines(file.read()), _FIRST_LINES)
        if isinstance(values, dict)
    ]
    return {name for values in good for name in values} if good else None


def _rows(file: SourceFile, wanted: set[str]) -> Iterator[_Row]:
    if file.suffix in (".parquet", ".pq"):
        yield from parquet_rows(file, sorted(wanted), batch_rows=_BATCH_ROWS)
    elif file.suffix in (".csv", ".tsv"):
        yield from csv_rows(file)
    else:
        yield from iter_lines(file.read())


def csv_rows(file: SourceFile) -> Iterator[_Row]:
    """Go through the rows of a CSV file."""
    text = file.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter="\t" if file.suffix == ".tsv" else ",", strict=True
    )
    header: list[str] | None = None
    while True:
        first = reader.line_num + 1
        try:
            with long_fields():
                cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # a quote that is never closed takes in all that follows: the row that opened it is the
            # one to look at
            rest = (
                f", with the quote that it opens and nothing closes up to line {reader.line_num}"
                if reader.line_num > first
                else ""
            )
            yield first, f"it is not CSV ({error}){rest}"
            continue
        if header is None:
            header = _header(file, cells)
        elif cells and len(cells) != len(header):
            yield reader.line_num, f"it has {len(cells)} cells, the header has {len(header)}"
        elif cells and not _NOT_UTF8.isdisjoint("".join(cells)):
            yield reader.line_num, "it is not UTF-8"
        elif cells:
            yield reader.line_num, dict(zip(header, cells, strict=True))


def _header(file: SourceFile, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    for separator, called in SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise InputError(
                f"{file.name} is separated by {called}; save it with commas, or with tabs "
                "under a name that ends in .tsv."
            )
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{file.name} has the column {repeated[0]!r} twice; rename one.")
    return names


def _draft(
    values: Mapping[str, Any],
    columns: Mapping[str, str],
    origin: Origin,
    reading: Reading,
) -> Draft | _Unusable:
    row = {name: values.get(column) for name, column in columns.items()}
    task, trajectory = _identity(row["task_id"]), _identity(row["trajectory_id"])
    outcome = _outcome(row["outcome"])
    attempt = _attempt(row["attempt"])
    steps = _steps(row)
    if task is None:
        return _unreadable("it has no task_id")
    if isinstance(outcome, str):
        return _Unusable("bad_outcome", outcome)
    if isinstance(attempt, str):
        return _unreadable(attempt)
    if isinstance(steps, str):
        return _unreadable(steps)
    return Draft(
        task_id=task,
        agent=_identity(row["agent"]) or str(reading.options.get("agent") or "unknown"),
        instruction=text_of(row["instruction"]),
        steps=steps,
        outcome=outcome,
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
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    return text or None


def _outcome(value: Any) -> int | str | None:
    if value is None or str(value).strip().lower() in _MISSING:
        return None
    outcome = _OUTCOMES.get(str(value).strip().lower())
    return f"its outcome is {str(value)[:40]!r}, neither 0 nor 1" if outcome is None else outcome


def _attempt(value: Any) -> int | str | None:
    if value is None or str(value).strip().lower() in _MISSING:
        return None
    text = str(value).strip().removesuffix(".0")
    return (
        int(text)
        if text.isdecimal() and len(text) < 10
        else f"its attempt is {str(value)[:40]!r}, not a number from 0"
    )


def _steps(row: Mapping[str, Any]) -> tuple[Step, ...] | str:
    steps, text = row["steps"], row["text"]
    if isinstance(steps, str) and steps.strip():
        try:
            steps = json.loads(steps)
        except (ValueError, RecursionError):
            return "its steps are not JSON"
    if steps is None or steps == "":
        return (
            (Step("", excerpt(text)),) if isinstance(text, str) else "it has neither steps nor text"
        )
    if not isinstance(steps, list):
        return "its steps are not a list"
    pairs = [_pair(step) for step in steps]
    if None in pairs:
        return f"its step {pairs.index(None) + 1} is not an action with an observation"
    return tuple(Step(excerpt(pair[0]), excerpt(pair[1])) for pair in pairs if pair is not None)


def _pair(step: Any) -> tuple[str, str] | None:
    values = [step.get("action"), step.get("observation")] if isinstance(step, Mapping) else step
    if not isinstance(values, list | tuple) or len(values) != 2 or values == [None, None]:
        return None
    if not all(value is None or isinstance(value, str) for value in values):
        return None
    return values[0] or "", values[1] or ""
