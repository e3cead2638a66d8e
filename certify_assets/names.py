"""Names of tasks and runs, and which of them are one name in two spellings.

All names are looked at as one text, a line a name: tables hold millions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from certify_assets.errors import quoted

# soft hyphen, zero-width signs, marks of direction, byte order mark, selectors of variants
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_BLANKS = " \t\r\f\v\x1c\x1d\x1e\x1f"
_SPACES, _ENDS = re.compile(r"[^\S\n]+"), re.compile("^ | $", re.MULTILINE)
_WHOLE = re.compile(r"^([+-]?[0-9]+)\.0*$", re.MULTILINE)
_EXPONENT = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?e\+[0-9]{1,2}$", re.MULTILINE | re.IGNORECASE)
_DASHES = re.compile("[ _\u2010-\u2015\u2212\u2e3a\u2e3b]")
_ZEROS = re.compile(r"(?<![0-9.])0+(?=[0-9])")


def plain_names(names: Sequence[str]) -> list[str]:
    """Return names without differences that readers hardly see, in their order.

    Such differences are Unicode forms, invisible characters, kinds and numbers of spaces, and the
    decimal point of a whole number: `7` and `7.0` are one name.
    """
    text = "\n".join(names)
    if text.count("\n") != len(names) - bool(names):
        text = "\n".join(name.replace("\n", " ") for name in names)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    if not text.isascii() or any(blank in text for blank in _BLANKS):
        text = _ENDS.sub("", _SPACES.sub(" ", text))
    if "." in text:
        text = _WHOLE.sub(r"\1", text)
    if "e+" in text or "E+" in text:
        text = _EXPONENT.sub(_without_exponent, text)
    return text.split("\n") if names else []


def _without_exponent(found: re.Match[str]) -> str:
    number = float(found[0])
    return str(int(number)) if number.is_integer() else found[0]


def folded_names(names: Sequence[str]) -> list[str]:
    """Return names in lower case, without leading zeros, hyphens for blanks and underscores."""
    text = _DASHES.sub("-", "\n".join(plain_names(names)).casefold())
    return _ZEROS.sub("", text).split("\n") if names else []


def two_spellings(names: Collection[str]) -> tuple[str, str] | None:
    """Return two different spellings of one name in a collection without duplicates, or None."""
    given = list(names)
    plain = plain_names(given)
    if plain == given or len(set(plain)) == len(given):
        return None
    first: dict[str, str] = {}
    pairs = ((first.setdefault(key, name), name) for key, name in zip(plain, given, strict=True))
    return next(pair for pair in pairs if pair[0] != pair[1])


def folding(names: Iterable[str]) -> dict[str, str]:
    """Return, for every later spelling of a name, its first spelling."""
    given = list(dict.fromkeys(names))
    first: dict[str, str] = {}
    folded = folded_names(given)
    pairs = ((name, first.setdefault(key, name)) for key, name in zip(folded, given, strict=True))
    return {name: spelling for name, spelling in pairs if name != spelling}


def shared_names(names: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names that both collections have, sorted, each with its spelling in `others`."""
    there = dict(zip(folded_names(others), others, strict=True))
    same = set(others)
    keys = zip(names, folded_names(names), strict=True)
    return sorted(
        (name, name if name in same else there[key]) for name, key in keys if key in there
    )


def in_both(name: str, other: str) -> str:
    """Quote a name, and how it is spelled elsewhere."""
    return spelled(name) if name == other else f"{spelled(name)} (there {spelled(other)})"


def spelled(name: str) -> str:
    """Quote a name so that every character and space is visible."""
    # lines of messages are wrapped at spaces
    return quoted(name).replace("  ", r"\x20\x20")
