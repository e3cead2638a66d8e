"""The TEST ledger: no outcome of a TEST split is read without an event in it.

A *registration* fixes what will be read before it is read: split manifest, seeds, grid, budgets
and judge, as one hash. A *read* carries the hash of the configuration that asks (registration,
judge, adapter, scores, certificates, TEST itself). The same hash again is a replay. A changed
configuration under one registration, after a result was seen, is a violation. A *result* carries
the hash of what the read gave, so that an altered audit is found.

A delivery of runs makes a version of the corpus, and so another registration. A read under it is
``first`` if this judge has read none of its TEST runs before, and ``reused`` otherwise. Reading j
(j ≥ 2) is audited at δ·6/(π²j²), so all later readings together spend 0.4 δ.

A *pool* event says that scores and task sizes of TEST, but no outcome, went into a certificate. It
is not a read: no label of TEST was seen, so it costs later readings nothing.

Each event holds the hash of the one before. Certificates, audits, and metadata in Dagster and
MLflow name events, which shows if an older database was put back. Somebody who can write all of
these can rewrite history, but only on purpose.
"""

from __future__ import annotations

import functools
import math
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from certify_assets._version import __version__
from certify_assets.corpora.config import load_config, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import LedgerError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.events import Event, Head, Payload, head_text
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store

READ_KINDS: Final = ("first", "reused", "replay", "changed", "unregistered")
POOL_KIND: Final = "pool"


class Registered(Payload):
    """A plan is fixed, which ``objects`` name; its hash is the registration."""

    kind = "registered"
    # the Dagster run, or cli
    run_id: str


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
    Pooled: POOL_KIND,
    Result: "result",
}


@dataclass(frozen=True)
class LedgerEntry:
    """An event of the ledger; what its kind does not have is empty."""

    # registration, one of READ_KINDS, pool, or result
    kind: str
    ledger: Head
    time: str
    run_id: str
    judge: str = ""
    registration: str = ""
    configuration: str = ""
    number: int = 0
    # SHA-256 of the list of TEST runs that a read sees; empty where it is not known
    runs: str = ""

    @classmethod
    def of(cls, corpus: str, entry: Event[Any]) -> LedgerEntry:
        """Return an event as an entry."""
        said = entry.content
        about = said.model_dump(include={"judge", "registration", "configuration", "number"})
        if isinstance(said, Registered):
            about["registration"] = said.objects["plan"]
        kind = _KINDS.get(type(said)) or said.reading
        runs = said.objects.get("runs", "")
        return cls(kind, entry.head, entry.time, said.run_id, **about, runs=runs)

    @property
    def is_read(self) -> bool:
        """Whether TEST was asked for."""
        return self.kind in READ_KINDS


def ledger_entries(corpus: Corpus) -> list[LedgerEntry]:
    """Return every event of a corpus's ledger, oldest first."""
    # not watched: what must not be overtaken is decided while nobody else writes
    found = [
        LedgerEntry.of(corpus.name, entry)
        for kind in (Registered, SplitReading, Pooled, Result)
        for entry in corpus.events(kind, watched=False)
    ]
    return sorted(found, key=lambda entry: entry.ledger["sequence"])


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
    corpus.store.short(corpus.name, lambda _: {token: payload})


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
        return bool(seen) and (not digest or not seen.isdisjoint(store.objects.get_json(digest)))

    def record(view: Store) -> dict[str, SplitReading]:
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
        return {uuid.uuid4().hex: made}

    # lists of runs are long, and read before others have to wait
    _reading_number(ledger_entries(corpus), judge, asked, overlaps)
    (made,) = store.short(corpus.name, record)
    entry = LedgerEntry.of(corpus.name, made)
    if entry.kind == "unregistered":
        raise LedgerError(
            f"TEST of {corpus} was requested under registration {registration[:12]}, which is not "
            "in the ledger. Register first."
        )
    return entry


