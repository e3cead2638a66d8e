"""The task bootstrap without draws: P*(resampled error > α), exactly or by a saddlepoint.

With α = num/den the integer v_g = den·k_g − num·n_g is positive for a task whose error exceeds α. A
bootstrap resample of G tasks has selective error above α exactly when the sum of its G draws of v
is positive, so the limit of infinitely many resamples needs only the histogram of v over tasks.

References
----------
Lugannani and Rice (1980), Saddle point approximation for the distribution of the sum of independent
random variables.
Daniels (1987), Tail probability approximations (second continuity correction, for lattice
variables).
Keich (2005), sFFT: a faster accurate computation of the p-value of the entropy score (exponential
tilting before an FFT).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import kernels
from certify_assets.errors import InputError, quoted

#: the exact tail replaces the saddlepoint within this factor of the level: with few tasks, of which
#: some are wholly wrong, the saddlepoint has been seen wrong by a factor of 1.9 there
BAND = 4.0
#: … and within this relative distance where the exact tail is expensive, which takes thousands of
#: tasks
NARROW_BAND = 0.02
_CHEAP, _LONGEST = 1 << 17, 1 << 22


@dataclass(frozen=True, eq=False)
class ErrorLattice:
    """Histograms of v over tasks; threshold t has values[offsets[t]:offsets[t + 1]], ascending."""

    values: NDArray[np.int64]
    counts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    tasks: int

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def histogram(self, threshold: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (values, counts) of one threshold."""
        part = slice(int(self.offsets[threshold]), int(self.offsets[threshold + 1]))
        return self.values[part], self.counts[part]


def as_fraction(alpha: float) -> Fraction:
    """Return an error budget as the exact decimal that it was written as, .1 as 1/10."""
    if not (isinstance(alpha, int | float) and 0 < alpha < 1):
        raise InputError(
            f"alpha is {quoted(alpha)}; give an error budget strictly between 0 and 1."
        )
    exact = Fraction(repr(float(alpha)))
    if 10_000 % exact.denominator:
        raise InputError(
            f"alpha is {quoted(alpha)}; give at most four decimals, so that the bootstrap sum lies "
            "on a lattice."
        )
    return exact


def error_lattice(
    covered: NDArray[np.int32], errors: NDArray[np.int32], budget: Fraction
) -> ErrorLattice:
    """Build the histograms of v = den·k − num·n over tasks for every threshold."""
    values, counts, offsets = kernels.lattice_histogram(
        covered, errors, budget.numerator, budget.denominator
    )
    return ErrorLattice(values, counts, offsets, int(covered.shape[1]))


def bootstrap_tails(
    lattice: ErrorLattice, level: float, tasks: int | None = None
) -> NDArray[np.float64]:
    """Return P*(resampled error > budget) at every threshold, of infinitely many resamples.

    The tail is exact where that of the saddlepoint is near the level, so that no decision depends
    on its error.
    """
    draws = lattice.tasks if tasks is None else tasks
    tails: NDArray[np.float64] = kernels.saddlepoint_tails(
        lattice.values, lattice.counts, lattice.offsets, draws
    )
    for place in np.flatnonzero((tails >= level / BAND) & (tails <= level * BAND)):
        values, counts = lattice.histogram(int(place))
        length = _window(values, counts, draws)[0]
        if length <= (_LONGEST if abs(tails[place] - level) <= NARROW_BAND * level else _CHEAP):
            tails[place] = exact_tail(values, counts, draws)
    return tails


def exact_tail(values: NDArray[np.int64], counts: NDArray[np.int64], draws: int) -> float:
    """Return P(S > 0) for S the sum of draws from a histogram, by an exponentially tilted FFT."""
    if values[-1] <= 0 or values[0] > 0:
        return float(values[-1] > 0)
    low, span, start = _lattice(values, draws)
    if start > draws * int(values[-1]):
        return 0.0
    length, tilt, level, centre = _window(values, counts, draws)
    if length > _LONGEST:
        raise InputError(
            f"The exact tail needs {length} lattice points; give alpha fewer decimals."
        )
    from scipy import fft

    probability = counts / counts.sum() * np.exp(tilt * values - level)
    mass = np.zeros(length)
    mass[((values - low) // span) % length] = probability
    masses = fft.irfft(fft.rfft(mass) ** draws, n=length)
    first = max(0, min(centre - length // 2, draws * int(values[-1] - low) // span + 1 - length))
    places = np.arange(max(first, (start - draws * low) // span), first + length)
    sums = places * float(span) + float(draws * low)
    tail = math.exp(draws * level - tilt * start) * float(
        np.exp(-tilt * (sums - start)) @ masses[places % length]
    )
    return min(max(tail, 0.0), 1.0)


def _lattice(values: NDArray[np.int64], draws: int) -> tuple[int, int, int]:
    """Lowest value, span, and the smallest sum above 0 on the lattice."""
    low = int(values[0])
    span = int(np.gcd.reduce(values - low))
    return low, span, (draws * low) % span or span


def _window(
    values: NDArray[np.int64], counts: NDArray[np.int64], draws: int
) -> tuple[int, float, float, int]:
    """Length of the FFT, the tilt with its K(t), and the lattice place of the tilted mean."""
    # The length holds all but 1e-20 of the tilted distribution on each side (Bernstein's
    # inequality), or the whole support.
    from scipy import fft

    if values[-1] <= 0 or values[0] > 0:
        return 1, 0.0, 0.0, 0
    low, span, start = _lattice(values, draws)
    tilt = level = 0.0
    mean = float(counts @ values) / float(counts.sum())
    second = float(counts @ np.square(values - mean)) / float(counts.sum())
    x = start - span / 2
    if draws * mean < x < draws * int(values[-1]):
        solved = kernels.saddle(values, counts, np.array([0, values.size]), draws, np.array([x]))
        tilt, level, second = (float(each[0]) for each in solved[:3])
        mean = x / draws
    widest, rare = float(values[-1]) - low, 46.1
    reach = rare * widest / 3 + math.sqrt((rare * widest / 3) ** 2 + 2 * rare * draws * second)
    support = draws * int(values[-1] - low) // span + 1
    length = min(support, 2 * math.ceil(reach / span) + 3)
    return (
        int(fft.next_fast_len(length, real=True)),
        tilt,
        level,
        round(draws * (mean - low) / span),
    )
