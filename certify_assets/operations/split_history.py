"""Under which splits the runs of a corpus were certified, and which judges were certified on one.

A split that was taken because its certificate is the widest is a candidate, as a judge is.
Registrations outlast their corpus, so what was removed counts. Runs are the same where their texts
are, under whatever task and agent.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from certify_assets.corpora.config import NAMED_JUDGE
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import same_runs
from certify_assets.errors import CertifyError
from certify_assets.operations.ledger import Registration, registrations
from certify_assets.storage.moment import remembered

#: share of a corpus's runs from which another corpus is of the same runs
SHARED: Final = 0.1


@dataclass(frozen=True)
class CertifiedSplits:
    """Under how many splits the runs of a corpus were certified, and which of them came first."""

    number: int
    # other corpora that hold the same runs, with certificates
    others: tuple[str, ...]
    # the corpus whose runs were certified first, and whether that split is the one in use
    first: str
    current_first: bool


def certified_splits(corpus: Corpus) -> CertifiedSplits:
    """Return the splits under which these runs were certified."""
    own = _designs(_certified(corpus))
    every: dict[tuple[int | str, ...], tuple[str, str]] = {
        design: (found.time, corpus.name) for design, found in own.items()
    }
    others = []
    for other, versions in corpora_of_the_same_runs(corpus):
        theirs = _designs(_certified(other, versions))
        if theirs:
            others.append(other.name)
        for design, found in theirs.items():
            name: tuple[int | str, ...] = design
            if design in own and found.manifests.isdisjoint(manifests_as(corpus, other.name)):
                # other shares, or tasks left out, under the same seed
                name = (*design, other.name)
            every[name] = min(every.get(name, (found.time, other.name)), (found.time, other.name))
    if not every:
        return CertifiedSplits(0, tuple(others), corpus.name, current_first=True)
    earliest = min(every, key=lambda design: every[design])
    # the last that was registered here is the one in use
    current_first = not own or [*own][-1] == earliest
    return CertifiedSplits(len(every), tuple(others), every[earliest][1], current_first)


@dataclass(frozen=True)
class CertifiedJudges:
    """The judges that were certified on one split, and the one that was named before them."""

    judges: tuple[str, ...]
    named: str


def certified_judges(corpus: Corpus) -> CertifiedJudges:
    """Return the judges of the split in use, also those of other corpora of the same runs."""
    certified = _certified(corpus)
    own = _designs(certified)
    in_use: Collection[str] = [*own.values()][-1].manifests if own else ()
    found = [item for item in certified if item.plan["manifest_sha256"] in in_use]
    for other, versions in corpora_of_the_same_runs(corpus):
        same = manifests_as(corpus, other.name)
        theirs = _certified(other, versions)
        found += [item for item in theirs if item.plan["manifest_sha256"] in same]
    judges = {name for item in found for name in item.plan.get("judges", {})}
    # the name counts that was there first: a later one may come from looking at certificates
    first = min(found, key=lambda item: item.time, default=None)
    named = corpus.config.judge if first is None else first.plan.get("named_judge")
    return CertifiedJudges(tuple(sorted(judges)), named or NAMED_JUDGE)


def certified_versions(corpus: Corpus) -> dict[int, str]:
    """Return the versions of a corpus that were certified, with the time of the first time."""
    found: dict[int, str] = {}
    for item in _certified(corpus):
        found.setdefault(item.plan["version"], item.time)
    return found


def _certified(corpus: Corpus, versions: Collection[int] | None = None) -> list[Registration]:
    """Registrations of certificates, of some versions or of all, oldest first."""
    # those of studies have no manifest
    return [
        item
        for item in registrations(corpus)
        if {"version", "seed", "manifest_sha256"} <= item.plan.keys()
        and (versions is None or item.plan["version"] in versions)
    ]


class _Design(NamedTuple):
    """A split: when it was registered first, and its manifests in all versions."""

    time: str
    manifests: frozenset[str]


def _designs(certified: Collection[Registration]) -> dict[tuple[int, int], _Design]:
    """Return the splits as seed and number of the manifest under that seed, of one version.

    The one registered last is the last.
    """
    # one profile after another is seen within one version: new tasks make another manifest too
    manifests: dict[tuple[int, int], list[str]] = {}
    found: dict[tuple[int, int], _Design] = {}
    for item in certified:
        seed, manifest = item.plan["seed"], item.plan["manifest_sha256"]
        seen = manifests.setdefault((item.plan["version"], seed), [])
        if manifest not in seen:
            seen.append(manifest)
        design = seed, seen.index(manifest)
        known = found.pop(design, _Design(item.time, frozenset()))
        found[design] = known._replace(manifests=known.manifests | {manifest})
    return found


def manifests_as(corpus: Corpus, name: str) -> set[str]:
    """Return the hashes that a corpus's split, at each of its deliveries, has under a name."""
    now = corpus.manifest.replace(corpus=name)
    assignment = now.assignment_so_far
    found = {now.sha256}
    for number in range(1, len(now.deliveries)):
        tasks = {task for delivery in now.deliveries[:number] for task in delivery}
        earlier = now.replace(
            assignment={task: split for task, split in assignment.items() if task in tasks},
            deliveries=now.deliveries[:number] if number > 1 else (),
        )
        found.add(earlier.sha256)
    return found


@remembered
def corpora_of_the_same_runs(corpus: Corpus) -> list[tuple[Corpus, set[int]]]:
    """Return other corpora with those of their versions that hold the same runs."""
    own = corpus.deliveries.last_runs()
    found: list[tuple[Corpus, set[int]]] = []
    if own is None:
        return found
    for name in corpus.store.corpora():
        if name == corpus.name:
            continue
        other = Corpus(corpus.store, name)
        # what is wrong with another corpus is said where that one is used
        with suppress(CertifyError):
            # also where other runs have replaced them since
            versions = {
                version.number
                for version in other.deliveries.read()
                if same_runs(own, other.deliveries.runs(version)) >= max(SHARED * len(own), 1)
            }
            if versions:
                found.append((other, versions))
    return found
