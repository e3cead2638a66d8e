"""Algorithm 1 without draws: P*(resampled error > α), exactly or by a saddlepoint.

With α = num/den the integer v_g = den·k_g − num·n_g is positive for a task whose error exceeds α. A
bootstrap resample of G tasks has selective error above α exactly when the sum of its G draws of v
is positive. So the limit of infinitely many resamples needs only the histogram of v over tasks.

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
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Booleans, Floats, Integers
from certify_assets.certificates import kernels
from certify_assets.certificates.counts import TaskCounts
from certify_assets.errors import InputError, quoted

#: the exact tail replaces the saddlepoint within this factor of the level: with few tasks, of which
#: some are wholly wrong, the saddlepoint has been seen wrong by a factor of 1.9 there
BAND = 4.0
#: … and within this relative distance where it takes a long FFT, as thousands of tasks do
_NARROW_BAND = 0.02
_CHEAP, _LONGEST = 1 << 17, 1 << 22
#: minus the log of the share of a law that may lie outside of the FFT's window
_RARE = 46.1


@dataclass(frozen=True, eq=False)
class ErrorLattice:
    """Histograms of v over tasks; threshold t has values[offsets[t]:offsets[t + 1]], ascending."""

    values: Integers
    counts: Integers
    offsets: Integers

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def histogram(self, threshold: int) -> ErrorLattice:
        """Return the histogram of one threshold."""
        part = slice(int(self.offsets[threshold]), int(self.offsets[threshold + 1]))
        values = self.values[part]
        return ErrorLattice(values, self.counts[part], np.array([0, values.size]))

    def part(self, kept: Booleans) -> ErrorLattice:
        """Return the histograms of some thresholds."""
        lengths = np.diff(self.offsets)
        inside = np.repeat(kept, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return ErrorLattice(self.values[inside], self.counts[inside], offsets)

    @cached_property
    def _owner(self) -> Integers:
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def ends(self) -> tuple[Integers, Integers]:
        """The least and the largest value of each histogram."""
        return self.values[self.offsets[:-1]], self.values[self.offsets[1:] - 1]

    def each(self, of_threshold: NDArray[Any]) -> NDArray[Any]:
        """Repeat the figure of each threshold for each of its values."""
        return of_threshold[self._owner]

    def total(self, of_value: NDArray[Any]) -> NDArray[Any]:
        """Sum the figures of the values over each histogram."""
        return np.add.reduceat(of_value, self.offsets[:-1])

    def grid(self, draws: int) -> tuple[Integers, Integers]:
        """The span of the lattice on which the sums of draws lie, and the least sum above 0."""
        least, _ = self.ends
        spans = np.gcd.reduceat(self.values - self.each(least), self.offsets[:-1])
        spans = np.maximum(spans, 1)
        starts = (draws * least) % spans
        return spans, np.where(starts == 0, spans, starts)


def as_fraction(alpha: float) -> Fraction:
    """Return an error budget as the exact decimal that it was written as, .1 as 1/10."""
    exact = Fraction(repr(float(alpha)))
    if 10_000 % exact.denominator:
        raise InputError(
            f"alpha is {quoted(alpha)}; give at most four decimals, so that the bootstrap sum lies "
            "on a lattice."
        )
    return exact


def error_lattice(counts: TaskCounts, numerator: int | Integers, denominator: int) -> ErrorLattice:
    """Build the histograms of v = den·k − num·n over tasks for every threshold."""
    return ErrorLattice(
        *kernels.lattice_histogram(counts.covered, counts.errors, numerator, denominator)
    )


def bootstrap_tails(lattice: ErrorLattice, level: float, draws: int) -> Floats:
    """Return P*(resampled error > budget) at every threshold, for infinitely many resamples.

    Near the level the exact tail replaces the saddlepoint's, so its error changes no decision.
    """
    tails = saddlepoint_tails(lattice, draws)
    for place in np.flatnonzero((tails >= level / BAND) & (tails <= level * BAND)):
        near = abs(tails[place] - level) <= _NARROW_BAND * level
        longest = _LONGEST if near else _CHEAP
        exact = exact_tail(lattice.histogram(int(place)), draws, longest)
        tails[place] = tails[place] if exact is None else exact
    return tails


def saddlepoint_tails(lattice: ErrorLattice, draws: int) -> Floats:
    """P(S > 0) of each histogram, S the sum of draws, by the lattice Lugannani–Rice formula."""
    least, largest = lattice.ends
    tails = (least > 0).astype(np.float64)
    spans, starts = lattice.grid(draws)
    solved = (least <= 0) & (starts <= draws * largest)
    if not solved.any():
        return tails
    inside, span = lattice.part(solved), spans[solved]
    x = starts[solved] - 0.5 * span
    t = _tilts(inside, draws, span, x)
    level, (_, second, third) = _log_moment(inside, t), _tilted_moments(inside, t)
    scale = np.sqrt(draws * second)
    w = np.copysign(np.sqrt(np.maximum(2.0 * (t * x - draws * level), 0.0)), t)
    # 1/u − 1/w cancels near 0; its limit is minus a sixth of the skewness of the sum
    with np.errstate(divide="ignore", invalid="ignore"):
        correction = np.where(
            np.abs(w) < 1e-3,
            -draws * third / (6.0 * scale * scale * scale),
            1.0 / (2.0 / span * np.sinh(0.5 * t * span) * scale) - 1.0 / w,
        )
    tails[solved] = corrected_tails(w, correction)
    return tails


def corrected_tails(w: Floats, correction: Floats) -> Floats:
    """Upper tail of the normal law at w, plus its density there times a correction."""
    upper = 0.5 * np.array([math.erfc(each) for each in (w / math.sqrt(2.0)).tolist()])
    density = np.exp(-0.5 * w * w) / math.sqrt(2.0 * math.pi)
    return np.clip(upper + density * correction, 0.0, 1.0)


def _tilts(lattice: ErrorLattice, draws: int, spans: Integers, x: Floats) -> Floats:
    """Solve draws·K'(t) = x, x half a span or more inside the ends of the sum."""
    # beyond this tilt the law is closer to its end than half a span over the draws
    reach = (np.log(2.0 * draws * lattice.total(lattice.counts)) + 1.0) / spans

    def excess(t: Floats) -> tuple[Floats, Floats]:
        mean, second, _ = _tilted_moments(lattice, t)
        return mean - x / draws, second

    return kernels.rising_root(excess, np.zeros(x.size), -reach, reach)


