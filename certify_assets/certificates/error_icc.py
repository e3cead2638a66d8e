"""The correlation of errors within tasks: upper bounds by a beta-binomial profile likelihood.

References
----------
Crowder (1978), Beta-binomial anova for proportions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates import kernels
from certify_assets.certificates.counts import covered_rows
from certify_assets.certificates.inputs import Observations

#: half the χ² quantile of a one-sided bound: what the log-likelihood may lack of its maximum
_DROP_95, _DROP_80 = 1.353, 0.354
_ENOUGH_ERRORS = 10
_STEPS, _REFINEMENTS = 40, 2


class _TaskCounts(NamedTuple):
    """Tasks of both kinds, and tasks with more than i errors, right decisions, runs, i from 0."""

    mixed: int  # tasks with both errors and right decisions
    errors: Floats
    right: Floats
    sizes: Floats


def error_icc(
    observations: Observations, side: str, thresholds: Floats, *, confident: bool
) -> float:
    """Upper bound of the correlation of errors: the larger one at two thresholds.

    They are the widest threshold and the narrowest with ten errors.
    """
    scores, right, codes = observations.scored_rows
    wrong = right == (side == "reject")
    if side == "release":
        codes, wrong = codes[::-1], wrong[::-1]
    ends = covered_rows(scores, side, thresholds)
    enough = np.flatnonzero(np.cumsum(wrong)[ends - 1] >= _ENOUGH_ERRORS)
    found = []
    for end in {int(ends[-1]), int(ends[enough[0] if enough.size else -1])}:
        covered = np.bincount(codes[:end])
        errors = np.bincount(codes[:end][wrong[:end]], minlength=covered.size)
        found.append(icc_upper(covered, errors, confident=confident))
    return max(found)


def icc_upper(
    covered: NDArray[np.integer[Any]], errors: NDArray[np.integer[Any]], *, confident: bool
) -> float:
    """One-sided upper bound at 95 % where `confident`, else at 80 % and on a coarse grid.

    It is 1 where the errors do not show how they correlate.
    """
    inside = covered > 0
    n, k = covered[inside].astype(np.int64), errors[inside].astype(np.int64)
    if not n.size or not k.any() or (k == n).all() or n.max() == 1:
        return 1.0
    above = [_exceeding(values, int(n.max())) for values in (k, n - k, n)]
    counts = _TaskCounts(int(np.count_nonzero((k > 0) & (k < n))), *above)

    def profile(low: float, high: float) -> tuple[Floats, Floats]:
        grid = np.linspace(low, high, _STEPS + 1)
        return grid, _likelihood(counts, grid)

    grid, values = profile(0.0, 1.0)
    for _ in range(_REFINEMENTS if confident else 0):
        best = int(np.argmax(values))
        grid, values = profile(grid[max(best - 1, 0)], grid[min(best + 1, _STEPS)])
    least = float(values.max()) - (_DROP_95 if confident else _DROP_80)
    if confident:
        grid, values = profile(grid[np.argmax(values)], 1.0)
    if values[-1] >= least:
        return 1.0
    place = int(np.flatnonzero(values >= least)[-1])
    if confident:
        grid, values = profile(grid[place], grid[place + 1])
        place = int(np.flatnonzero(values >= least)[-1])
    # the likelihood is a straight line from one of these to the next
    share = (values[place] - least) / (values[place] - values[place + 1])
    return float(grid[place] + share * (grid[place + 1] - grid[place]))


def _exceeding(values: Integers, width: int) -> Floats:
    """Number of values above 0, above 1, … above width − 1."""
    often = np.bincount(values, minlength=width + 1)
    return (values.size - np.cumsum(often)[:width]).astype(np.float64)


def _likelihood(counts: _TaskCounts, rho: Floats) -> Floats:
    """Beta-binomial log-likelihood at correlations, maximised over the mean p."""
    mixed, errors, right, sizes = counts
    keep, shift = (1.0 - rho)[:, None], np.arange(1, sizes.size) * rho[:, None]

    def descent(p: Floats) -> tuple[Floats, Floats]:
        """Minus the first and the second derivative: the likelihood is concave in the mean."""
        wrong, fine = keep * p[:, None] + shift, keep * (1.0 - p)[:, None] + shift
        by_wrong, by_fine = errors[1:] / wrong, right[1:] / fine
        slope = errors[0] / p - right[0] / (1.0 - p)
        slope += (keep * (by_wrong - by_fine)).sum(axis=1)
        bend = errors[0] / (p * p) + right[0] / ((1.0 - p) * (1.0 - p))
        bend += (keep * keep * (by_wrong / wrong + by_fine / fine)).sum(axis=1)
        return -slope, bend

    start = np.full(rho.size, errors[0] / (errors[0] + right[0]))
    p = kernels.rising_root(descent, start, np.zeros(rho.size), np.ones(rho.size))
    values: Floats = errors[0] * np.log(p) + right[0] * np.log(1.0 - p)
    values += (errors[1:] * np.log(keep * p[:, None] + shift)).sum(axis=1)
    values += (right[1:] * np.log(keep * (1.0 - p)[:, None] + shift)).sum(axis=1)
    values -= (sizes[1:] * np.log(keep + shift)).sum(axis=1)
    if mixed:
        with np.errstate(divide="ignore"):
            values += mixed * np.log(keep[:, 0])
    return values
