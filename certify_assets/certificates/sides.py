"""Both sides of a judge: their joint promise, the share that they decide, and the decision of each
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.arrays import Integers
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import SIDES, covers
from certify_assets.certificates.inputs import checked_scores
from certify_assets.certificates.procedures import AVERAGE, confidence_words, find_procedure
from certify_assets.documents import JsonObject
from certify_assets.errors import ForgedCertificateError, InputError, quoted
from certify_assets.files import shortest, significant
from certify_assets.words import WORDS, at_most, percent

#: the weakest first
_WEAKEST = (
    "none under clustering",
    "calibrated by simulation",
    "asymptotic",
    "finite-sample, proved, on average",
    "finite-sample",
    "finite-sample, proved",
)
_PAIR = 2
_NOTHING = "Nothing is certified: every run goes to review."
#: keys of a document next to its certificates, all of which follow from these
OUTLINE = ("decided", "human", "statement")


def budget_words(item: Certificate) -> str:
    """Say how many decisions may be wrong, at most or on average."""
    if item.promise == AVERAGE:
        # the budget is of the share that is decided: the error among decided runs has none
        return f"wrong decisions on average within {100 * item.alpha:g} % of the share decided"
    return at_most(item.alpha)


def weaker_words(item: Certificate) -> list[str]:
    """Say that a promise is the weaker one, and which one certified nothing."""
    if item.promise != AVERAGE:
        return []
    why = ""
    if item.after:
        why = f": the promise {find_procedure(item.after).promise} certified nothing"
    return [f"This is the weaker promise, on average{why}."]


@dataclass(frozen=True)
class Sides:
    """Certificates by which a judge decides: at most one for each side, reject first.

    Commands, pages, the index, checks and deployments read their figures from here.
    """

    certificates: tuple[Certificate, ...]

    @classmethod
    def strictest(cls, certificates: Sequence[Certificate]) -> Sides:
        """Take for each side the certified one of the strictest budget, or else the strictest."""
        found = []
        for side in SIDES:
            mine = [item for item in certificates if item.side == side]
            found += sorted(mine, key=lambda item: (not item.certified, item.alpha))[:1]
        return cls(tuple(found))

    @cached_property
    def certified(self) -> tuple[Certificate, ...]:
        """Return the certificates that decide something."""
        return tuple(item for item in self.certificates if item.certified)

    @cached_property
    def lead(self) -> Certificate:
        """Return the certified one of the strictest budget, then of the larger share."""
        return min(
            self.certified or self.certificates,
            key=lambda item: (item.alpha, -item.coverage, item.side),
        )

    @property
    def sentence(self) -> str:
        """Say which share both sides decide, and which share goes to reviewers."""
        if not self.certified:
            return _NOTHING
        parts = " and ".join(
            f"{percent(self.shares[item.side])} {WORDS[item.side]} ({budget_words(item)})"
            for item in self.certified
        )
        return (
            f"{percent(self.decided)} of {self._drawn}runs are decided: {parts}. "
            f"{percent(self.human)} go to review."
        )

    @property
    def _drawn(self) -> str:
        # of unequal numbers a task, drawn runs are neither a sample of runs nor of tasks
        several = self.lead.inputs.get("sample") and self.lead.trajectories > self.lead.tasks
        return "drawn " if several else ""

    @property
    def overlap(self) -> float:
        """Return the share of scored runs in both regions; these go to reviewers."""
        return significant(self._overlap)

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of scored runs rejected, released and left to reviewers."""
        found = dict.fromkeys(SIDES, 0.0)
        for item in self.certified:
            found[item.side] = significant(_covered(item) - self._overlap)
        return {**found, "human": self.human}

    @property
    def decided(self) -> float:
        """Return the share of scored runs in exactly one region."""
        return significant(self._decided)

    @property
    def human(self) -> float:
        """Return the share of scored runs that reviewers decide."""
        return significant(1 - self._decided)

    @property
    def _overlap(self) -> Fraction:
        # regions that meet leave no score out: what is counted twice is the excess over one
        return max(Fraction(0), sum(map(_covered, self.certified), Fraction(-1)))

    @property
    def _decided(self) -> Fraction:
        return sum(map(_covered, self.certified), Fraction(0)) - 2 * self._overlap


def _covered(item: Certificate) -> Fraction:
    return Fraction(item.covered_trajectories, max(1, item.trajectories))


