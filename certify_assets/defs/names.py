"""Asset keys, groups, owners and partitions: the one place that spells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from certify_assets.judges.specs import JudgeSpec

OWNERS = ["team:evaluation"]
#: partitions: one a corpus, added by a command or a sensor while the platform runs
CORPORA = "corpora"
corpora_partitions = dg.DynamicPartitionsDefinition(name=CORPORA)
CORPORA_GROUP, OPERATIONS_GROUP, RESEARCH_GROUP = "corpora", "operations", "research"
LM_GROUP, TRANSFER_GROUP, HARVEST_GROUP = "judges_lm", "judges_transfer", "judges_harvest"
LEXICAL_GROUP, ENDPOINT_GROUP = "judges_lexical", "judges_endpoint"


def key(name: str) -> dg.AssetKey:
    """Return the asset key that a name with slashes spells, such as ``corpora/trajectories``."""
    return dg.AssetKey.from_user_string(name)


def judge_key(judge: str, part: str) -> dg.AssetKey:
    """Return the key of one asset of a judge, such as its certificate."""
    return dg.AssetKey(["judges", judge, part])


def judge_group(spec: JudgeSpec) -> str:
    """Return the group of a judge's assets."""
    return f"judges_{spec.group}"


def chains(*judges: str) -> dg.AssetSelection:
    """Select every asset of some judges."""
    return dg.AssetSelection.key_prefixes(*[["judges", name] for name in judges])


def asset(**about: Any) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return `dagster.asset` with keywords from dictionaries, which its overloads do not take."""
    made: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(**about)
    return made
