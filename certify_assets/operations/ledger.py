"""The TEST ledger: no outcome of a TEST split is read without an event in it.

A *registration* fixes what will be read before it is read: split manifest, seeds, grid, budgets
and judge, as one hash. A *read* carries the hash of the configuration that asks (registration,
judge, adapter, scores, certificates, TEST itself). The same hash again is a replay. A changed
configuration under one registration, after a result was seen, is a violation. A *result* carries
the hash of what came of the read, so that an altered audit is found.

A delivery of runs is a version of the corpus, and so another registration. A read under it is
``first`` where none of its TEST runs was read by this judge before, and ``reused`` otherwise. The
j-th reading is audited at δ·6/(π²j²), so that all later readings together spend .4 δ.

A *pool* says that scores and task sizes of TEST, and no outcome, went into a certificate. It is no
read: nothing of TEST's labels was seen, so no later reading pays for it.

The events are in the chain of the corpus. An older database is noticed by what names a later event:
certificates, audits, and the metadata of assets and MLflow runs. Somebody who can write all of
these can rewrite history; the ledger makes that a deliberate act, not an accident.
"""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from certify_assets._version import __version__
from certify_assets.corpora.config import NAMED_JUDGE, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import same_runs
from certify_assets.errors import CertifyError, InputError, LedgerError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.events import Head, Payload, TypedEvent, head_text
from certify_assets.storage.snapshot import Snapshot, remembered
from certify_assets.storage.store import Store

READ_KINDS = ("first", "reused", "replay", "changed", "unregistered")
POOL_KIND = "pool"
#: share of a corpus's runs from which another corpus is of the same runs
SHARED = 0.1


class Registered(Payload):
    """A plan is fixed, which ``objects`` name; its hash is the registration."""

    kind = "registered"
    # the Dagster run, or cli
    run_id: str

    @property
    def registration(self) -> str:
        """SHA-256 of the plan."""
        return self.objects["plan"]


class _OfJudge(Payload):
    """What concerns one reader: a judge, or a study under its name."""

    judge: str
    run_id: str

    @property
    def subject(self) -> str:
        """The reader."""
        return self.judge


class SplitReading(_OfJudge):
    """TEST is about to be read; ``objects`` name the list of its runs, where it is known."""

    kind = "test_read"
    # one of READ_KINDS
    reading: str
    registration: str
    # SHA-256 of what asked
    configuration: str
    # j where it is the reader's j-th that sees some of the same TEST runs
    number: int


class Pooled(_OfJudge):
    """Scores and task sizes of TEST, and no outcome, go into certificates."""

    kind = "pooled"
    configuration: str


class Result(_OfJudge):
    """A read gave this."""

    kind = "result"
    # number of the event of the read
    read: int
    result_sha256: str


_KINDS: Final[Mapping[type[Payload], str]] = {
    Registered: "registration",
    SplitReading: "",
    Pooled: POOL_KIND,
    Result: "result",
}


@dataclass(frozen=True)
class LedgerEntry:
    """An event of the ledger."""

    # registration, one of READ_KINDS, pool, or result
    kind: str
    corpus: str
    sequence: int
    sha256: str
    time: str
    run_id: str
    # empty on a registration
    judge: str = ""
    registration: str = ""
    configuration: str = ""
    number: int = 0
    # SHA-256 of the list of TEST runs that a read sees; empty where it is not known
    runs: str = ""

    @classmethod
    def of(cls, corpus: str, entry: TypedEvent[Any]) -> LedgerEntry:
        """Return an event as an entry."""
        said = entry.content
        about = {name: getattr(said, name) for name in _ABOUT if hasattr(said, name)}
        kind = _KINDS[type(said)] or said.reading
        place = corpus, entry.sequence, entry.sha256, entry.time
        return cls(kind, *place, **about, runs=said.objects.get("runs", ""))

    @property
    def is_read(self) -> bool:
        """Whether TEST was asked for."""
        return self.kind in READ_KINDS

    @property
    def ledger(self) -> Head:
        """The event as documents name it."""
        return {"corpus": self.corpus, "sequence": self.sequence, "sha256": self.sha256}


_ABOUT = ("run_id", "judge", "registration", "configuration", "number")


def ledger_entries(corpus: Corpus) -> list[LedgerEntry]:
    """Return every event of a corpus's ledger, oldest first."""
    # not watched: what must not be overtaken is decided while nobody else writes
    found = [
        LedgerEntry.of(corpus.name, entry)
        for kind in _KINDS
        for entry in corpus.store.events(corpus.name, kind, watched=False)
    ]
    return sorted(found, key=lambda entry: entry.sequence)


