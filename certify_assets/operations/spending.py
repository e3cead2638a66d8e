"""The account of δ: what the certificates of a judge on a corpus spend, the first and all later."""

# The first certificate of a judge spends its whole δ. Every later one, on CAL of another version of
# the corpus or on CAL and the audit sample, spends the next share δ_n of a further budget, by one
# schedule that is declared before the first of them: the asset, the command, the weekly job and the
# sensors all come here. By the union bound all certificates of one judge, side and budget hold
# together with at least 1 − δ − Σ δ_n, however much their data overlap, so whatever chooses among
# them later, a user or the policy, chooses among statements that hold together. A
# share is claimed before anything is computed: a look is a test, and what was looked at and dropped
# is spent too. The same rows and scores are the same test, and cost nothing again.

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.specs import DELTA
from certify_assets.storage.events import Event, Head, Payload
from certify_assets.storage.store import Store
from certify_assets.words import number_of

#: of the total, for those that come after the planned ones
_UNPLANNED = 0.2


@dataclass(frozen=True)
class Schedule:
    """How much each recertification spends."""

    # planned: δ_n = .8·total/count for the first count, then .2·total·6/(π²k²) for the k-th after
    # them; inverse_square: total·6/(π²n²)

    kind: Literal["planned", "inverse_square"] = "planned"
    total: float = 0.05  # sum of all shares
    count: int = 4
    least_new_tasks: int = 20  # that a recertification needs, independent of their outcomes

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
        return f"{self.kind}: the n-th spends {how}, all together {self.total:g}"


Purpose = Literal["certificate", "recertification"]


class Declared(Payload):
    """A schedule comes into force."""

    kind = "declared"
    schedule: Schedule
    # of a change
    reason: str


class Claimed(Payload):
    """A test is begun: δ of each side and budget, and the hash of its inputs."""

    kind = "claimed"
    judge: str
    # a certificate is one on CAL
    purpose: Purpose
    # of the recertification, or of the judge's certificates on CAL; from 1
    number: int
    delta: float
    inputs_sha256: str


class Finished(Payload):
    """A recertification is finished; ``objects`` name its document."""

    kind = "finished"
    number: int


class Claim(Claimed):
    """A test that was begun, with the place of its event."""

    time: str
    ledger: Head

    @classmethod
    def of(cls, corpus: str, entry: Event[Claimed]) -> Claim:
        """Return the claim that an event makes."""
        return cls(**dict(entry.content), time=entry.time, ledger=entry.head)

    @property
    def first(self) -> bool:
        """Whether it is the first certificate of a judge, which spends δ and not a share."""
        return self.purpose == "certificate" and self.number == 1


@dataclass(frozen=True)
class Spending:
    """What was declared, claimed and finished on a corpus."""

    schedule: Schedule | None  # in force; None before the first declaration
    tests: tuple[Claim, ...]  # all claims, the oldest first
    since: float  # number of the event by which the schedule came into force
    # hash of the document of every recertification that was finished
    made: Mapping[int, str]

    def of(self, judge: str) -> Spending:
        """Return what one judge spent."""
        return replace(self, tests=tuple(item for item in self.tests if item.judge == judge))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of recertifications."""
        return tuple(item for item in self.tests if item.purpose == "recertification")

    @property
    def spent(self) -> float:
        """Sum of what came after the first certificates."""
        return math.fsum(item.delta for item in self._later)

    @property
    def promised(self) -> float:
        """Sum of what earlier schedules spent and of the whole present one, or of the default."""
        if self.schedule is None:
            return self.spent + Schedule().total
        before = [item.delta for item in self._later if item.ledger["sequence"] < self.since]
        return math.fsum(before) + self.schedule.total

    def next_share(self) -> float:
        """Return δ of the next test after the first certificate."""
        if self.schedule is None:
            return 0.0
        now = [item for item in self._later if item.ledger["sequence"] > self.since]
        return self.schedule.share(1 + len(now))

    @property
    def _later(self) -> list[Claim]:
        return [item for item in self.tests if not item.first]

    def certificates(self, judge: str) -> list[Claim]:
        """Return the claims of a judge's certificates on CAL."""
        return [one for one in self.tests if (one.purpose, one.judge) == ("certificate", judge)]

    @property
    def later(self) -> int:
        """Number of certificates and recertifications after the first certificates."""
        return len(self._later)

    def joint(self) -> str:
        """Describe the joint confidence of all certificates."""
        now, ever = (max(0.0, 1 - DELTA - part) for part in (self.spent, self.promised))
        later = self.later - len(self.claims)
        others = f", {number_of(later, 'later certificate')}" if later else ""
        made = number_of(len(self.claims), "recertification")
        both = [f"{100 * max(0.0, 2 * level - 1):.4g} %" for level in (now, ever)]
        return (
            f"On one side and budget, the first certificate{others} and {made} all hold with "
            f"{100 * now:.4g} % confidence. Once the schedule is spent, it is {100 * ever:.4g} %. "
            f"For both sides together, it is {both[0]} now and {both[1]} then."
        )

    def total(self) -> str:
        """Describe the δ spent in all: that of the first certificate and the schedule's shares."""
        later = f", {self.spent:.4g} by {self.later} later" if self.later else ""
        return (
            f"{DELTA + self.spent:.4g} of at most {DELTA + self.promised:.4g} a side and budget "
            f"({DELTA:g} by the first certificate{later})"
        )


