"""Altering documents, journals and tables one value at a time, as somebody would who can write the data root."""

import copy
import io
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

__all__ = ["Path", "altered", "altered_journal", "altered_tables", "leaves", "rearranged_journal"]

Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Go through the values of a document; of a list the first two."""
    if isinstance(value, dict):
        for name in value:
            yield from leaves(value[name], (*path, name))
    elif isinstance(value, list):
        for place in range(min(2, len(value))):
            yield from leaves(value[place], (*path, place))
    else:
        yield path


def altered(document: Any, path: Path) -> Any:
    """Return the document with one value changed for another of its kind."""
    document = copy.deepcopy(document)
    inside = document
    for name in path[:-1]:
        inside = inside[name]
    value = inside[path[-1]]
    if isinstance(value, bool):
        inside[path[-1]] = not value
    elif isinstance(value, (int, float)):
        inside[path[-1]] = value + 1
    elif isinstance(value, str):
        inside[path[-1]] = value[:-1] + ("1" if value.endswith("0") else "0")
    else:
        inside[path[-1]] = "forged"
    return document


def altered_journal(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the journal with every value of every line changed, named by line and value; the lines are not chained anew."""
    lines = [json.loads(line) for line in data.splitlines()]
    for place, line in enumerate(lines):
        for path in leaves(line):
            changed = [*lines[:place], altered(line, path), *lines[place + 1 :]]
            written = [json.dumps(entry, ensure_ascii=False).encode() for entry in changed]
            # what was not touched keeps its bytes
            kept = data.splitlines()
            whole = [written[here] if here == place else kept[here] for here in range(len(kept))]
            which = "last" if place == len(lines) - 1 else "before"
            yield f"{which}: {'.'.join(map(str, path))}", b"\n".join(whole) + b"\n"


def rearranged_journal(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the journal with its first line taken out, its last cut off, two of them swapped, one doubled, and an unreadable one put in."""
    lines = data.splitlines()
    found = {
        "first taken out": lines[1:],
        "last cut off": lines[:-1],
        "swapped": [lines[1], lines[0], *lines[2:]],
        "doubled": [lines[0], *lines],
        "unreadable": [lines[0], b'{"a": [', *lines[1:]],
        "nested": [*lines, b"[" * 100_000],
    }
    for name, kept in found.items():
        yield name, b"".join(line + b"\n" for line in kept)


def altered_tables(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the Parquet table with every column of its first row changed, the row taken out, and two rows' first values swapped."""
    import pyarrow.parquet as pq

    frame = pq.read_table(io.BytesIO(data)).to_pandas()
    for name in frame.columns:
        changed = frame.copy()
        column = changed[name].astype(object)
        column.iloc[0] = _other(column.iloc[0])
        changed[name] = column
        yield str(name), _written(changed)
    yield "row taken out", _written(frame.iloc[1:])
    order = [len(frame) - 1, *range(1, len(frame) - 1), 0]
    yield "rows swapped", _written(frame.iloc[order])


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value[:-1] + ("1" if value.endswith("0") else "0")
    if pd.api.types.is_list_like(value):
        return value[:-1]
    return 0 if pd.isna(value) else value + 1


def _written(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()