def register(corpus: Corpus, plan: Mapping[str, Any], *, run_id: str) -> str:
    """Fix what will be read on TEST, a JSON object; return the registration's hash."""
    registration = corpus.store.objects.put(canonical_json(dict(plan)))
    made = Registered(objects={"plan": registration}, run_id=run_id)
    # the same plan again adds nothing; another plan is another registration, and both stay
    _append_once(corpus, made, f"register {registration}")
    return registration


def record_pool(
    corpus: Corpus, *, judge: str, configuration: Mapping[str, str], run_id: str
) -> None:
    """Record that scores and sizes of TEST go into certificates; the same again adds nothing."""
    asked = sha256_bytes(canonical_json({"pool": dict(configuration), "judge": judge}))
    made = Pooled(judge=judge, configuration=asked, run_id=run_id)
    _append_once(corpus, made, f"pool {asked}")


def _append_once(corpus: Corpus, payload: Payload, token: str) -> None:
    corpus.store.short(corpus.name, lambda view: view.append(corpus.name, payload), token=token)


def record_read(
    corpus: Corpus,
    *,
    judge: str,
    registration: str,
    configuration: Mapping[str, Any],
    run_id: str,
    runs: Sequence[str] = (),
) -> LedgerEntry:
    """Record that TEST is about to be read; an unregistered read is recorded and refused."""
    # `runs` are the contents of the TEST runs, as `Corpus.run_contents` gives them
    asked = sha256_bytes(
        canonical_json({"registration": registration, "judge": judge, **configuration})
    )
    store, seen = corpus.store, frozenset(runs)
    objects = {"runs": store.objects.put(canonical_json(sorted(seen)))} if seen else {}

    @functools.cache
    def overlaps(digest: str) -> bool:
        # a read whose runs are not known counts as one of the same runs
        return bool(seen) and (not digest or not seen.isdisjoint(_runs(store, digest)))

    def record(view: Snapshot) -> None:
        entries = ledger_entries(Corpus(view, corpus.name))
        kind = _kind(entries, judge, registration, asked)
        number = _reading_number(entries, judge, asked, overlaps)
        made = SplitReading(
            reading="reused" if kind == "first" and number > 1 else kind,
            judge=judge,
            registration=registration,
            configuration=asked,
            number=number,
            run_id=run_id,
            objects=objects,
        )
        view.append(corpus.name, made)

    # lists of runs are long, and read before others have to wait
    _reading_number(ledger_entries(corpus), judge, asked, overlaps)
    token = uuid.uuid4().hex
    store.short(corpus.name, record, token=token)
    entry = LedgerEntry.of(corpus.name, store.made(corpus.name, SplitReading, token))
    if entry.kind == "unregistered":
        raise LedgerError(
            f"TEST of {corpus} was asked for under the registration {registration[:12]} that is "
            "not in the ledger; register first."
        )
    return entry


def _reading_number(
    entries: Sequence[LedgerEntry], judge: str, asked: str, overlaps: Callable[[str], bool]
) -> int:
    """Return j where a read is its judge's j-th that sees some of the same TEST runs."""
    # a replay counts as the reading that it repeats
    earlier: dict[str, str] = {}
    for entry in entries:
        if entry.is_read and entry.judge == judge:
            if entry.configuration == asked:
                break
            if entry.kind != "unregistered":
                earlier.setdefault(entry.configuration, entry.runs)
    return 1 + sum(map(overlaps, earlier.values()))


def reading_delta(delta: float, number: int) -> float:
    """Return what the j-th reading of the same runs spends: δ at first, then δ·6/(π²j²)."""
    return delta if number == 1 else delta * 6 / (math.pi * number) ** 2


def _runs(store: Store, digest: str) -> frozenset[str]:
    return frozenset(store.objects.get_json(digest))


def announce_study(
    corpus: Corpus, *, reader: str, plan: Mapping[str, Any], run_id: str
) -> LedgerEntry:
    """Register a study, under its name in the place of a judge's, and record its read of TEST."""
    # the same plan on the same runs by the same version is a replay
    registration = register(corpus, {**plan, **corpus.version.registered}, run_id=run_id)
    inputs = {"trajectories_sha256": corpus.trajectories_sha256, "version": __version__}
    return record_read(
        corpus, judge=reader, registration=registration, configuration=inputs, run_id=run_id
    )


