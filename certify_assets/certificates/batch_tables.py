"""The test of one set of a batch: its table of errors and labels, exact at δ, and when to give up.

A set has N runs. K₀ = ⌊αN⌋ + 1 errors exceed its budget. Labels are drawn uniformly without
replacement. The test statistic is the prior-posterior ratio

    e(n, k) = [B(a+k, b+n−k) / B(a, b)] / [(K₀)_k (N−K₀)_{n−k} / (N)_n],  a = 20·.3α, b = 20 − a,

of k errors in n labels. It counts as 0 where k/n ≥ K₀/N. For a critical value c, k errors certify
from n_k labels: the first number of labels at which e(n, j) ≥ c for all j ≤ k. The set is certified
once some n_k labels have at most k errors. Let q_k be the probability that this happens first at
n_k. Errors only grow, so it happens with exactly k errors there. With K₀ errors in the set

    q_k = P(k errors in n_k) − Σ_{i<k} q_i P(k − i errors in the next n_k − n_i | i in n_i).

The risk is Σ q_k. It falls as the number of errors in the set grows, so it is at most δ for every
set above its budget. The critical value is the smallest with a risk of at most δ.

**When to give up.** The value of a set after n labels with k errors is the gain in runs where they
certify it. It is 0 where nothing can certify it any more. Otherwise it is

    V(n, k) = max(0, −price + p V(n+1, k+1) + (1 − p) V(n+1, k)),

with the posterior mean p of the next error. A label costs as much as deciding a run gains. The
errors of a set are predicted by a mixture of Beta(30 m, 30 (1 − m)). Giving up where V is 0 is a
stopping rule; no stopping rule changes the risk of a table.

References
----------
Waudby-Smith and Ramdas (2020), Confidence sequences for sampling without replacement.
Waudby-Smith, Stark and Ramdas (2021), RiLACS: risk limiting audits via confidence sequences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from certify_assets.arrays import Floats, Integers

# labels after which a table ends, and the same in budgets: valid, and no larger for a larger batch
_MOST_LABELS, _MOST_BUDGETS = 1600, 40
# prior of the test: its weight in labels, and its mean in budgets
_STRENGTH = 20.0
_PRIOR_MEAN = 0.3
# weight, in labels, of the error that is predicted of a set
_PREDICTED = 30.0
_CLOSE = 1e-4
# the recursion has errors of rounding
_ROUNDING = 1e-9


def error_limit(alpha: float, decided: int) -> int:
    """Return K₀, the smallest number of errors that exceeds the budget; exact in α's decimals."""
    budget = Fraction(str(alpha))
    return budget.numerator * decided // budget.denominator + 1


def last_label(alpha: float, runs: int) -> int:
    """Return the number of labels after which the table of a set ends."""
    return min(runs, max(_MOST_LABELS, math.ceil(_MOST_BUDGETS / alpha)))


@dataclass(frozen=True, eq=False)
class SetTable:
    """How many errors certify a set after how many labels.

    Attributes
    ----------
    runs : int
        N, runs of the set.
    limit : int
        K₀, the smallest number of errors above the budget.
    alpha : float
    critical_value : float
        Smallest ratio that certifies.
    needed : int array, shape (errors,)
        n_k: labels from which k errors certify, ascending.
    first : float array, shape (errors,)
        q_k: probability that K₀ errors in the set are certified first at n_k.
    """

    runs: int
    limit: int
    alpha: float
    critical_value: float
    needed: Integers
    first: Floats

    @property
    def risk(self) -> float:
        """Probability to certify the set with K₀ errors in it, at any number of labels."""
        return float(self.first.sum())

    def crossing(self, errors: Integers) -> int | None:
        """Return the number of labels that certify the set; None where these labels do not.

        Parameters
        ----------
        errors : int array, shape (labels,)
            0 or 1 for each label, in the order of drawing.
        """
        found = np.append(0, np.cumsum(errors))
        reached = self.needed[self.needed < found.size]
        passed = np.flatnonzero(found[reached] <= np.arange(reached.size))
        return int(reached[passed[0]]) if passed.size else None

    def e_value(self, labels: int, errors: int) -> float:
        """Return e(n, k), at most 10¹⁵."""
        if not labels:
            return 1.0
        log_e = _log_ratio(
            np.array([labels]), np.array([errors]), self.runs, self.limit, _prior(self.alpha)
        )
        return math.exp(min(float(log_e[0]), math.log(1e15)))

    def chances(self, means: Floats) -> Floats:
        """Return the probability to certify the set, for predicted means of its error.

        The paths to n_k are those of K₀ errors, so each q_k is weighted by a likelihood ratio.
        """
        paths = [
            _log_ratio(self.needed, np.arange(self.needed.size), self.runs, self.limit, beta)
            for beta in zip(_PREDICTED * means, _PREDICTED * (1 - means), strict=True)
        ]
        # what K₀ errors exclude has no path of theirs to be weighted
        ratios = np.exp(np.where(self.first > 0, paths, -np.inf))
        return np.minimum(ratios @ self.first, 1.0)


