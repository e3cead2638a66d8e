"""Tables of points for the certifiability law: CSV, Parquet, JSON Lines, or a JSON document with a list of points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, quoted
from certify_assets.evaluation.score_table import read_rows
from certify_assets.files import read_json
from certify_assets.research.law_points import LawPoint

__all__ = ["read_points"]

_NEEDED = ("corpus", "success_rate", "auroc", "coverage")
_OPTIONAL = ("n_eff", "tasks")
_MISSING = {"", "nan", "na", "null", "none"}


def read_points(path: Path) -> list[LawPoint]:
    """Read a table of points.

    Parameters
    ----------
    path : Path
        With columns corpus, success_rate, auroc, coverage, and optionally n_eff and tasks; other columns are passed over. A JSON document
        is a list of such objects, or holds one as ``points``.

    Returns
    -------
    list of LawPoint

    Raises
    ------
    InputError
        If a column is missing or a value is no number in its range; the sentence names file, row and column.
    """
    records = _json_records(path) if path.suffix.lower() == ".json" else _table_records(path)
    return [_point(f"{path}, {row}", record) for row, record in records]


def _table_records(path: Path) -> list[tuple[str, dict[str, Any]]]:
    names, found, rows = read_rows(path, {*_NEEDED, *_OPTIONAL})
    for name in _NEEDED:
        if name not in names:
            raise InputError(
                f"{path} has no column {name!r}; it has {', '.join(map(quoted, names))}; add it."
            )
    count = len(found["corpus"])
    return [
        (rows.name(place), {name: values[place] for name, values in found.items()})
        for place in range(count)
    ]


def _json_records(path: Path) -> list[tuple[str, dict[str, Any]]]:
    document = read_json(path)
    points = document.get("points") if isinstance(document, dict) else document
    if not isinstance(points, list) or not all(isinstance(item, dict) for item in points):
        raise InputError(
            f"{path} holds no list of points; write a list of objects with {', '.join(_NEEDED)}."
        )
    for place, item in enumerate(points, 1):
        if missing := next((name for name in _NEEDED if name not in item), None):
            raise InputError(f"{path}, point {place} has no key {missing!r}; add it.")
    return [(f"point {place}", item) for place, item in enumerate(points, 1)]


def _point(where: str, record: Mapping[str, Any]) -> LawPoint:
    corpus = record["corpus"]
    if not isinstance(corpus, str) or not corpus.strip():
        raise InputError(f"{where}, column 'corpus' is {quoted(corpus)}; give the corpus a name.")
    numbers = {name: _number(where, name, record[name]) for name in _NEEDED[1:]}
    n_eff, tasks = (
        None if _is_missing(record.get(name)) else _number(where, name, record[name])
        for name in _OPTIONAL
    )
    if tasks is not None and not tasks.is_integer():
        raise InputError(f"{where}, column 'tasks' is {tasks:g}; give a whole number.")
    try:
        return LawPoint(
            corpus=corpus.strip(),
            success_rate=numbers["success_rate"],
            auroc=numbers["auroc"],
            coverage=numbers["coverage"],
            n_eff=n_eff,
            tasks=None if tasks is None else int(tasks),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _number(where: str, name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}, column {name!r} is {quoted(value)}; give a number.") from None
    return number


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or value != value
        or (isinstance(value, str) and value.strip().lower() in _MISSING)
    )
