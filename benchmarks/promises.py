"""How often certificates of one run a task break their promise, in every design of `validity.py`.

    python benchmarks/promises.py [--trials 2000] [--whole 500] [--alpha 0.1 0.2]
                                  [--tasks 20 50 100] [--kept 200 500] [--design NAME …] [--quick]

δ = .05, reject side. Every threshold has a true error of 1.02 α or more, over tasks or over runs as
the column says, so that each certificate breaks its promise. Columns:
  one_run   one random run of every task is labelled; every task counts once.
  all runs  one_run where every run is labelled (Lemma 3), of --whole tables; every task counts once.
  thinned   one run of a task of m runs, with probability m/C; every run counts once. Only where tasks
            differ in runs, and at --kept tasks, since few are drawn.
  cap       `average` at a true error of 2.04 α, twice the budget: its cap allows .05.
  ratio     mean share of wrong decisions over the share that `average` says it decides, in units of
            α, ± its standard error: at most 1. The worst number of tasks.
A cell has one rate for every number of tasks. Of 2,000 tables a rate of .05 has a standard error of
.005. --quick: ten tables of two designs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from validity import DELTA, DESIGNS, EXCESS, SEED, WORST, Draw, clustered, one_score_a_task, wrong

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.research.populations import Sample


def rounded(draw: Draw) -> Draw:
    """The same with five scores only."""

    def with_ties(*asked: object) -> Sample:
        drawn = draw(*asked)
        return drawn._replace(scores=np.ceil(5 * drawn.scores) / 5)

    return with_ties


ALL: dict[str, Draw] = {
    **DESIGNS,
    **WORST,
    "wrong tasks, five scores": rounded(wrong(1)),
    "errors of ICC .3, five scores": rounded(clustered(0.3)),
    "one of five scores a task": rounded(one_score_a_task),
}
#: tasks or labels that break an assumption of the proof
OUTSIDE = ("half in templates", "templates of ICC .5", "a tenth labelled right")
#: C → designs in which tasks differ in runs; hardly any task is larger
_SIZES = {
    24: ("errors of ICC .3", "errors of ICC .7", "wrong tasks", "hidden amid others"),
    32: ("wrong, of 4 or 32 runs",),
    62: ("wrong, heavy tails",),
    72: (
        *("wrong, 3 times larger", "hidden, 3 times larger", "seen, 3 times larger"),
        *("hidden amid ICC .3", "one score a task"),
    ),
    120: ("wrong, 5 times larger", "hidden, 5 times larger", "half in larger tasks"),
}
MOST = {name: most for most, names in _SIZES.items() for name in names}


def one_a_task(sample: Sample, rng: np.random.Generator, most: int = 0) -> Sample:
    """One random run of every task; where C is given, of tasks kept with probability m/C."""
    order = rng.permutation(sample.tasks.size)
    _, places, sizes = np.unique(sample.tasks[order], return_index=True, return_counts=True)
    if most:
        places = places[rng.random(sizes.size) < sizes / most]
    return Sample(*(part[order[places]] for part in sample))


def certified(sample: Sample, procedure: str, alpha: float) -> tuple[float, float] | None:
    """Return the certified threshold, and the share of rows that it covers."""
    if not sample.tasks.size:
        return None
    made = evaluate(observe(*sample), Settings(procedure=procedure, alpha=alpha, delta=DELTA))
    return None if made.threshold is None else (made.threshold, made.chosen_coverage)


def broken(name: str, tasks: int, alpha: float, trials: int, whole: int) -> list[float]:
    """Return the rates of a cell: one_run, all runs, cap, and mean and error of the ratio."""
    draw, counted, ratios = ALL[name], np.zeros(3), np.zeros(trials)
    for trial in range(trials):
        rng = np.random.default_rng([SEED, tasks, *name.encode(), int(1e4 * alpha), trial])
        sample = draw(tasks, EXCESS * alpha, rng, "tasks")
        drawn = one_a_task(sample, rng)
        counted[0] += certified(drawn, "one_run", alpha) is not None
        if trial < whole:
            counted[1] += certified(sample, "one_run", alpha) is not None
        if found := certified(drawn, "average", alpha):
            # scores are uniform and know nothing of errors, but for `seen`, which errs more above
            # .7: the share decided is the threshold
            threshold, covered = found
            claimed = covered * drawn.tasks.size / (drawn.tasks.size + 1)
            ratios[trial] = EXCESS * threshold / claimed
        twice = one_a_task(draw(tasks, 2 * EXCESS * alpha, rng, "tasks"), rng)
        counted[2] += certified(twice, "average", alpha) is not None
    rates = counted / [trials, min(whole, trials), trials]
    return [*rates, ratios.mean(), ratios.std() / math.sqrt(trials)]


def thinned(name: str, tasks: int, alpha: float, trials: int) -> float:
    """Return the rate of a cell where every run counts once."""
    wrongly = 0
    for trial in range(trials):
        rng = np.random.default_rng([SEED, tasks, *name.encode(), int(1e4 * alpha), trial])
        drawn = one_a_task(ALL[name](tasks, EXCESS * alpha, rng), rng, MOST[name])
        wrongly += certified(drawn, "one_run", alpha) is not None
    return wrongly / trials


def shown(rates: list[float]) -> str:
    return " / ".join(f"{rate:.3f}" for rate in rates)


def lines(asked: argparse.Namespace) -> Iterator[str]:
    for alpha in asked.alpha:
        yield f"\nα = {alpha:g}; {asked.tasks} tasks, thinned {asked.kept}"
        yield f"{'design':32}{'one_run':>23}{'all runs':>23}{'thinned':>17}{'cap':>23}  ratio"
        for name in asked.design:
            cells = [broken(name, tasks, alpha, asked.trials, asked.whole) for tasks in asked.tasks]
            one, several, cap, ratio, error = map(list, zip(*cells, strict=True))
            worst = int(np.argmax(ratio))
            kept = asked.kept if name in MOST else []
            few = [thinned(name, tasks, alpha, asked.trials) for tasks in kept]
            yield (
                f"{name:32}{shown(one):>23}{shown(several):>23}{shown(few):>17}{shown(cap):>23}"
                f"  {ratio[worst]:.3f} ± {error[worst]:.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--whole", type=int, default=500, help="tables of all runs")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.1, 0.2])
    parser.add_argument("--tasks", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--kept", type=int, nargs="+", default=[200, 500], help="tasks of thinned")
    parser.add_argument("--design", action="append", choices=ALL)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    asked.design = asked.design or list(ALL)
    if asked.quick:
        asked.trials, asked.design = 10, ["wrong, 5 times larger", "wrong tasks, five scores"]
    print(f"{asked.trials} tables a cell, seed {SEED}, δ = {DELTA}")
    for line in lines(asked):
        print(line, flush=True)


if __name__ == "__main__":
    main()
