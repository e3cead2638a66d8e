"""Coverage and violation of the procedures that hold at any number of tasks, next to the reference
values for betting.

    python benchmarks/finite_sample.py [--trials 300] [--workers 2] [--pilot-tasks 200] [--quick]

The paper's process at α = .1, δ = .05. Betting and Gaffke's test promise an error in which every
task weighs the same, ``:trajectory`` over trajectories with the design's largest task declared;
``:fixed`` tests upward from the 30 % quantile instead of dividing δ by 40.
"""

from __future__ import annotations

import argparse
import math

from certify_assets.research.designs import study_designs
from certify_assets.research.simulation import simulate

PROCEDURES = (
    "betting",
    "betting:trajectory",
    "gaffke:fixed",
    "gaffke",
    "gaffke:trajectory:fixed",
    "one_per_task",
    "task_hoeffding",
)
RHOS = (0.1, 0.5, 0.8)
TASKS = (50, 64, 84, 100, 200)
#: coverage of betting in the reference, by tasks, at the three ICCs; of the paper's two, one per
#: task and Hoeffding on task means
BETTING = {
    50: (0.485, 0.116, 0.092),
    64: (0.675, 0.544, 0.470),
    84: (0.682, 0.610, 0.567),
    100: (0.686, 0.613, 0.570),
}
PAPERS = {50: (0, 0, 0), 64: (0, 0, 0), 84: (0, 0, 0), 100: (0.29, 0.06, 0.0)}
REFERENCE = {"betting": BETTING, "one_per_task": PAPERS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pilot-tasks", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the trials")
    arguments = parser.parse_args()
    trials = max(1, arguments.trials // 100) if arguments.quick else arguments.trials
    common = {"trials": trials, "workers": arguments.workers, "pilot_tasks": arguments.pilot_tasks}
    print(
        f"Mean coverage ± standard error at ρ = .1, .5, .8 (reference in brackets), then the "
        f"share of {trials} trials whose error exceeds α by the"
    )
    print(
        f"procedure's own estimand / over trajectories, the largest of the three ρ (standard "
        f"error at .05: {math.sqrt(0.0475 / trials):.3f})."
    )
    every = simulate(
        study_designs(["paper"], tasks=TASKS, rhos=RHOS), procedures=PROCEDURES, **common
    ).cells
    for tasks in TASKS:
        cells = [cell for cell in every if cell.tasks == tasks]
        print(f"G={tasks}")
        for procedure in PROCEDURES:
            rates = [cell.of(procedure) for cell in cells]
            known = REFERENCE.get(procedure, {}).get(tasks)
            found = "  ".join(
                f"{one.coverage:.3f} ± {one.coverage_se:.3f}"
                + (f" ({known[place]:.3f})" if known else " " * 8)
                for place, one in enumerate(rates)
            )
            own = max(
                one.violation if one.own_violation is None else one.own_violation for one in rates
            )
            print(
                f"  {procedure:24} {found}   {own:.3f} / {max(one.violation for one in rates):.3f}"
            )


if __name__ == "__main__":
    main()
