"""How often `pseudo_task` certifies wrongly, and what it covers, with and without charging sizes.

    python benchmarks/size_charge.py [--trials 300] [--pool 200] [--tasks 20 50 100]
                                     [--alphas 0.1 0.2] [--designs NAME …] [--out FILE] [--quick]

δ = .05, reject side. First table: mean certified share where the judge is good (the paper's
process, mean of ρ .1, .5 and .8) and the violations there, worst ρ. Second table: the share of
trials with a certificate, which is a violation, because every threshold has a true error of at
least 1.02 α.
Columns:
  equal    wrong tasks supposed no larger than others (R = 1)
  pool     size ratio from --pool other, unlabelled tasks, and no size charged
  charged  pseudo_task with that pool, as it is
± is one standard error. The charge was chosen on the designs of the groups "trial" and "harder";
those of "fresh", and the mixtures whose names begin so (benchmarks/pseudo_task.py), were written
before it was run on them, once; those of "untuned" after it was settled. With --out every finished
cell is kept in FILE, and a later call resumes.
--quick: two trials of some cells.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, count_tasks, observe
from certify_assets.certificates.evaluation import pseudo_task
from certify_assets.certificates.pool import observe_pool
from certify_assets.certificates.populations import Sample
from certify_assets.research.designs import FAILURES, study_designs
from certify_assets.research.mixtures import MIXTURES, mixture
from certify_assets.research.populations import Clustered, effect_sd

EXCESS, DELTA, SEED, LARGE = 1.02, 0.05, 11, 400_000
RULES, RHOS = ("equal", "pool", "charged"), (0.1, 0.5, 0.8)
Draw = Callable[[int, float, np.random.Generator], Sample]
Sizes = Callable[[int, np.random.Generator], NDArray[np.int64]]
SIZES: dict[str, Sizes] = {
    "poisson": lambda n, rng: 1 + rng.poisson(7, n),
    "pareto": lambda n, rng: 1 + np.minimum((4 * rng.pareto(1.3, n)).astype(np.int64) + 1, 60),
    "geometric": lambda n, rng: rng.geometric(1 / 8, n),
    "two": lambda n, rng: np.where(rng.random(n) < 0.2, 32, 4),
    "lognormal": lambda n, rng: np.maximum(np.rint(np.exp(rng.normal(1.8, 0.7, n))), 1).astype(int),
    "uniform": lambda n, rng: rng.integers(1, 21, n),
    "zipf": lambda n, rng: np.minimum((3 * (1 + rng.pareto(1.6, n))).astype(np.int64), 200),
    "narrow": lambda n, rng: rng.integers(6, 11, n),
    "sixteen": lambda n, rng: np.full(n, 16),
}


def runs(sizes: NDArray[np.int64], rates: NDArray[np.float64], rng: np.random.Generator) -> Sample:
    """Runs that err at their task's rate, with scores that know nothing of it."""
    owner = np.repeat(np.arange(sizes.size), sizes)
    wrong = rng.random(owner.size) < rates[owner]
    return Sample(rng.random(owner.size), wrong.astype(np.int64), owner)


