"""What a project decides for its whole code location: the prefix of its assets, and judges."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from certify_assets.errors import InputError
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import (
    SHOWN_VARIABLE,
    ConfiguredJudges,
    configured_judges,
    platform_judges,
    upstream,
)

#: key prefix of a project that uses the component, for the commands that its users run
PREFIX_VARIABLE = "CERTIFY_ASSET_PREFIX"
_PREFIX = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")
OWNERS = ("team:evaluation",)


class Setup(NamedTuple):
    """Prefix of every asset of the code location, and the judges that have assets."""

    prefix: tuple[str, ...] = ()
    # None for all
    judges: tuple[str, ...] | None = None


_settled: list[Setup] = []


def setup() -> Setup:
    """Return the setup of this process; where none was settled, that of its environment."""
    if not _settled:
        _settled.append(Setup(_given_prefix(), _shown_judges()))
    return _settled[0]


def _given_prefix() -> tuple[str, ...]:
    # commands do not load the project of their users, and report under its keys
    given = os.environ.get(PREFIX_VARIABLE)
    try:
        return parse_prefix(given) if given else ()
    except ValueError as error:
        raise InputError(f"{PREFIX_VARIABLE} is {given!r}: {error}.") from None


def _shown_judges() -> tuple[str, ...] | None:
    shown = os.environ.get(SHOWN_VARIABLE)
    return (*shown.split(","), *judges_document().judges) if shown else None


def settle(wanted: Setup) -> None:
    """Fix the setup before the modules of the assets are imported, which builds their keys.

    Raises
    ------
    InputError
        If this process has assets under another setup.
    """
    if not _settled:
        _settled.append(wanted)
    for name, asked, there in zip(Setup._fields, wanted, _settled[0], strict=True):
        if asked != there:
            raise InputError(
                f"{name} are {_shown(asked)}, and the assets that this process has loaded have "
                f"{_shown(there)}; a code location has one setup."
            )


def _shown(value: Sequence[str] | None) -> str:
    return ", ".join(value) if value else "none"


def parse_prefix(value: object) -> tuple[str, ...]:
    """Return the parts of a key prefix, given with slashes or as a list; ValueError if invalid."""
    parts = value if isinstance(value, list) else [value]
    text = "/".join(map(str, parts))
    if not _PREFIX.fullmatch(text):
        raise ValueError("give letters, digits and underscores, with / between parts")
    return tuple(text.split("/"))


def parse_judges(value: object) -> tuple[str, ...]:
    """Return names of judges; ValueError if it is no list of names."""
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ValueError("give a list with the name of at least one judge")
    return tuple(dict.fromkeys(value))


def merged(declared: Sequence[Setup]) -> Setup:
    """Return the setup that several files give together: each says the same of it, or nothing.

    Raises
    ------
    InputError
        If two files differ.
    """
    found: dict[str, tuple[str, ...]] = {}
    for one in declared:
        for name, said in (("key_prefix", one.prefix), ("judges", one.judges)):
            if said and found.setdefault(name, said) != said:
                raise InputError(
                    f"{name} is {_shown(found[name])} in one file and {_shown(said)} in another; a "
                    "code location has one: write it in one file, or alike in all."
                )
    return Setup(found.get("key_prefix", ()), found.get("judges"))


@cache
def judges_document() -> ConfiguredJudges:
    """Return the judges of the user's judges.yaml as this process read it first."""
    return configured_judges()


def known_judges() -> dict[str, JudgeSpec]:
    """Return the judges of the platform and of the user's judges.yaml."""
    return platform_judges() | dict(judges_document().judges)


def judges() -> dict[str, JudgeSpec]:
    """Return the judges that have assets: those that the setup names, with what they start from.

    Raises
    ------
    InputError
        If it names a judge that there is none of.
    """
    known, named = known_judges(), setup().judges
    if named is None:
        return known
    if unknown := [name for name in named if name not in known]:
        words = f"judges: there is no judge {unknown[0]!r}; name some of"
        raise judges_document().unknown(words, known)
    wanted, waiting = set[str](), list(named)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += filter(None, [upstream(known[name])])
    return {name: spec for name, spec in known.items() if name in wanted}
