"""What one bad reviewer does to a certificate.

    python benchmarks/bad_reviewer.py [--trials 100] [--tasks 100] [--attempts 6] [--quick]

A judge's scores rank runs (AUROC about .92); runs of a task are alike, and 45 % are successes.
Four reviewers label CAL, a run each by chance; one of them is bad and labels the share of the
table's first column. The certificate is `pseudo_task` at alpha .1 and delta .05, of both sides
one by one, on the labels as they were given; the true error of its threshold is that of 200,000
tasks of the same population.
Behaviours of the bad reviewer:
  careless   flips a fifth of the labels
  coin       labels by a coin
  success    labels everything a success
  failure    labels everything a failure
  opposite   labels the opposite of what is true
Columns, each for single labels and for two labels of every run, where a third, honest reviewer
settles a tie: certified share of runs, share of trials whose certificate breaks alpha, and the
true error where certified. The last column is the chance that `--double .1` shows the bad
reviewer: of a tenth of the runs labelled by two, others differ on more of theirs than on those of
the other three by Fisher's exact test at .01.
± is one standard error. --quick: three trials of two behaviours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from certify_assets import certify

ALPHA, DELTA, SEED, LARGE = 0.1, 0.05, 19, 200_000
SHARES = (0.0, 0.25, 0.5)
Flips = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]
BEHAVIOURS: dict[str, Flips] = {
    "careless": lambda truth, rng: truth ^ (rng.random(truth.size) < 0.2),
    "coin": lambda truth, rng: rng.integers(0, 2, truth.size),
    "success": lambda truth, rng: np.ones_like(truth),
    "failure": lambda truth, rng: np.zeros_like(truth),
    "opposite": lambda truth, rng: 1 - truth,
}
#: of an honest reviewer
SLIP = 0.02


class Runs(NamedTuple):
    """Runs of many tasks: scores, true outcomes, tasks."""

    scores: NDArray[np.float64]
    truth: NDArray[np.int64]
    tasks: NDArray[np.int64]


class Trial(NamedTuple):
    """One certificate: the share it covers, and its true error; NaN where there is none."""

    share: float
    error: float


def draw(tasks: int, attempts: int, rng: np.random.Generator) -> Runs:
    """Draw runs whose tasks differ in difficulty and in how well they are judged."""
    rates = rng.beta(0.9, 1.1, tasks)
    owner = np.repeat(np.arange(tasks), attempts)
    truth = (rng.random(owner.size) < rates[owner]).astype(np.int64)
    shift = rng.normal(0, 0.5, tasks)[owner]
    scores = rng.normal(np.where(truth, 1.2, -1.2) + shift, 1.1)
    return Runs(scores, truth, owner)


def labelled(
    runs: Runs, share: float, flips: Flips, double: bool, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the labels, and which runs the bad reviewer labelled."""
    slips = rng.random((3, runs.truth.size)) < SLIP
    bad = rng.random(runs.truth.size) < share
    first = np.where(bad, flips(runs.truth, rng), runs.truth ^ slips[0])
    if not double:
        return first, bad
    second, third = runs.truth ^ slips[1], runs.truth ^ slips[2]
    return np.where(first == second, first, third), bad


def certified(runs: Runs, labels: NDArray[np.int64], side: str, population: Runs) -> Trial:
    """Certify on labels, and measure the threshold on the population."""
    made = certify(runs.scores, labels, runs.tasks, alpha=ALPHA, delta=DELTA, side=side)
    if not made.certified or made.threshold is None:
        return Trial(0.0, np.nan)
    scores = population.scores
    inside = scores <= made.threshold if side == "reject" else scores >= made.threshold
    wrong = population.truth if side == "reject" else 1 - population.truth
    return Trial(float(inside.mean()), float(wrong[inside].mean()))


def is_shown(
    runs: Runs, labels: NDArray[np.int64], bad: NDArray[np.bool_], rng: np.random.Generator
) -> bool:
    """Whether a tenth of double labels shows who the bad reviewer is."""
    twice = rng.random(runs.truth.size) < 0.1
    differs = labels != (runs.truth ^ (rng.random(runs.truth.size) < SLIP))
    table = [
        [int((twice & who & differs).sum()), int((twice & who & ~differs).sum())]
        for who in (bad, ~bad)
    ]
    return float(fisher_exact(table, alternative="greater").pvalue) < 0.01


def row(
    side: str, name: str, share: float, trials: int, tasks: int, attempts: int, population: Runs
) -> str:
    """Return a line of the table."""
    cells, seen = [], 0
    for double in (False, True):
        rng = np.random.default_rng([SEED, int(1000 * share), sorted(BEHAVIOURS).index(name)])
        found = []
        for _ in range(trials):
            runs = draw(tasks, attempts, rng)
            labels, bad = labelled(runs, share, BEHAVIOURS[name], double, rng)
            found.append(certified(runs, labels, side, population))
            seen += not double and is_shown(runs, labels, bad, rng)
        errors = np.array([one.error for one in found])
        broken = float(np.mean(errors > ALPHA))
        wide = np.sqrt(broken * (1 - broken) / trials)
        mean = f"{np.nanmean(errors):.3f}" if np.isfinite(errors).any() else "–"
        covered = np.mean([one.share for one in found])
        cells += [f"{covered:.3f}", f"{broken:.3f} ± {wide:.3f}", mean]
    return f"| {side} | {name} | {share:.3f} | {' | '.join(cells)} | {seen / trials:.2f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--attempts", type=int, default=6)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    names, shares, trials = tuple(BEHAVIOURS), SHARES, given.trials
    if given.quick:
        names, shares, trials = ("careless", "failure"), (0.0, 0.25), 3
    population = draw(LARGE if not given.quick else 20_000, 1, np.random.default_rng(SEED))
    base = population.truth.mean()
    print(f"success rate {base:.3f}, {given.tasks} tasks of {given.attempts} runs, {trials} trials")
    print(
        "| side | behaviour | share | covered | broken | error | ×2 covered | broken | error | shown |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for side in ("reject", "release"):
        for share in shares:
            for name in names if share else names[:1]:
                label = name if share else "none"
                line = row(side, name, share, trials, given.tasks, given.attempts, population)
                print(line.replace(f"| {name} |", f"| {label} |"), flush=True)


if __name__ == "__main__":
    main()