def record_result(store: Store, read: LedgerEntry, result_sha256: str) -> None:
    """Record the hash of what came of a read."""
    made = Result(
        judge=read.judge, read=read.sequence, result_sha256=result_sha256, run_id=read.run_id
    )
    store.append(read.corpus, made)


def results_of(corpus: Corpus, judge: str, read: int) -> list[str]:
    """Return the hashes of what came of a judge's read, by the number of its event."""
    found = corpus.store.events(corpus.name, Result, judge)
    return [entry.content.result_sha256 for entry in found if entry.content.read == read]


def ledger_violations(corpus: Corpus, judge: str | None = None) -> list[LedgerEntry]:
    """Return unregistered reads, and changed ones under the current registrations."""
    # what was read against an earlier registration stays in the ledger and is shown, and says
    # nothing against what is registered now
    return [entry for entry in _violations(ledger_entries(corpus)) if judge in (None, entry.judge)]


def _kind(entries: Sequence[LedgerEntry], judge: str, registration: str, asked: str) -> str:
    same = [entry for entry in entries if entry.registration == registration]
    if all(entry.kind != "registration" for entry in same):
        return "unregistered"
    seen = {entry.configuration for entry in same if entry.is_read and entry.judge == judge}
    if not seen:
        return "first"
    return "replay" if asked in seen else "changed"


class Registration(NamedTuple):
    """A registration with the plan that it fixed."""

    registration: str
    time: str
    run_id: str
    plan: dict[str, Any]


@remembered
def registrations(corpus: Corpus) -> list[Registration]:
    """Return what was registered, oldest first."""
    read_plan = corpus.store.objects.get_json
    return [
        Registration(said.registration, time, said.run_id, read_plan(said.registration))
        for said, _, time, _ in corpus.store.events(corpus.name, Registered, watched=False)
    ]


def ledger_status(corpus: Corpus) -> dict[str, Any]:
    """Return the state of the ledger of a corpus.

    Returns
    -------
    dict
        ``registrations`` with their plans; ``reads``, each with the number of its registration
        among its reader's as version; ``readers``: reads by kind, pools and results, of every judge
        or study; ``violations`` of the current registrations; ``head`` of the chain of the corpus,
        as ``certify ledger verify --head`` takes it.
    """
    entries = ledger_entries(corpus)
    return {
        "corpus": corpus.name,
        "registrations": [item._asdict() for item in registrations(corpus)],
        "reads": [{**_brief(entry), "version": version} for entry, version in _versions(entries)],
        "readers": [_reader(entries, name) for name in sorted({e.judge for e in entries} - {""})],
        "violations": [_brief(entry) for entry in _violations(entries)],
        "head": head_text(corpus.store.ledger(corpus.name)),
    }


def _brief(entry: LedgerEntry) -> dict[str, Any]:
    return {"kind": entry.kind, "judge": entry.judge, "time": entry.time}


