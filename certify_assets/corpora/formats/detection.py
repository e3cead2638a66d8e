"""Which format do these files have? Asked of their content, never of what somebody hoped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from certify_assets.corpora.formats.base import Adapter
from certify_assets.corpora.formats.files import BrokenFileError, Limits, SourceFile, Tally
from certify_assets.corpora.formats.registry import ADAPTERS
from certify_assets.corpora.formats.walk import FileSet
from certify_assets.errors import InputError

__all__ = ["detect_format"]

_EXPLAINED = 2
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"


def detect_format(paths: Sequence[Path], limits: Limits | None = None) -> str:
    """Return the name of the one format that fits the files.

    Raises
    ------
    InputError
        If none fits (the message says why of the first files), or more than one: the message lists the candidates.
    """
    fitting: dict[str, str] = {}
    reasons: dict[str, str] = {}
    suffixes = {suffix for adapter in ADAPTERS.values() for suffix in adapter.suffixes}
    tally, empty = Tally(), True
    for file in FileSet(paths, suffixes, tally, limits):
        empty = False
        if reason := _encoding(file):
            _add_reason(reasons, reason, file.name)
            continue
        for adapter in ADAPTERS.values():
            # one file of a format is enough: the others are not opened for it again
            if adapter.name in fitting or file.suffix not in adapter.suffixes:
                continue
            if _fits(adapter, file):
                fitting[adapter.name] = file.name
            elif not fitting and len(reasons) < _EXPLAINED:
                _add_reason(reasons, adapter.explain(file), file.name)
    given = ", ".join(str(path) for path in paths)
    if not fitting:
        why = list(reasons.values()) or list(
            islice(chain(tally.examples.values(), tally.others.values()), _EXPLAINED)
        )
        if empty and not why:
            raise InputError(f"there is no file in {given}; check the path.")
        raise InputError(f"no known format fits {given}{': ' + ' '.join(why) if why else _ask()}")
    if len(fitting) > 1:
        found = ", ".join(f"{key} (such as {file})" for key, file in sorted(fitting.items()))
        raise InputError(
            f"more than one format fits {given}: {found}; name one with --format, or several that make one corpus joined by +."
        )
    return next(iter(fitting))


def _ask() -> str:
    known = "; ".join(f"{adapter.name}: {adapter.title}" for adapter in ADAPTERS.values())
    return f"; name one with --format ({known})."


def _add_reason(reasons: dict[str, str], reason: str | None, name: str) -> None:
    """Keep one sentence of those that say the same of different files."""
    if reason:
        reasons.setdefault(reason.replace(name, ""), reason)


def _encoding(file: SourceFile) -> str | None:
    """Say what no reader can make sense of: text in UTF-16, a file that was compressed twice."""
    try:
        head = file.head(2)
    except BrokenFileError as error:
        return str(error)
    if head in _UTF16:
        return f"{file.name} is in UTF-16; save it as UTF-8."
    return (
        f"{file.name} is compressed once more inside; decompress it until its own suffix says what it is."
        if head == _GZIP
        else None
    )


def _fits(adapter: Adapter, file: SourceFile) -> bool:
    try:
        return file.size <= file.limit and adapter.fits(file)
    except BrokenFileError:
        return False
