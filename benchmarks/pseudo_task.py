"""How often `pseudo_task` certifies wrongly, and what it covers, next to TaskBoot and the guard.

    python benchmarks/pseudo_task.py [--trials 300] [--pool 200] [--tasks 20 50 100 500]
                                     [--alphas 0.1 0.2] [--out FILE] [--quick]

δ = .05, reject side. First table, a row a design and number of tasks: the share of trials with a
certificate, which is a violation, because every threshold has a true error of at least 1.02 α.
Second table: mean certified share in benign designs (the paper's process; 16 attempts at every
task, or 1 + Poisson(7)). Columns:
  taskboot, guarded   the task bootstrap alone, and with the adaptive floor
  equal               pseudo_task, wrong tasks supposed no larger than others (R = 1)
  alone               pseudo_task, size ratio from the calibration tasks alone
  pool                … and from --pool other, unlabelled tasks, and no size charged
                      (benchmarks/size_charge.py compares)
± is one standard error. Designs whose names begin with "fresh" were written after the rule and
changed nothing in it. With --out every finished cell is kept in FILE, and a later call resumes.
--quick: two trials of some cells.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from certify_assets.certificates import Observations, Settings, evaluate, observe
from certify_assets.certificates.evaluation import coverage_under, pseudo_task
from certify_assets.certificates.pool import Pool, observe_pool
from certify_assets.research.designs import FAILURES, study_designs
from certify_assets.research.mixtures import MIXTURES, mixture
from certify_assets.research.populations import Clustered, Design, pilot_of

EXCESS, DELTA, SEED = 1.02, 0.05, 10
RULES = ("taskboot", "guarded", "equal", "alone", "pool")
RHOS = (0.1, 0.5, 0.8)
BENIGN = {"16 attempts": "sixteen", "1 + Poisson(7)": "poisson"}
MOST, REFERENCE_ALPHA = 100, 0.1
#: worst of 20, 50 and 100 tasks, of the trial that the rule comes from (300 trials; its two hidden
#: designs are like these, not the same)
REFERENCE = {
    "fooled": (0.870, 0.053, 0.053, None, 0.053),
    "fooled_scattered": (0.670, 0.073, 0.083, None, 0.033),
    "fooled_partly": (0.683, 0.060, 0.043, None, 0.020),
    "wrong_heavy_tails": (0.690, 0.117, 0.103, None, 0.000),
    "fooled_larger": (0.720, 0.160, 0.153, None, 0.037),
    "fooled_largest": (0.740, 0.317, 0.317, None, 0.047),
    "hidden_larger": (0.700, 0.273, 0.270, None, 0.077),
    "hidden_largest": (0.807, 0.447, 0.453, None, 0.133),
}


def failing(tasks: int, alpha: float) -> list[Design]:
    """Return the designs in which every threshold has an error above the budget."""
    fooled = study_designs(FAILURES, tasks=[tasks], alpha=alpha, excess=[EXCESS])
    return [*fooled, *(mixture(name, tasks, EXCESS * alpha) for name in MIXTURES)]


def benign(tasks: int) -> list[Design]:
    """Return the paper's process with equal and with unequal attempts."""
    return [
        Clustered(name=name, tasks=tasks, rho=rho, sizes=sizes)
        for name, sizes in BENIGN.items()
        for rho in RHOS
    ]


def coverages(table: Observations, pool: Pool, alpha: float) -> tuple[float, ...]:
    """Return what every rule certifies, 0 for nothing."""
    boot = evaluate(table, Settings(alpha=alpha, delta=DELTA, procedure="guarded_taskboot"))
    counts, settings = boot.counts, Settings(alpha=alpha, delta=DELTA, procedure="pseudo_task")
    passed = np.flatnonzero(boot.passed_test)
    alone = evaluate(table, settings)
    equal = replace(alone.test.pseudo, ratios=np.ones_like(alone.test.pseudo.ratios))
    given = pseudo_task(table, alone.counts, settings, pool, charge=False)
    return (
        float(counts.coverage[passed[-1]]) if passed.size else 0.0,
        boot.chosen_coverage,
        coverage_under(equal, alone, settings),
        alone.chosen_coverage,
        coverage_under(given, alone, settings),
    )


def cell(design: Design, alpha: float, trials: int, others: int) -> list[list[float]]:
    """Return the coverages of every trial."""
    key = [
        SEED,
        design.tasks,
        *design.name.encode(),
        int(1000 * (design.rho or 0)),
        int(1e4 * alpha),
    ]
    found = []
    for trial in range(trials):
        rng = np.random.default_rng([*key, trial])
        table, pool = observe(*design.draw(rng)), pilot_of(design, others, rng)
        found.append(list(coverages(table, observe_pool(pool.scores, pool.tasks), alpha)))
    return found


