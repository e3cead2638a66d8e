"""The journal of δ: what the certificates of a judge on a corpus spend, the first and all later."""

# The first certificate of a judge spends its whole δ. Every later one, on CAL of another version of
# the corpus or on CAL and the audit sample, spends the next share δ_n of a further budget, by one
# schedule that is declared before the first of them: the asset, the command, the weekly job and the
# sensors all come here. By the union bound all certificates of one judge, side and budget hold
# together with at least 1 − δ − Σ δ_n, however much their data overlap, so whatever chooses among
# them later, a user or the policy, chooses among statements that hold together. A
# share is claimed before anything is computed: a look is a test, and what was looked at and dropped
# is spent too. The same rows and scores are the same test, and cost nothing again.

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.specs import DELTA
from certify_assets.storage.journal import Journal, LineFormat, heads_key

_FORMAT = LineFormat(encode=partial(json.dumps, sort_keys=True, ensure_ascii=False))
#: kinds of schedules
SCHEDULES = ("planned", "inverse_square")
#: of the total, for those that come after the planned ones
_UNPLANNED = 0.2


@dataclass(frozen=True)
class Schedule:
    """How much each recertification spends."""

    # planned: δ_n = .8·total/count for the first count, then .2·total·6/(π²k²) for the k-th after
    # them; inverse_square: total·6/(π²n²)

    kind: str = "planned"
    total: float = 0.05  # sum of all shares
    count: int = 4
    least_new_tasks: int = 20  # that a recertification needs, independent of their outcomes

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise InputError(
                f"the schedule {self.kind!r} is not known; give one of {', '.join(SCHEDULES)}."
            )
        if not 0.0 < self.total < 1.0:
            raise InputError(
                f"total of the schedule is {self.total!r}; give a number between 0 and 1."
            )
        for name in ("count", "least_new_tasks"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"{name} of the schedule is {getattr(self, name)!r}; give a whole number from "
                    "1."
                )

    def share(self, number: int) -> float:
        """Return δ of the n-th recertification, n from 1, rounded down to four digits."""
        after = number - self.count
        if self.kind == "inverse_square":
            return _down(self.total * 6 / (math.pi * number) ** 2)
        if after > 0:
            return _down(self.total * _UNPLANNED * 6 / (math.pi * after) ** 2)
        return _down(self.total * (1 - _UNPLANNED) / self.count)

    def words(self) -> str:
        """Describe the schedule."""
        how = f"{self.total:g}·6/(π²n²)"
        if self.kind == "planned":
            how = (
                f"{1 - _UNPLANNED:g}·{self.total:g}/{self.count} for n ≤ {self.count}, then "
                f"{_UNPLANNED:g}·{self.total:g}·6/(π²(n−{self.count})²)"
            )
        return f"{self.kind}: the n-th spends {how}, all of them {self.total:g}"


@dataclass(frozen=True)
class Claim:
    """A test that was begun: δ of each side and budget, and the hash of its inputs."""

    number: int  # of the recertification, or of the judge's certificates on CAL; from 1
    delta: float
    inputs_sha256: str
    time: str
    judge: str
    kind: str = "recertification"  # or certificate: on CAL

    @property
    def first(self) -> bool:
        """Whether it is the first certificate of a judge, which spends δ and not a share."""
        return self.kind == "certificate" and self.number == 1


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
    tests: tuple[Claim, ...]  # all claims, the oldest first
    since: int  # of these, those before the schedule came into force
    reasons: tuple[str, ...]  # of each change of the schedule
    head: str  # hash of the journal's last line
    # hash of the document of every recertification that was finished
    made: Mapping[int, str] = field(default_factory=dict)

    def of(self, judge: str) -> Spending:
        """Return what one judge spent."""
        mine = [item.judge == judge for item in self.tests]
        tests = tuple(item for item, own in zip(self.tests, mine, strict=True) if own)
        return replace(self, tests=tests, since=sum(mine[: self.since]))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of recertifications."""
        return tuple(item for item in self.tests if item.kind == "recertification")

    @property
    def spent(self) -> float:
        """Sum of what came after the first certificates."""
        return math.fsum(item.delta for item in self.tests if not item.first)

    @property
    def promised(self) -> float:
        """Sum of what earlier schedules spent and of the whole present one."""
        if self.schedule is None:
            return self.spent
        before = (item.delta for item in self.tests[: self.since] if not item.first)
        return math.fsum(before) + self.schedule.total

    def next_share(self) -> float:
        """Return δ of the next test after the first certificate."""
        if self.schedule is None:
            return 0.0
        return self.schedule.share(1 + sum(not item.first for item in self.tests[self.since :]))

    def certificates(self, judge: str) -> list[Claim]:
        """Return the claims of a judge's certificates on CAL."""
        return [one for one in self.tests if (one.kind, one.judge) == ("certificate", judge)]

    @property
    def later(self) -> int:
        """Number of certificates and recertifications after the first certificates."""
        return sum(not item.first for item in self.tests)

    def joint(self, delta: float) -> str:
        """Describe the joint confidence of all certificates, the first having spent `delta`."""
        now, ever = (max(0.0, 1 - delta - part) for part in (self.spent, self.promised))
        later = self.later - len(self.claims)
        counts = [(later, "later certificate"), (len(self.claims), "recertification")]
        made = " and ".join(
            f"{number} {name}{'' if number == 1 else 's'}"
            for number, name in counts
            if number or name == "recertification"
        )
        both = [f"{100 * max(0.0, 2 * level - 1):.4g} %" for level in (now, ever)]
        return (
            f"For one side and one budget, the first certificate (δ = {delta:g}) and {made} since "
            f"(Σδ = {self.spent:.4g}) hold at once with confidence {100 * now:.4g} %, and with "
            f"{100 * ever:.4g} % whatever follows under the declared schedule; for both sides at "
            f"once with {both[0]} and {both[1]}."
        )

    def total(self, delta: float = DELTA) -> str:
        """Describe the δ spent in all: that of the first certificate and the schedule's shares."""
        promised = self.promised if self.schedule is not None else self.spent + Schedule().total
        return (
            f"{delta + self.spent:.4g} of at most {delta + promised:.4g} for one side and one "
            f"budget: {delta:g} by the first certificate, {self.spent:.4g} by "
            f"{self.later} later"
        )


