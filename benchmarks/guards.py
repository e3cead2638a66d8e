"""Two sets of figures behind the guard: a few large tasks that are wrong, and what other
corrections of the grid than Bonferroni miss.

    python benchmarks/guards.py [--trials 300] [--workers 2] [--quick]

α = .1, δ = .05. First: 100 tasks of one trajectory and some of 400, the large ones wrong throughout
with a true error of .15; share of tables that the floor certifies without and with the two rules on
concentration. Second: whole tasks wrong with a true error of 1.1 α, 100 tasks.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.guard import FLOOR_SHARE
from certify_assets.research.designs import study_designs
from certify_assets.research.simulation import simulate

DELTA = 0.05
#: large tasks → share certified without and with the rules, as the documentation has it
CONCENTRATED = {
    1: (0.84, 0.0),
    2: (0.69, 0.0),
    3: (0.60, 0.0),
    5: (0.41, 0.0),
    8: (0.32, 0.32),
    20: (0.02, 0.02),
}
#: correction → violations under the floor, 300 trials
MISSED = {"bonferroni": 0.04, "fixed": 0.08, "fallback": 0.09, "maxt": 0.12}


def certified(large: int, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether one table is certified by the floor alone, and by the floor with the rules."""
    sizes = np.concatenate([np.ones(100, dtype=np.int64), np.full(large, 400)])
    wrong = (sizes > 1) & (rng.random(sizes.size) < 0.15 * sizes.sum() / (400 * large))
    owner = np.repeat(np.arange(sizes.size), sizes)
    found = evaluate(
        observe(rng.normal(size=owner.size), wrong.astype(np.int64)[owner], owner),
        Settings(procedure="guarded_taskboot", delta=DELTA),
    )
    floor = found.passed_test & (found.guard.floor_probability <= DELTA / FLOOR_SHARE)
    return bool(floor.any()), found.chosen is not None


def rate(share: float, trials: int) -> str:
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / trials):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials")
    arguments = parser.parse_args()
    trials = max(10, arguments.trials // 10) if arguments.quick else arguments.trials
    print(
        f"large tasks: share of {trials} tables certified by the floor without, and with the "
        f"rules on concentration (documented)"
    )
    for large, (without, ruled) in CONCENTRATED.items():
        shares = np.mean(
            [certified(large, np.random.default_rng([trial, large, 9])) for trial in range(trials)],
            axis=0,
        )
        print(
            f"  {large:3d}: {rate(shares[0], trials)} ({without:.2f})   {rate(shares[1], trials)} "
            f"({ruled:.2f})",
            flush=True,
        )
    print(
        f"whole tasks wrong, true error .11, 100 tasks: violation over {trials} trials "
        f"(documented, 300)"
    )
    cell = simulate(
        study_designs(["fooled"], tasks=[100], excess=[1.1]),
        procedures=[f"guarded_taskboot:{name}" for name in MISSED],
        trials=trials,
        workers=arguments.workers,
    ).cells[0]
    for rates, (name, reference) in zip(cell.procedures, MISSED.items(), strict=True):
        print(f"  {name:11} {rates.violation:.3f} ± {rates.violation_se:.3f} ({reference:.2f})")


if __name__ == "__main__":
    main()
