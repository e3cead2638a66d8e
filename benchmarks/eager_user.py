"""How often an eager user ends up with a wrong certificate, with and without the price of eagerness.

    python benchmarks/eager_user.py [--trials 1000] [--tries 4] [--procedure NAME]
    [--seed 20261123] [--quick]

120 tasks of four attempts, 11 % successes that no score knows: every rejection threshold errs at
1.1 α, so each certificate (α = .1, δ = .05 of 60 tasks) breaks its promise. A row is something that
a user tries --tries times, the share of trials that end with a certificate, and its standard error,
first without and then with what the platform asks for it:
  one, named beforehand  the reference: at most δ;
  seeds   the same runs split again, the widest certificate taken; the platform deploys only the
          split that was certified first (`certify ops deploy`, finding `resplit`);
  judges  other scores of the same split, the widest taken; paid for by `candidates`, which divides δ
          by their number (arms of a judge, `judges_compared` of a corpus); the platform deploys
          another judge than the named one only so;
  peeks   certified again whenever a quarter of the tasks has been labelled, until it succeeds; paid
          for by the account of δ (δ·6/(π²n²) for the n-th certificate of a corpus);
  labels  the ten successes with the lowest scores, of some 26, called failures afterwards; the
          platform deploys the certificate only if a user accepts the change (finding
          `relabelled_after_certificate`);
  tasks   the five tasks with the most successes left out afterwards; the same;
  budgets .08, .09 and .1 at once, any of them certified and wrong: nothing is asked, because the
          stricter certificates are nearly always certified only where the next one is.
The procedure is pseudo_task unless another is named. --quick: a fiftieth of the trials.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, evaluate, observe

TASKS, ATTEMPTS, SUCCESSES = 120, 4, 0.11
TURNED, LEFT_OUT = 10, 5
BUDGETS = (0.08, 0.09, 0.1)


class World:
    """Runs whose outcomes no score knows."""

    def __init__(self, seed: Sequence[int], judges: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tasks = np.repeat(np.arange(TASKS), ATTEMPTS)
        self.outcomes = (self.rng.random(self.tasks.size) < SUCCESSES).astype(np.int64)
        self.scores = self.rng.normal(size=(judges, self.tasks.size))

    def coverage(
        self, tasks: NDArray[np.int64], settings: Settings, judge: int = 0, turned: int = 0
    ) -> float:
        """Certified coverage of some tasks, some of whose labels are turned towards the judge."""
        rows = np.isin(self.tasks, tasks)
        scores, outcomes = self.scores[judge][rows], self.outcomes[rows]
        errors = np.flatnonzero(outcomes)
        outcomes[errors[np.argsort(scores[errors])[:turned]]] = 0
        columns = scores, outcomes, self.tasks[rows]
        found = evaluate(observe(*columns), settings)
        return 0.0 if found.chosen is None else float(found.counts.coverage[found.chosen])


def trial(seed: Sequence[int], tries: int, settings: Settings) -> dict[str, tuple[bool, bool]]:
    """Whether each way ends with a certificate, unpaid and paid."""
    world = World(seed, tries)
    halves = [world.rng.permutation(TASKS)[: TASKS // 2] for _ in range(tries)]
    half = halves[0]
    one = world.coverage(half, settings) > 0
    judges = [world.coverage(half, settings, judge) > 0 for judge in range(tries)]
    counted = settings.replace(candidates=tries)
    paid = any(
        # what passes at the level of all passes at that of one
        alone and world.coverage(half, counted, judge) > 0
        for judge, alone in enumerate(judges)
    )
    looks = [half[: len(half) * (n + 1) // tries] for n in range(tries)]
    spent = [settings.replace(delta=settings.delta * 6 / (math.pi * n) ** 2) for n in range(1, 99)]
    successes = np.bincount(world.tasks, world.outcomes)[half]
    fewer = half[np.argsort(successes, kind="stable")[:-LEFT_OUT]]
    budgets = [world.coverage(half, settings.replace(alpha=alpha)) > 0 for alpha in BUDGETS]
    return {
        "one, named beforehand": (one, one),
        "seeds": (any(world.coverage(tasks, settings) > 0 for tasks in halves), one),
        "judges": (any(judges), paid),
        "peeks": (
            any(world.coverage(tasks, settings) > 0 for tasks in looks),
            any(
                world.coverage(tasks, level) > 0 for tasks, level in zip(looks, spent, strict=False)
            ),
        ),
        "labels": (world.coverage(half, settings, turned=TURNED) > 0, one),
        "tasks": (world.coverage(fewer, settings) > 0, one),
        "budgets": (any(budgets), any(budgets)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--procedure", default=Settings().procedure)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the trials")
    arguments = parser.parse_args()
    trials = max(10, arguments.trials // 50) if arguments.quick else arguments.trials
    settings = Settings(alpha=0.1, delta=0.05, procedure=arguments.procedure)
    started = time.process_time()
    found = [trial((arguments.seed, number), arguments.tries, settings) for number in range(trials)]
    print(f"{arguments.procedure}, {trials} trials of {arguments.tries} tries, delta .05")
    print(f"  {'':22} {'unpaid':>13} {'paid':>13}")
    for way in found[0]:
        cells = []
        for place in range(2):
            share = sum(ways[way][place] for ways in found) / trials
            cells.append(f"{share:.3f} ± {math.sqrt(share * (1 - share) / trials):.3f}")
        print(f"  {way:22} {cells[0]:>13} {cells[1]:>13}")
    print(f"  {time.process_time() - started:.0f} s of CPU")


if __name__ == "__main__":
    main()
