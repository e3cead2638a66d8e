"""The wealth of a batch test by weighted draws: compiled by numba, or by its twin in numpy."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]


def weighted_wealth(
    errors: _Integers,
    drawn: _Integers,
    weights: _Floats,
    risks: _Floats,
    *,
    limit: int,
    strength: float,
) -> _Floats:
    """Log wealth, label by label, of betting that fewer than `limit` runs of a set are wrong.

    Runs are drawn by weight without replacement. The bet maximises the expected growth under the
    predicted errors, scaled by the errors found so far; +inf once too many errors are impossible.
    The bytes are the same with numba and without.
    """
    if find_spec("numba"):
        from certify_assets.certificates.compiled import weighted_wealth as compiled

        return np.asarray(compiled(errors, drawn, weights, risks, limit, strength))
    return wealth_in_numpy(errors, drawn, weights, risks, limit, strength)


def wealth_in_numpy(  # noqa: PLR0917
    errors: _Integers,
    drawn: _Integers,
    weights: _Floats,
    risks: _Floats,
    limit: int,
    strength: float,
) -> _Floats:
    """Compute the wealth as `compiled.weighted_wealth` does, in the same order of additions."""
    alive, wealth = np.ones(weights.size, np.bool_), np.zeros(errors.size)
    log_wealth, found, expected = 0.0, 0, 0.0
    for step, run in enumerate(drawn.tolist()):
        rest, left = limit - found, int(alive.sum())
        if rest <= 0 or left < rest:
            wealth[step:] = np.inf if rest > 0 else -np.inf
            break
        total = _sum(weights[alive])
        chances = weights[alive] / total
        risky = np.minimum(0.95, (strength + found) / (strength + expected) * risks[alive])
        losses, largest = rest - 1.0 / chances, total / float(weights[alive].min())
        low, high = 0.0, 0.999999 / (largest - rest) if largest > rest else 1e6
        for _ in range(30):
            bet = (low + high) / 2
            growth = risky * losses / (1.0 + bet * losses) + (1.0 - risky) * rest / (
                1.0 + bet * rest
            )
            if _sum(chances * growth) > 0.0:
                low = bet
            else:
                high = bet
        error = int(errors[step])
        log_wealth += math.log(1.0 + low * (rest - error * total / float(weights[run])))
        found += error
        expected += float(risks[run])
        alive[run] = False
        wealth[step] = np.inf if left - 1 < limit - found else log_wealth
    return wealth


def _sum(values: _Floats) -> float:
    # one after the other, as a loop adds; np.sum adds in pairs
    return float(np.add.accumulate(values)[-1])