def read_spending(corpus: Corpus) -> Spending:
    """Return what was declared, claimed and finished."""
    # not watched: what others claim changes no share that is claimed already
    view, name = corpus.store, corpus.name
    declared = view.events(name, Declared, watched=False)
    claimed = view.events(name, Claimed, watched=False)
    finished = view.events(name, Finished, watched=False)
    return Spending(
        schedule=declared[-1].content.schedule if declared else None,
        tests=tuple(Claim.of(name, entry) for entry in claimed),
        since=declared[-1].sequence if declared else 0,
        made={item.content.number: item.content.objects["document"] for item in finished},
    )


def declare(corpus: Corpus, schedule: Schedule, *, reason: str = "") -> Spending:
    """Declare the schedule; the same one again adds nothing."""

    def work(view: Store) -> dict[str, Declared]:
        before = read_spending(Corpus(view, corpus.name)).schedule
        if before == schedule:
            return {}
        if before is not None and not reason.strip():
            raise InputError(
                f"{corpus} has declared another schedule ({before.words()}). Keep it, or give the "
                "reason for the change (--reason). δ already spent stays spent, and the new total "
                "is added to it."
            )
        return {uuid.uuid4().hex: Declared(schedule=schedule, reason=reason.strip())}

    corpus.store.short(corpus.name, work)
    return read_spending(corpus)


def claim(corpus: Corpus, judge: str, purpose: Purpose, inputs_sha256: str) -> Claim:
    """Claim δ of a test before it is computed; the same inputs have one claim.

    The first certificate of a judge gets the whole δ, and what follows a share of the schedule.
    """
    known: list[Claim] = []

    def work(view: Store) -> dict[str, Payload]:
        before, said = read_spending(Corpus(view, corpus.name)), dict[str, Payload]()
        certificate = purpose == "certificate"
        earlier = before.certificates(judge) if certificate else before.claims
        known.extend(item for item in earlier if item.inputs_sha256 == inputs_sha256)
        if known:
            return said
        first = certificate and not earlier
        if before.schedule is None and not first:
            said[uuid.uuid4().hex] = Declared(schedule=Schedule(), reason="")
            before = replace(before, schedule=Schedule(), since=math.inf)
        said[uuid.uuid4().hex] = Claimed(
            judge=judge,
            purpose=purpose,
            number=len(earlier) + 1,
            delta=DELTA if first else before.of(judge).next_share(),
            inputs_sha256=inputs_sha256,
        )
        return said

    made = corpus.store.short(corpus.name, work)
    return known[-1] if known else Claim.of(corpus.name, made[-1])


def finish(corpus: Corpus, number: int, document_sha256: str) -> None:
    """Log that a recertification is finished, with the hash of its document."""
    made = Finished(number=number, objects={"document": document_sha256})
    corpus.append(made)


def _down(share: float) -> float:
    scale = 10.0 ** (3 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale
