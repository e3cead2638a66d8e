"""Any table of runs (CSV, Excel, JSON, Parquet): a task, an outcome, and the actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from certify_assets.corpora.formats.base import Drafts, Reading, corpus_format
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.mapping import FIELDS, TEXTS, draft_of
from certify_assets.corpora.formats.records import DELIMITED, JSON, PARQUET, Opened, begins, opened
from certify_assets.errors import InputError
from certify_assets.tables.cells import likely_column
from certify_assets.tables.reading import SHEETS, matched, refuse_alike, renamed

#: what a column of each field may be called otherwise
_KINDS = {"task_id": "task", "outcome": "outcome", "text": "text"}


def _fits(file: SourceFile) -> bool:
    if _is_other_json(file):
        return False
    try:
        names = matched(_opened(file, FIELDS).names, FIELDS)
    except InputError:
        return False
    return "task_id" in names and not names.keys().isdisjoint(TEXTS)


def _explain(file: SourceFile) -> str | None:
    if _is_other_json(file):
        return None
    try:
        _called(file, _opened(file, FIELDS).names, _columns({}), ("task_id", "outcome"))
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
    """Read one run for each row or line."""
    columns = _columns(reading.options.get("columns") or {})
    needed = ("task_id",) if reading.options.get("keep_unlabelled") else ("task_id", "outcome")
    texts = frozenset(columns[name] for name in TEXTS)
    for file in files:
        try:
            found = None if _is_other_json(file) else _opened(file, frozenset(columns.values()))
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
            continue
        if found is None or (file.suffix == ".json" and not matched(found.names, texts)):
            reading.other(file.name)
            continue
        called = _called(file, found.names, columns, needed)
        reading.origin(file)
        fields = {name: called.get(column, "") for name, column in columns.items()}
        draft = partial(draft_of, fields=fields, reading=reading)
        rows = reading.placed(file, found.rows(list(called.values())))
        yield from reading.runs(rows, draft)
        reading.understood(file.name, (*found.read_as, *renamed(called)))


def _columns(mapping: Any) -> dict[str, str]:
    if not isinstance(mapping, Mapping):
        raise InputError(
            f"the option columns is {mapping!r}; give an object such as {{'task_id': 'problem'}}."
        )
    if unknown := sorted(set(mapping) - FIELDS):
        raise InputError(
            f"the option columns names {unknown[0]!r}, which no trajectory has; map "
            f"{', '.join(sorted(FIELDS))}."
        )
    return {name: str(mapping.get(name, name)) for name in FIELDS}


def _called(
    file: SourceFile, names: list[str], columns: Mapping[str, str], needed: tuple[str, ...]
) -> dict[str, str]:
    """Return a file's names of the wanted columns; refuse a file without a needed one."""
    called = matched(names, frozenset(columns.values()))
    refuse_alike(file.name, names, (name for name, column in columns.items() if name == column))
    missing = [name for name in needed if columns[name] not in called]
    if called.keys().isdisjoint(columns[name] for name in TEXTS):
        missing += TEXTS
    if not missing:
        return called
    *others, last = (f"no column {columns[name]!r}" for name in missing)
    lacks = f"{', '.join(others)} and {last}" if others else last
    its = f"(its columns are {', '.join(sorted(names)) or 'none'})"
    if missing == [*TEXTS] and matched(names, {"score"}):
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
    """Open a file; refuse one without a table."""
    found = opened(file, wanted)
    # names of JSON are those of a row, and Parquet has names without any
    first = None if found.names and file.suffix in (*JSON, *PARQUET) else next(found.rows([]), None)
    if found.names and (first or file.suffix in (*JSON, *PARQUET)):
        return found
    problem = f"row 1 cannot be used: {first[1]}" if first else "it is empty, or has no row"
    raise BrokenFileError(
        f"{file.name} holds no table ({problem}); write one row a run, with the columns task_id, "
        "outcome and text, steps or messages."
    )


def _is_other_json(file: SourceFile) -> bool:
    """Whether a file holds JSON that is not a list, as in many other formats."""
    return file.suffix == ".json" and not begins(file, b"[")
