"""Asset keys, groups and owners: the one place that spells them."""

from __future__ import annotations

import dagster as dg

from certify_assets.judges.specs import JudgeSpec

OWNERS = ["team:evaluation"]
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
