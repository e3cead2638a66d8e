"""Altering documents one value at a time, as somebody would who can write the data root."""

import copy
from collections.abc import Iterator
from typing import Any

__all__ = ["Path", "altered", "leaves"]

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
