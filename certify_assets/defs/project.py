"""A code location: the prefix of its asset keys, and the judges that have assets."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypedDict

import dagster as dg

from certify_assets.defs.names import code_version, corpora_partitions
from certify_assets.errors import InputError
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import (
    ConfiguredJudges,
    configured_judges,
    platform_judges,
    upstream,
)

#: key prefix of a project that uses the component, for the commands that its users run
PREFIX_VARIABLE = "CERTIFY_ASSET_PREFIX"
OWNERS = ("team:evaluation",)
_PREFIX = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")


class About(TypedDict):
    """What all assets have in common."""

    key: dg.AssetKey
    group_name: str
    owners: list[str]
    partitions_def: dg.PartitionsDefinition[str] | None
    code_version: str


@dataclass(frozen=True)
class Project:
    """Names of assets in a code location, and the judges that have assets there."""

    prefix: tuple[str, ...]
    judges: Mapping[str, JudgeSpec]
    #: whether every judge has assets: the study is of all of them
    studied: bool = True

    @classmethod
    def of(cls, prefix: Sequence[str] = (), judges: Collection[str] | None = None) -> Project:
        """Return a project with some judges and those that they start from; None for all.

        Raises
        ------
        InputError
            If there is no judge of that name.
        """
        known = known_judges()
        if judges is None:
            return cls((*prefix,), known)
        if unknown := [name for name in judges if name not in known]:
            words = f"judges: there is no judge {unknown[0]!r}; name some of"
            raise judges_document().unknown(words, known)
        wanted, waiting = set[str](), list(judges)
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += filter(None, [upstream(known[name])])
        chosen = {name: spec for name, spec in known.items() if name in wanted}
        return cls((*prefix,), chosen, studied=False)

    def key(self, name: str) -> dg.AssetKey:
        """Return the asset key that a name spells, such as ``corpora/trajectories``."""
        return dg.AssetKey([*self.prefix, *name.split("/")])

    def keys(self, folder: str, *names: str) -> list[dg.AssetKey]:
        """Return the keys of some assets of a folder, such as ``corpora`` or ``judges/lexical``."""
        return [self.key(f"{folder}/{name}") for name in names]

    def name_of(self, asset_key: dg.AssetKey) -> str:
        """Return the name of a key, without the prefix."""
        return "/".join(asset_key.path[len(self.prefix) :])

    def judge_of(self, asset_key: dg.AssetKey) -> str:
        """Return the judge whose asset a key is; "" for other assets."""
        folder, _, rest = self.name_of(asset_key).partition("/")
        return rest.partition("/")[0] if folder == "judges" and "/" in rest else ""

    def every(self, *parts: str) -> list[dg.AssetKey]:
        """Return the keys of these parts of every judge."""
        return [self.key(f"judges/{name}/{part}") for name in self.judges for part in parts]

    def folder(self, *names: str) -> dg.AssetSelection:
        """Select every asset below some names, such as ``research``."""
        return dg.AssetSelection.key_prefixes(*[[*self.prefix, *name.split("/")] for name in names])

    def select(self, folder: str, *names: str) -> dg.AssetSelection:
        """Select some assets of a folder."""
        return dg.AssetSelection.assets(*self.keys(folder, *names))

    def about(
        self,
        name: str,
        group: str,
        version: str = "",
        partitions: dg.PartitionsDefinition[str] | None = corpora_partitions,
    ) -> About:
        """Return what `dagster.asset` takes of every asset; each corpus is a partition."""
        return {
            "key": self.key(name),
            "group_name": group,
            "owners": list(OWNERS),
            "partitions_def": partitions,
            "code_version": version or code_version(),
        }

    def source(self, name: str, group: str, **about: Any) -> dg.AssetSpec:
        """Return an asset that no run makes: files that others write, or a command."""
        return dg.AssetSpec(
            self.key(name),
            group_name=group,
            owners=list(OWNERS),
            partitions_def=corpora_partitions,
            **about,
        )


@cache
def this_project() -> Project:
    """Return the project that the environment of this process names.

    Commands do not load the project of their users, and report under its keys.
    """
    given = os.environ.get(PREFIX_VARIABLE)
    try:
        prefix = parse_prefix(given) if given else ()
    except ValueError as error:
        raise InputError(f"{PREFIX_VARIABLE} is {given!r}: {error}.") from None
    return Project.of(prefix, None)


def parse_prefix(value: object) -> tuple[str, ...]:
    """Return the parts of a key prefix, given with slashes or as a list; ValueError if invalid."""
    parts = value if isinstance(value, list) else [value]
    text = "/".join(map(str, parts))
    if not _PREFIX.fullmatch(text):
        raise ValueError("give letters, digits and underscores, with / between parts")
    return tuple(text.split("/"))


@cache
def judges_document() -> ConfiguredJudges:
    """Return the judges of the user's judges.yaml as this process read it first."""
    return configured_judges()


def known_judges() -> dict[str, JudgeSpec]:
    """Return the judges of the platform and of the user's judges.yaml."""
    return platform_judges() | dict(judges_document().judges)
