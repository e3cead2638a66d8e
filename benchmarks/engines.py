"""TaskBoot's engines against other ways to the same tails: CPU seconds, ratio to the saddlepoint,
agreement with the exact tail.

    python benchmarks/engines.py [--quick]

Each gives P*(resampled error > .1) at 40 thresholds for the paper's process, from the counts of
covered trajectories and errors a task. The thresholds lie where the tail goes from 0 to 1, so that
the answers can be compared. Monte-Carlo methods take B = 2,000 resamples. What would take long is
run on fewer resamples or thresholds and scaled ("extrapolated"). "max |z|" is the largest deviation
from the exact tail p in standard errors, sqrt(p(1 − p)/B), where .002 < p < .998; "worst" is the
largest relative error of an analytic engine where p > 1e-6. One thread; best of several for what
takes less than a tenth of a second.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from taskboot import table
from threadpoolctl import threadpool_limits

from certify_assets.certificates import observe
from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice, exceedance_shares
from certify_assets.certificates.counts import TaskCounts, count_at, count_tasks

SIZES = (84, 382, 5_000, 100_000)
DRAWS, BUDGET = 2_000, Fraction(1, 10)
Tails = np.ndarray


@dataclass(frozen=True)
class Method:
    """A way to the tails: how to call it with (counts, draws, thresholds), and CPU nanoseconds a
    drawn task and threshold to plan with.
    """

    name: str
    call: Callable[[TaskCounts, int, int], Tails]
    cost: float = 0.0
    analytic: bool = False
    all_thresholds: bool = False


def crossing(tasks: int) -> TaskCounts:
    """Counts at 40 thresholds between the last tail of about 0 and the first of about 1."""
    observations = observe(*table(tasks, 8))
    low, high = 0.02, 0.98
    for _ in range(4):
        ranks = np.linspace(low, high, 40) * (observations.scored - 1)
        counts = count_at(observations, "reject", observations.scores[ranks.astype(np.int64)])
        tails = bootstrap_tails(
            error_lattice(counts.covered, counts.errors, BUDGET), 0.00125, "saddlepoint"
        )
        inside = np.flatnonzero((tails > 0.001) & (tails < 0.999))
        step = (high - low) / 39
        if inside.size > 20:
            break
        first, last = (
            (inside[0], inside[-1])
            if inside.size
            else (np.searchsorted(tails, 0.5) - 1, np.searchsorted(tails, 0.5))
        )
        low, high = max(low, low + step * (first - 1)), min(high, low + step * (last + 1))
    return counts


def middle(counts: TaskCounts, thresholds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    part = slice(20 - thresholds // 2, 20 - thresholds // 2 + thresholds)
    return zip(counts.covered[part], counts.errors[part], strict=True)


def loops(counts: TaskCounts, draws: int, thresholds: int) -> Tails:
    """The paper's Algorithm 1 as printed."""
    rng = np.random.default_rng(42)
    tails = []
    for covered, errors in middle(counts, thresholds):
        above = 0
        for _ in range(draws):
            drawn = rng.integers(0, counts.tasks, counts.tasks)
            total = covered[drawn].sum()
            above += bool(total) and errors[drawn].sum() / total > 0.1
        tails.append(above / draws)
    return np.array(tails)


def ratio(covered: np.ndarray, errors: np.ndarray, axis: int = -1) -> np.ndarray:
    return errors.sum(axis=axis) / np.maximum(covered.sum(axis=axis), 1)


