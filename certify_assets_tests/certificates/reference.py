"""Plain numpy and scipy twins of the kernels: slow, short, and compared by the tests."""

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.bootstrap import ErrorLattice, exact_tail
from certify_assets.certificates.counts import TaskCounts

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]


def counts_of(covered: object, errors: object) -> TaskCounts:
    """Counts of tasks of which all runs are covered at the widest threshold."""
    n, k = (np.atleast_2d(np.array(each, np.int32)) for each in (covered, errors))
    sizes = n.max(axis=0).astype(np.int64)
    return TaskCounts("reject", np.arange(float(len(n))), n, k, sizes, sizes // 2)


def _splitmix(seed: np.uint64, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = seed + (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def task_sums(values: _Integers, draws: int, seed: np.uint64, first: int) -> _Integers:
    """Sums over tasks drawn by splitmix64 at counter draw * tasks + place."""
    tasks = values.shape[0]
    z = _splitmix(seed, np.arange(first * tasks, (first + draws) * tasks, dtype=np.uint64))
    drawn = ((z >> np.uint64(32)) * np.uint64(tasks)) >> np.uint64(32)
    return np.asarray(values[drawn.astype(np.int64).reshape(draws, tasks)].sum(axis=1))


def resample_errors(counts: TaskCounts, draws: int, seed: int) -> _Floats:
    """Selective error of each resample at the first threshold; 0 where it covers nothing."""
    columns = np.stack([counts.covered[0], counts.errors[0]], axis=1).astype(np.int64)
    covered, errors = task_sums(columns, draws, np.uint64(seed), 0).T
    return np.asarray(errors / np.maximum(covered, 1))


def exact_tails(lattice: ErrorLattice, draws: int) -> _Floats:
    """Tail of every threshold, without a saddlepoint."""
    tails = [exact_tail(lattice.histogram(place), draws) for place in range(len(lattice))]
    return np.array(tails, np.float64)


def icc_profile(covered: _Integers, errors: _Integers, drop: float) -> float:
    """Upper profile bound of the beta-binomial correlation, straight from the covered tasks."""
    from scipy.optimize import brentq, minimize_scalar
    from scipy.stats import betabinom

    def profile(rho: float) -> float:
        size = (1 - rho) / rho
        found = minimize_scalar(
            lambda p: -betabinom.logpmf(errors, covered, p * size, (1 - p) * size).sum(),
            bounds=(1e-9, 1 - 1e-9),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return float(-found.fun)

    grid = np.linspace(1e-4, 1 - 1e-4, 400)
    values = np.array([profile(rho) for rho in grid])
    inside = np.flatnonzero(values >= values.max() - drop)[-1]
    if inside == grid.size - 1:
        return 1.0
    return float(
        brentq(lambda rho: profile(rho) - values.max() + drop, grid[inside], grid[inside + 1])
    )
