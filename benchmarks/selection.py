"""What a choice among candidates on CAL costs, where every certificate would be wrong.

    python benchmarks/selection.py [--trials 400] [--candidates 12] [--procedure guarded_taskboot]
    [--quick]

60 tasks of four attempts whose outcomes no score knows, 11 % successes: every rejection threshold
errs at 1.1 α, so each certificate (α = .1, δ = .05) is a violation. Prints the share of trials with
one, and its standard error: a candidate named beforehand; the best of all, certified as if there
were no other; the best with the candidates counted in the level; the best of one half of the tasks,
certified on the other.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.judges.selection import choosing_half

RATES = ("one named beforehand", "best, uncorrected", "best, counted", "best of a half")


def coverage(
    scores: NDArray[np.float64],
    outcomes: NDArray[np.int64],
    tasks: NDArray[np.int64],
    settings: Settings,
) -> float:
    """Certified coverage."""
    found = evaluate(observe(scores, outcomes, tasks), settings)
    return 0.0 if found.chosen is None else float(found.counts.coverage[found.chosen])


def trial(number: int, candidates: int, settings: Settings) -> list[bool]:
    """Whether each of the four certifies in one trial."""
    rng = np.random.default_rng([number, candidates])
    tasks = np.repeat(np.arange(60), 4)
    outcomes = (rng.random(tasks.size) < 0.11).astype(np.int64)
    scores = rng.normal(size=(candidates, tasks.size))
    alone = [coverage(row, outcomes, tasks, settings) for row in scores]
    counted = replace(settings, candidates=candidates)
    # a threshold that passes at the level of all candidates passes at that of one
    paid = any(
        found > 0 and coverage(row, outcomes, tasks, counted) > 0
        for row, found in zip(scores, alone, strict=True)
    )
    half = choosing_half(tasks.tolist(), number)
    chosen = max(
        range(candidates),
        key=lambda place: coverage(scores[place][half], outcomes[half], tasks[half], settings),
    )
    other = coverage(scores[chosen][~half], outcomes[~half], tasks[~half], settings)
    return [alone[0] > 0, max(alone) > 0, paid, other > 0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--procedure", default="guarded_taskboot")
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    arguments = parser.parse_args()
    trials = max(10, arguments.trials // 10) if arguments.quick else arguments.trials
    settings, started = (
        Settings(alpha=0.1, delta=0.05, procedure=arguments.procedure),
        time.process_time(),
    )
    shares = np.mean(
        [trial(number, arguments.candidates, settings) for number in range(trials)], axis=0
    )
    print(
        f"violations in {trials} trials with {arguments.candidates} candidates, "
        f"{arguments.procedure}, delta .05"
    )
    for name, share in zip(RATES, shares.tolist(), strict=True):
        print(f"  {name:21} {share:.3f} ± {math.sqrt(share * (1 - share) / trials):.3f}")
    print(f"  {time.process_time() - started:.0f} s of CPU")


if __name__ == "__main__":
    main()
