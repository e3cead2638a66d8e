"""Under how many splits the runs of a corpus were certified, here and under other names."""

# A split that was taken because its certificate is the widest is a candidate, as a judge is.
# Registrations say which seed and manifest a certificate had, and outlast their corpus. Runs are
# the same where task, agent and texts are. One profile after another is seen within one version,
# since new tasks make another manifest too.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.evaluation.ledger import LedgerStatus

_VERSIONS = ".deliveries.jsonl"
#: share of a corpus's runs from which another corpus is of the same runs
SHARED = 0.1


def certified_splits(corpus: Corpus) -> tuple[int, tuple[str, ...]]:
    """Return under how many splits these runs were certified, and the other corpora they are in."""
    designs, others = _designs(corpus), []
    for other in _of_the_same_runs(corpus):
        if found := _designs(other):
            designs |= found
            others.append(other.name)
    return len(designs), tuple(others)


def _designs(corpus: Corpus) -> set[tuple[int, int]]:
    """Return the splits as seed and number of the manifest under that seed, of one version."""
    manifests: dict[tuple[int, int], list[str]] = {}
    for registration in LedgerStatus.of(corpus).registrations:
        plan = registration.plan or {}
        # registrations of studies have no manifest, those of early versions no version
        if {"version", "seed", "manifest_sha256"} <= plan.keys():
            seen = manifests.setdefault((plan["version"], plan["seed"]), [])
            if plan["manifest_sha256"] not in seen:
                seen.append(plan["manifest_sha256"])
    return {(seed, place) for (_, seed), seen in manifests.items() for place in range(len(seen))}


def _of_the_same_runs(corpus: Corpus) -> Iterator[Corpus]:
    runs = corpus.deliveries.last_runs()
    own = set() if runs is None else set(runs["content"])
    for entry in corpus.store.names("ledger") if own else []:
        name = entry.removesuffix(_VERSIONS)
        if name in (entry, corpus.name):
            continue
        other = Corpus(corpus.store, name)
        # what is wrong with another corpus is said where that one is used
        with suppress(CertifyError):
            theirs = other.deliveries.last_runs()
            if theirs is not None and len(own & set(theirs["content"])) >= SHARED * len(own):
                yield other
