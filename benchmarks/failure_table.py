"""How often TaskBoot certifies wrongly where errors come by task, with no guard, with Kish's and
with the floor, next to the reference values.

    python benchmarks/failure_table.py [--trials 600] [--workers 2] [--side release] [--quick]

Errors are independent of the score, so every threshold has the same true error, 1.02 or 1.5 times
α; δ = .05. Reference values: 150 trials.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from certify_assets.research.designs import study_designs
from certify_assets.research.populations import Design
from certify_assets.research.simulation import Cell, simulate

PROCEDURES = ("taskboot", "guarded_taskboot:kish", "guarded_taskboot")
EXCESS = (1.02, 1.5)
#: (design, α, what it is) → tasks → reference violations of TaskBoot, Kish and floor at each excess
TABLE = {
    ("fooled_scattered", 0.1, "beta-binomial, error ICC .3"): {
        20: ((0.75, 0.53), (0, 0), (0.07, 0.01)),
        50: ((0.40, 0.26), (0.04, 0), (0.04, 0)),
        100: ((0.25, 0.07), (0.05, 0), (0.04, 0)),
    },
    ("fooled_partly", 0.1, "beta-binomial, error ICC .7"): {
        20: ((0.71, 0.57), (0, 0), (0.03, 0)),
        50: ((0.43, 0.25), (0.07, 0.03), (0.05, 0.01)),
        100: ((0.23, 0.05), (0.07, 0.01), (0.05, 0.01)),
    },
    ("fooled", 0.1, "whole tasks wrong, α = .1"): {20: None, 50: None, 100: None},
    ("fooled", 0.2, "whole tasks wrong, α = .2"): {
        20: ((0.43, 0.30), (0.05, 0.01), (0, 0)),
        50: ((0.25, 0.11), (0.03, 0.01), (0.01, 0)),
        100: ((0.05, 0), (0.04, 0), (0.01, 0)),
    },
    ("fooled_larger", 0.1, "wrong tasks 3 times larger"): {
        20: None,
        50: ((0.45, 0.25), (0.14, 0.05), (0.13, 0.04)),
        100: ((0.22, 0.11), (0.11, 0.04), (0.10, 0.03)),
    },
    ("fooled_largest", 0.1, "wrong tasks 5 times larger"): {50: None, 100: None, 200: None},
}
#: reference violations of TaskBoot alone, by true error and tasks
ALONE = {
    0.11: {20: 0.68, 30: 0.60, 50: 0.41, 84: 0.25, 200: 0.05},
    0.15: {20: 0.52, 30: 0.45, 50: 0.30, 84: 0.135, 200: 0.015},
}


def shown(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}".replace("0.", ".", 1) for value in values)


def row(tasks: int, cells: Sequence[Cell], reference: Sequence[Sequence[float]] | None) -> str:
    parts = []
    for place, procedure in enumerate(PROCEDURES):
        found = [cell.of(procedure).violation for cell in cells]
        parts.append(f"{shown(found)} ({shown(reference[place]) if reference else '–':9})")
    return f"  G={tasks:<4d} " + "   ".join(parts)


def designs_of(alpha: float, side: str) -> list[Design]:
    asked = [
        (name, tasks, EXCESS)
        for (name, own, _), tables in TABLE.items()
        if own == alpha
        for tasks in tables
    ]
    if alpha == 0.1:
        asked += [
            ("fooled", tasks, [10 * error])
            for error, reference in ALONE.items()
            for tasks in reference
        ]
    made = [
        one
        for name, tasks, times in asked
        for one in study_designs([name], tasks=[tasks], alpha=alpha, excess=times, side=side)
    ]
    return list(dict.fromkeys(made))


def at(cells: Sequence[Cell], error: float) -> Cell:
    return next(cell for cell in cells if math.isclose(cell.true_error, error))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--side", choices=("reject", "release"), default="reject")
    parser.add_argument("--quick", action="store_true", help="a sixtieth of the trials")
    arguments = parser.parse_args()
    trials = max(1, arguments.trials // 60) if arguments.quick else arguments.trials
    common = {"trials": trials, "workers": arguments.workers, "side": arguments.side}
    print(
        f"Violations, {trials} trials a value, {arguments.side} side; standard error at most "
        f"{0.5 / math.sqrt(trials):.3f}, at .05 "
        f"{math.sqrt(0.0475 / trials):.3f}. At true error 1.02 α and 1.5 α; in brackets the "
        f"reference (150 trials, .018 at .05)."
    )
    print(f"{'':10}{'TaskBoot':26}{'Kish':26}floor δ/8")
    asked = {alpha: designs_of(alpha, arguments.side) for alpha in (0.1, 0.2)}
    # one call a budget: every call starts worker processes again
    found = {
        alpha: simulate(designs, procedures=PROCEDURES, alpha=alpha, **common).cells
        for alpha, designs in asked.items()
    }
    for (name, alpha, title), tables in TABLE.items():
        print(title)
        for tasks, reference in tables.items():
            cells = [cell for cell in found[alpha] if (cell.design, cell.tasks) == (name, tasks)]
            print(row(tasks, [at(cells, excess * alpha) for excess in EXCESS], reference))
    print("TaskBoot without a guard, whole tasks wrong, α = .1")
    for error, reference in ALONE.items():
        cells = [
            at(
                [cell for cell in found[0.1] if (cell.design, cell.tasks) == ("fooled", tasks)],
                error,
            )
            for tasks in reference
        ]
        values = [
            f"G={cell.tasks} {shown([cell.of('taskboot').violation])} "
            f"({shown([reference[cell.tasks]])})"
            for cell in cells
        ]
        print(f"  true error {error:g}: {'   '.join(values)}")


if __name__ == "__main__":
    main()
