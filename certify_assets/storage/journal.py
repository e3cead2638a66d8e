"""Journals whose lines name the hash of the line before: what was altered, taken out or put in between is found by whoever reads them."""

from __future__ import annotations

from typing import Any

from certify_assets.errors import IntegrityError
from certify_assets.files import parse_json, sha256_bytes

__all__ = ["chained", "documents"]


def documents(data: bytes, where: str) -> list[dict[str, Any]]:
    """Return the objects of a journal, a line each; a last line without its end is the trace of a kill and is left out.

    Raises
    ------
    IntegrityError
        If a line is no JSON object.
    """
    found = []
    for place, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            found.append(dict(parse_json(line.decode("utf-8"))))
        except (ValueError, TypeError, RecursionError):
            raise IntegrityError(
                f"{where}, line {place} is no entry of this journal; restore the file from a backup."
            ) from None
    return found


def chained(data: bytes, where: str) -> list[dict[str, Any]]:
    """Return the objects of a journal after checking ``number``, which is the line, and ``previous``, the hash of the line before.

    Lines that an earlier version wrote without ``previous`` may only stand before the first that has it.

    Raises
    ------
    IntegrityError
        If the journal was altered before its last line.
    """
    found, head, begun = documents(data, where), "", False
    for place, (entry, line) in enumerate(zip(found, data.splitlines(), strict=False), 1):
        previous = entry.get("previous")
        begun = begun or bool(previous)
        if entry.get("number") != place or (begun and previous != head):
            raise IntegrityError(
                f"{where}, line {place} does not follow the line before it: the journal was altered; restore it from a backup."
            )
        head = sha256_bytes(line)
    return found