def beta(mean: NDArray[np.float64], icc: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Error rates of tasks."""
    if icc == 1:
        return (rng.random(mean.size) < mean).astype(float)
    return rng.beta(mean * (1 / icc - 1), (1 - mean) * (1 / icc - 1)) if icc else mean


def wrong(
    times: int, benign: float = 0.0, icc: float = 0.0, law: str = "poisson", rate: float = 1.0
) -> Draw:
    """Wrong tasks so many times larger; a share ``benign`` of all errors is in the other tasks."""

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        other = error * benign
        share = (error - other) / (rate - other)
        bad = rng.random(tasks) < share / (share + times * (1 - share))
        sizes = SIZES[law](tasks, rng) * np.where(bad, times, 1)
        return runs(
            sizes, np.where(bad, rate, beta(np.full(tasks, other), icc if other else 0, rng)), rng
        )

    return draw


def clustered(icc: float, law: str) -> Draw:
    """Errors of one ICC."""
    return lambda tasks, error, rng: runs(
        SIZES[law](tasks, rng), beta(np.full(tasks, error), icc, rng), rng
    )


def largest(law: str, rate: float = 1.0, benign: float = 0.0) -> Draw:
    """The largest tasks are wrong, with probability ``rate``, as many as make up the error."""
    ordered = np.sort(SIZES[law](LARGE, np.random.default_rng(5)))[::-1]
    held = np.cumsum(ordered) / ordered.sum()

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        other = error * benign
        need = (error - other) / (1 - other) / rate
        limit = ordered[np.searchsorted(held, need)]
        above = float(ordered[ordered > limit].sum()) / ordered.sum()
        at = float(ordered[ordered == limit].sum()) / ordered.sum()
        sizes = SIZES[law](tasks, rng)
        odds = np.where(sizes > limit, 1.0, np.where(sizes == limit, (need - above) / at, 0.0))
        return runs(sizes, np.where(rng.random(tasks) < rate * odds, 1.0, other), rng)

    return draw


def in_proportion(law: str, power: float = 1.0) -> Draw:
    """Tasks are wrong with a probability proportional to a power of their size."""
    many = SIZES[law](LARGE, np.random.default_rng(1)).astype(float)
    per_error = many.sum() / (many ** (1 + power)).sum()

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        sizes = SIZES[law](tasks, rng)
        odds = np.minimum(error * per_error * sizes**power, 1.0)
        return runs(sizes, (rng.random(tasks) < odds).astype(float), rng)

    return draw


def half_of_large(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Half of the tasks that are four times larger are wrong; errors in the others."""
    other = 0.3 * error
    share = 2 * (error - other)
    large = rng.random(tasks) < share / (share + 4 * (1 - share))
    bad = large & (rng.random(tasks) < 0.5)
    sizes = SIZES["poisson"](tasks, rng) * np.where(large, 4, 1)
    return runs(sizes, np.where(bad, 1.0, other / (1 - share / 2)), rng)


def small_wrong(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Wrong tasks have 3 runs, others 9."""
    bad = rng.random(tasks) < error / (error + (1 - error) / 3)
    return runs(np.where(bad, 3, 9), bad.astype(float), rng)


def seen_above(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Wrong tasks 3 times larger; of other runs with a high score, .3 are errors too."""
    drawn = wrong(3)(tasks, error, rng)
    more = (drawn.scores > 0.7) & (rng.random(drawn.scores.size) < 0.3)
    return drawn._replace(outcomes=np.maximum(drawn.outcomes, more))


def rate_by_size(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Errors of ICC .3 at a rate proportional to the size of the task."""
    sizes = SIZES["geometric"](tasks, rng)
    return runs(sizes, beta(np.minimum(error * sizes / 15, 0.95), 0.3, rng), rng)


def of_kinds(kinds: Sequence[tuple[float, int, float]], icc: float = 1.0) -> Draw:
    """Kinds of tasks (share, runs, relative rate of errors), with errors of one ICC."""
    share, size, risk = np.array(kinds).T

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        kind = rng.choice(share.size, size=tasks, p=share)
        rates = error * risk * (share @ size) / (share @ (size * risk))
        return runs(size[kind].astype(int), beta(rates[kind], icc, rng), rng)

    return draw


def hidden_1x_and_4x(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Half of the wrong runs in tasks 4 times larger, half in others, amid errors elsewhere."""
    other = 0.4 * error
    need = (error - other) / (1 - other)
    shares = np.array([need / 2, need / 8, 1 - need])
    kind = rng.choice(3, size=tasks, p=shares / shares.sum())
    sizes = SIZES["poisson"](tasks, rng) * np.array([1, 4, 1])[kind]
    return runs(sizes, np.array([1.0, 1.0, other])[kind], rng)


def by_agent(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Three attempts of each of 4 agents, which are all errors or none; tasks differ by ICC .3."""
    bad = rng.random((tasks, 4)) < beta(np.full(tasks, error), 0.3, rng)[:, None]
    drawn = runs(np.full(tasks, 12), np.zeros(tasks), rng)
    return drawn._replace(outcomes=np.repeat(bad.ravel(), 3).astype(np.int64))


def stops_at_success(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """At most 10 attempts, the first success (an error) ends them; some tasks are never solved."""
    once = 1 - 0.7**10
    solved = 10 * error / (once - error * once / 0.3 + 10 * error)
    first = np.where(rng.random(tasks) < solved, rng.geometric(0.3, tasks), 11)
    drawn = runs(np.minimum(first, 10), np.zeros(tasks), rng)
    last = np.append(drawn.tasks[1:] != drawn.tasks[:-1], True)
    return drawn._replace(outcomes=(last & (first <= 10)[drawn.tasks]).astype(np.int64))


def one_score_a_task(tasks: int, error: float, rng: np.random.Generator) -> Sample:
    """Wrong tasks 3 times larger amid errors of ICC .2; all runs of a task have the same score."""
    drawn = wrong(3, benign=0.3, icc=0.2)(tasks, error, rng)
    return drawn._replace(scores=rng.random(tasks)[drawn.tasks])


GROUPS: dict[str, dict[str, Draw]] = {
    "harder": {
        "hidden_1x": wrong(1, benign=0.5),
        "hidden_3x_loose": wrong(3, benign=0.5),
        "hidden_3x_clustered": wrong(3, benign=0.3, icc=0.3),
        "hidden_5x_loose": wrong(5, benign=0.5),
        "hidden_5x_clustered": wrong(5, benign=0.3, icc=0.3),
        "largest_wrong": largest("poisson"),
        "largest_half_hidden": largest("poisson", benign=0.5),
        "largest_of_heavy": largest("pareto"),
        "half_of_heavy": largest("pareto", rate=0.5, benign=0.3),
    },
    "fresh": {
        "geometric_whole": wrong(1, law="geometric"),
        "two_sizes_icc_5": clustered(0.5, "two"),
        "two_sizes_large_wrong": largest("two"),
        "in_proportion_to_size": in_proportion("lognormal"),
        "hidden_4x": wrong(4, benign=0.4, icc=0.2),
        "hidden_2x": wrong(2, benign=0.5),
        "hidden_8x": wrong(8, benign=0.3, icc=0.3),
        "half_of_large": half_of_large,
        "small_wrong": small_wrong,
        "seen_above": seen_above,
        "uniform_hidden_3x": wrong(3, benign=0.7, icc=0.1, law="uniform"),
        "rate_by_size": rate_by_size,
        "zipf_icc_3": clustered(0.3, "zipf"),
        "mostly_wrong_4x": wrong(4, rate=0.8),
    },
    "untuned": {
        "three_levels": of_kinds([(0.6, 4, 1), (0.3, 8, 2), (0.1, 16, 3)]),
        "one_or_ten": of_kinds([(0.7, 1, 1), (0.3, 10, 2)], 0.6),
        "five_or_ten": of_kinds([(0.5, 5, 1), (0.5, 10, 1)], 0.4),
        "few_large_worse": of_kinds([(0.9, 8, 1), (0.1, 24, 5)], 0.3),
        "middle_wrong": of_kinds([(0.5, 4, 0.2), (0.4, 10, 2), (0.1, 30, 0.2)], 0.8),
        "root_of_size": in_proportion("geometric", 0.5),
        "stops_at_success": stops_at_success,
        "by_agent": by_agent,
        "one_score_a_task": one_score_a_task,
        "hidden_1x_and_4x": hidden_1x_and_4x,
        "hidden_6x_geometric": wrong(6, benign=0.4, icc=0.1, law="geometric"),
        "hidden_4x_narrow": wrong(4, benign=0.5, law="narrow"),
        "hidden_2x_sixteen": wrong(2, benign=0.6, icc=0.2, law="sixteen"),
        "hidden_2x_zipf": wrong(2, benign=0.4, law="zipf"),
        "hidden_3x_lognormal": wrong(3, benign=0.4, icc=0.2, law="lognormal", rate=0.8),
        "sixteen_icc_2": clustered(0.2, "sixteen"),
    },
}
BENIGN = ("sixteen", "poisson", "narrow", "pareto", "geometric", "two")


def stored(name: str) -> Draw:
    """Draw from a design of the platform."""
    made: dict[float, object] = {}

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        if error not in made:
            made[error] = (
                mixture(name, 20, error)
                if name in MIXTURES
                else study_designs([name], tasks=[20], alpha=error / EXCESS, excess=[EXCESS])[0]
            )
        return replace(made[error], tasks=tasks).draw(rng)  # type: ignore[type-var]

    return draw


def good(law: str, rho: float) -> Draw:
    """The paper's process with some law of sizes."""

    def draw(tasks: int, error: float, rng: np.random.Generator) -> Sample:
        del error
        effect = rng.normal(0, effect_sd(rho), tasks)
        owner = np.repeat(np.arange(tasks), SIZES[law](tasks, rng))
        right = rng.random(owner.size) < 1 / (1 + np.exp(0.8 - effect[owner]))
        scores = 2.2 * (2 * right - 1) + 0.9 * effect[owner] + rng.normal(size=owner.size)
        return Sample(scores, right.astype(np.int64), owner)

    return draw


def chosen(sample: Sample, others: Sample, alpha: float) -> list[tuple[float, float]]:
    """Return coverage and threshold of every rule, (0, −∞) where nothing is certified."""
    table, pool = observe(*sample), observe_pool(others.scores, others.tasks)
    counts, found = count_tasks(table, "reject", 160), []
    # within 3 % of the exact tail where decisions fall, and a quarter of the time
    settings = Settings(alpha=alpha, delta=DELTA, procedure="pseudo_task", engine="saddlepoint")
    free, charged = (
        pseudo_task(table, counts, settings, pool, charge=charge) for charge in (False, True)
    )
    for asked in (free.equal, free, charged):
        test = replace(settings.test, pseudo=asked)
        tails = settings.method.tails(counts, test, counts.tasks)
        places = np.flatnonzero(tails <= settings.level)
        found.append(
            (float(counts.coverage[places[-1]]), float(counts.thresholds[places[-1]]))
            if places.size
            else (0.0, -math.inf)
        )
    return found


def cell(name: str, draw: Draw, tasks: int, alpha: float, trials: int, others: int) -> list[Any]:
    """Return coverage and threshold of every rule in every trial."""
    found = []
    for trial in range(trials):
        rng = np.random.default_rng([SEED, tasks, *name.encode(), int(1e4 * alpha), trial])
        sample, pool = draw(tasks, EXCESS * alpha, rng), draw(others, EXCESS * alpha, rng)
        found.append(chosen(sample, pool._replace(tasks=pool.tasks + tasks), alpha))
    return found


class Kept:
    """Finished cells, in a file of one JSON object a line where one is given."""

    def __init__(self, path: Path | None, trials: int, others: int) -> None:
        self.path, self.asked, self.cells = path, (trials, others), {}
        for line in path.read_text("utf-8").splitlines() if path and path.exists() else []:
            # a line that was cut off by a kill is computed again
            with contextlib.suppress(ValueError):
                key, found = json.loads(line)
                self.cells[key] = found

    def of(self, name: str, draw: Draw, tasks: int, alpha: float) -> NDArray[np.float64]:
        """Return an array of shape (trials, rules, 2)."""
        key = json.dumps([name, tasks, alpha, *self.asked])
        if key not in self.cells:
            self.cells[key] = cell(name, draw, tasks, alpha, *self.asked)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, self.cells[key]]) + "\n")
        return np.array(self.cells[key], dtype=np.float64)


def shown(values: NDArray[np.float64], errors: NDArray[np.float64]) -> str:
    return "  ".join(f"{v:.3f} ± {e:.3f}" for v, e in zip(values, errors, strict=True))


def groups() -> dict[str, dict[str, Draw]]:
    """Return all designs above the budget."""
    names = [*FAILURES, *MIXTURES]
    return {
        "trial": {name: stored(name) for name in names if not name.startswith("fresh")},
        "harder": GROUPS["harder"],
        "fresh": GROUPS["fresh"]
        | {name: stored(name) for name in names if name.startswith("fresh")},
        "untuned": GROUPS["untuned"],
    }


def print_violations(kept: Kept, tasks: Sequence[int], alpha: float, only: Sequence[str]) -> None:
    print(f"\nViolations at a true error of {EXCESS} α, α = {alpha:g}")
    print(f"{'design':26}{'G':>4}  " + "".join(f"{rule:15}" for rule in RULES))
    for group, designs in groups().items():
        worst = np.zeros(len(RULES))
        for name, draw in designs.items():
            if only and name not in only:
                continue
            for count in tasks:
                rates = (kept.of(name, draw, count, alpha)[:, :, 0] > 0).mean(axis=0)
                worst = np.maximum(worst, rates)
                errors = np.sqrt(rates * (1 - rates) / kept.asked[0])
                print(f"{name:26}{count:4d}  {shown(rates, errors)}", flush=True)
        if not only:
            print(f"{'worst, ' + group:32}" + "".join(f"{rate:<15.3f}" for rate in worst))


def print_coverage(kept: Kept, tasks: Sequence[int], alpha: float) -> None:
    print(f"\nCoverage where the judge is good, α = {alpha:g}; violations of the worst ρ")
    print(f"{'sizes':16}{'G':>4}  " + "".join(f"{rule:15}" for rule in RULES) + "violations")
    for law in BENIGN:
        for count in tasks:
            found, wrongly = [], np.zeros(len(RULES))
            for rho in RHOS:
                part = kept.of(f"{law} {rho:g}", good(law, rho), count, alpha)
                truth = Clustered(tasks=2, rho=rho).true_error(part[:, :, 1]) > alpha
                found.append(part[:, :, 0])
                wrongly = np.maximum(wrongly, (truth & (part[:, :, 0] > 0)).mean(axis=0))
            every = np.concatenate(found)
            # trials of one ρ are alike, those of another are not: the error of a stratified mean
            spread = np.sqrt(sum(part.var(axis=0) / len(part) for part in found)) / len(found)
            rates = " ".join(f"{rate:.3f}" for rate in wrongly)
            print(f"{law:16}{count:4d}  {shown(every.mean(axis=0), spread)}  {rates}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--pool", type=int, default=200, help="unlabelled tasks")
    parser.add_argument("--tasks", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.1, 0.2])
    parser.add_argument("--designs", nargs="+", default=[], help="of the second table only")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    trials, tasks, alphas = arguments.trials, arguments.tasks, arguments.alphas
    if arguments.quick:
        trials, tasks, alphas = 2, [20], [0.1]
    kept = Kept(arguments.out, trials, arguments.pool)
    print(f"{trials} trials a cell, δ = {DELTA}, a pool of {arguments.pool} tasks")
    for alpha in alphas:
        if not arguments.designs:
            print_coverage(kept, tasks, alpha)
        print_violations(kept, tasks, alpha, arguments.designs)


if __name__ == "__main__":
    main()