@dataclass(frozen=True)
class CertificateSet:
    """Certificates of one table, and their joint promise.

    Parameters
    ----------
    certificates : tuple of Certificate
        Any sides, budgets and procedures.
    """

    certificates: tuple[Certificate, ...]

    @cached_property
    def sides(self) -> Sides:
        """Return both sides of the first procedure; only the first certificate where a side is
        missing.
        """
        first = next(iter(self._pairs.values()), self.certificates[:1])
        return Sides(tuple(sorted(first, key=_side_place)))

    @cached_property
    def _pairs(self) -> dict[str, list[Certificate]]:
        """Return the certificates of each procedure; empty unless each has one for each side."""
        found: dict[str, list[Certificate]] = {}
        for item in self.certificates:
            found.setdefault(item.procedure, []).append(item)
        paired = all(sorted(map(_side_place, group)) == [0, 1] for group in found.values())
        return found if paired else {}

    @property
    def statement(self) -> str | None:
        """Return the joint promise of the two sides, one line for each procedure."""
        built = {name: joint_statement(pair) for name, pair in self._pairs.items()}
        if len(built) < _PAIR:
            return next(iter(built.values()), None)
        return "\n".join(f"By {name}: {statement}" for name, statement in built.items())

    @property
    def certified(self) -> bool:
        """Whether any of them certifies anything."""
        return any(item.certified for item in self.certificates)

    @property
    def promise(self) -> str:
        """The joint promise of both sides, or that of the only one."""
        return self.statement or self.certificates[0].statement

    def outline(self) -> JsonObject:
        """Return the keys of the document besides its certificates."""
        if not self._pairs:
            return {}
        sides = self.sides
        return {"decided": sides.decided, "human": sides.human, "statement": self.statement}

    def to_dict(self) -> JsonObject:
        """Return the document as JSON values."""
        return {"certificates": [item.to_dict() for item in self.certificates], **self.outline()}

    @classmethod
    def of(cls, certificates: Sequence[Certificate], outline: Mapping[str, Any]) -> Self:
        """Return certificates as one set, checked against the document's own keys.

        Raises
        ------
        ForgedCertificateError
            If the keys of the document contradict its certificates.
        """
        found = cls(tuple(certificates))
        # certificates that were put together by hand promise nothing together, and say no share;
        # what says a part of that was cut
        expected = found.outline() if outline else {}
        for name in sorted({*expected, *outline}):
            if name not in outline:
                raise ForgedCertificateError(
                    f"The document lacks {name}; give it as it was written."
                )
            own = expected.get(name)
            if type(outline[name]) is not type(own) or outline[name] != own:
                raise ForgedCertificateError(
                    f"{name} is {quoted(outline[name], 200)} in the document and "
                    f"{quoted(own, 200)} by its certificates."
                )
        return found


def _side_place(item: Certificate) -> int:
    return SIDES.index(item.side)


def joint_confidence(certificates: Sequence[Certificate]) -> float:
    """Return 1 − Σδ, the confidence with which all certified ones hold at once."""
    return max(0.0, 1.0 - sum(item.delta for item in certificates if item.certified))


def joint_statement(certificates: Sequence[Certificate]) -> str:
    """Return the joint promise of several certificates of one procedure."""
    active = [certificate for certificate in certificates if certificate.certified]
    if not active:
        return _NOTHING
    together = []
    if len(active) == _PAIR:
        weakest = min((certificate.validity for certificate in active), key=_WEAKEST.index)
        level = joint_confidence(active)
        both = "Both caps" if active[0].promise == AVERAGE else "Both"
        together = [f"{both} hold together with {confidence_words(level, weakest)}."]
    each = [certificate.statement for certificate in certificates]
    return " ".join([*each, *together, *_overlap(active)])


def _overlap(active: Sequence[Certificate]) -> list[str]:
    limits = {certificate.side: certificate.threshold for certificate in active}
    high, low = limits.get("reject"), limits.get("release")
    if len(active) != _PAIR or high is None or low is None or low > high:
        return []
    scores, lie = f"Scores from {shortest(low)} to {shortest(high)}", "lie"
    if low == high:
        scores, lie = f"The score {shortest(low)}", "lies"
    share = 100 * Sides(tuple(active)).overlap
    return [
        f"{scores} ({share:.1f} % of the rows) {lie} in both regions. Those rows go to review; "
        "each side counts them in its own promise."
    ]


