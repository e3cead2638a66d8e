"""The pseudo-task test: a Bayesian bootstrap of the tasks with one more task that is all wrong.

With z_g = k_g − α·n_g and independent standard exponentials E, the tail at a threshold is

    T(s) = P(Σ_g E_g z_g + E* (1 − α) s ≥ 0),

where the pseudo-task has s covered runs, all of them wrong. Its size guards against what the table
cannot show: p1 = T(R n̄) supposes tasks that are wrong throughout and R times as large as the mean
covered task; p2 = T(R c n_w) supposes errors that cluster no more than those seen, at the
size-weighted mean n_w. A threshold passes where p1 ≤ δ/3 or p2 ≤ δ/4, and the widest is taken: the
shares of δ are calibrated by simulation over the whole grid (benchmarks/validity.py).

The size ratio R is the largest of what is declared, of how much larger tasks with errors are at the
widest threshold, and of M over the mean size of the covered tasks, where tasks larger than M hold
at most α/2 of the covered runs. The last needs sizes and scores alone, so that unlabelled tasks (a
`Pool`) inform it.

References
----------
Rubin (1981), The Bayesian bootstrap.
Gaffke (2005), Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable.
Lugannani and Rice (1980), Saddle point approximation for the distribution of the sum of independent
random variables.
Trefethen and Weideman (2014), The exponentially convergent trapezoidal rule.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import kernels
from certify_assets.certificates.bootstrap import error_lattice
from certify_assets.certificates.counts import TaskCounts, covered_rows, grid_places
from certify_assets.certificates.guard import telling_counts
from certify_assets.certificates.inputs import Observations

#: the whole-task tail spends a third of δ, the clustered one a quarter
WHOLE_SHARE, CLUSTERED_SHARE = 3, 4
#: thresholds of the grid, and of the coarser one on which the correlation of errors is bounded
GRID, ICC_GRID = 160, 40
#: the saddlepoint errs by up to 3 % at tails from .005 to .03, to either side
#: (certify_assets_tests/certificates/test_pseudo_task.py)
_BAND = 0.1
_DROP = 0.354
_ENOUGH_ERRORS, _ENOUGH_TASKS = 10, 5


class SizedScores(Protocol):
    """Scored rows in ascending order and the task of each: all that a size ratio needs."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores, ascending; NaN at the end."""

    @property
    def tasks(self) -> NDArray[np.int32]:
        """Index of each row's task."""

    @property
    def scored(self) -> int:
        """Number of rows that have a score."""


@dataclass(frozen=True, eq=False)
class SizeCounts:
    """Covered runs, and covered tasks, among the tasks of every size, at every threshold."""

    classes: NDArray[np.int64]  # sizes, ascending
    runs: NDArray[np.int64]  # shape (thresholds, sizes)
    tasks: NDArray[np.int64]

    def __add__(self, other: SizeCounts) -> SizeCounts:
        """Return the counts of the tasks of both."""
        one, two = (item.among(np.union1d(self.classes, other.classes)) for item in (self, other))
        return SizeCounts(one.classes, one.runs + two.runs, one.tasks + two.tasks)

    def among(self, classes: NDArray[np.int64]) -> SizeCounts:
        """Return the same counts among more sizes."""
        places = np.searchsorted(classes, self.classes)
        runs, tasks = np.zeros((2, self.runs.shape[0], classes.size), np.int64)
        runs[:, places], tasks[:, places] = self.runs, self.tasks
        return SizeCounts(classes, runs, tasks)


@dataclass(frozen=True, eq=False)
class PseudoTask:
    """What sets the size of the pseudo-task.

    Attributes
    ----------
    icc : float
        One-sided 80 % upper bound of the correlation of errors within tasks; 1 where no errors
        tell.
    ratios : float64 array, shape (thresholds,)
        R(θ).
    clustered : float64 array, shape (thresholds,), or None
        R(θ) of p2, where it is another.
    charges : float64 array, shape (thresholds,), or None
        Share of the covered runs that counts as wrong besides.
    """

    icc: float
    ratios: NDArray[np.float64]
    clustered: NDArray[np.float64] | None = None
    charges: NDArray[np.float64] | None = None

    def at(self, place: int) -> PseudoTask:
        """Return what applies to one threshold."""
        return self.part(slice(place, place + 1))

    def part(self, part: slice | NDArray[np.int64]) -> PseudoTask:
        """Return what applies to some thresholds."""
        return PseudoTask(
            self.icc,
            self.ratios[part],
            None if self.clustered is None else self.clustered[part],
            None if self.charges is None else self.charges[part],
        )

    @property
    def equal(self) -> PseudoTask:
        """The same if wrong tasks are no larger than others."""
        return PseudoTask(self.icc, np.ones_like(self.ratios))


