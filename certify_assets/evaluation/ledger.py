"""The TEST ledger: no outcome of a TEST split is read without a line in it.

A *registration* fixes what will be read before it is read: split manifest, seeds, grid, budgets
and judge, as one hash. A *read* carries the hash of the configuration that asks (registration,
judge, adapter, scores, certificates, TEST itself). The same hash again is a replay; a changed
configuration under one registration, after a result was seen, is a violation. A *result* carries
the hash of what came of the read, so that an altered audit is found.

A delivery of runs is a version of the corpus, and so another registration. A read under it is
``first`` where none of its TEST runs was read by this judge before, and ``reused`` otherwise: the
j-th reading is then audited at δ·6/(π²j²), so that all later readings together spend .4 δ.

A line of the kind ``pool`` says that scores and task sizes of TEST, and no outcome, went into a
certificate. It is no read: nothing of TEST's labels was seen, so no later reading pays for it.

The lines are chained. What was cut off at the end is found by a later head that was stored
elsewhere: in ``ledger/<corpus>.heads.jsonl``, the audit document, the asset's metadata and MLflow.
Somebody who can write all of these can rewrite history; the ledger makes that a deliberate act,
not an accident.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from certify_assets._version import __version__
from certify_assets.corpora.config import NAMED_JUDGE, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.deliveries import same_runs
from certify_assets.errors import CertifyError, InputError, LedgerError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.journal import Journal, LineFormat, heads_key
from certify_assets.storage.snapshot import remembered
from certify_assets.storage.store import Store

READ_KINDS = ("first", "reused", "replay", "changed", "unregistered")
POOL_KIND = "pool"
_FORMAT = LineFormat(entry="a ledger entry", error=LedgerError)
_VERSIONS = ".deliveries.jsonl"
#: share of a corpus's runs from which another corpus is of the same runs
SHARED = 0.1


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the ledger."""

    # registration, one of READ_KINDS, pool, or result
    kind: str
    corpus: str
    # empty on a registration
    judge: str
    # SHA-256 of what was fixed beforehand; empty on a pool
    registration: str
    # SHA-256 of what asked; on a result, of what came of it; empty on a registration
    configuration: str
    # the Dagster run, or cli
    run_id: str
    time: str
    # SHA-256 of the line before; empty on the first
    previous: str = ""
    # SHA-256 of the list of TEST runs that a read sees; empty where it is not known
    runs: str = ""

    def registers(self, registration: str) -> bool:
        """Whether this line is that registration."""
        return self.kind == "registration" and self.registration == registration


def ledger_entries(corpus: Corpus) -> list[LedgerEntry]:
    """Return every line of a corpus's ledger, oldest first; an altered ledger is refused."""
    return _journal(corpus).read()


def ledger_head(corpus: Corpus) -> str:
    """Return the hash of the last line, by which a later reader notices that lines were cut off."""
    return _journal(corpus).head()


def require_in_ledger(corpus: Corpus, head: str) -> None:
    """Refuse a ledger that no longer holds the line with a stored hash."""
    if head:
        line_number(corpus, head)


def line_number(corpus: Corpus, head: str) -> int:
    """Return the number, from 1, of the line of the ledger with a stored hash."""
    hashes = [line.sha256 for line in _journal(corpus).lines()]
    if head not in hashes:
        raise LedgerError(
            f"the ledger of {corpus} lost the line {head[:12]} that an audit names: lines were "
            "cut off; restore it from a backup."
        )
    return hashes.index(head) + 1


def register(corpus: Corpus, plan: Mapping[str, Any], *, run_id: str) -> str:
    """Fix what will be read on TEST, a JSON object; return the registration's hash."""
    registration = sha256_bytes(canonical_json(dict(plan)))
    journal = _journal(corpus)
    # the same plan again adds nothing; another plan is another registration, and both stay
    if not _is_registered(journal.read(), registration):
        corpus.store.write_json(registration_key(corpus.name, registration), dict(plan))
        line = LedgerEntry("registration", corpus.name, "", registration, "", run_id, _now())
        journal.append_unless(lambda entry: entry.registers(registration), line)
    return registration


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

    seen = canonical_json(sorted(set(runs)))
    digest = sha256_bytes(seen) if runs else ""
    if runs and not corpus.store.exists(_runs_key(corpus.name, digest)):
        corpus.store.write_bytes(_runs_key(corpus.name, digest), seen)

    def read(entries: Sequence[LedgerEntry]) -> list[LedgerEntry]:
        kind = _kind(entries, judge, registration, asked)
        line = LedgerEntry(
            kind, corpus.name, judge, registration, asked, run_id, _now(), runs=digest
        )
        if kind == "first" and reading_number(corpus, line, entries) > 1:
            line = replace(line, kind="reused")
        return [line]

    (entry,) = _journal(corpus).extend(read)
    if entry.kind == "unregistered":
        raise LedgerError(
            f"TEST of {corpus} was asked for under the registration {registration[:12]} that is "
            "not in the ledger; register first."
        )
    return entry


