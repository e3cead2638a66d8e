"""How often batches of runs like those of CAL are called shifted, and how often others are.

    python benchmarks/batch_shift.py [--trials 300] [--streams 200] [--part PART] [--quick]

First streams of batches that one deployment decides, as `operations.batch_comparison` compares
them. Honest ones: the share in which any batch waits, by tasks of a batch, runs of a task (in CAL
and in the batches) and dependence within tasks. Then sabotage: a judge whose scores of successes
and failures are four standard deviations apart, 50 tasks of 4 runs in CAL and the largest threshold
with an error of at most .05 there; the successes of a batch, all or a third of them, get scores
like those of failures. "before" is the single batch from ten tasks on at .001, as it was.

Then single batches, of runs that no certificate of the corpus decides: scores are normal with a
share rho of their variance between tasks; the threshold is a quantile of CAL. Rates of p-values at
most .001 and .01, of batches alike (144 designs) and moved by one standard deviation. Last how
often the scores or lengths of an agent are called others, of runs alike (characters and steps, 1 to
4 agents) and of runs half as long again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from certify_assets.certificates.shift import compare_tasks, decided_shift, spent_level
from certify_assets.operations.batch_comparison import GROUP_TASKS
from certify_assets.operations.coverage import changed_agents

_SIZES = ("equal", "poisson", "heavy")


@dataclass
class Stream:
    """Batches that one deployment decides one after another, each compared as it comes."""

    scores: NDArray[np.float64]  # of CAL, a row a task
    threshold: float
    batches: list[NDArray[np.float64]] = field(default_factory=list)  # a row a task
    spent: int = 0

    def waits(self, batch: NDArray[np.float64]) -> bool:
        """Whether the next batch is found unlike CAL."""
        self.batches.append(batch)
        groups: list[list[NDArray[np.float64]]] = []
        for limit in (0, *GROUP_TASKS):
            number, tasks = 1, len(batch)
            while tasks < limit and number < len(self.batches):
                number += 1
                tasks += len(self.batches[-number])
            if number not in [len(group) for group in groups]:
                groups.append(self.batches[-number:])
        thresholds = {"reject": self.threshold}
        found = [compare_tasks(_columns([self.scores]), _columns(g), thresholds) for g in groups]
        found = [tests for tests in found if tests]
        if not found:
            return False
        tasks = sum(map(len, self.batches))
        level = (spent_level(tasks) - spent_level(self.spent)) / len(found)
        self.spent = tasks
        return any(test.p_value <= level * test.part for tests in found for test in tests)

    def waited_before(self, batch: NDArray[np.float64]) -> bool:
        """Whether a batch was found when it was compared alone, from ten tasks on at .001."""
        scores = (_columns([part]) for part in (self.scores, batch))
        shift = decided_shift(*((part <= self.threshold, tasks) for part, tasks in scores))
        return shift is not None and shift.p_value <= 0.001


def _columns(parts: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], list[int]]:
    sizes = [part.shape[1] for part in parts for _ in part]
    every = np.concatenate([part.ravel() for part in parts])
    return every, np.repeat(np.arange(len(sizes)), sizes).tolist()


def judged(
    rng: np.random.Generator, tasks: int, attempts: int = 4
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw scores and successes of tasks that differ in difficulty."""
    easy = rng.beta(0.6, 1.4, tasks)[:, None]
    success = rng.random((tasks, attempts)) < easy
    return np.where(success, 2.0, -2.0) + rng.normal(size=success.shape), success


def calibrated(rng: np.random.Generator) -> Stream:
    """Draw CAL, and the largest threshold with an error of at most .05 on it."""
    scores, success = judged(rng, 50)
    order = np.argsort(scores, axis=None)
    errors = np.cumsum(success.ravel()[order]) / np.arange(1, order.size + 1)
    return Stream(scores, float(scores.ravel()[order][np.flatnonzero(errors <= 0.05)[-1]]))