def spending_key(corpus: str) -> str:
    """Return the key of the journal."""
    return f"operations/{corpus}/spending.jsonl"


def read_spending(corpus: Corpus) -> Spending:
    """Return the content of the journal, after checking its chain."""
    # a recertification that no line claims would spend its δ twice
    journal = spending_journal(corpus)
    where = corpus.store.locate(journal.key)
    return _folded(journal.read(), where, journal.head())


def declare(corpus: Corpus, schedule: Schedule, *, reason: str = "") -> Spending:
    """Append the schedule to the journal; the same one again adds nothing."""
    read_spending(corpus)

    def line(before: Spending) -> list[_Entry]:
        if before.schedule == schedule:
            return []
        if before.schedule is not None and not reason.strip():
            raise InputError(
                f"{corpus} has declared another schedule ({before.schedule.words()}); keep to it, "
                "or say in a sentence why it changes: what was spent stays spent, and the joint "
                "promise gets weaker by the whole of the new one."
            )
        return [_Declared(schedule, reason.strip())]

    _append(corpus, line)
    return read_spending(corpus)


def claim(corpus: Corpus, inputs_sha256: str, judge: str) -> Claim:
    """Claim the number of a recertification before it is computed; the same inputs have one."""
    read_spending(corpus)
    made: list[Claim] = []

    def line(before: Spending) -> list[_Entry]:
        if known := [item for item in before.claims if item.inputs_sha256 == inputs_sha256]:
            made.append(known[-1])
            return []
        if before.schedule is None:
            raise InputError(
                f"{corpus} has declared no schedule of δ; declare one before the first "
                "recertification."
            )
        share = before.of(judge).next_share()
        made.append(Claim(len(before.claims) + 1, share, inputs_sha256, _now(), judge))
        return [made[-1]]

    _append(corpus, line)
    return made[-1]


def claim_certificate(corpus: Corpus, judge: str, inputs_sha256: str) -> Claim:
    """Claim δ of a judge's certificates on CAL: the whole at first, then the schedule's shares."""
    read_spending(corpus)
    made: list[Claim] = []

    def line(before: Spending) -> list[_Entry]:
        mine = before.certificates(judge)
        if known := [item for item in mine if item.inputs_sha256 == inputs_sha256]:
            made.append(known[-1])
            return []
        number = 1 + len(mine)
        declared: list[_Entry] = []
        share = DELTA
        if number > 1:
            if before.schedule is None:
                declared = [_Declared(Schedule(), "")]
                before = replace(before, schedule=Schedule(), since=len(before.tests))
            share = before.of(judge).next_share()
        made.append(Claim(number, share, inputs_sha256, _now(), judge, "certificate"))
        return [*declared, made[-1]]

    _append(corpus, line)
    return made[-1]


def finish(corpus: Corpus, number: int, document_sha256: str) -> None:
    """Log that a recertification is finished, with the hash of its document."""

    def line(before: Spending) -> list[_Entry]:
        if before.made.get(number) == document_sha256:
            return []
        return [_Finished(number, document_sha256)]

    _append(corpus, line)


def spending_journal(corpus: Corpus) -> Journal[_Entry]:
    """Return the journal; its heads are kept with the ledger of TEST."""
    key = spending_key(corpus.name)
    return Journal(corpus.store, key, _parsed, _FORMAT, _line, heads=heads_key(corpus.name))


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


def _append(corpus: Corpus, make: Callable[[Spending], list[_Entry]]) -> None:
    journal = spending_journal(corpus)
    where = corpus.store.locate(journal.key)
    # the lock is held: the second of two processes sees the first one's line
    journal.extend(lambda before: make(_folded(before, where)))


def _folded(entries: Sequence[_Entry], where: str, head: str = "") -> Spending:
    now = Spending(None, (), 0, (), head, {})
    made: dict[int, str] = {}
    for place, entry in enumerate(entries, 1):
        if isinstance(entry, _Declared):
            reasons = now.reasons if now.schedule is None else (*now.reasons, entry.reason)
            now = replace(now, schedule=entry.schedule, since=len(now.tests), reasons=reasons)
        elif isinstance(entry, _Finished):
            if not 1 <= entry.number <= len(now.claims):
                raise _FORMAT.unreadable(where, place)
            made[entry.number] = entry.document_sha256
        else:
            if (entry.number, entry.delta) != _expected(now, entry):
                raise _FORMAT.altered(where, place)
            now = replace(now, tests=(*now.tests, entry))
    return replace(now, made=made)


def _expected(before: Spending, entry: Claim) -> tuple[int, float]:
    """Return number and δ that a claim must have."""
    share = before.of(entry.judge).next_share()
    if entry.kind == "recertification":
        return len(before.claims) + 1, share
    number = 1 + len(before.certificates(entry.judge))
    return number, DELTA if number == 1 else share


def _down(share: float) -> float:
    scale = 10.0 ** (3 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