def ledger_states(store: Store, corpora: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the state of the ledgers, sorted by corpus; of all registered where none is named."""
    known = registered_corpora(store)
    unknown = next((name for name in corpora if name not in known), None)
    if unknown is not None:
        raise InputError(
            f"there is no corpus {unknown!r} in {store.root}; there are "
            f"{', '.join(known) or 'none'}."
        )
    return [ledger_status(Corpus(store, name)) for name in sorted(corpora or known)]


def _versions(entries: Sequence[LedgerEntry]) -> list[tuple[LedgerEntry, int | None]]:
    """Reads, each with the number of its registration among those of its reader, from 1."""
    seen: dict[str, list[str]] = {}
    found: list[tuple[LedgerEntry, int | None]] = []
    for entry in entries:
        if entry.is_read:
            mine = seen.setdefault(entry.judge, [])
            if entry.kind != "unregistered" and entry.registration not in mine:
                mine.append(entry.registration)
            known = entry.registration in mine
            found.append((entry, mine.index(entry.registration) + 1 if known else None))
    return found


def _violations(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Reads that broke a rule of the registration that their reader works under now."""
    current = {
        entry.judge: entry.registration
        for entry in entries
        if entry.is_read and entry.kind != "unregistered"
    }
    last = max((n for n, entry in enumerate(entries) if entry.kind == "registration"), default=-1)
    return [
        entry
        for number, entry in enumerate(entries)
        if (entry.kind == "changed" and entry.registration == current[entry.judge])
        # a read that was refused is history once something was registered after it
        or (entry.kind == "unregistered" and number > last)
    ]


def _reader(entries: Sequence[LedgerEntry], judge: str) -> dict[str, str | int]:
    mine = [entry for entry in entries if entry.judge == judge]
    counts = {kind: sum(entry.kind == kind for entry in mine) for kind in (*READ_KINDS, POOL_KIND)}
    results = [entry for entry in mine if entry.kind == "result"]
    return {"judge": judge, **counts, "results": len(results), "last": mine[-1].time}


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
    # A split that was taken because its certificate is the widest is a candidate, as a judge is.
    # Registrations outlast their corpus. Runs are the same where their texts are, under whatever
    # task and agent. One profile after another is seen within one version: new tasks make another
    # manifest too.
    own = _designs(corpus)
    every: dict[tuple[int | str, ...], tuple[str, str]] = {
        design: (found.time, corpus.name) for design, found in own.items()
    }
    others = []
    for other, versions in corpora_of_the_same_runs(corpus):
        theirs = _designs(other, versions)
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
    return CertifiedSplits(
        len(every), tuple(others), every[earliest][1], not own or [*own][-1] == earliest
    )


@dataclass(frozen=True)
class CertifiedJudges:
    """The judges that were certified on one split, and the one that was named before them."""

    judges: tuple[str, ...]
    named: str


def certified_judges(corpus: Corpus) -> CertifiedJudges:
    """Return the judges of the split in use, also those of other corpora of the same runs."""
    # registrations outlast what was certified, so that a judge that was removed counts
    own = _designs(corpus)
    found = list(_of_split(corpus, [*own.values()][-1].manifests)) if own else []
    for other, versions in corpora_of_the_same_runs(corpus):
        found += _of_split(other, manifests_as(corpus, other.name), versions)
    judges = {name for item in found for name in item.plan.get("judges", {})}
    # the name counts that was there first: a later one may come from looking at certificates
    first = min(found, key=lambda item: item.time, default=None)
    named = corpus.config.judge if first is None else first.plan.get("named_judge")
    return CertifiedJudges(tuple(sorted(judges)), named or NAMED_JUDGE)


def _of_split(
    corpus: Corpus, manifests: Collection[str], versions: Collection[int] | None = None
) -> Iterator[Registration]:
    """Return the registrations of a split, by its manifests, in the order of the ledger."""
    for registration in registrations(corpus):
        plan = registration.plan
        if plan.get("manifest_sha256") in manifests and (
            versions is None or plan.get("version") in versions
        ):
            yield registration


class _Design(NamedTuple):
    """A split: when it was registered first, and its manifests in all versions."""

    time: str
    manifests: frozenset[str]


def certified_versions(corpus: Corpus) -> dict[int, str]:
    """Return the versions of a corpus that were certified, with the time of the first time."""
    found: dict[int, str] = {}
    for registration in registrations(corpus):
        plan = registration.plan
        # registrations of studies have no manifest
        if {"version", "manifest_sha256"} <= plan.keys():
            found.setdefault(plan["version"], registration.time)
    return found


def _designs(
    corpus: Corpus, versions: Collection[int] | None = None
) -> dict[tuple[int, int], _Design]:
    """Return the splits as seed and number of the manifest under that seed, of one version.

    The one registered last is the last. Of these versions, or of all.
    """
    manifests: dict[tuple[int, int], list[str]] = {}
    found: dict[tuple[int, int], _Design] = {}
    for registration in registrations(corpus):
        plan = registration.plan
        # registrations of studies have no manifest
        if {"version", "seed", "manifest_sha256"} <= plan.keys() and (
            versions is None or plan["version"] in versions
        ):
            manifest = plan["manifest_sha256"]
            seen = manifests.setdefault((plan["version"], plan["seed"]), [])
            if manifest not in seen:
                seen.append(manifest)
            design = plan["seed"], seen.index(manifest)
            known = found.pop(design, _Design(registration.time, frozenset()))
            found[design] = known._replace(manifests=known.manifests | {manifest})
    return found


def manifests_as(corpus: Corpus, name: str) -> set[str]:
    """Return the hashes that a corpus's split, at each of its deliveries, has under a name."""
    now = replace(corpus.manifest, corpus=name)
    assignment = now.assignment_so_far
    found = {now.content_sha256()}
    for number in range(1, len(now.deliveries)):
        tasks = {task for delivery in now.deliveries[:number] for task in delivery}
        earlier = replace(
            now,
            assignment={task: split for task, split in assignment.items() if task in tasks},
            deliveries=now.deliveries[:number] if number > 1 else (),
        )
        found.add(earlier.content_sha256())
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
