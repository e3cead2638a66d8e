"""Records of a JSON list or of JSON lines, one at a time, so that a broken record costs that record and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["REST_LOST", "first_record", "iter_lines", "iter_list"]

REST_LOST = "the file ends early or is too damaged to tell its records apart from here on"

_SPACE = re.compile(r"[\s,]*")
_NEXT_RECORD = re.compile(r"\}\s*,\s*(?=\{)")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_MOST_RESYNCS = 2_000
_FIRST_FEW = 5


def decode(data: bytes) -> str:
    """Decode UTF-8; bytes that are not become lone surrogates, which mark the records they are in."""
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def first_record(data: bytes, required: frozenset[str]) -> dict[str, Any] | None:
    """Return the first whole object of a JSON list that has the required keys; None where the first few have none such."""
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return None
    for number, record in iter_list(data, required):
        if isinstance(record, dict) and required <= record.keys():
            return record
        if number >= _FIRST_FEW:
            break
    return None


def iter_list(data: bytes, required: frozenset[str]) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Go through the objects of a JSON list.

    Parameters
    ----------
    data : bytes
        The file.
    required : frozenset of str
        Keys of a record: after a broken one, reading goes on at the next object that has them all.

    Yields
    ------
    tuple of int and (dict or str)
        Number of the record, from 1, and the record or, in words, what is wrong with it; `REST_LOST` where nobody can say how many
        records are missing.
    """
    text = decode(data)
    position, number, resyncs = text.find("[") + 1, 0, 0
    while (position := _skip(text, position)) < len(text) and text[position] != "]":
        number += 1
        record, end = _parse(text, position)
        if end is None:
            yield number, str(record)
            found, resyncs = _resync(text, position, required, resyncs)
            if found is None:
                yield number + 1, REST_LOST
                return
            position = found
            continue
        yield number, _checked(record, text[position:end])
        position = end
    if position >= len(text):
        yield number + 1, REST_LOST


def iter_lines(data: bytes) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Go through JSON lines; as `iter_list`, numbered by line. Empty lines are passed over."""
    for number, line in enumerate(decode(data).split("\n"), 1):
        if line.strip():
            record, end = _parse(line.strip(), 0)
            if end is not None and line.strip()[end:]:
                yield number, "something follows the object on its line"
            else:
                yield number, str(record) if end is None else _checked(record, line)


def _checked(record: Any, raw: str) -> dict[str, Any] | str:
    if _NOT_UTF8.search(raw):
        return "it is not UTF-8"
    return record if isinstance(record, dict) else f"it is {type(record).__name__}, not an object"


def _parse(text: str, position: int) -> tuple[Any, int | None]:
    """Parse one JSON value; where that fails, return the reason and None."""
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except json.JSONDecodeError as error:
        return f"it is not JSON ({error.msg})", None
    except RecursionError:
        return "it is nested too deeply", None
    except ValueError:
        return "it holds a number that is too long", None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _resync(text: str, position: int, required: frozenset[str], resyncs: int) -> tuple[int | None, int]:
    """Find the next place after a broken record where a whole record begins."""
    for match in _NEXT_RECORD.finditer(text, position + 1):
        resyncs += 1
        if resyncs > _MOST_RESYNCS:
            return None, resyncs
        record, end = _parse(text, match.end())
        if end is not None and isinstance(record, dict) and required <= record.keys():
            return match.end(), resyncs
    return None, resyncs
