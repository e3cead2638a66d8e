"""What the monitor promises, measured: false alarms, delays, intervals, anytime certification; and
what testing again and again does instead; and, with --power, which bad months it
sees.

    python benchmarks/monitoring.py [--streams 400] [--quick] [--power]

Streams are tasks of the paper's process at the threshold whose true error is known; α = .1, δ =
.05; at ρ = .1, .5 and .8. --power: labelled tasks of one run that arrive week by week, of which the
certificate decides seven in ten, at an error of α/2 for some weeks and at a larger one from then
on; the share of streams that alarm within four weeks of it, and the week of the alarm in half of
them.
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta

from certify_assets.certificates.bootstrap import bootstrap_tails, error_lattice
from certify_assets.certificates.monitor import (
    _DOWNWARD,
    _UPWARD,
    TaskStream,
    alarm_process,
    certification_process,
    error_interval,
    shiryaev_roberts,
)
from certify_assets.research.populations import Clustered

ALPHA, DELTA, RHOS, TASKS, EVERY = 0.1, 0.05, (0.1, 0.5, 0.8), 500, 20
COVERED, MONTH, YEAR = 0.7, 4, 52
PER_WEEK = (5, 10, 20, 50, 100)
CERTIFIED = {0.0: 63, 0.01: 69, 0.03: 96, 0.05: 158}


@cache
def threshold(error: float, rho: float) -> float:
    return float(
        brentq(lambda place: float(Clustered(tasks=2, rho=rho).true_error(place)) - error, -8, 12)
    )


def stream(tasks: int, error: float, rho: float, rng: np.random.Generator) -> TaskStream:
    """Tasks at the threshold of a true error; 0 takes that of .01 and right outcomes."""
    sample = Clustered(tasks=tasks, rho=rho).draw(rng)
    inside = sample.scores <= threshold(error or 0.01, rho)
    covered, errors, sizes = (
        np.bincount(sample.tasks[rows], minlength=tasks)
        for rows in (inside, inside & (sample.outcomes == 1), slice(None))
    )
    return TaskStream(covered, errors if error else 0 * errors, sizes.astype(float))


def joined(*parts: TaskStream) -> TaskStream:
    return TaskStream(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("covered", "errors", "scale")
        )
    )


def first(log_process: np.ndarray, limit: float) -> float:
    reached = np.flatnonzero(log_process >= math.log(limit))
    return float(reached[0] + 1) if reached.size else math.inf


def retested(part: TaskStream) -> tuple[bool, bool]:
    """Whether a bootstrap or a binomial test at δ, taken again every twenty tasks, ever finds an
    error above α.
    """
    bootstrap = binomial = False
    for end in range(EVERY, part.covered.size + 1, EVERY):
        covered, errors = part.covered[:end], part.errors[:end]
        lattice = error_lattice(
            covered[None].astype(np.int32), errors[None].astype(np.int32), Fraction(1, 10)
        )
        bootstrap |= bool(bootstrap_tails(lattice, 1 - DELTA)[0] >= 1 - DELTA)
        wrong = int(errors.sum())
        binomial |= (
            wrong > 0 and float(beta.ppf(DELTA, wrong, int(covered.sum()) - wrong + 1)) > ALPHA
        )
    return bootstrap, binomial


def ever_missed(part: TaskStream, error: float) -> bool:
    """Whether the interval has excluded the true error after any task."""
    for bets in (_UPWARD / error, -_DOWNWARD / (1 - error)):
        capital = np.exp(np.cumsum(np.log1p(np.outer(bets, part.excess(error))), axis=1)).mean(
            axis=0
        )
        if (capital >= 2 / DELTA).any():
            return True
    return False


def show(title: str, values: list[str], reference: str) -> None:
    print(
        f"{title:62} {'  '.join(f'{value:>17}' for value in values)}   reference {reference}",
        flush=True,
    )


def rate(hits: list[bool]) -> str:
    share = float(np.mean(hits))
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / len(hits)):.3f}"


def middle(times: list[float]) -> str:
    """Median, and the order statistics that hold it with 95 % confidence."""
    ordered, reach = np.sort(times), 0.98 * math.sqrt(len(times))
    low, high = (
        ordered[int(np.clip(len(times) / 2 + shift, 0, len(times) - 1))]
        for shift in (-reach, reach)
    )
    return f"{np.median(ordered):.0f} ({low:.0f} to {high:.0f})"


def false_alarms(streams: int) -> None:
    level = {
        rho: [
            stream(TASKS, ALPHA, rho, np.random.default_rng([trial, 4])) for trial in range(streams)
        ]
        for rho in RHOS
    }
    for title, process, limit, reference in (
        (
            "e-process alarm at error α, ever within 500 tasks",
            alarm_process,
            1 / DELTA,
            ".020 to .026",
        ),
        (
            "Shiryaev–Roberts alarm (A = 10,000), ever within 500 tasks",
            shiryaev_roberts,
            10_000,
            "at most .050",
        ),
        (
            "anytime certification at error α (false), within 500 tasks",
            certification_process,
            1 / DELTA,
            "at most .050",
        ),
    ):
        show(
            title,
            [
                rate([first(process(part, ALPHA), limit) <= TASKS for part in level[rho]])
                for rho in RHOS
            ],
            reference,
        )
    again = {rho: np.array([retested(part) for part in level[rho]]) for rho in RHOS}
    show(
        "bootstrap tested again every 20 tasks",
        [rate(again[rho][:, 0].tolist()) for rho in RHOS],
        ".15 to .19",
    )
    show(
        "binomial tested again every 20 tasks",
        [rate(again[rho][:, 1].tolist()) for rho in RHOS],
        ".29 to .59",
    )
    missed = [rate([ever_missed(part, ALPHA) for part in level[rho]]) for rho in RHOS]
    show("interval excludes the true error (.10), ever within 500 tasks", missed, "at most .015")


def delays(streams: int) -> None:
    found: dict[str, list[str]] = {"e": [], "sr": []}
    for rho in RHOS:
        parts = []
        for trial in range(streams):
            rng = np.random.default_rng([trial, 6])
            parts.append(joined(stream(200, 0.03, rho, rng), stream(200, 0.3, rho, rng)))
        found["sr"].append(
            middle([first(shiryaev_roberts(part, ALPHA), 10_000) - 200 for part in parts])
        )
        found["e"].append(
            middle([first(alarm_process(part, ALPHA), 1 / DELTA) - 200 for part in parts])
        )
    show("error .03 → .30: tasks to the Shiryaev–Roberts alarm, median", found["sr"], "25 to 42")
    show("error .03 → .30: tasks to the e-process alarm, median", found["e"], "none")


def certification(streams: int) -> None:
    for error, reference in CERTIFIED.items():
        times = [
            middle(
                [
                    first(
                        certification_process(
                            stream(600, error, rho, np.random.default_rng([trial, 5])), ALPHA
                        ),
                        1 / DELTA,
                    )
                    for trial in range(streams)
                ]
            )
            for rho in RHOS
        ]
        show(f"anytime certification at error {error:g}: tasks, median", times, str(reference))
    ends = []
    for rho in RHOS:
        good = [
            stream(TASKS, 0.03, rho, np.random.default_rng([trial, 3]))
            for trial in range(max(1, streams // 4))
        ]
        ends.append(np.median([error_interval(part, DELTA) for part in good], axis=0))
    show(
        "interval after 500 tasks at error .03, median ends",
        [f"{low:.3f} to {high:.3f}" for low, high in ends],
        ".016 to .065 at ρ = .5",
    )


def drift_power(streams: int) -> None:
    """Print which drifts the e-process sees, by labelled tasks a week."""
    heads = "  ".join(f"{number:>14} a week" for number in PER_WEEK)
    print(f"{'α, weeks before, error of the drift':38}{heads}")
    for alpha, weeks, error in (
        (alpha, weeks, factor * alpha)
        for alpha in (0.1, 0.2)
        for weeks in (4, 26)
        for factor in (1.5, 2, 3, 4)
    ):
        cells = []
        for number in PER_WEEK:
            before, after = weeks * number, min(YEAR, 2000 // number) * number
            found = []
            for trial in range(streams):
                rng = np.random.default_rng([trial, number])
                covered = rng.random(before + after) < COVERED
                true = np.repeat([alpha / 2, error], [before, after])
                wrong = covered & (rng.random(before + after) < true)
                part = TaskStream(
                    covered.astype(np.int64), wrong.astype(np.int64), np.ones(covered.size)
                )
                at = first(alarm_process(part, alpha), 1 / DELTA) - before
                found.append(math.ceil(at / number) if at < math.inf else math.inf)
            # alarms of the weeks before are false ones
            month = float(np.mean([0 < week <= MONTH for week in found]))
            half = float(np.median([week for week in found if week > 0] or [math.inf]))
            cells.append(f"{month:.2f}, week {half:3.0f}" if half < math.inf else f"{month:.2f}, -")
        title = f"{alpha:g}, {weeks}, {error:g}"
        print(f"{title:38}{'  '.join(f'{cell:>21}' for cell in cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="an eighth of the streams")
    parser.add_argument("--power", action="store_true", help="which drifts are seen, alone")
    arguments = parser.parse_args()
    streams = max(8, arguments.streams // 8) if arguments.quick else arguments.streams
    if arguments.power:
        drift_power(streams)
        return
    print(f"{streams} streams a value; rates ± standard error, medians with a 95 % interval")
    print(f"{'':62} {'  '.join(f'{rho:>17g}' for rho in RHOS)}   ρ")
    false_alarms(streams)
    delays(streams)
    certification(streams)


if __name__ == "__main__":
    main()
