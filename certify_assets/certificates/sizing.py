"""The number of tasks at which a procedure certifies something in four of five draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.populations import Population
from certify_assets.certificates.settings import Settings
from certify_assets.work import counted

TARGET, WINDOW = 0.80, 0.05
_FEWEST = 2
_SEARCH, _POLISH, _CHECK = 1, 2, 3
_BATCHES = (30, 60, 120, 200)
_CLEAR = 3.0
_SIZES, _NEAR = 8, 0.08
_POLISH_DRAWS, _LEAST_DRAWS, _POLISH_ROWS = 1600, 600, 50_000_000
_ROUNDS, _CHECKS = 3, 3

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """Fresh draws at a planned size: how many certified, and their mean coverage, else 0."""

    tasks: int
    trials: int
    successes: int
    coverage: float

    @property
    def share(self) -> float:
        """Share of the draws that certified something."""
        return self.successes / self.trials

    @property
    def inside(self) -> bool:
        """Whether that is 80 ± 5 %."""
        return abs(self.share - TARGET) <= WINDOW + 1e-12


@dataclass(frozen=True)
class Sizing:
    """The planned size."""

    # There is a second or third check where the one before fell outside 80 ± 5 %; the search then
    # resumed with its draws added, so that no draw is used twice as fresh.

    # success probability nearest to .80; None when the largest size does not reach it
    tasks: int | None
    checks: tuple[Check, ...] = ()  # fresh draws at the planned size, the last one final
    at_lower_bound: bool = False  # the smallest size does already
    best: float = 0.0  # success probability at the last size tried
    fewer: Check | None = None  # one task fewer, where no check came out at 80 ± 5 %


@dataclass
class _Draws:
    """What a procedure certifies in seeded draws from a population."""

    population: Population
    settings: Settings
    kept: dict[int, list[float]] = field(default_factory=dict)

    def coverage(self, tasks: int, stream: int, *trial: int) -> float:
        """Certified coverage in one draw; 0 where nothing is certified."""
        key = (self.settings.seed, stream, *trial)
        # a draw of one trajectory a task must differ between trials
        settings = self.settings.replace(seed=trial[-1])
        return evaluate(observe(*self.population.draw(tasks, key)), settings).chosen_coverage

    def share(self, tasks: int) -> float:
        """Share of common draws that certify something."""
        # as many draws as it takes to be clearly off the target
        found = self.kept.setdefault(tasks, [])
        for count in _BATCHES:
            found += [
                self.coverage(tasks, _SEARCH, trial)
                for trial in counted(f"trying {tasks} tasks", range(len(found), count))
            ]
            share = sum(value > 0 for value in found) / len(found)
            if abs(share - TARGET) > _CLEAR * math.sqrt(TARGET * (1 - TARGET) / count):
                break
        return share


def bracket_tasks(
    population: Population,
    settings: Settings,
    *,
    guess: int,
    most: int,
    precision: float = 0.03,
    progress: Progress | None = None,
) -> tuple[int | None, float]:
    """Find the size by doubling and bisection on common draws."""
    # each smaller draw is the beginning of a larger one
    draws = _Draws(population, settings)

    def enough(tasks: int) -> bool:
        share = draws.share(tasks)
        if progress is not None:
            progress(
                f"{tasks} tasks: {share:.0%} of {len(draws.kept[tasks])} draws certify something"
            )
        return share >= TARGET

    low, high = _FEWEST, min(max(guess, _FEWEST), most)
    while not enough(high):
        if high == most:
            return None, draws.share(most)
        low, high = high, min(2 * high, most)
    # nothing below the guess has been tried
    while low == _FEWEST and high > low:
        middle = max(_FEWEST, high // 2)
        if not enough(middle):
            low = middle
            break
        high = middle
    while high - low > max(1, precision * high):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high, draws.share(high)


def size_tasks(
    population: Population,
    settings: Settings,
    *,
    guess: int,
    most: int,
    trials: int = 300,
    progress: Progress | None = None,
) -> Sizing:
    """Find the number of tasks at which 80 % of draws certify, and check it on fresh draws."""
    # The bracket is refined by a logistic regression of success on the logarithm of the number of
    # tasks over independent draws at several sizes near it (1,600 draws; standard error of the
    # success probability at the size found about .013).
    report = progress or (lambda _: None)
    tasks, best = bracket_tasks(
        population, settings, guess=guess, most=most, precision=_NEAR / 2, progress=progress
    )
    if tasks is None:
        return Sizing(None, best=best)
    draws = _Draws(population, settings)
    if tasks == _FEWEST:
        return Sizing(tasks, (_check(draws, tasks, trials, 0),), True, best)
    seen: dict[int, list[int]] = {}
    checks: list[Check] = []
    for number in range(_CHECKS):
        tasks = _polish(draws, tasks, seen, number, most)
        check = _check(draws, tasks, trials, number)
        checks.append(check)
        report(f"{tasks} tasks: {check.share:.1%} of {trials} fresh draws certify something")
        if check.inside:
            break
        at = seen.setdefault(tasks, [0, 0])
        at[0], at[1] = at[0] + check.trials, at[1] + check.successes
    fewer = None if checks[-1].inside else _check(draws, max(tasks - 1, _FEWEST), trials, _CHECKS)
    return Sizing(tasks, tuple(checks), False, checks[-1].share, fewer)


def _check(draws: _Draws, tasks: int, trials: int, number: int) -> Check:
    fresh = counted(f"checking {tasks} tasks", range(trials))
    found = np.array([draws.coverage(tasks, _CHECK, number, trial) for trial in fresh])
    return Check(tasks, trials, int(np.count_nonzero(found)), float(found.mean()))


def _polish(draws: _Draws, tasks: int, seen: dict[int, list[int]], number: int, most: int) -> int:
    """Move a size to where the success probability is the target; ``seen`` grows by the draws."""
    # seen maps sizes to draws and successes
    for turn in range(_ROUNDS):
        reach = max(2, math.ceil(_NEAR * tasks))
        sizes = np.unique(
            np.linspace(max(_FEWEST, tasks - reach), min(tasks + reach, most), _SIZES)
            .round()
            .astype(int)
        ).tolist()
        rows = tasks * sum(draws.population.sizes) / len(draws.population.sizes)
        each = math.ceil(min(_POLISH_DRAWS, max(_LEAST_DRAWS, _POLISH_ROWS / rows)) / len(sizes))
        for size in counted(f"refining {tasks} tasks", sizes):
            at = seen.setdefault(size, [0, 0])
            at[1] += sum(
                draws.coverage(size, _POLISH, number, turn, size, trial) > 0
                for trial in range(each)
            )
            at[0] += each
        moved = _solve(
            {size: at for size, at in seen.items() if abs(size - tasks) <= 2 * reach}, tasks
        )
        tasks, last = min(max(moved, sizes[0] - reach, _FEWEST), sizes[-1] + reach, most), tasks
        if sizes[0] <= tasks <= sizes[-1] or tasks == last:
            break
    return tasks


def _solve(seen: dict[int, list[int]], tasks: int) -> int:
    """Whole number of tasks at which the fitted success probability is nearest to the target."""
    sizes = np.array(sorted(seen), dtype=np.float64)
    count, hits = np.array([seen[int(size)] for size in sizes], dtype=np.float64).T
    level, slope = _logistic_fit(np.log(sizes / tasks), count, hits)
    if slope <= 0:
        return int(sizes[np.argmin(np.abs(hits / count - TARGET))])
    exact = tasks * math.exp(min(max((math.log(TARGET / (1 - TARGET)) - level) / slope, -1.0), 1.0))
    near = np.array([max(math.floor(exact), _FEWEST), math.ceil(exact)])
    fitted = 1 / (1 + np.exp(-(level + slope * np.log(near / tasks))))
    return int(near[np.argmin(np.abs(fitted - TARGET))])


def _logistic_fit(
    x: NDArray[np.float64], count: NDArray[np.float64], hits: NDArray[np.float64]
) -> tuple[float, float]:
    """Level and slope of a logistic regression on one variable, by Newton's method."""
    # with a little shrinkage, for sizes that separate the outcomes
    design = np.stack([np.ones_like(x), x], axis=1)
    found = np.array([math.log((hits.sum() + 1) / (count.sum() - hits.sum() + 1)), 0.0])
    shrink = np.diag([1e-3, 1e-3])
    for _ in range(50):
        mean = 1 / (1 + np.exp(-np.clip(design @ found, -30, 30)))
        slope = design.T @ (hits - count * mean) - shrink @ found
        step = np.linalg.solve(
            (design * (count * mean * (1 - mean))[:, None]).T @ design + shrink, slope
        )
        found = found + np.clip(step, -5.0, 5.0)
        if np.abs(step).max() < 1e-9:
            break
    return float(found[0]), float(found[1])