def _prior(alpha: float) -> tuple[float, float]:
    mean = _PRIOR_MEAN * alpha
    return _STRENGTH * mean, _STRENGTH * (1 - mean)


def _log_ratio(
    labels: Integers, errors: Integers, runs: int, limit: int, beta: tuple[float, float]
) -> Floats:
    """Logarithm of the likelihood of labels under Beta(a, b), over that under K₀ errors."""
    from scipy.special import betaln, gammaln

    a, b = beta
    right = np.clip(labels - errors, 0, runs - limit)
    marginal = gammaln(a + errors) + gammaln(b + right) - gammaln(a + b + labels) - betaln(a, b)
    sampling = (
        (gammaln(limit + 1) - gammaln(limit - errors + 1))
        + (gammaln(runs - limit + 1) - gammaln(runs - limit - right + 1))
        - (gammaln(runs + 1) - gammaln(runs - labels + 1))
    )
    # so many right runs are impossible under K₀ errors
    return np.where(labels - errors == right, marginal - sampling, np.inf)


@lru_cache(maxsize=256)
def set_table(runs: int, alpha: float, delta: float) -> SetTable:
    """Return the table for a set of this size; its exact risk is at most δ.

    Parameters
    ----------
    runs : int
        At least one.
    alpha, delta : float
        Error budget and risk limit.
    """
    limit, last = error_limit(alpha, runs), last_label(alpha, runs)
    labels, errors = np.arange(1, last + 1)[:, None], np.arange(min(limit, last + 1))
    log_e = _log_ratio(labels, errors, runs, limit, _prior(alpha))
    # more errors than K₀ are likelier than K₀ where the share found is above K₀/N
    log_e[(errors * runs >= limit * labels) | (errors > labels)] = -np.inf
    low, high = -1.0, math.log(1 / delta) + 0.5
    needed = _needed(log_e, high)
    while high - low > _CLOSE:
        middle = (low + high) / 2
        tried = _needed(log_e, middle)
        if _first_crossings(tried, runs, limit).sum() <= delta - _ROUNDING:
            high, needed = middle, tried
        else:
            low = middle
    first = _first_crossings(needed, runs, limit)
    return SetTable(runs, limit, alpha, math.exp(high), needed, first)


def _needed(log_e: Floats, critical: float) -> Integers:
    reached = log_e >= critical
    first = np.where(reached.any(axis=0), reached.argmax(axis=0) + 1, len(log_e) + 1)
    first = np.maximum.accumulate(first)
    return first[first <= len(log_e)]


def _first_crossings(needed: Integers, runs: int, limit: int) -> Floats:
    """Return q_k, which solve the triangular equations in the docstring of the module."""
    from scipy.linalg import solve_triangular
    from scipy.special import gammaln

    log_factorial = gammaln(np.arange(runs + 1) + 1.0)

    def ways(of: Integers, chosen: Integers) -> Floats:
        return log_factorial[of] - log_factorial[chosen] - log_factorial[of - chosen]

    # rows: the start, and each n_i with i errors; columns: each n_k with k errors
    wrong = np.append(0, np.arange(needed.size))[:, None]
    drawn = np.append(0, needed)[:, None]
    left, bad = runs - drawn, limit - wrong
    errors, more = wrong[1:].T - wrong, needed - drawn
    possible = (errors >= 0) & (more >= errors) & (left - bad >= more - errors)
    errors, more = np.where(possible, errors, 0), np.where(possible, more, 0)
    chance = ways(bad, errors) + ways(left - bad, more - errors) - ways(left, more)
    chance = np.where(possible, np.exp(chance), 0.0)
    found = solve_triangular(chance[1:].T, chance[0], lower=True, unit_diagonal=True)
    return np.maximum(found, 0.0)