def reading_number(
    corpus: Corpus, read: LedgerEntry, entries: Sequence[LedgerEntry] | None = None
) -> int:
    """Return j where a read is its judge's j-th that sees some of the same TEST runs."""
    # a replay counts as the reading that it repeats; readings of a time when their runs were not
    # recorded count as of the same runs
    runs = _runs(corpus, read)
    earlier: dict[str, LedgerEntry] = {}
    for entry in ledger_entries(corpus) if entries is None else entries:
        if entry.kind in READ_KINDS and entry.judge == read.judge:
            if entry.configuration == read.configuration:
                break
            if entry.kind != "unregistered":
                earlier.setdefault(entry.configuration, entry)
    others = [_runs(corpus, entry) for entry in earlier.values()] if runs is not None else []
    return 1 + sum(other is None or not other.isdisjoint(runs or ()) for other in others)


def reading_delta(delta: float, number: int) -> float:
    """Return what the j-th reading of the same runs spends: δ at first, then δ·6/(π²j²)."""
    return delta if number == 1 else delta * 6 / (math.pi * number) ** 2


def _runs(corpus: Corpus, read: LedgerEntry) -> frozenset[str] | None:
    key = _runs_key(corpus.name, read.runs)
    if not read.runs or not corpus.store.exists(key):
        return None
    data = corpus.store.read_bytes(key)
    if sha256_bytes(data) != read.runs:
        raise LedgerError(
            f"{corpus.store.locate(key)} is not the list of runs that the ledger names; restore "
            "it from a backup."
        )
    return frozenset(parse_json(data.decode("utf-8")))


def last_result(entries: Sequence[LedgerEntry], judge: str) -> LedgerEntry | None:
    """Return the line of what the last read of TEST by a judge gave."""
    mine = (entry for entry in reversed(entries) if entry.kind == "result")
    return next((entry for entry in mine if entry.judge == judge), None)


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


def record_result(store: Store, read: LedgerEntry, result_sha256: str) -> str:
    """Record the hash of what came of a read; return the ledger's new head."""
    line = LedgerEntry(
        "result", read.corpus, read.judge, read.registration, result_sha256, read.run_id, _now()
    )
    journal = _journal(Corpus(store, read.corpus))
    journal.append(line)
    return journal.head()


def record_pool(
    corpus: Corpus, *, judge: str, configuration: Mapping[str, str], run_id: str
) -> None:
    """Record that scores and sizes of TEST go into certificates; the same again adds no line."""
    asked = sha256_bytes(canonical_json({"pool": dict(configuration), "judge": judge}))
    line = LedgerEntry(POOL_KIND, corpus.name, judge, "", asked, run_id, _now())
    _journal(corpus).append_unless(
        lambda entry: (entry.kind, entry.configuration) == (POOL_KIND, asked), line
    )


def ledger_violations(corpus: Corpus, judge: str | None = None) -> list[LedgerEntry]:
    """Return unregistered reads, and changed ones under the current registrations."""
    # what was read against an earlier registration stays in the ledger and is shown, and says
    # nothing against what is registered now
    return [entry for entry in _violations(ledger_entries(corpus)) if judge in (None, entry.judge)]


def _kind(entries: Sequence[LedgerEntry], judge: str, registration: str, asked: str) -> str:
    if not _is_registered(entries, registration):
        return "unregistered"
    seen = {
        entry.configuration
        for entry in entries
        if entry.kind in READ_KINDS and (entry.judge, entry.registration) == (judge, registration)
    }
    if not seen:
        return "first"
    return "replay" if asked in seen else "changed"


def _is_registered(entries: Sequence[LedgerEntry], registration: str) -> bool:
    return any(entry.registers(registration) for entry in entries)


def _journal(corpus: Corpus) -> Journal[LedgerEntry]:
    # cut off, the ledger would count fewer reads, and a later one would be audited at too large a δ
    return Journal(
        corpus.store, f"ledger/{corpus}.jsonl", _entry, _FORMAT, heads=heads_key(corpus.name)
    )


