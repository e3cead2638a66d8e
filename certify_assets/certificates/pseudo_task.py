"""The pseudo-task test: a Bayesian bootstrap of the tasks with one more task that is all wrong.

With z_g = k_g − α·n_g and independent standard exponentials E, the tail at a threshold is

    T(s) = P(Σ_g E_g z_g + E* (1 − α) s ≥ 0),

where the pseudo-task has s covered runs, all of them wrong. Its size guards against what the table
cannot show: p1 = T(R n̄) supposes tasks that are wrong throughout and R times as large as the mean
covered task. p2 = T(R c n_w) supposes errors that cluster no more than those seen, at the
size-weighted mean n_w. A threshold passes where p1 ≤ δ/λ, or where p2 ≤ 3δ/4λ and T(R₂ n̄) ≤ .15
for the size ratio R₂ of p2. The second condition is there because errors may cluster in tasks that
the table does not hold. The widest threshold that passes is taken. Without a charge R₂ is R, and
T(R₂ n̄) is p1.

λ = max(3, δ/λ*), where λ* is the level of binomial limits that one run a task meets anywhere with
probability δ (`path_limits`): more tasks leave more thresholds that are as good as independent. The
shares of δ are calibrated by simulation over the whole grid (benchmarks/validity.py).

The size ratio R, and a share w of the covered runs that is charged as wrong, come from the sizes of
the tasks (`task_sizes`). With a charge the tails are taken at α′ = (α − w)/(1 − w).

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.bootstrap import ErrorLattice, corrected_tails, error_lattice
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.kernels import rising_root
from certify_assets.certificates.path_limits import path_limits

#: the whole-task tail spends at most a third of δ, the clustered one three quarters of its level
WHOLE_SHARE = 3
_CLUSTERED_SHARE = 0.75
#: errors may be taken for as clustered as those seen where whole wrong tasks are no likelier
_PLAUSIBLE = 0.15
#: tasks up to which λ rises: beyond, the thresholds of the grid are fewer than the widths
_MOST_TASKS = 2_000
#: thresholds of the grid
GRID = 160
#: the saddlepoint errs by up to 3 % at tails from .005 to .03, to either side
#: (certify_assets_tests/certificates/test_pseudo_task.py)
_BAND = 0.1
#: α′ is rounded down to a multiple of this part of α's last digit
_PARTS = 200


@dataclass(frozen=True, eq=False)
class PseudoTask:
    """The figures that set the size of the pseudo-task; arrays have shape (thresholds,).

    Attributes
    ----------
    icc : float
        One-sided 80 % upper bound of the correlation of errors within tasks; 1 where they do not
        show it.
    ratios, clustered : float64 array
        R(θ) of p1 and of p2.
    charges : float64 array
        w(θ), the share of the covered runs that is charged as wrong.
    charged : bool
        Whether the pool is large enough for charges.
    """

    icc: float
    ratios: Floats
    clustered: Floats
    charges: Floats
    charged: bool = False

    def part(self, part: slice | Integers) -> PseudoTask:
        """Return the figures of some thresholds."""
        ratios, clustered, charges = self.ratios[part], self.clustered[part], self.charges[part]
        return replace(self, ratios=ratios, clustered=clustered, charges=charges)


def pseudo_task_tails(
    counts: TaskCounts,
    numerators: int | Integers,
    denominator: int,
    pseudo: PseudoTask,
    *,
    level: float | None = None,
    factor: float = 1.0,
) -> tuple[Floats, Floats]:
    """Return p1 and p2 at every threshold; p2 is 1 where whole wrong tasks are too likely for it.

    Parameters
    ----------
    counts : TaskCounts
    numerators, denominator : int, or int64 array of shape (thresholds,), and int
        α, one for all thresholds or one for each.
    pseudo : PseudoTask
    level : float, optional
        p1 is tested at it, p2 at three quarters of it. A tail within a tenth of its level is
        computed exactly; without a level, all tails are saddlepoint approximations.
    factor : float
        Number of tasks, as a multiple of those observed.
    """
    left, parts = charged_budgets(numerators, denominator, pseudo.charges)
    # where the charge leaves nothing, no tail is small
    spent, left = left < 1, np.maximum(left, 1)
    lattice, unit, found = error_lattice(counts, left, parts), 1.0 / parts, []
    whole, clustered, usual = supposed_errors(counts, left / parts, pseudo)
    likely = saddlepoint_tails(lattice, usual, unit=unit, factor=factor) > _PLAUSIBLE
    for extra, share in ((whole, 1.0), (clustered, _CLUSTERED_SHARE)):
        tails = saddlepoint_tails(lattice, extra, unit=unit, factor=factor)
        at = -1.0 if level is None else level * share
        for place in np.flatnonzero(np.abs(tails - at) <= _BAND * at):
            one = lattice.histogram(int(place))
            tails[place] = exact_tail(one.values * unit, one.counts * factor, float(extra[place]))
        found.append(np.where(spent, 1.0, tails))
    return found[0], np.where(likely, 1.0, found[1])


def joined_tails(whole: Floats, clustered: Floats) -> Floats:
    """Return one tail that is at most δ/λ exactly where p1 ≤ δ/λ or p2 ≤ 3δ/4λ."""
    return np.minimum(whole, clustered / _CLUSTERED_SHARE)


def level_shares(tasks: int, alpha: float, delta: float) -> float:
    """Return λ: the whole-task tail is tested at the share δ/λ.

    Parameters
    ----------
    tasks : int
        Tasks of the table, scored or not.
    alpha, delta : float
        Error budget, and one minus the confidence, divided by the number of candidates.
    """
    level = path_limits(min(tasks, _MOST_TASKS), alpha, delta).level
    return max(float(WHOLE_SHARE), delta / level) if level else float(WHOLE_SHARE)


def charged_budgets(
    numerators: int | Integers, denominator: int, charges: Floats
) -> tuple[Integers, int]:
    """α′ = (α − w)/(1 − w) of every threshold, rounded down, in parts; 0 where nothing is left."""
    numerators = np.broadcast_to(numerators, charges.shape)
    if not charges.any():
        return numerators, denominator
    alphas, parts = numerators / denominator, denominator * _PARTS
    left = np.maximum(alphas - charges, 0.0) / np.maximum(1.0 - charges, 1.0 - alphas)
    return np.where(charges > 0, np.floor(left * parts), numerators * _PARTS).astype(int), parts


def supposed_errors(
    counts: TaskCounts, alphas: Floats, pseudo: PseudoTask
) -> tuple[Floats, Floats, Floats]:
    """(1 − α)s of p1, of p2, and of a wrong task that is as large as p2 supposes them."""
    total = counts.covered_trajectories.astype(np.float64)
    # mean covered runs of a covered task, plain and weighted by them
    mean = total / np.maximum(counts.covered_tasks, 1)
    weighted = counts.covered_squares / np.maximum(total, 1.0)
    # c depends on the rounded n_w alone, and neighbouring thresholds share it
    keys = list(zip(alphas.tolist(), np.rint(weighted).tolist(), strict=True))
    shares = {key: clustered_share(key[0], pseudo.icc, key[1]) for key in set(keys)}
    shrink = np.array([shares[key] for key in keys])
    wrong = 1.0 - alphas
    return (
        wrong * (pseudo.ratios * mean),
        wrong * (pseudo.clustered * shrink * weighted),
        wrong * (pseudo.clustered * mean),
    )


def clustered_share(alpha: float, icc: float, weighted: float) -> float:
    """c: share of the pseudo-task that is wrong when errors cluster by ``icc``.

    An error-free task of n = round(n_w) runs has probability P0 under a beta-binomial law of mean
    α. c = α P0/((1 − α)(1 − P0)), from 1/n to 1, is the size at which error-free data exclude
    whole-task errors equally strongly.
    """
    size = max(1, round(weighted))
    steps = np.arange(1, size, dtype=np.float64) * icc
    ratios = ((1.0 - alpha) * (1.0 - icc) + steps) / ((1.0 - icc) + steps)
    right = math.log1p(-alpha) + float(np.log(ratios).sum())
    share = alpha * math.exp(right) / ((1.0 - alpha) * -math.expm1(right))
    return max(1.0 / size, min(1.0, share))


def saddlepoint_tails(
    lattice: ErrorLattice, extra: Floats, *, unit: float, factor: float = 1.0
) -> Floats:
    """P(Σ z·Gamma(factor·count) + extra·E* ≥ 0) of each histogram, z = unit·value, E* exponential.

    By the Lugannani–Rice formula; 1 where the mean is not below 0, 1/2 next to it.
    """
    below = extra + factor * unit * lattice.total(lattice.counts * lattice.values) < 0.0
    tails = np.ones(below.size)
    if not below.any():
        return tails
    inside, extra = lattice.part(below), extra[below]
    z, shapes = unit * inside.values, factor * inside.counts

    def rising(t: Floats) -> tuple[Floats, Floats]:
        """K' and K'': K' rises from below 0 to infinity."""
        parts, own = z / (1.0 - inside.each(t) * z), extra / (1.0 - t * extra)
        slope = own + inside.total(shapes * parts)
        return slope, own * own + inside.total(shapes * parts * parts)

    pole = 1.0 / np.maximum(extra, unit * inside.ends[1])
    t = rising_root(rising, np.zeros(pole.size), np.zeros(pole.size), pole)
    level = -np.log1p(-t * extra) - inside.total(shapes * np.log1p(-inside.each(t) * z))
    # 1/u − 1/w cancels near the mean
    far = -2.0 * level >= 1e-4
    w, u = np.sqrt(-2.0 * level[far]), (t * np.sqrt(rising(t)[1]))[far]
    found = np.full(pole.size, 0.5)
    found[far] = corrected_tails(w, 1.0 / u - 1.0 / w)
    tails[below] = found
    return tails


def exact_tail(values: NDArray[Any], often: NDArray[Any], extra: float) -> float:
    """P(Σ values·Gamma(often) + extra·E* ≥ 0), by quadrature through the saddlepoint."""
    # equal weights are one gamma variable: the quadrature takes distinct ones
    weights, owner = np.unique(np.append(values, extra), return_inverse=True)
    shapes = np.bincount(owner, weights=np.append(often, 1.0)).astype(np.float64)
    return exponential_sum_tail(weights, shapes)


_NEGLIGIBLE = -46.0
_NODES, _MOST_NODES, _AGREE = 100, 100_000, 1e-11
#: cells of the matrix (nodes by weights) that are handled at once
_MOST_CELLS = 2_000_000


def exponential_sum_tail(weights: Floats, often: Floats) -> float:
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

    def rising(t: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of K(t) − log t."""
        parts = w / (1.0 - t * w)
        return c @ parts - 1.0 / t, c @ np.square(parts) + t**-2

    pole = np.array([1.0 / w.max()])
    point = rising_root(rising, pole / 2, np.zeros(1), pole)
    # 1/t is one more factor, in which t turns the other way
    room, c = np.append(1.0 - point * w, point), np.append(c, 1.0)
    slopes = np.append(w, -1.0) / room
    width = 1.0 / math.sqrt(float(c @ np.square(slopes)))

    def integrand(u: Floats) -> Floats:
        """Real part of the integrand at u, relative to its size at the saddlepoint."""
        turn = np.multiply.outer(width * np.sinh(u), slopes)
        size = np.exp(-0.5 * (np.log1p(np.square(turn)) @ c)) * width * np.cosh(u)
        return size * np.cos(np.arctan(turn) @ c)

    def total(nodes: NDArray[Any]) -> float:
        parts = np.array_split(nodes, 1 + nodes.size * slopes.size // _MOST_CELLS)
        return sum(float(integrand(part).sum()) for part in parts)

    reach = 1.0
    while _log_size(reach, width * slopes, c) > _NEGLIGIBLE:
        reach *= 1.25
    nodes, last = _NODES, math.inf
    found = reach / nodes * (total(np.linspace(0.0, reach, nodes + 1)) - 0.5 * width)
    while abs(found - last) > _AGREE * abs(found) and nodes < _MOST_NODES:
        between = (np.arange(nodes) + 0.5) * (reach / nodes)
        last, found = found, (found + reach / nodes * total(between)) / 2
        nodes *= 2
    return min(max(math.exp(-float(c @ np.log(room))) * found / math.pi, 0.0), 1.0)


def _log_size(u: float, slopes: Floats, c: Floats) -> float:
    """Log of the integrand's size at u, relative to u = 0."""
    return math.log(math.cosh(u)) - 0.5 * float(c @ np.log1p(np.square(math.sinh(u) * slopes)))
