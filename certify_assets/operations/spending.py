"""The journal of δ: what recertifications spend, by a schedule declared before the first."""

# The first certificate of a judge spends its whole δ. The n-th recertification spends δ_n of a
# further budget. By the union bound all certificates of one side and one budget hold together with
# at least 1 − δ − Σ δ_n, however much their data overlap. A number is claimed before anything is
# computed: a look is a test, and what was looked at and dropped is spent too.

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.layout import operation_key, spending_key
from certify_assets.storage.journal import Journal, LineFormat

_FORMAT = LineFormat(encode=partial(json.dumps, sort_keys=True, ensure_ascii=False))
SCHEDULES = ("inverse_square", "geometric", "equal")
# no table of this world certifies at less
_LEAST = 1e-12


@dataclass(frozen=True)
class Schedule:
    """How much each recertification spends."""

    # inverse_square: δ_n = total·6/(π²n²); geometric: total·(1 − ratio)·ratio^(n−1); equal:
    # total/count for the first count, and nothing afterwards

    kind: str = "inverse_square"
    total: float = 0.05  # sum of all shares
    ratio: float = 0.5
    count: int = 10
    least_new_tasks: int = 20  # that a recertification needs, independent of their outcomes

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise InputError(
                f"the schedule {self.kind!r} is not known; give one of {', '.join(SCHEDULES)}."
            )
        for name in ("total", "ratio"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InputError(
                    f"{name} of the schedule is {getattr(self, name)!r}; give a number between 0 "
                    "and 1."
                )
        for name in ("count", "least_new_tasks"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"{name} of the schedule is {getattr(self, name)!r}; give a whole number from "
                    "1."
                )

    def share(self, number: int) -> float:
        """Return δ of the n-th recertification, n from 1, rounded down to four digits."""
        if self.kind == "inverse_square":
            share = self.total * 6 / (math.pi * number) ** 2
        elif self.kind == "geometric":
            share = self.total * (1 - self.ratio) * self.ratio ** (number - 1)
        else:
            share = self.total / self.count if number <= self.count else 0.0
        return _down(share)

    def words(self) -> str:
        """Describe the schedule."""
        how = {
            "inverse_square": f"{self.total:g}·6/(π²n²)",
            "geometric": f"{self.total:g}·{1 - self.ratio:g}·{self.ratio:g}^(n−1)",
            "equal": f"{self.total:g}/{self.count} for the first {self.count}",
        }
        return f"{self.kind}: the n-th spends {how[self.kind]}, all of them {self.total:g}"


@dataclass(frozen=True)
class Claim:
    """A recertification that was begun: δ of each side and budget, and the hash of its inputs."""

    number: int
    delta: float
    inputs_sha256: str
    time: str


@dataclass(frozen=True)
class _Declared:
    """A schedule that comes into force."""

    schedule: Schedule
    reason: str


@dataclass(frozen=True)
class _Finished:
    """A recertification that is finished, with the hash of its document."""

    number: int
    document_sha256: str


_Entry = _Declared | Claim | _Finished


@dataclass(frozen=True)
class Spending:
    """Content of the journal of δ."""

    schedule: Schedule | None  # in force; None before the first declaration
    since: int  # recertifications claimed before it came into force
    claims: tuple[Claim, ...]
    reasons: tuple[str, ...]  # of each change of the schedule
    head: str  # hash of the journal's last line
    # hash of the document of every recertification that was finished
    made: Mapping[int, str] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """Sum of what all recertifications spent."""
        return math.fsum(item.delta for item in self.claims)

    @property
    def promised(self) -> float:
        """Sum of what earlier schedules spent and of the whole present one."""
        if self.schedule is None:
            return self.spent
        return math.fsum(item.delta for item in self.claims[: self.since]) + self.schedule.total

    def next_share(self) -> float:
        """Return δ of the next recertification."""
        return (
            0.0 if self.schedule is None else self.schedule.share(len(self.claims) + 1 - self.since)
        )

    def joint(self, delta: float) -> str:
        """Describe the joint confidence of all certificates, the first having spent `delta`."""
        now, ever = (max(0.0, 1 - delta - part) for part in (self.spent, self.promised))
        made = len(self.claims)
        since = f"{made} recertification{'' if made == 1 else 's'} since (Σδ = {self.spent:.4g})"
        both = [f"{100 * max(0.0, 2 * level - 1):.4g} %" for level in (now, ever)]
        return (
            f"For one side and one budget, the first certificate (δ = {delta:g}) and {since} hold "
            f"at once with confidence {100 * now:.4g} %, and with {100 * ever:.4g} % whatever "
            "follows under the declared schedule; for both sides at once with "
            f"{both[0]} and {both[1]}."
        )


def read_spending(corpus: Corpus) -> Spending:
    """Return the content of the journal, after checking its chain."""
    # a recertification that no line claims would spend its δ twice
    journal = _journal(corpus)
    where = corpus.store.locate(journal.key)
    spending = _folded(journal.read(), where, journal.head())
    known = {str(item.number) for item in spending.claims}
    deployed = [
        part
        for item in read_deployments(corpus)
        if not item.own
        for part in item.certificates_key.split("/")[3:4]
    ]
    stored = corpus.store.names(operation_key(corpus.name, "recertifications"))
    if lost := [name for name in (*stored, *deployed) if name not in known]:
        raise IntegrityError(
            f"{where} has no line for recertification {lost[0]}, which is stored or was deployed: "
            "lines were cut off; restore the file from a backup."
        )
    return spending


def declare(corpus: Corpus, schedule: Schedule, *, reason: str = "") -> Spending:
    """Append the schedule to the journal; the same one again adds nothing."""
    read_spending(corpus)

    def line(before: Spending) -> _Entry | None:
        if before.schedule == schedule:
            return None
        if before.schedule is not None and not reason.strip():
            raise InputError(
                f"{corpus} has declared another schedule ({before.schedule.words()}); keep to it, "
                "or say in a sentence why it changes: what was spent stays spent, and the joint "
                "promise gets weaker by the whole of the new one."
            )
        return _Declared(schedule, reason.strip())

    _append(corpus, line)
    return read_spending(corpus)


def claim(corpus: Corpus, inputs_sha256: str) -> Claim:
    """Claim the number of a recertification before it is computed; the same inputs have one."""
    read_spending(corpus)
    made: list[Claim] = []

    def line(before: Spending) -> _Entry | None:
        if known := [item for item in before.claims if item.inputs_sha256 == inputs_sha256]:
            made.append(known[-1])
            return None
        if before.schedule is None:
            raise InputError(
                f"{corpus} has declared no schedule of δ; declare one before the first "
                "recertification."
            )
        share = before.next_share()
        if not share > 0.0:
            raise InputError(
                f"the schedule of {corpus} has nothing left ({before.schedule.words()}); declare "
                "another, with the reason."
            )
        made.append(Claim(len(before.claims) + 1, share, inputs_sha256, _now()))
        return made[-1]

    _append(corpus, line)
    return made[-1]


def finish(corpus: Corpus, number: int, document_sha256: str) -> None:
    """Log that a recertification is finished, with the hash of its document."""

    def line(before: Spending) -> _Entry | None:
        if before.made.get(number) == document_sha256:
            return None
        return _Finished(number, document_sha256)

    _append(corpus, line)


def _journal(corpus: Corpus) -> Journal[_Entry]:
    return Journal(corpus.store, spending_key(corpus.name), _parsed, _FORMAT, _line)


def _line(entry: _Entry) -> Mapping[str, object]:
    if isinstance(entry, Claim):
        return {"entry": "claim", **asdict(entry)}
    if isinstance(entry, _Finished):
        return {"entry": "made", **asdict(entry), "time": _now()}
    reason, schedule = entry.reason, asdict(entry.schedule)
    return {"entry": "schedule", **schedule, "reason": reason, "time": _now()}


def _parsed(line: dict[str, Any]) -> _Entry:
    values = {name: value for name, value in line.items() if name not in ("entry", "previous")}
    if line["entry"] == "claim":
        return Claim(**values)
    del values["time"]
    if line["entry"] == "made":
        return _Finished(**values)
    return _Declared(reason=values.pop("reason"), schedule=Schedule(**values))


def _append(corpus: Corpus, make: Callable[[Spending], _Entry | None]) -> None:
    journal = _journal(corpus)
    where = corpus.store.locate(journal.key)

    def new(before: list[_Entry]) -> list[_Entry]:
        # the lock is held: the second of two processes sees the first one's line
        entry = make(_folded(before, where))
        return [] if entry is None else [entry]

    journal.extend(new)


def _folded(entries: Sequence[_Entry], where: str, head: str = "") -> Spending:
    schedule, since = None, 0
    claims: list[Claim] = []
    reasons: list[str] = []
    made: dict[int, str] = {}
    for place, entry in enumerate(entries, 1):
        if isinstance(entry, _Declared):
            reasons += [entry.reason] if schedule is not None else []
            schedule, since = entry.schedule, len(claims)
        elif isinstance(entry, _Finished):
            if not 1 <= entry.number <= len(claims):
                raise _FORMAT.unreadable(where, place)
            made[entry.number] = entry.document_sha256
        else:
            claims.append(entry)
            share = 0.0 if schedule is None else schedule.share(len(claims) - since)
            if entry.number != len(claims) or schedule is None or entry.delta != share:
                raise _FORMAT.altered(where, place)
    return Spending(schedule, since, tuple(claims), tuple(reasons), head, made)


def _down(share: float) -> float:
    if share < _LEAST:
        return 0.0
    scale = 10.0 ** (3 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