def scipy_bootstrap(counts: TaskCounts, draws: int, thresholds: int) -> Tails:
    from scipy.stats import bootstrap

    found = []
    for covered, errors in middle(counts, thresholds):
        answer = bootstrap(
            (covered, errors),
            ratio,
            n_resamples=draws,
            batch=max(1, 20_000_000 // counts.tasks),
            paired=True,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(42),
        )
        found.append(float((answer.bootstrap_distribution > 0.1).mean()))
    return np.array(found)


def arch_bootstrap(counts: TaskCounts, draws: int, thresholds: int) -> Tails:
    from arch.bootstrap import IIDBootstrap

    resampler = IIDBootstrap(
        np.ascontiguousarray(counts.covered.T),
        np.ascontiguousarray(counts.errors.T),
        seed=np.random.default_rng(42),
    )
    errors = resampler.apply(lambda covered, errors: ratio(covered, errors, axis=0), draws)
    return np.asarray((errors > 0.1).mean(axis=0))


def gemm(counts: TaskCounts, draws: int, thresholds: int) -> Tails:
    """Multinomial weights from numpy's random numbers and bincount, float32, batch by batch."""
    rng = np.random.default_rng(42)
    values = np.ascontiguousarray((10 * counts.errors - counts.covered).T, dtype=np.float32)
    above = np.zeros(values.shape[1])
    size = max(1, 4_000_000 // counts.tasks)
    for first in range(0, draws, size):
        here = min(size, draws - first)
        drawn = (
            rng.integers(0, counts.tasks, (here, counts.tasks))
            + counts.tasks * np.arange(here)[:, None]
        )
        weights = (
            np.bincount(drawn.ravel(), minlength=here * counts.tasks)
            .astype(np.float32)
            .reshape(here, -1)
        )
        above += (weights @ values > 0).sum(axis=0)
    return np.asarray(above / draws)


def engine(name: str) -> Callable[[TaskCounts, int, int], Tails]:
    return lambda counts, draws, thresholds: bootstrap_tails(
        error_lattice(counts.covered, counts.errors, BUDGET), 0.00125, name
    )


METHODS = (
    Method("Algorithm 1 in loops", loops, 20.0),
    Method("scipy.stats.bootstrap", scipy_bootstrap, 25.0),
    Method("arch IIDBootstrap", arch_bootstrap, 20.0, all_thresholds=True),
    Method("numpy weights and GEMM", gemm, 0.3, all_thresholds=True),
    Method(
        "montecarlo (ours)",
        lambda counts, draws, _: exceedance_shares(counts, BUDGET, draws, 42, 1),
        all_thresholds=True,
    ),
    Method("exact (ours)", engine("exact"), analytic=True),
    Method("saddlepoint (ours)", engine("saddlepoint"), analytic=True),
)


def shares(method: Method, tasks: int, seconds: float) -> tuple[int, int]:
    """Resamples and thresholds that fit the seconds, by the method's planned cost."""
    whole = 1e-9 * method.cost * tasks * DRAWS * 40
    if whole <= seconds:
        return DRAWS, 40
    if method.all_thresholds:
        return max(10, int(DRAWS * seconds / whole)), 40
    thresholds = max(1, int(40 * seconds / whole))
    return max(10, int(DRAWS * min(1.0, 40 * seconds / whole / thresholds))), thresholds


def timed(calls: list[Callable[[], Tails]]) -> list[tuple[float, Tails]]:
    """Best CPU seconds and the answer of each; rounds take turns, and only what was quick goes
    another.
    """
    found = []
    for call in calls:
        start = time.process_time()
        answer = call()
        found.append((time.process_time() - start, answer))
    for _ in range(6):
        for place, call in enumerate(calls):
            if found[place][0] < 0.1:
                start = time.process_time()
                call()
                found[place] = (min(found[place][0], time.process_time() - start), found[place][1])
    return found


def agreement(method: Method, tails: Tails, exact: Tails, draws: int) -> str:
    start = 20 - tails.size // 2
    exact = exact[start : start + tails.size]
    if method.name.startswith("exact"):
        return "reference"
    if method.analytic:
        inside = exact > 1e-6
        return f"worst {np.abs(tails[inside] / exact[inside] - 1).max():.2%}"
    inside = (exact > 0.002) & (exact < 0.998)
    if not inside.any():
        return "no tail inside"
    deviation = (tails - exact)[inside] / np.sqrt(exact * (1 - exact) / draws)[inside]
    return f"max |z| {np.abs(deviation).max():.1f} of {inside.sum()}"


def seeds_agree(counts: TaskCounts, exact: Tails, seeds: int) -> str:
    inside = (exact > 0.002) & (exact < 0.998)
    scale = np.sqrt(exact * (1 - exact) / DRAWS)[inside]
    deviations = [
        (exceedance_shares(counts, BUDGET, DRAWS, seed, 1) - exact)[inside] / scale
        for seed in range(seeds)
    ]
    return (
        f"montecarlo over {seeds} seeds: root mean square z "
        f"{np.sqrt(np.mean(np.square(deviations))):.2f}"
    )


def compare(tasks: int, seconds: float, methods: list[Method]) -> None:
    counts = crossing(tasks)
    parts = [shares(method, tasks, seconds) for method in methods]
    found = timed(
        [
            lambda m=method, p=part: m.call(counts, *p)
            for method, part in zip(methods, parts, strict=True)
        ]
    )
    scaled = [
        taken * DRAWS * 40 / (draws * part)
        for (taken, _), (draws, part) in zip(found, parts, strict=True)
    ]
    exact = found[[method.name for method in methods].index("exact (ours)")][1]
    print(f"\n{tasks} tasks, {counts.trajectories} trajectories")
    for method, (_, tails), (draws, part), cost in zip(methods, found, parts, scaled, strict=True):
        note = (
            ""
            if (draws, part) == (DRAWS, 40)
            else f"extrapolated from {draws} resamples, {part} thresholds"
        )
        answer = agreement(method, tails, exact, draws)
        print(
            f"  {method.name:24} {cost:10.5f} s  ratio {cost / scaled[-1]:10,.1f}   {answer:20} "
            f"{note}".rstrip(),
            flush=True,
        )
    print("  " + seeds_agree(counts, exact, max(5, min(100, 500_000 // tasks))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="more is extrapolated; without 100,000 tasks"
    )
    quick = parser.parse_args().quick
    methods = list(METHODS)
    try:
        import arch  # noqa: F401
    except ImportError:
        print("arch is not installed (pip install arch): its row is left out")
        methods = [method for method in methods if not method.name.startswith("arch")]
    with threadpool_limits(1):
        small = count_tasks(observe(*table(30, 8)))
        for method in methods:
            method.call(small, 10, 40)
        for tasks in SIZES[:-1] if quick else SIZES:
            compare(tasks, 0.5 if quick else 12.0, methods)


if __name__ == "__main__":
    main()