#: what happens to a row, and why, by its code
DECISIONS = ("human", "reject", "release", "human", "human", "human")
REASONS = ("middle", "below_threshold", "above_threshold", "overlap", "unscored", "not_certified")
_REGIONS = {"reject": 1, "release": 2}
_UNSCORED, _NOT_CERTIFIED = 4, 5


class RowDecisions(NamedTuple):
    """The decision of each row, and its reason.

    Attributes
    ----------
    decisions : array of str
        "reject", "release" or "human".
    reasons : array of str
        "below_threshold" (rejected), "above_threshold" (released); for review: "middle",
        "unscored", "overlap" (in both regions), "not_certified" (no certificate certifies
        anything).
    """

    decisions: NDArray[np.str_]
    reasons: NDArray[np.str_]

    @property
    def counts(self) -> dict[str, int]:
        """Rows rejected, released and left to review."""
        return {
            name: int(np.count_nonzero(self.decisions == name))
            for name in ("reject", "release", "human")
        }


def decide(certificates: Certificate | Sequence[Certificate], scores: ArrayLike) -> RowDecisions:
    """Decide rows by the certified thresholds.

    Parameters
    ----------
    certificates : Certificate or sequence of Certificate
        One, or one per side.
    scores : array_like of float
        NaN = unscored.

    Returns
    -------
    RowDecisions

    Raises
    ------
    InputError
        If there is no certificate, there are two for one side, or a score is text or infinite.
    """
    given = [certificates] if isinstance(certificates, Certificate) else list(certificates)
    sides = [certificate.side for certificate in given]
    if not given or len(set(sides)) != len(sides):
        raise InputError(
            f"There are certificates for the sides {', '.join(sides) or 'none'}; give one, or one "
            "for each side."
        )
    values = checked_scores([scores] if isinstance(scores, int | float) else scores)
    # a row in one region has its number, a row in both their sum
    codes = np.zeros(values.size, dtype=np.uint8)
    for certificate in given:
        if certificate.threshold is not None:
            inside = covers(certificate.side, certificate.threshold, values)
            codes += inside.view(np.uint8) * np.uint8(_REGIONS[certificate.side])
    if not any(certificate.certified for certificate in given):
        codes[:] = _NOT_CERTIFIED
    codes[np.isnan(values)] = _UNSCORED
    return RowDecisions(
        np.array(DECISIONS, dtype="<U7")[codes], np.array(REASONS, dtype="<U15")[codes]
    )


#: decisions, the outcome that contradicts each, and the words of both outcomes
_WRONG = {"reject": 1, "release": 0}
OUTCOME_WORDS = ("failure", "success")


def confusion(decisions: NDArray[np.str_], outcomes: ArrayLike) -> dict[str, dict[str, int]]:
    """Count labelled failures and successes of every decision.

    Parameters
    ----------
    decisions : array of str, shape (rows,)
        reject, release or human, as :func:`decide` has them.
    outcomes : array_like, shape (rows,)
        1 success, 0 failure; rows with any other value are not counted.

    Returns
    -------
    dict
        By decision, {"failure": int, "success": int}.
    """
    labels = np.asarray(outcomes)
    return {
        name: {
            word: int(np.count_nonzero((decisions == name) & (labels == outcome)))
            for outcome, word in enumerate(OUTCOME_WORDS)
        }
        for name in ("reject", "human", "release")
    }


def disagreements(decisions: NDArray[np.str_], scores: ArrayLike, outcomes: ArrayLike) -> Integers:
    """Return the places of decided rows that contradict their label, the worst first.

    Rows are ordered by the share of decided rows of their side that lie at least as far from the
    threshold. This share is comparable between sides.

    Parameters
    ----------
    decisions, outcomes
        As for :func:`confusion`.
    scores : array_like of float, shape (rows,)

    Returns
    -------
    int64 array
    """
    values, labels = np.asarray(scores, dtype=np.float64), np.asarray(outcomes)
    surer = np.full(values.size, np.inf)
    for side in SIDES:
        mine = np.flatnonzero(decisions == side)
        outward = values[mine] if side == "reject" else -values[mine]
        found = np.searchsorted(np.sort(outward), outward, side="right") / max(1, mine.size)
        wrong = labels[mine] == _WRONG[side]
        surer[mine[wrong]] = found[wrong]
    places = np.flatnonzero(np.isfinite(surer))
    return places[np.argsort(surer[places], kind="stable")]
