"""What the monitor promises, and which bad months it sees.

    python benchmarks/monitoring.py [--streams 200] [--quick]

δ = .05. First table: streams of 500 tasks of the paper's process at a threshold whose true error is
α = .1, at ρ = .1, .5 and .8: the share that raises an alarm, is certified, has an interval that
ever excludes the true error, or is found above α by a bootstrap that is taken again every twenty
tasks. Second table: labelled tasks of one run that arrive week by week, of which the certificate
decides seven in ten, at an error of α/2 for some weeks and at a larger one from then on. A cell is
the share of streams that alarm within four weeks of it, and the week of the alarm in half of them.
--quick: a tenth of the streams, some rows of the second table.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice
from certify_assets.certificates.counts import TaskCounts
from certify_assets.certificates.monitor import (
    TaskStream,
    alarm_process,
    certification_process,
    error_interval,
)
from certify_assets.research.populations import Clustered

ALPHA, DELTA, RHOS, TASKS, EVERY = 0.1, 0.05, (0.1, 0.5, 0.8), 500, 20
COVERED, MONTH, YEAR = 0.7, 4, 52
PER_WEEK = (5, 10, 20, 50, 100)


def stream(rho: float, rng: np.random.Generator) -> TaskStream:
    """Draw tasks at the threshold whose true error is α."""
    law = Clustered(tasks=TASKS, rho=rho)
    threshold = brentq(lambda place: float(law.true_error(place)) - ALPHA, -8, 12)
    sample = law.draw(rng)
    inside = sample.scores <= threshold
    covered, errors, sizes = (
        np.bincount(sample.tasks[rows], minlength=TASKS)
        for rows in (inside, inside & (sample.outcomes == 1), slice(None))
    )
    return TaskStream(covered, errors, sizes.astype(float))


def first(log_process: NDArray[np.float64]) -> float:
    """Return after how many tasks a process reaches 1/δ."""
    reached = np.flatnonzero(log_process >= math.log(1 / DELTA))
    return float(reached[0] + 1) if reached.size else math.inf


def upto(part: TaskStream, end: int) -> TaskStream:
    return TaskStream(part.covered[:end], part.errors[:end], part.scale[:end])


def retested(part: TaskStream) -> bool:
    """Whether a bootstrap at δ, taken again and again, ever finds an error above α."""
    for end in range(EVERY, TASKS + 1, EVERY):
        covered, errors = (column[:end].astype(np.int32) for column in (part.covered, part.errors))
        counts = TaskCounts("reject", np.zeros(1), covered[None], errors[None], covered, errors)
        if bootstrap_tails(error_lattice(counts, 1, 10), 1 - DELTA, end)[0] >= 1 - DELTA:
            return True
    return False


def missed(part: TaskStream) -> bool:
    """Whether the interval excludes the true error after some twenty tasks."""
    ends = range(EVERY, TASKS + 1, EVERY)
    intervals = (error_interval(upto(part, end), DELTA) for end in ends)
    return any(not low <= ALPHA <= high for low, high in intervals)


def false_alarms(streams: int) -> None:
    print(f"{'at error α, within 500 tasks':40}" + "".join(f"{f'ρ {rho:g}':>16}" for rho in RHOS))
    found = {
        rho: [stream(rho, np.random.default_rng([n, 4])) for n in range(streams)] for rho in RHOS
    }
    for title, happens in (
        ("alarm of the monitor", lambda part: first(alarm_process(part, ALPHA)) < math.inf),
        ("certified", lambda part: first(certification_process(part, ALPHA)) < math.inf),
        ("interval excludes the true error", missed),
        ("bootstrap, again every 20 tasks", retested),
    ):
        shares = [float(np.mean([happens(part) for part in found[rho]])) for rho in RHOS]
        errors = [math.sqrt(share * (1 - share) / streams) for share in shares]
        cells = "".join(f"{s:>8.3f} ± {e:.3f}" for s, e in zip(shares, errors, strict=True))
        print(f"{title:40}{cells}", flush=True)


def drifts(streams: int, factors: Sequence[float]) -> Iterator[str]:
    """Rows of the second table."""
    yield f"\n{'α, weeks before, error of the drift':38}" + "".join(
        f"{f'{number} a week':>16}" for number in PER_WEEK
    )
    for alpha in (0.1, 0.2):
        for weeks in (4, 26):
            for factor in factors:
                cells = [alarm(alpha, weeks, factor, number, streams) for number in PER_WEEK]
                title = f"{alpha:g}, {weeks}, {factor * alpha:g}"
                yield f"{title:38}" + "".join(f"{cell:>16}" for cell in cells)


def alarm(alpha: float, weeks: int, factor: float, number: int, streams: int) -> str:
    """Return the share of streams with an alarm in the month of a drift, and its median week."""
    before, after = weeks * number, min(YEAR, 2000 // number) * number
    found = []
    for trial in range(streams):
        rng = np.random.default_rng([trial, number])
        covered = rng.random(before + after) < COVERED
        true = np.repeat([alpha / 2, factor * alpha], [before, after])
        wrong = covered & (rng.random(before + after) < true)
        part = TaskStream(covered.astype(np.int64), wrong.astype(np.int64), np.ones(covered.size))
        at = first(alarm_process(part, alpha)) - before
        found.append(math.ceil(at / number) if at < math.inf else math.inf)
    # alarms of the weeks before are false ones
    month = float(np.mean([0 < week <= MONTH for week in found]))
    half = float(np.median([week for week in found if week > 0] or [math.inf]))
    return f"{month:.2f}, " + (f"{half:.0f}" if half < math.inf else "-")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    streams = max(4, given.streams // 10) if given.quick else given.streams
    print(f"{streams} streams a value; ± is one standard error")
    false_alarms(streams)
    for line in drifts(streams, (3,) if given.quick else (1.5, 2, 3, 4)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