@dataclass(frozen=True, eq=False)
class PseudoTaskTails:
    """Both tails at every threshold."""

    whole: NDArray[np.float64]  # p1
    clustered: NDArray[np.float64]  # p2

    @property
    def joined(self) -> NDArray[np.float64]:
        """One tail that is at most δ/3 exactly where p1 ≤ δ/3 or p2 ≤ δ/4."""
        return np.minimum(self.whole, CLUSTERED_SHARE / WHOLE_SHARE * self.clustered)


def pseudo_task_tails(
    counts: TaskCounts,
    budget: Fraction,
    pseudo: PseudoTask,
    *,
    level: float,
    factor: float = 1.0,
) -> PseudoTaskTails:
    """Return p1 and p2 at every threshold.

    Parameters
    ----------
    counts : TaskCounts
    budget : Fraction
        α.
    pseudo : PseudoTask
    level : float
        At which p1 is tested; p2 is tested at three quarters of it. A tail is exact where that of
        the saddlepoint is within a tenth of its level.
    factor : float
        Number of tasks like those observed, in multiples of them.
    """
    lattice = error_lattice(counts.covered, counts.errors, budget)
    supposed = supposed_errors(counts, np.full(counts.thresholds.size, float(budget)), pseudo)
    levels, found = (level, level * WHOLE_SHARE / CLUSTERED_SHARE), []
    for extra, at in zip(supposed, levels, strict=True):
        tails = kernels.pseudo_task_tails(
            lattice.values,
            lattice.counts,
            lattice.offsets,
            extra,
            unit=1.0 / budget.denominator,
            factor=factor,
        )
        for place in np.flatnonzero(np.abs(tails - at) <= _BAND * at):
            values, often = lattice.histogram(int(place))
            tails[place] = exact_tail(
                values / budget.denominator, np.asarray(factor * often), float(extra[place])
            )
        found.append(tails)
    return PseudoTaskTails(*found)


