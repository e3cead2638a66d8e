"""How often a promise of both sides together is broken, and what sharing δ as Holm does would cost.

    python benchmarks/joint_sides.py [--trials 1500] [--tables 300] [--seed 20261122] [--quick]

Prints shares of simulated tables in which at least one side is certified beyond its budget, each
with its standard error; promised is δ = .05 for both sides together.

partly right  400 runs of their own tasks, of which .2 and then .6 succeed: at α = .4 half of the
              thresholds of each side are right and the wider ones are wrong by a hair. Procedure
              naive, so that nothing but the sharing of δ is measured, over a grid of three. `shared`
              is what --joint does (`joint_deltas`), `whole` passes all of δ/2 on as soon as a side
              certifies anything.
nothing right 50 tasks of 8 runs, of which .102 are wrong throughout on each side (α = .1): every
              certificate is wrong, as in finite_sample.py, but on two sides at δ/2.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace

import numpy as np

from certify_assets.certificates import Observations, Settings, evaluate, joint_deltas, observe

DELTA = 0.05
SIDES = ("reject", "release")


def halves(rng: np.random.Generator, rows: int = 400) -> Observations:
    """Runs of their own tasks, of which .2 and then .6 succeed, a hair less."""
    scores = np.arange(rows) / rows
    outcomes = rng.random(rows) < np.where(scores < 0.5, 0.2, 0.6) - 1e-9
    return observe(scores, outcomes.astype(int), np.arange(rows))


def fooled(rng: np.random.Generator, tasks: int = 50, attempts: int = 8) -> Observations:
    """Tasks that are wrong throughout, .102 of them on each side."""
    names = np.repeat(np.arange(tasks), attempts)
    scores = rng.random(names.size)
    wrong = rng.random((2, tasks)) < 0.102
    upper = scores > 0.5
    outcomes = upper ^ np.where(upper, wrong[1][names], wrong[0][names])
    return observe(scores, outcomes.astype(int), names)


def too_wide(observations: Observations, settings: Settings, delta: float) -> bool:
    """Whether a side of `halves` is certified beyond the half that its error allows."""
    chosen = evaluate(observations, replace(settings, delta=delta)).chosen
    return chosen is not None and chosen >= (2 if settings.side == "reject" else 1)


def partly_right(multiplicity: str, trials: int, seed: int) -> tuple[float, float]:
    """Return the joint error of what --joint does, and of passing on all of δ/2."""
    starts = (0.5,) if multiplicity == "fixed" else None
    rng = np.random.default_rng(seed)
    asked = Settings(
        procedure="naive", alpha=0.4, delta=DELTA, grid=3, multiplicity=multiplicity, starts=starts
    )
    each = {side: replace(asked, side=side) for side in SIDES}
    half = {side: replace(each[side], delta=DELTA / 2) for side in SIDES}
    shared = whole = 0
    for _ in range(trials):
        observations = halves(rng)
        deltas = joint_deltas(observations, asked)
        shared += any(too_wide(observations, each[side], deltas[side]) for side in SIDES)
        passed = [evaluate(observations, half[side]).chosen is not None for side in SIDES]
        whole += any(
            too_wide(observations, each[side], DELTA if other else DELTA / 2)
            for side, other in zip(SIDES, reversed(passed), strict=True)
        )
    return shared / trials, whole / trials


def nothing_right(procedure: str, tables: int, seed: int) -> float:
    """Return the share of tables with a certificate on a side at δ/2 each."""
    rng = np.random.default_rng(seed)
    each = [Settings(delta=DELTA / 2, procedure=procedure, side=side) for side in SIDES]
    wrong = 0
    for _ in range(tables):
        observations = fooled(rng)
        wrong += any(evaluate(observations, asked).chosen is not None for asked in each)
    return wrong / tables


def show(name: str, share: float, trials: int) -> None:
    print(f"  {name:34} {share:.3f} ± {math.sqrt(share * (1 - share) / trials):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of both")
    arguments = parser.parse_args()
    part = 50 if arguments.quick else 1
    trials, tables = arguments.trials // part, arguments.tables // part
    started = time.process_time()
    print(f"partly right, {trials} tables")
    for multiplicity in ("bonferroni", "fixed"):
        shared, whole = partly_right(multiplicity, trials, arguments.seed)
        show(f"{multiplicity}, shared", shared, trials)
        show(f"{multiplicity}, whole", whole, trials)
    print(f"nothing right, {tables} tables")
    for procedure in ("guarded_taskboot", "pseudo_task"):
        show(procedure, nothing_right(procedure, tables, arguments.seed), tables)
    print(f"  {time.process_time() - started:.0f} s of CPU")


if __name__ == "__main__":
    main()
