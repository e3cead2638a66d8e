"""A language model's scores by shards: the leading process puts prompts into groups and keeps the answers, others load the judge and answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.shards import chosen_engine, run_shards
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.judges.lm.scoring import Group
    from certify_assets.judges.lm.shards import Shard

__all__ = ["Judged", "spread_scoring"]

_Loaded = TypeVar("_Loaded")


@dataclass(frozen=True)
class Judged:
    """Which stored judge scores: what another process needs to load it.

    Parameters
    ----------
    root : str
        The data root, reachable from every worker.
    corpus, judge, adapter_sha256 : str
    """

    root: str
    corpus: str
    judge: str
    adapter_sha256: str


@dataclass(frozen=True)
class _Share:
    """Some prompts of a scoring run, and what their numbers depend on."""

    judged: Judged
    group: Group
    fingerprint: Mapping[str, Any]


def spread_scoring(model: _Loaded, judged: Judged, engine: str) -> _Loaded:
    """Return a judge that scores in other processes, or the same where it scores here, or is none that scores by shards."""
    engine = engine or chosen_engine()
    if engine == "inline" or not hasattr(model, "spread"):
        return model

    def spread(
        groups: Sequence[Group], fingerprint: Mapping[str, Any]
    ) -> Iterator[tuple[int, Shard]]:
        shares = [_Share(judged, group, fingerprint) for group in groups]
        return run_shards(_answer, shares, engine=engine, workers=_cores())

    return replace(model, spread=spread)  # type: ignore[type-var]


def _answer(share: _Share) -> Shard:
    return _judge(share.judged).answer(share.group, share.fingerprint)


@lru_cache(maxsize=1)
def _judge(judged: Judged) -> CausalJudge:
    """Load a judge once in a process that answers many shares; the hash of its adapter is part of what it is known by."""
    from certify_assets.judges.lm.judge import CausalJudge

    loaded = JudgedCorpus(Corpus(Store(judged.root), judged.corpus), judged.judge).load(
        expected_sha256=judged.adapter_sha256,
    )
    assert isinstance(loaded, CausalJudge)
    return loaded


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