def _kind(entries: Sequence[LedgerEntry], judge: str, registration: str, asked: str) -> str:
    same = [entry for entry in entries if entry.is_read and entry.judge == judge]
    seen = {entry.configuration for entry in same if entry.registration == registration}
    if all((entry.kind, entry.registration) != ("registration", registration) for entry in entries):
        return "unregistered"
    if not seen:
        return "first"
    return "replay" if asked in seen else "changed"


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
    place = read.ledger
    made = Result(
        judge=read.judge, read=place["sequence"], result_sha256=result_sha256, run_id=read.run_id
    )
    store.append(place["corpus"], made)


def results_of(corpus: Corpus, judge: str, read: int) -> list[str]:
    """Return the hashes of what came of a judge's read, by the number of its event."""
    found = corpus.events(Result, judge)
    return [entry.content.result_sha256 for entry in found if entry.content.read == read]


class Registration(NamedTuple):
    """A registration with the plan that it fixed."""

    registration: str
    time: str
    run_id: str
    plan: dict[str, Any]


@remembered
def registrations(corpus: Corpus) -> list[Registration]:
    """Return what was registered, oldest first."""
    return [
        Registration(plan, entry.time, entry.content.run_id, corpus.store.objects.get_json(plan))
        for entry in corpus.events(Registered, watched=False)
        for plan in (entry.objects["plan"],)
    ]


def ledger_violations(corpus: Corpus, judge: str | None = None) -> list[LedgerEntry]:
    """Return unregistered reads, and changed ones under the current registrations."""
    # what was read against an earlier registration stays in the ledger and is shown, and says
    # nothing against what is registered now
    entries = ledger_entries(corpus)
    current, registered = dict[str, str](), 0
    for entry in entries:
        if entry.kind == "registration":
            registered = entry.ledger["sequence"]
        elif entry.is_read and entry.kind != "unregistered":
            current[entry.judge] = entry.registration
    return [
        entry
        for entry in entries
        if judge in (None, entry.judge)
        and (
            (entry.kind == "changed" and entry.registration == current[entry.judge])
            # a read that was refused is history once something was registered after it
            or (entry.kind == "unregistered" and entry.ledger["sequence"] > registered)
        )
    ]


def ledger_status(corpus: Corpus) -> dict[str, Any]:
    """Return the state of the ledger of a corpus.

    Returns
    -------
    dict
        ``registrations`` with their plans. ``reads``. ``readers``: reads by kind, pools and
        results, of every judge or study. ``violations`` of the current registrations. ``head``, the
        last event of the corpus, for ``certify ledger verify --head``.
    """
    mine: dict[str, list[LedgerEntry]] = {}
    entries = ledger_entries(corpus)
    for entry in entries:
        if entry.judge:
            mine.setdefault(entry.judge, []).append(entry)
    counts = {judge: Counter(entry.kind for entry in of) for judge, of in mine.items()}
    return {
        "corpus": corpus.name,
        "registrations": [item._asdict() for item in registrations(corpus)],
        "reads": [_brief(entry) for entry in entries if entry.is_read],
        "readers": [
            {
                "judge": judge,
                **{kind: counts[judge][kind] for kind in (*READ_KINDS, POOL_KIND)},
                "results": counts[judge]["result"],
                "last": mine[judge][-1].time,
            }
            for judge in sorted(mine)
        ],
        "violations": [_brief(entry) for entry in ledger_violations(corpus)],
        "head": head_text(corpus.store.ledger(corpus.name)),
    }


def _brief(entry: LedgerEntry) -> dict[str, str]:
    return {
        "kind": entry.kind,
        "judge": entry.judge,
        "time": entry.time,
        "registration": entry.registration,
    }


def ledger_states(store: Store, corpora: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the state of the ledgers, sorted by corpus; of all registered where none is named."""
    for name in corpora:
        load_config(store, name)
    return [
        ledger_status(Corpus(store, name)) for name in sorted(corpora or registered_corpora(store))
    ]