def _tilted_moments(lattice: ErrorLattice, t: Floats) -> tuple[Floats, Floats, Floats]:
    """First three derivatives of K at t, for one draw from each histogram."""
    least, largest = lattice.ends
    # without overflow: the largest exponent is 0
    exponents = lattice.each(t) * lattice.values - lattice.each(np.maximum(t * least, t * largest))
    masses = lattice.counts * np.exp(exponents)
    weights = masses / lattice.each(lattice.total(masses))
    mean = lattice.total(weights * lattice.values)
    deviations = lattice.values - lattice.each(mean)
    squares = weights * deviations * deviations
    return mean, lattice.total(squares), lattice.total(squares * deviations)


def _log_moment(lattice: ErrorLattice, t: Floats) -> Floats:
    """K(t) of one draw from each histogram."""
    least, largest = lattice.ends
    edge, exponents = np.maximum(t * least, t * largest), lattice.each(t) * lattice.values
    total = lattice.total(lattice.counts)
    mass = lattice.total(lattice.counts * np.exp(exponents - lattice.each(edge)))
    # log(mass / total) cancels near 0
    near = lattice.total(lattice.counts * np.expm1(np.minimum(exponents, 1.0))) / total
    small = np.maximum(np.abs(t * least), np.abs(t * largest)) < 0.5
    return np.where(small, np.log1p(near), edge + np.log(mass / total))


def exact_tail(one: ErrorLattice, draws: int, longest: int = _LONGEST) -> float | None:
    """Return P(S > 0) for S the sum of draws from a histogram, by an exponentially tilted FFT.

    None where the FFT would be longer than `longest`.
    """
    from scipy import fft

    low, high = (int(end[0]) for end in one.ends)
    span, start = (int(found[0]) for found in one.grid(draws))
    if low > 0 or start > draws * high:
        return float(low > 0)
    # tilted, so that the tail keeps its digits; a tail of more than a half needs none
    tilt = _tilts(one, draws, np.array([span]), np.array([start - span / 2])).clip(0.0)
    (mean,), (variance,), _ = _tilted_moments(one, tilt)
    level = _log_moment(one, tilt)
    # the window holds all but 1e-20 of the law on each side (Bernstein), or the whole support
    widest = _RARE * (high - low) / 3
    reach = widest + math.sqrt(widest**2 + 2 * _RARE * draws * variance)
    support = draws * (high - low) // span + 1
    length = fft.next_fast_len(min(support, 2 * math.ceil(reach / span) + 3), real=True)
    if length > longest:
        return None
    probability = one.counts / one.counts.sum() * np.exp(tilt * one.values - level)
    mass = np.bincount((one.values - low) // span % length, probability, length)
    law = fft.irfft(fft.rfft(mass) ** draws, n=length)
    first = round(draws * (mean - low) / span) - length // 2
    first = max(0, min(first, support - length))
    places = np.arange(max(first, (start - draws * low) // span), first + length)
    sums = places * float(span) + float(draws * low)
    tail = float(np.exp(draws * level - tilt * sums) @ law[places % length])
    return min(max(tail, 0.0), 1.0)
