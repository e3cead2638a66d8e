"""The monitor: against direct recomputation, what it refuses, and what its promises come to on data
with known truth.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from certify_assets.certificates import Certificate, certify, monitor_certificate
from certify_assets.certificates.monitor import (
    _DOWNWARD,
    _UPWARD,
    TaskStream,
    alarm_process,
    certification_process,
    error_interval,
    new_tasks,
)
from certify_assets.research.populations import TAU, Sample
from certify_assets_tests.populations import paper_process, paper_truth

ALPHA, DELTA = 0.1, 0.05


@cache
def certificate() -> Certificate:
    cal = paper_process(120, 0.5, 1)
    return certify(*cal._replace(tasks=cal.tasks + 1000))


@cache
def threshold(error: float, rho: float) -> float:
    return float(brentq(lambda place: paper_truth(place, rho) - error, -8, 12))


def stream(tasks: int, error: float, rho: float, rng: np.random.Generator) -> TaskStream:
    """Tasks of the paper's process at the threshold of a true error; 0 takes that of .01 and right
    outcomes.
    """
    sample = paper_process(tasks, rho, rng)
    inside = sample.scores <= threshold(error or 0.01, rho)
    covered, errors, sizes = (
        np.bincount(sample.tasks[rows], minlength=tasks)
        for rows in (inside, inside & (sample.outcomes == 1), slice(None))
    )
    return TaskStream(
        covered,
        errors if error else 0 * errors,
        sizes.astype(float),
    )


def joined(*parts: TaskStream) -> TaskStream:
    return TaskStream(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("covered", "errors", "scale")
        )
    )


def first(log_process: np.ndarray, threshold: float) -> float:
    reached = np.flatnonzero(log_process >= math.log(threshold))
    return float(reached[0] + 1) if reached.size else math.inf


def share_reaching(
    process: Callable[[TaskStream, float], np.ndarray],
    streams: list[TaskStream],
) -> float:
    return float(np.mean([first(process(part, ALPHA), 1 / DELTA) <= 500 for part in streams]))


def test_processes_equal_direct_recomputation() -> None:
    short = stream(30, 0.3, 0.5, np.random.default_rng(0))
    excess = [
        (k - ALPHA * n) / s
        for n, k, s in zip(short.covered, short.errors, short.scale, strict=True)
    ]

    def wealth(bets: np.ndarray, start: int, end: int) -> float:
        return float(
            np.mean(
                [math.prod(1 + bet * excess[place] for place in range(start, end)) for bet in bets]
            )
        )

    for end in (1, 2, 7, 30):
        started = [wealth(_UPWARD / ALPHA, start, end) for start in range(end)]
        weights = [0.5, *[0.5 / (j * (j - 1)) for j in range(2, end + 1)]]
        kept = 1 - sum(weights)
        assert alarm_process(short, ALPHA)[end - 1] == pytest.approx(
            math.log(np.dot(weights, started) + kept)
        )
        assert certification_process(short, ALPHA)[end - 1] == pytest.approx(
            math.log(wealth(-_DOWNWARD / (1 - ALPHA), 0, end))
        )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=25
    )
)
def test_the_interval_is_what_neither_process_rejects(rows: list[tuple[int, int, int]]) -> None:
    covered = np.array([n for n, _, _ in rows])
    short = TaskStream(
        covered,
        np.array([min(n, k) for n, k, _ in rows]),
        np.maximum(covered + [more for _, _, more in rows], 1).astype(float),
    )
    low, high = error_interval(short, DELTA)
    assert 0 <= low <= high <= 1
    if short.realized_error is not None:
        assert low <= short.realized_error <= high

    def excluded(level: float) -> bool:
        log = [
            np.sum(np.log1p(np.outer(bets, short.excess(level))), axis=1)
            for bets in (_UPWARD / level, -_DOWNWARD / (1 - level))
        ]
        return max(float(np.exp(part).mean()) for part in log) >= 2 / DELTA

    for level in np.linspace(0.005, 0.995, 67):
        if min(abs(level - low), abs(level - high)) > 1e-6:
            assert excluded(level) == (not low < level < high)


@pytest.mark.parametrize("side", ["reject", "release"])
def test_a_stream_counts_rows_and_keeps_the_order_of_first_rows(side: str) -> None:
    item = certify(*paper_process(120, 0.5, 1), side=side, alpha=0.2)
    assert item.threshold is not None
    at = item.threshold
    step = -1.0 if side == "reject" else 1.0
    scores = [at, at + step, at - step, math.nan, at, at - step]
    found = new_tasks(item, scores, [1, 0, 1, 0, 0, 0], ["b", "a", "b", "c", "a", "d"]).stream
    assert found.labels == ("b", "a", "c", "d")
    assert found.covered.tolist() == [1, 2, 0, 0] and found.scale.tolist() == [2, 2, 1, 1]
    assert found.errors.tolist() == ([1, 0, 0, 0] if side == "reject" else [0, 2, 0, 0])


def test_a_judge_that_breaks_raises_the_alarm_and_a_good_one_is_certified() -> None:
    good = monitor_certificate(certificate(), *paper_process(300, 0.5, 7))
    assert not good.alarm and good.first_alarm_task is None and good.certified_at is not None
    assert good.interval[0] <= good.realized_error <= good.interval[1]  # type: ignore[operator]
    bad = paper_process(300, 0.5, 8)
    flipped = Sample(
        bad.scores, np.where(bad.tasks < 150, bad.outcomes, 1 - bad.outcomes), bad.tasks
    )
    found = monitor_certificate(certificate(), *flipped)
    assert found.first_alarm_at is not None and 150 < found.first_alarm_at < 190
    assert found.first_alarm_task == str(found.first_alarm_at - 1)
    assert found.alarm and found.e_process.alarm and found.e_value == found.e_process.value > 20
    assert found.to_dict()["interval"] == list(found.interval)


def ever_missed(part: TaskStream, error: float) -> bool:
    """Whether the interval has excluded the true error after any task."""
    for bets in (_UPWARD / error, -_DOWNWARD / (1 - error)):
        capital = np.exp(np.cumsum(np.log1p(np.outer(bets, part.excess(error))), axis=1)).mean(
            axis=0
        )
        if (capital >= 2 / DELTA).any():
            return True
    return False


def test_delay_interval_and_certification() -> None:
    # 100 streams: a median is known to about 8 %
    changed = [
        joined(
            *(
                stream(150, error, 0.5, np.random.default_rng([trial, 2, int(100 * error)]))
                for error in (0.03, 0.3)
            )
        )
        for trial in range(100)
    ]
    assert np.median([first(alarm_process(part, ALPHA), 1 / DELTA) - 150 for part in changed]) <= 60
    good = [stream(500, 0.03, 0.5, np.random.default_rng([trial, 3])) for trial in range(100)]
    assert np.median([first(certification_process(part, ALPHA), 1 / DELTA) for part in good]) <= 110
    low, high = np.median([error_interval(part, DELTA) for part in good], axis=0)
    assert 0.016 <= low < 0.03 < high <= 0.065
    assert np.mean([ever_missed(part, 0.03) for part in good]) <= DELTA


@pytest.mark.statistics
@pytest.mark.parametrize("rho", sorted(TAU))
def test_promises_on_every_design(rho: float) -> None:
    # 1,000 streams: standard error .0069 at a rate of .05, .012 at .2, .016 at .5
    level = [stream(500, ALPHA, rho, np.random.default_rng([trial, 4])) for trial in range(1000)]
    assert share_reaching(alarm_process, level) <= 0.035
    assert share_reaching(certification_process, level) <= DELTA + 0.014
    assert np.mean([ever_missed(part, ALPHA) for part in level]) <= DELTA