def sabotaged(
    rng: np.random.Generator, tasks: int, share: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw tasks, a share of whose successes look like failures."""
    scores, success = judged(rng, tasks)
    hit = success & (rng.random(success.shape) < share)
    return np.where(hit, -2.0 + rng.normal(size=scores.shape), scores), success


def with_error(shares: Sequence[float]) -> str:
    """Return the mean of trials and its Monte-Carlo error."""
    values = np.asarray(shares, dtype=np.float64)
    return f"{values.mean():.3f} +- {values.std() / np.sqrt(values.size):.3f}"


def honest_streams(streams: int, tasks_in_all: int) -> None:
    """Print the share of honest streams in which any batch waits."""
    rng, every = np.random.default_rng(3), []
    for size, (before, after), rho in product((9, 40), ((4, 4), (4, 1), (2, 6)), (0.5,)):
        found = []
        for _ in range(streams):

            def drawn(tasks: int, attempts: int, rho: float = rho) -> NDArray[np.float64]:
                shared = np.sqrt(rho) * rng.normal(size=(tasks, 1))
                own = np.sqrt(1 - rho) * rng.normal(size=(tasks, attempts))
                return np.asarray(shared + own)

            cal = drawn(50, before)
            stream = Stream(cal, float(np.quantile(cal, 0.7)))
            number = max(2, tasks_in_all // size)
            found.append(any(stream.waits(drawn(size, after)) for _ in range(number)))
        every += found
        print(
            f"honest: batches of {size} tasks to {tasks_in_all} tasks, {before} runs a task in CAL "
            f"and {after} in batches, rho {rho}: any waits in {with_error(found)}",
            flush=True,
        )
    print(f"honest: any batch waits in {with_error(every)} of {len(every)} streams", flush=True)


def sabotaged_batches(trials: int) -> None:
    """Print how often one sabotaged batch waits, as the first one and after honest ones."""
    rng = np.random.default_rng(5)
    designs = [*product((1.0,), (5, 9, 18, 25, 40)), (1 / 3, 18), (1 / 3, 40)]
    for share, tasks in designs:
        found: dict[str, list[float]] = {"before": [], "first": [], "later": [], "error": []}
        for _ in range(trials):
            stream = calibrated(rng)
            scores, success = sabotaged(rng, tasks, share)
            found["before"].append(stream.waited_before(scores))
            found["first"].append(stream.waits(scores))
            rejected = scores <= stream.threshold
            found["error"].append(float(success[rejected].mean()))
            later = Stream(stream.scores, stream.threshold)
            for _ in range(5):
                later.waits(judged(rng, 36)[0])
            found["later"].append(later.waits(scores))
        print(
            f"sabotage of {share:.2f} of successes, {tasks} tasks: error of rejects "
            f"{np.mean(found['error']):.2f}; waits before {with_error(found['before'])}, as the "
            f"first batch {with_error(found['first'])}, after 5 honest ones of 36 tasks "
            f"{with_error(found['later'])}",
            flush=True,
        )


def sabotaged_streams(trials: int, batches: int) -> None:
    """Print what passes of a stream of small sabotaged batches, and what waits after its end."""
    rng = np.random.default_rng(6)
    for share, honest in product((1.0, 1 / 3), (0, 10)):
        passed, wrong, every, waiting, after = [], [], [], [], []
        for _ in range(trials):
            stream = calibrated(rng)
            for _ in range(honest):
                stream.waits(judged(rng, 9)[0])
            found, errors = [], []
            for _ in range(batches):
                scores, success = sabotaged(rng, 9, share)
                found.append(stream.waits(scores))
                errors.append(int((success & (scores <= stream.threshold)).sum()))
            first = found.index(True) if True in found else batches
            passed.append(first)
            wrong.append(sum(errors[:first]))
            every.append(sum(errors))
            waiting.append(float(np.mean(found[first:])) if first < batches else 0.0)
            after.append(sum(stream.waits(judged(rng, 9)[0]) for _ in range(10)))
        print(
            f"stream of {batches} batches of 9 tasks after {honest} honest ones, {share:.2f} of "
            f"successes: before the first waits {np.mean(passed):.1f} batches (median "
            f"{np.median(passed):.0f}) and {np.mean(wrong):.1f} wrong rejects pass (before all "
            f"{np.mean(every):.0f} of {batches} batches); of those from it on "
            f"{np.mean(waiting):.2f} wait, and {np.mean(after):.1f} of 10 honest ones after it",
            flush=True,
        )


def runs(
    rng: np.random.Generator, kind: str, tasks: int, rho: float, mean: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw scores and tasks of a sample of tasks."""
    sizes = {
        "equal": np.full(tasks, 4),
        "poisson": 1 + rng.poisson(7, tasks),
        "heavy": np.minimum(60, 1 + rng.geometric(0.12, tasks)),
    }[kind]
    task = np.repeat(np.arange(tasks), sizes)
    effect = mean + np.sqrt(rho) * rng.normal(size=tasks)
    return effect[task] + np.sqrt(1 - rho) * rng.normal(size=task.size), task


def rates(trials: int, mean: float) -> list[tuple[float, float]]:
    """Return the rates at .001 and .01 of every design."""
    rng, found = np.random.default_rng(7), []
    for kind, rho, before, after, share in product(
        _SIZES, (0.2, 0.8), (40, 100), (10, 15, 50, 400), (0.05, 0.3, 0.7)
    ):
        values = []
        for _ in range(trials):
            scores, task = runs(rng, kind, before, rho)
            threshold = np.quantile(scores, share)
            others, other = runs(rng, kind, after, rho, mean)
            shift = decided_shift((scores <= threshold, task), (others <= threshold, other))
            values.append(1.0 if shift is None else shift.p_value)
        found.append((np.mean(np.array(values) <= 0.001), np.mean(np.array(values) <= 0.01)))
    return [(float(low), float(high)) for low, high in found]


def length_rate(trials: int, factor: float) -> tuple[float, int]:
    """Return the share of batches in which the lengths of an agent are called others."""
    rng, found, total = np.random.default_rng(11), 0, 0
    for agents, before, after, median in product((1, 4), (30, 100), (15, 60), (12, 3000)):
        for _ in range(trials):
            frames = []
            for tasks, times in ((before, 1.0), (after, factor)):
                effect = rng.normal(0, 0.4, tasks)[:, None] + rng.normal(0, 0.4, (tasks, agents))
                lengths = np.round(times * median * np.exp(effect))
                places = np.indices(lengths.shape).reshape(2, -1)
                frames.append(
                    pd.DataFrame({"task_id": places[0], "agent": places[1], "attempt": 0}).assign(
                        trajectory_id=np.arange(lengths.size), length=lengths.ravel()
                    )
                )
            found += bool(changed_agents(frames[0], frames[1], "length"))
            total += 1
    return found / total, total


def single_batches(trials: int) -> None:
    """Print how often single batches, and the lengths of their runs, are found."""
    for name, mean, number in (("alike", 0.0, trials), ("moved", -1.0, max(2, trials // 10))):
        table = np.array(rates(number, mean))
        total = number * len(table)
        for place, level in enumerate((0.001, 0.01)):
            rate = table[:, place].mean()
            error = np.sqrt(rate * (1 - rate) / total)
            print(
                f"{name}: p <= {level:g} in {rate:.4f} +- {error:.4f} of {total} batches, "
                f"{table[:, place].min():.3f} to {table[:, place].max():.3f} of a design"
            )
    for name, factor in (("alike", 1.0), ("half as long again", 1.5)):
        rate, total = length_rate(max(1, trials // 4), factor)
        error = np.sqrt(rate * (1 - rate) / total)
        print(f"lengths {name}: found in {rate:.4f} +- {error:.4f} of {total} batches")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--part", choices=("honest", "batches", "streams", "single"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    trials, streams = (4, 2) if given.quick else (given.trials, given.streams)
    parts = {
        "honest": lambda: honest_streams(streams, 60 if given.quick else 120),
        "batches": lambda: sabotaged_batches(max(2, streams * 2 // 5)),
        "streams": lambda: sabotaged_streams(max(2, streams // 5), 4 if given.quick else 12),
        "single": lambda: single_batches(trials),
    }
    for name in [given.part] if given.part else parts:
        parts[name]()


if __name__ == "__main__":
    main()