def registration_key(corpus: str, registration: str) -> str:
    """Return where what a registration fixed is stored."""
    return f"ledger/{corpus}.registrations/{registration}.json"


def _runs_key(corpus: str, sha256: str) -> str:
    return f"ledger/{corpus}.runs/{sha256}.json"


def _entry(document: Mapping[str, str]) -> LedgerEntry:
    if not all(isinstance(value, str) for value in document.values()):
        raise TypeError
    return LedgerEntry(**document)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Registration:
    """A registration with the plan that it fixed, where that is still stored."""

    registration: str
    time: str
    run_id: str
    plan: dict[str, Any] | None


@dataclass(frozen=True)
class LedgerStatus:
    """State of the ledger of one corpus; `fault` says where the ledger itself was altered."""

    corpus: str
    registrations: Sequence[Registration] = ()
    # with the number of the registration among its reader's as version
    reads: Sequence[Mapping[str, str | int | None]] = ()
    # reads by kind, pools and results, of every judge or study
    readers: Sequence[Mapping[str, str | int]] = ()
    # reads that broke a rule of the current registrations
    violations: Sequence[Mapping[str, str]] = ()
    head: str = ""
    fault: str | None = None

    @classmethod
    def of(cls, corpus: Corpus) -> LedgerStatus:
        """Read the ledger of a corpus."""
        try:
            entries = ledger_entries(corpus)
        except LedgerError as error:
            return cls(corpus.name, fault=str(error))
        return cls(
            corpus.name,
            [
                _registration(corpus.store, entry)
                for entry in entries
                if entry.kind == "registration"
            ],
            [
                {"kind": entry.kind, "judge": entry.judge, "version": version, "time": entry.time}
                for entry, version in _versions(entries)
            ],
            [_reader(entries, name) for name in sorted({e.judge for e in entries if e.judge})],
            [
                {"kind": entry.kind, "judge": entry.judge, "time": entry.time}
                for entry in _violations(entries)
            ],
            ledger_head(corpus),
        )


def ledger_states(store: Store, corpora: Sequence[str] = ()) -> list[LedgerStatus]:
    """Return the state of the ledgers, sorted by corpus; of all registered where none is named."""
    known = registered_corpora(store)
    unknown = next((name for name in corpora if name not in known), None)
    if unknown is not None:
        raise InputError(
            f"there is no corpus {unknown!r} in {store.root}; there are "
            f"{', '.join(known) or 'none'}."
        )
    return [LedgerStatus.of(Corpus(store, name)) for name in sorted(corpora or known)]


def _versions(entries: Sequence[LedgerEntry]) -> list[tuple[LedgerEntry, int | None]]:
    """Reads, each with the number of its registration among those of its reader, from 1."""
    seen: dict[str, list[str]] = {}
    found: list[tuple[LedgerEntry, int | None]] = []
    for entry in entries:
        if entry.kind in READ_KINDS:
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
        if entry.kind in READ_KINDS and entry.kind != "unregistered"
    }
    last = max((n for n, entry in enumerate(entries) if entry.kind == "registration"), default=-1)
    return [
        entry
        for number, entry in enumerate(entries)
        if (entry.kind == "changed" and entry.registration == current[entry.judge])
        # a read that was refused is history once something was registered after it
        or (entry.kind == "unregistered" and number > last)
    ]


def _registration(store: Store, entry: LedgerEntry) -> Registration:
    key = registration_key(entry.corpus, entry.registration)
    plan = store.read_json(key) if store.exists(key) else None
    return Registration(entry.registration, entry.time, entry.run_id, plan)


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
    judges = {name for item in found for name in (item.plan or {}).get("judges", {})}
    # the name counts that was there first: a later one may come from looking at certificates
    first = min(found, key=lambda item: item.time, default=None)
    named = corpus.config.judge if first is None else (first.plan or {}).get("named_judge")
    return CertifiedJudges(tuple(sorted(judges)), named or NAMED_JUDGE)


def _of_split(
    corpus: Corpus, manifests: Collection[str], versions: Collection[int] | None = None
) -> Iterator[Registration]:
    """Return the registrations of a split, by its manifests, in the order of the ledger."""
    for registration in LedgerStatus.of(corpus).registrations:
        plan = registration.plan or {}
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
    for registration in LedgerStatus.of(corpus).registrations:
        plan = registration.plan or {}
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
    for registration in LedgerStatus.of(corpus).registrations:
        plan = registration.plan or {}
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
