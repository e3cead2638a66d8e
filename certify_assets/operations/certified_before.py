"""What was certified of the runs of a corpus before: splits, judges, labels and runs since changed.

Choosing the split with the widest certificate is a choice among candidates, like choosing a judge.
Registrations outlast their corpus, so removed corpora count. Runs with the same texts are the same
runs, even if task or agent has another name.
"""

# A share of δ pays for looking again at what is delivered. It does not pay for a choice by outcome:
# whoever corrects labels only where the judge errs, or leaves such runs out, certifies nearly any
# judge. An honest correction looks the same, so it is counted and said, and a user accepts it.

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from certify_assets.certificates.counts import covers
from certify_assets.certificates.findings import RELABELLED
from certify_assets.corpora.config import NAMED_JUDGE
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import left_out, relabelled, same_runs
from certify_assets.errors import CertifyError
from certify_assets.judges.specs import PROCEDURES
from certify_assets.operations.ledger import Registration, registrations
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.judged import JudgedCorpus

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


_UNASSIGNED: Final = "no split"


@remembered
def relabelling_finding(judge: JudgedCorpus) -> dict[str, str]:
    """Compare the runs that certify or audit a judge with the same runs as first certified.

    The finding by its code; empty where nothing changed.
    """
    import pandas as pd

    corpus, splits = judge.corpus, (*judge.calibration_splits, "test", _UNASSIGNED)
    assigned = corpus.stored_manifest.assignment_so_far

    def certifying(table: pd.DataFrame) -> pd.DataFrame:
        # tasks that another seed or profile left out are in no split
        split = table["task_id"].map(lambda task: assigned.get(task, _UNASSIGNED))
        return table.assign(split=split)[split.isin(splits)]

    own, others = map(certifying, _first_certified(judge))
    now = corpus.runs
    gone = left_out(own, now)
    changed = pd.concat(
        table[table["trajectory_id"].isin(relabelled(table, now))] for table in (own, others)
    )
    said = [
        f"{what}: {len(runs):,} "
        f"({', '.join(f'{split.upper()} {many:,}' for split, many in counts)})"
        for what, runs in (("labels changed", changed), ("runs left out", gone))
        if (counts := sorted(Counter(runs["split"]).items()))
    ]
    if tasks := len({*gone["task_id"]} - {*now["task_id"]}):
        said.append(f"tasks left out: {tasks:,}")
    if not said:
        return {}
    sentence = f"Since these runs were first certified, {'; '.join(said)}."
    stored = judge.read("certificates.json").get("certificates", [])
    for item in stored:
        # what certificates of the same runs say
        provenance = item["provenance"]
        known = str(provenance.get(RELABELLED, ""))
        same = provenance["trajectories_sha256"] == corpus.trajectories_sha256
        if same and known.startswith(sentence):
            return {RELABELLED: known}
    return {RELABELLED: sentence + _direction(judge, stored, changed["trajectory_id"])}


def _first_certified(judge: JudgedCorpus) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return labelled runs as they were first certified, here and in other corpora."""
    corpus = judge.corpus
    deliveries, certified = corpus.deliveries.read(), certified_versions(corpus)
    same = [
        item.number for item in deliveries if item.trajectories_sha256 == corpus.trajectories_sha256
    ]
    # runs that are delivered again as they were certified come before whatever was seen since
    number = min((item for item in same if item in certified), default=max(same, default=0))
    earlier = [item for item in deliveries if item.number < number and item.number in certified]
    since = [item.changes for item in deliveries if earlier and earlier[0].number < item.number]
    own = corpus.runs.iloc[:0]
    if any(item is None or item.changed_labels or item.gone_runs for item in since):
        for item in earlier:
            own = _extended(own, corpus.deliveries.runs(item))
    others, contents = own.iloc[:0], set(corpus.runs["content"])
    for other, versions in corpora_of_the_same_runs(corpus):
        times = certified_versions(other)
        for item in other.deliveries.read():
            # "~" comes after every time
            if item.number in versions and times.get(item.number, "~") < certified.get(number, "~"):
                table = other.deliveries.runs(item)
                others = _extended(others, table[table["content"].isin(contents)])
    return own, others


def _extended(known: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the labelled runs that are not known yet."""
    import pandas as pd

    new = table["outcome"].notna() & ~table["content"].isin(set(known["content"]))
    return pd.concat([known, table[new]], ignore_index=True)


def _direction(
    judge: JudgedCorpus, certificates: Sequence[Mapping[str, Any]], changed: Iterable[str]
) -> str:
    """Say how many changed labels agree with the earlier certificates; empty if not known."""
    adapter = judge.stored_artifact.adapter_sha256
    scores = judge.score_table().set_index("trajectory_id")["score"].dropna()
    outcomes = judge.corpus.runs.set_index("trajectory_id")["outcome"].dropna()
    names = [name for name in changed if name in scores.index and name in outcomes.index]
    decided = {
        name: item["side"] == "release"
        for item in certificates
        if item["procedure"] == PROCEDURES[0]
        and item["certified"]
        and item["provenance"]["adapter_sha256"] == adapter
        for name in names
        if covers(item["side"], item["threshold"], scores[name])
    }
    if not decided:
        return ""
    agree = sum(int(outcomes[name]) == success for name, success in decided.items())
    return (
        f" The judge had decided {len(decided):,} of the runs with changed labels; {agree:,} of "
        "these labels now agree with it."
    )
