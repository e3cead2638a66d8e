"""Gaffke's test on tasks: P(Σ E_g z_g + E* z_max ≥ 0) with independent standard exponentials E, by numerical inversion.

The Bayesian bootstrap of the tasks' excess z_g, plus one supposed task as wrong as a task can be. For tasks of one trajectory it is the Clopper–Pearson
test exactly; that it keeps its level for every bounded distribution is conjectured, and has been checked by simulation only.

References
----------
Gaffke (2005), Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable.
Learned-Miller and Thomas (2019), A new confidence interval for the mean of a bounded random variable.
Trefethen and Weideman (2014), The exponentially convergent trapezoidal rule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["exponential_sum_tail", "gaffke_tails"]

_FLOOR = -46.0
_NODES, _MOST_NODES, _AGREE = 100, 100_000, 1e-11
_BISECTIONS = 40
_MOST_CELLS = 2_000_000


def gaffke_tails(table: NDArray[np.float64], factor: float = 1.0) -> NDArray[np.float64]:
    """P(Σ E_g x_g + E* ≥ 0) at every threshold.

    Parameters
    ----------
    table : float64 array, shape (thresholds, tasks)
        Payoffs x_g = z_g/z_max, at most 1.
    factor : float
        Number of tasks like these over the number observed.

    Returns
    -------
    float64 array, shape (thresholds,)
    """
    tails = np.ones(table.shape[0])
    for place, row in enumerate(table):
        weights, often = np.unique(np.append(row, 1.0), return_counts=True)
        multiplicity = often.astype(np.float64)
        multiplicity[-1] -= 1.0
        multiplicity *= factor
        multiplicity[-1] += 1.0
        tails[place] = exponential_sum_tail(weights, multiplicity)
    return tails


def exponential_sum_tail(weights: NDArray[np.float64], often: NDArray[np.float64]) -> float:
    """P(Σ_i w_i·Gamma(c_i) ≥ 0) for distinct weights w with shapes c.

    Parameters
    ----------
    weights, often : float64 arrays
        Shapes may be any positive number; a weight of 0 has no effect.

    Returns
    -------
    float

    Notes
    -----
    With K(t) = −Σ c_i log(1 − t·w_i) the tail is the integral of exp(K(t))/t over a line c + iy, 0 < c < 1/w_max. The line passes the
    saddlepoint of K(t) − log t, and y = d·sinh(u) makes the trapezoidal rule converge exponentially; nodes are doubled until two results agree to 1e-11.
    """
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
    while size(reach) > _FLOOR:
        reach *= 1.25

    def integral(nodes: int) -> float:
        return _integral(np.linspace(0.0, reach, nodes + 1), w / room, c, (point, width))

    nodes, last, found = _NODES, np.inf, integral(_NODES)
    while abs(found - last) > _AGREE * abs(found) and nodes < _MOST_NODES:
        nodes *= 2
        last, found = found, integral(nodes)
    return float(min(max(np.exp(base) * found / np.pi, 0.0), 1.0))


def _integral(
    u: NDArray[np.float64],
    slopes: NDArray[np.float64],
    c: NDArray[np.float64],
    place: tuple[float, float],
) -> float:
    """Trapezoidal rule of the real part of the integrand, relative to its size at the saddlepoint."""
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