@dataclass(frozen=True, eq=False)
class Stopping:
    """The value of a set before its first label, and where to give up.

    Attributes
    ----------
    value : float
        Expected runs decided less labels, including those of further sets.
    labels : float
        Expected labels beyond those of the stricter sets.
    errors : int array, shape (labels + 1,)
        Smallest number of errors, after each number of labels, at which to give up.
    """

    value: float
    labels: float
    errors: Integers


def stopping(
    table: SetTable,
    weights: Floats,
    means: Floats,
    *,
    strict: SetTable | None = None,
    after: Stopping | None = None,
) -> Stopping:
    """Return when to give up a set.

    Parameters
    ----------
    table : SetTable
    weights, means : float array, shape (components,)
        Weight and mean of each predicted error of the set.
    strict : SetTable, optional
        The stricter set that is certified by then.
    after : Stopping, optional
        The same for the next set of the chain.
    """
    last = last_label(table.alpha, table.runs)
    gain, later = float(table.runs), 0.0
    if after is not None:
        gain, later = gain + after.value, after.labels
    shared = paid = 0.0
    if strict is not None:
        gain -= strict.runs
        shared = strict.runs / table.runs
        paid = strict.needed[0] / shared
        weights = weights * strict.chances(means)
    most = np.searchsorted(table.needed, np.arange(last + 1), side="right") - 1
    next_error = _next_errors(weights, means, last)
    value, labels = np.zeros((2, table.needed.size + 2))
    errors = np.zeros(last + 1, np.int64)
    top = table.needed.size
    for drawn in reversed(range(last + 1)):
        low, high = int(most[drawn]) + 1, min(drawn, top)
        if drawn < last and low <= high:
            chance = next_error(drawn, low, high)
            price = 1.0 - shared * (drawn < paid)
            here, worse = slice(low, high + 1), slice(low + 1, high + 2)
            going = chance * value[worse] + (1 - chance) * value[here] - price
            taken = chance * labels[worse] + (1 - chance) * labels[here] + price
            labels[here] = np.where(going > 0, taken, 0.0)
            value[here] = np.maximum(going, 0.0)
        value[high + 1 :] = labels[high + 1 :] = 0.0
        value[:low], labels[:low] = gain, later
        # one more than the largest number of errors with a value
        errors[drawn] = np.flatnonzero(value > 0).max(initial=-1) + 1
        top = int(errors[drawn]) - 1
    return Stopping(float(value[0]), float(labels[0]), errors)


def chain_stopping(tables: Sequence[SetTable], weights: Floats, means: Floats) -> list[Stopping]:
    """Return where to give up each set of a chain, from the widest to the strictest.

    Parameters
    ----------
    tables : sequence of SetTable
        The strictest first.
    weights : float array, shape (components,)
    means : float array, shape (components, sets)
    """
    found: list[Stopping] = []
    for place in reversed(range(len(tables))):
        strict, after = tables[place - 1] if place else None, found[-1] if found else None
        found.append(stopping(tables[place], weights, means[:, place], strict=strict, after=after))
    return found[::-1]


def _next_errors(weights: Floats, means: Floats, last: int) -> Callable[[int, int, int], Floats]:
    """Return the chance that the next label is an error, by labels and a range of errors."""
    from scipy.special import gammaln

    counts = np.arange(last + 1)
    a, b = _PREDICTED * means[:, None], _PREDICTED * (1 - means[:, None])
    wrong, right = gammaln(a + counts) - gammaln(a), gammaln(b + counts) - gammaln(b)

    def chance(drawn: int, low: int, high: int) -> Floats:
        errors = np.arange(low, high + 1)
        likely = wrong[:, errors] + right[:, drawn - errors]
        likely = np.exp(likely - likely.max(axis=0))
        found, every = weights @ (likely * (a + errors)), weights @ likely
        # no predicted error comes so far: an error is expected
        expected = np.divide(found, every, out=np.ones_like(found), where=every > 0)
        return np.where(every > 0, expected / (_PREDICTED + drawn), 1.0)

    return chance