class Kept:
    """Finished cells, in a file of one JSON object a line where one is given."""

    def __init__(self, path: Path | None, trials: int, others: int) -> None:
        self.path, self.asked = path, (trials, others)
        lines = path.read_text("utf-8").splitlines() if path and path.exists() else []
        # a line that was cut off by a kill is computed again
        self.cells = dict(entry for line in lines if (entry := _entry(line)) is not None)

    def of(self, design: Design, alpha: float) -> np.ndarray:
        """Return the coverages of a cell, shape (trials, rules)."""
        key = json.dumps([f"{design!r}", alpha, *self.asked])
        if key not in self.cells:
            self.cells[key] = cell(design, alpha, *self.asked)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, self.cells[key]]) + "\n")
        return np.array(self.cells[key])


def _entry(line: str) -> tuple[str, list[list[float]]] | None:
    try:
        key, found = json.loads(line)
    except ValueError:
        return None
    return key, found


def violations(kept: Kept, tasks: list[int], alphas: list[float], names: set[str]) -> Iterator[str]:
    """Rows of the first table, and of the worst of 20 to 100 tasks in each design."""
    for alpha in alphas:
        yield f"\nViolations at a true error of {EXCESS} α, α = {alpha:g}"
        yield f"{'design':24}{'G':>5}  " + "".join(f"{rule:15}" for rule in RULES)
        worst: dict[str, np.ndarray] = {}
        for name in (design.name for design in failing(2, alpha) if design.name in names):
            for count in tasks:
                design = next(one for one in failing(count, alpha) if one.name == name)
                rates = (kept.of(design, alpha) > 0).mean(axis=0)
                if count <= MOST:
                    worst[name] = np.maximum(worst.get(name, 0.0), rates)
                yield f"{name:24}{count:5d}  " + "".join(
                    f"{rate:.3f} ± {math.sqrt(rate * (1 - rate) / kept.asked[0]):.3f}  "
                    for rate in rates
                )
        yield f"worst of at most {MOST} tasks, and the reference"
        for name, rates in worst.items():
            yield f"{name:31}" + "".join(f"{rate:<15.3f}" for rate in rates)
            if alpha == REFERENCE_ALPHA and name in REFERENCE:
                shown = ("–" if one is None else f"{one:.3f}" for one in REFERENCE[name])
                yield f"{'  reference':31}" + "".join(f"{text:15}" for text in shown)


def covered(kept: Kept, tasks: list[int], alphas: list[float]) -> Iterator[str]:
    """Rows of the second table: each ρ, and the mean over them."""
    for alpha in alphas:
        yield f"\nCoverage of the paper's process, α = {alpha:g}"
        yield f"{'design':16}{'ρ':>6}{'G':>6}  " + "".join(f"{rule:15}" for rule in RULES)
        for name in BENIGN:
            for count in tasks:
                found = {
                    design.rho: kept.of(design, alpha)
                    for design in benign(count)
                    if design.name == name
                }
                rows = {f"{rho:g}": part for rho, part in found.items()}
                rows["mean"] = np.concatenate(list(found.values()))
                for rho, part in rows.items():
                    yield f"{name:16}{rho:>6}{count:6d}  " + "".join(
                        f"{mean:.3f} ± {spread:.3f}  "
                        for mean, spread in zip(
                            part.mean(axis=0),
                            part.std(axis=0) / math.sqrt(len(part)),
                            strict=True,
                        )
                    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--pool", type=int, default=200, help="unlabelled tasks")
    parser.add_argument("--tasks", type=int, nargs="+", default=[20, 50, 100, 500])
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.1, 0.2])
    parser.add_argument("--designs", nargs="+", help="of the first table only")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    trials, tasks, alphas = arguments.trials, arguments.tasks, arguments.alphas
    names = {design.name for design in failing(2, 0.1)}
    if arguments.quick:
        trials, tasks, alphas = 2, [20], [0.1]
    if arguments.designs:
        names &= set(arguments.designs)
    kept = Kept(arguments.out, trials, arguments.pool)
    print(f"{trials} trials a cell, δ = {DELTA}, a pool of {arguments.pool} tasks")
    for line in violations(kept, tasks, alphas, names):
        print(line, flush=True)
    if not arguments.designs:
        for line in covered(kept, tasks, alphas):
            print(line, flush=True)


if __name__ == "__main__":
    main()
