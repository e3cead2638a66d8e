"""What of a document is recorded: numbers and codes, never times, hashes, places or sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["clean", "codes", "differences", "picked", "rounded"]

_DIGITS = 10
#: roundings of nearly one number may differ by one in the tenth digit; nothing that is read does
_TOLERANCE = 1e-9
_DROPPED = frozenset(
    (
        "batch",
        "batches",
        "certificate_sha256",
        "certificates_key",
        "cpu_seconds",
        "digest",
        "examples",
        "fingerprint",
        "html",
        "inputs",
        "last",
        "ledger",
        "page",
        "previous",
        "provenance",
        "root",
        "run_id",
        "schema",
        "seconds",
        "site",
        "software",
        "source",
        "time",
        "version",
        "versions",
        "wall_seconds",
    )
)
# a word, a verdict or a name: what a program could ask for; a sentence is none
_CODE = re.compile(r"[\w.,+\-−|:%=≤≥<>()/ ]{1,48}")
_HASH = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}-[0-9a-f-]{27}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT.*")
_NOTHING = object()


def rounded(value: float) -> float | str:
    """Return a float to ten significant digits; as text where JSON has no such number."""
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)


def codes(findings: Sequence[Any]) -> list[str]:
    """Return the codes of findings in order; their sentences may be written anew."""
    return sorted(item["code"] if isinstance(item, Mapping) else str(item) for item in findings)


def picked(document: Mapping[str, Any], names: str) -> dict[str, Any]:
    """Return the named figures of a document, cleaned; those that it lacks are left out."""
    return dict(clean({name: document[name] for name in names.split() if name in document}))


def clean(value: Any) -> Any:
    """Return a JSON value without what varies by itself.

    Findings become their codes, floats are rounded, a list of sentences becomes its number.
    """
    found = _clean(value)
    return None if found is _NOTHING else found


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _clean_mapping(value)
    if isinstance(value, list | tuple):
        kept = [part for part in map(_clean, value) if part is not _NOTHING]
        return kept if len(kept) == len(value) else {"number": len(value)}
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str):
        return value if _is_code(value) else _NOTHING
    return value


def _clean_mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, part in value.items():
        if name in _DROPPED or name.endswith(("sha256", "_seconds", "_key")):
            continue
        kept = codes(part) if name == "findings" and isinstance(part, list) else _clean(part)
        if kept is not _NOTHING:
            made[str(name)] = kept
    return made


def _is_code(text: str) -> bool:
    if not _CODE.fullmatch(text) or _HASH.fullmatch(text) or _TIME.fullmatch(text):
        return False
    # four words are a sentence unless they are figures of a table's cell
    return not text.startswith("/") and (text.count(" ") < 4 or any(map(str.isdigit, text)))


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Give every difference of two cleaned documents as path, before and after, or ``absent``."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            there = f"{path}/{name}"
            if name not in before or name not in after:
                yield there, before.get(name, "absent"), after.get(name, "absent")
            else:
                yield from differences(before[name], after[name], there)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}/{place}")
    elif not _same(before, after):
        yield path, before, after


def _same(one: Any, other: Any) -> bool:
    if {type(one), type(other)} <= {int, float}:
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-300)
    return type(one) is type(other) and bool(one == other)