def supposed_errors(
    counts: TaskCounts, alphas: NDArray[np.float64], pseudo: PseudoTask
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(1 − α)s of either tail, at a budget of each threshold's own."""
    mean, weighted = _covered_sizes(counts)
    # c depends on the rounded n_w alone, and neighbouring thresholds share it
    keys = list(zip(alphas.tolist(), np.rint(weighted).tolist(), strict=True))
    shares = {key: clustered_share(key[0], pseudo.icc, key[1]) for key in set(keys)}
    shrink = np.array([shares[key] for key in keys])
    clustered = pseudo.ratios if pseudo.clustered is None else pseudo.clustered
    return (1.0 - alphas) * (pseudo.ratios * mean), (1.0 - alphas) * (clustered * shrink * weighted)


def exact_tail(values: NDArray[np.float64], often: NDArray[np.float64], extra: float) -> float:
    """P(Σ values·Gamma(often) + extra·E* ≥ 0), by quadrature through the saddlepoint."""
    # equal weights are one gamma variable: the quadrature takes distinct ones
    weights, owner = np.unique(np.append(values, extra), return_inverse=True)
    shapes = np.bincount(owner, weights=np.append(often, 1.0)).astype(np.float64)
    return exponential_sum_tail(weights, shapes)


def _covered_sizes(counts: TaskCounts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n̄ and n_w: mean covered runs of a covered task, plain and weighted by them."""
    total = counts.covered_trajectories.astype(np.float64)
    weighted = counts.covered_squares / np.maximum(total, 1.0)
    return total / np.maximum(counts.covered_tasks, 1), weighted


def clustered_share(alpha: float, icc: float, weighted: float) -> float:
    """c: share of the pseudo-task that is wrong when errors cluster by ``icc``.

    An error-free task of n = round(n_w) runs has probability P0 under a beta-binomial law of mean
    α; c = α P0/((1 − α)(1 − P0)), from 1/n to 1, is the size at which error-free data say as much
    against whole-task errors as they do against these.
    """
    size = max(1, round(weighted))
    steps = np.arange(1, size, dtype=np.float64) * icc
    ratios = ((1.0 - alpha) * (1.0 - icc) + steps) / ((1.0 - icc) + steps)
    right = math.log1p(-alpha) + float(np.log(ratios).sum())
    share = alpha * math.exp(right) / ((1.0 - alpha) * -math.expm1(right))
    return max(1.0 / size, min(1.0, share))


def error_icc(observations: Observations, side: str) -> float:
    """Upper bound of the correlation of errors: the larger of two thresholds'."""
    return max(icc_upper(*tasks) for tasks in _telling(observations, side))


def _first_enough(errors: NDArray[np.int64]) -> int:
    """The narrowest threshold with enough errors to tell, else the widest."""
    enough = np.flatnonzero(errors >= _ENOUGH_ERRORS)
    return int(enough[0]) if enough.size else errors.size - 1


def _telling(
    observations: Observations, side: str
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Covered runs and errors of tasks at those two thresholds, without counting the others."""
    scored, step = observations.scored, 1 if side == "reject" else -1
    codes = observations.tasks[:scored][::step]
    wrong = (observations.outcomes[:scored] == (side == "reject"))[::step]
    ends = covered_rows(
        observations.scores[:scored],
        side,
        observations.scores[grid_places(scored, side, ICC_GRID)],
    )
    for end in {int(ends[-1]), int(ends[_first_enough(np.cumsum(wrong)[ends - 1])])}:
        covered = np.bincount(codes[:end])
        yield covered, np.bincount(codes[:end][wrong[:end]], minlength=covered.size)


def icc_upper(covered: NDArray[np.integer[Any]], errors: NDArray[np.integer[Any]]) -> float:
    """One-sided 80 % profile bound of the beta-binomial error correlation, 1 if unidentified."""
    found = telling_counts(covered, errors)
    return 1.0 if found is None else kernels.icc_grid_bound(*found, _DROP)


def observed_ratio(counts: TaskCounts) -> float:
    """R̂: how much larger tasks with errors are than others, at the widest threshold."""
    n, k = counts.covered[-1].astype(np.int64), counts.errors[-1].astype(np.int64)
    if np.count_nonzero(k) < _ENOUGH_TASKS:
        return 1.0
    return (int(k @ n) / int(k.sum())) / (int(n @ n) / int(n.sum()))


def covered_ratios(
    counts: TaskCounts, tables: tuple[SizedScores, ...], budget: Fraction
) -> NDArray[np.float64]:
    """R_T: the size beyond which tasks hold α/2 of the covered runs, over the mean covered size."""
    found = reduce(operator.add, covered_by_size(counts, tables))
    total = found.runs.sum(axis=1)
    # runs in tasks larger than each size; whole numbers, so that no rounding decides
    beyond = total[:, None] - np.cumsum(found.runs, axis=1)
    least = np.argmax(2 * budget.denominator * beyond <= budget.numerator * total[:, None], axis=1)
    mean = found.tasks @ found.classes / np.maximum(found.tasks.sum(axis=1), 1)
    return np.where(total > 0, found.classes[least] / np.maximum(mean, 1.0), 1.0)


def covered_by_size(counts: TaskCounts, tables: tuple[SizedScores, ...]) -> list[SizeCounts]:
    """Count covered runs and tasks of every table by the size of their task."""
    return [_count_sizes(table, counts.side, counts.thresholds) for table in tables]


def _count_sizes(table: SizedScores, side: str, thresholds: NDArray[np.float64]) -> SizeCounts:
    """Count covered runs and tasks of a table by the size of their task, at given thresholds."""
    scores, codes = table.scores[: table.scored], table.tasks[: table.scored]
    sizes = np.bincount(codes)
    classes = np.unique(sizes[sizes > 0])
    ends = covered_rows(scores, side, thresholds)
    if side == "release":
        codes = codes[::-1]
    # a task is covered from its first row on: of equal places the last that is written stays
    places = np.empty(sizes.size, dtype=np.int64)
    places[codes[::-1]] = np.arange(codes.size)[::-1]
    first = np.zeros(codes.size, dtype=bool)
    first[places[codes]] = True
    sized = np.searchsorted(classes, sizes)[codes].astype(np.int32)
    runs, tasks = kernels.count_rows(sized, first, ends, classes.size)
    return SizeCounts(classes, runs.astype(np.int64), tasks.astype(np.int64))


_NEGLIGIBLE = -46.0
_NODES, _MOST_NODES, _AGREE = 100, 100_000, 1e-11
_BISECTIONS = 40
_MOST_CELLS = 2_000_000


def exponential_sum_tail(weights: NDArray[np.float64], often: NDArray[np.float64]) -> float:
    """Return P(Σ_i w_i·Gamma(c_i) ≥ 0) for distinct weights w with shapes c."""
    # With K(t) = −Σ c_i log(1 − t·w_i) the tail is the integral of exp(K(t))/t over a line c + iy,
    # 0 < c < 1/w_max. The line passes the saddlepoint of K(t) − log t, and y = d·sinh(u) makes the
    # trapezoidal rule converge exponentially; nodes are doubled until two results agree to 1e-11.
    keep = (weights != 0.0) & (often > 0.0)
    w, c = weights[keep], often[keep]
    if not w.size or w.min() > 0.0:
        return 1.0
    if w.max() < 0.0:
        return 0.0
    if float(c @ w) > 0.0:
        # on the far side of the mean the integrand would oscillate
        return 1.0 - exponential_sum_tail(-w, c)
    point = _saddlepoint(w, c)
    room = 1.0 - point * w
    width = 1.0 / np.sqrt(float(c @ np.square(w / room)) + point**-2)
    base = -float(c @ np.log(room)) - float(np.log(point))

    def size(u: float) -> float:
        """Log of the integrand's size at u, relative to u = 0."""
        square = (width * np.sinh(u)) ** 2
        return float(
            np.log(np.cosh(u))
            - 0.5 * (c @ np.log1p(square * np.square(w / room)) + np.log1p(square / point**2))
        )

    reach = 1.0
    while size(reach) > _NEGLIGIBLE:
        reach *= 1.25

    def integral(nodes: int) -> float:
        return _trapezoid(np.linspace(0.0, reach, nodes + 1), w / room, c, (point, width))

    nodes, last, found = _NODES, np.inf, integral(_NODES)
    while abs(found - last) > _AGREE * abs(found) and nodes < _MOST_NODES:
        nodes *= 2
        last, found = found, integral(nodes)
    return float(min(max(np.exp(base) * found / np.pi, 0.0), 1.0))


def _trapezoid(
    u: NDArray[np.float64],
    slopes: NDArray[np.float64],
    c: NDArray[np.float64],
    place: tuple[float, float],
) -> float:
    """Trapezoidal rule of the real part of the integrand, relative to the saddlepoint."""
    point, width = place
    total = 0.0
    piece = max(1, _MOST_CELLS // slopes.size)
    for first in range(0, u.size, piece):
        part = u[first : first + piece]
        y = width * np.sinh(part)
        turn = np.multiply.outer(y, slopes)
        log_size = -0.5 * (np.log1p(np.square(turn)) @ c + np.log1p(np.square(y / point)))
        phase = np.arctan(turn) @ c - np.arctan(y / point)
        values = np.exp(log_size) * np.cos(phase) * width * np.cosh(part)
        total += float(values.sum()) - (0.5 * float(values[0]) if first == 0 else 0.0)
    return total * float(u[1] - u[0])


def _saddlepoint(w: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    """Minimum of K(t) − log t on (0, 1/w_max), by bisection of its rising derivative."""
    low, high = 0.0, 1.0 / float(w.max())
    for _ in range(_BISECTIONS):
        t = (low + high) / 2
        slope = float(c @ (w / (1.0 - t * w))) - 1.0 / t
        low, high = (t, high) if slope < 0 else (low, t)
    return (low + high) / 2
