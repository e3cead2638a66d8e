"""How far reviewers agree: Cohen's kappa with its interval, and figures of each reviewer."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.procedures import clopper_pearson_upper
from certify_assets.words import number_of

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2
DRAWS = 2000
_SEED = 42
#: tasks below which a bootstrap over them is no interval
_FEWEST_TASKS = 10
#: share of draws that may have no kappa, since everything in them has one outcome
_UNDEFINED = 0.05


@dataclass(frozen=True)
class ReviewerFigures:
    """How often one reviewer was right on runs of known outcome."""

    name: str
    gold: int = 0  # such runs that they labelled
    gold_errors: int = 0
    # exact binomial interval of the share right; None without such runs
    gold_low: float | None = None
    gold_high: float | None = None

    @classmethod
    def of(cls, name: str, right: Sequence[bool]) -> ReviewerFigures:
        """Return the figures of a reviewer by whether each label of a known run is right."""
        known, errors = len(right), list(right).count(False)
        if not known:
            return cls(name)
        low = 1.0 - clopper_pearson_upper(errors, known, _TAIL)
        return cls(name, known, errors, low, clopper_pearson_upper(known - errors, known, _TAIL))

    def gold_sentence(self) -> str:
        """Describe how often the reviewer was right on known runs; "" without such runs."""
        if self.gold_low is None or self.gold_high is None:
            return ""
        right = self.gold - self.gold_errors
        return (
            f"Reviewer {self.name}: {right} of {self.gold} known runs right "
            f"({right / self.gold:.0%},"
            f" {CONFIDENCE:.0%} interval {self.gold_low:.0%} to {self.gold_high:.0%})."
        )


@dataclass(frozen=True)
class Agreement:
    """Agreement on runs that two reviewers or more labelled."""

    runs: int
    tasks: int
    pairs: int  # pairs of labels of one run
    differing: int
    kappa: float | None  # None without pairs, and where all labels have one outcome
    low: float | None
    high: float | None
    reviewers: tuple[ReviewerFigures, ...] = ()

    def sentence(self) -> str:
        """Describe the agreement."""
        if not self.pairs:
            return "No run was labelled by two reviewers, so their agreement is not known."
        said = (
            f"Reviewers agree on {self.pairs - self.differing:,} of {self.pairs:,} pairs of labels "
            f"of the same run ({number_of(self.runs, 'run')}, {number_of(self.tasks, 'task')})"
        )
        if self.kappa is None:
            return f"{said}; all labels have one outcome, so Cohen's kappa is not defined."
        if self.tasks < _FEWEST_TASKS:
            return f"{said}. Cohen's kappa needs {_FEWEST_TASKS} tasks."
        if self.low is None or self.high is None:
            return f"{said}: Cohen's kappa {self.kappa:.2f}; too few tasks differ for an interval."
        return (
            f"{said}: Cohen's kappa {self.kappa:.2f} ({100 * CONFIDENCE:g} % interval "
            f"{self.low:.2f} to {self.high:.2f}, bootstrap over tasks)."
        )


class ReviewerLabel(Protocol):
    """A reviewer's label of a run; an empty one takes back the earlier one."""

    @property
    def reviewer(self) -> str:
        """The reviewer."""

    @property
    def trajectory_id(self) -> str:
        """The run."""

    @property
    def outcome(self) -> int | None:
        """The outcome of the run."""


class Said(NamedTuple):
    """The valid label of a reviewer on a run."""

    reviewer: str
    trajectory_id: str
    outcome: int


def valid_labels(labels: Iterable[ReviewerLabel]) -> list[Said]:
    """Return each reviewer's last label of each run, without those taken back."""
    last = {(label.reviewer, label.trajectory_id): label.outcome for label in labels}
    return [Said(*names, outcome) for names, outcome in last.items() if outcome is not None]


def measure_agreement(
    labels: Iterable[ReviewerLabel],
    tasks: Mapping[str, str],
    *,
    gold: Sequence[tuple[Said, int]] = (),
    draws: int = DRAWS,
) -> Agreement:
    """Measure the agreement of reviewers, given the task of each run and known outcomes (`gold`).

    With several pairs of reviewers kappa is pooled: one minus the sum of observed disagreements
    over the sum of those expected from each pair's own margins (de Vries et al. 2008, Field
    Methods 20). The interval is a percentile bootstrap over tasks, since attempts of one task are
    alike.
    """
    said, of_run = valid_labels(labels), dict[str, list[Said]]()
    for one in said:
        of_run.setdefault(one.trajectory_id, []).append(one)
    pairs = [pair for run in of_run.values() for pair in combinations(sorted(run), 2)]
    places = _codes([tasks.get(first.trajectory_id, first.trajectory_id) for first, _ in pairs])
    who = _codes([(first.reviewer, second.reviewer) for first, second in pairs])
    given = [(1, a.outcome, b.outcome, a.outcome != b.outcome) for a, b in pairs]
    counts = np.reshape(np.array(given, dtype=np.float64), (-1, 4))
    kappa = _kappa(who, counts)
    low, high = _interval(places, who, counts, draws)
    right: dict[str, list[bool]] = {one.reviewer: [] for one in said}
    for one, outcome in gold:
        right.setdefault(one.reviewer, []).append(one.outcome == outcome)
    return Agreement(
        runs=len({first.trajectory_id for first, _ in pairs}),
        tasks=len(set(places.tolist())),
        pairs=len(pairs),
        differing=sum(first.outcome != second.outcome for first, second in pairs),
        kappa=None if math.isnan(kappa) else kappa,
        low=low,
        high=high,
        reviewers=tuple(ReviewerFigures.of(name, right[name]) for name in sorted(right)),
    )


def _codes(names: Sequence[Hashable]) -> Integers:
    """Number names in the order of their first occurrence."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)


def _kappa(who: Integers, counts: Floats) -> float:
    """Return the pooled kappa, NaN where it is undefined.

    Counts are pairs, successes of the first, successes of the second, and differences.
    """
    pairs, first, second, differing = (np.bincount(who, column) for column in counts.T)
    there = pairs > 0
    expected = (first * (pairs - second) + (pairs - first) * second)[there] / pairs[there]
    return 1 - float(differing.sum() / total) if (total := expected.sum()) else math.nan


def _interval(
    places: Integers, who: Integers, counts: Floats, draws: int
) -> tuple[float | None, float | None]:
    tasks = int(places.max(initial=-1)) + 1
    # where nobody differs every draw has kappa 1, which is no interval
    if tasks < _FEWEST_TASKS or not counts[:, -1].any():
        return None, None
    rng, share = np.random.default_rng(_SEED), np.full(tasks, 1 / tasks)
    drawn = (rng.multinomial(tasks, share)[places, None] for _ in range(draws))
    kappas = [_kappa(who, counts * weights) for weights in drawn]
    if np.isnan(kappas).mean() > _UNDEFINED:
        return None, None
    low, high = np.nanquantile(kappas, [_TAIL, 1 - _TAIL])
    return float(low), float(high)
