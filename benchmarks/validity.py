"""How often a procedure certifies wrongly, and what it covers, where the truth is known.

    python benchmarks/validity.py [--trials 300] [--tasks 20 50 100] [--alpha 0.1] [--pool 200]
                                  [--design NAME …] [--rule NAME …] [--quick]
    python benchmarks/validity.py --worst

δ = .05, reject side. First table: the share of trials with a certificate, which is a violation,
because every threshold has a true error of 1.02 α or more. Second table: the mean certified share where
the judge is good (the paper's process, mean of ρ .1, .5 and .8) by the law of task sizes, and the
violations there, worst ρ. A rule is a procedure; `pool` is pseudo_task with scores and sizes of
--pool other, unlabelled tasks. `joint` is --set joint=true on a table whose high scores are successes, wrong
in the same way. --worst: the designs in which the default is worst. ± is one standard error.
--quick: three trials of some cells.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.evidence import observe_pool
from certify_assets.research.populations import Clustered, Sample, effect_sd

EXCESS, DELTA, SEED = 1.02, 0.05, 11
RULES = ("naive", "taskboot", "guarded_taskboot", "pseudo_task", "pool")
WORST_RULES, WORST_TASKS = ("pseudo_task", "pool", "joint"), (20, 50, 100, 200)
RHOS = (0.1, 0.5, 0.8)
Draw = Callable[..., Sample]
Floats = NDArray[np.float64]
SIZES: dict[str, Callable[[int, np.random.Generator], NDArray[np.int64]]] = {
    "sixteen": lambda n, rng: np.full(n, 16),
    "poisson": lambda n, rng: 1 + rng.poisson(7, n),
    "two": lambda n, rng: np.where(rng.random(n) < 0.2, 32, 4),
    "geometric": lambda n, rng: rng.geometric(1 / 8, n),
    "pareto": lambda n, rng: 1 + np.minimum((4 * rng.pareto(1.3, n)).astype(np.int64) + 1, 60),
}


def attempts(law: str | int, tasks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Runs of each task: as many for all, or by a law."""
    return SIZES[law](tasks, rng) if isinstance(law, str) else np.full(tasks, law)


def runs(sizes: NDArray[np.int64], rates: Floats, rng: np.random.Generator) -> Sample:
    """Runs that err at their task's rate, with scores that know nothing of it."""
    owner = np.repeat(np.arange(sizes.size), sizes)
    wrong = rng.random(owner.size) < rates[owner]
    return Sample(rng.random(owner.size), wrong.astype(np.int64), owner)


def beta(mean: float, icc: float, tasks: int, rng: np.random.Generator) -> Floats:
    """Error rates of tasks whose errors have one ICC."""
    if not icc or not mean:
        return np.full(tasks, mean)
    return rng.beta(mean * (1 / icc - 1), (1 - mean) * (1 / icc - 1), tasks)


def clustered(icc: float, law: str | int = "poisson", alike: int = 1) -> Draw:
    """Errors of one ICC; as many tasks as `alike` (of one template) have the same rate."""

    def draw(tasks: int, error: float, rng: np.random.Generator, over: str = "runs") -> Sample:
        del over
        sizes = attempts(law, tasks, rng)
        rates = beta(error, icc, math.ceil(tasks / alike), rng)
        return runs(sizes, np.repeat(rates, alike)[:tasks], rng)

    return draw


def wrong(
    times: int, benign: float = 0.0, icc: float = 0.0, law: str | int = "poisson", alike: int = 1
) -> Draw:
    """Tasks wrong throughout and so many times larger; a share of all errors is in the others."""

    def draw(tasks: int, error: float, rng: np.random.Generator, over: str = "runs") -> Sample:
        other = error * benign
        share = (error - other) / (1 - other)
        counted = times if over == "runs" else 1
        bad = rng.random(math.ceil(tasks / alike)) < share / (share + counted * (1 - share))
        bad = np.repeat(bad, alike)[:tasks]
        sizes = attempts(law, tasks, rng) * np.where(bad, times, 1)
        return runs(sizes, np.where(bad, 1.0, beta(other, icc, tasks, rng)), rng)

    return draw


def grouped(draw: Draw) -> Draw:
    """Four tasks of one template are a group, which counts as one task."""

    def as_groups(tasks: int, error: float, rng: np.random.Generator, over: str = "runs") -> Sample:
        drawn = draw(tasks, error, rng, over)
        return drawn._replace(tasks=drawn.tasks // 4)

    return as_groups


def seen(times: int) -> Draw:
    """Larger wrong tasks, amid errors that the score sees: they have the higher scores."""

    def draw(tasks: int, error: float, rng: np.random.Generator, over: str = "runs") -> Sample:
        drawn = wrong(times)(tasks, error, rng, over)
        more = (drawn.scores > 0.7) & (rng.random(drawn.scores.size) < 0.3)
        return drawn._replace(outcomes=np.maximum(drawn.outcomes, more))

    return draw


def by_agent(tasks: int, error: float, rng: np.random.Generator, over: str = "runs") -> Sample:
    """Three attempts of each of 4 agents, which are all errors or none; tasks differ by ICC .3."""
    del over
    bad = rng.random((tasks, 4)) < beta(error, 0.3, tasks, rng)[:, None]
    drawn = runs(np.full(tasks, 12), np.zeros(tasks), rng)
    return drawn._replace(outcomes=np.repeat(bad.ravel(), 3).astype(np.int64))


def one_score_a_task(
    tasks: int, error: float, rng: np.random.Generator, over: str = "runs"
) -> Sample:
    """Wrong tasks 3 times larger amid errors of ICC .2; all runs of a task have the same score."""
    drawn = wrong(3, benign=0.3, icc=0.2)(tasks, error, rng, over)
    return drawn._replace(scores=rng.random(tasks)[drawn.tasks])


DESIGNS: dict[str, Draw] = {
    "errors of ICC .3": clustered(0.3),
    "errors of ICC .7": clustered(0.7),
    "ICC .5, 16 attempts": clustered(0.5, "sixteen"),
    "wrong tasks": wrong(1),
    "wrong, 3 times larger": wrong(3),
    "wrong, 5 times larger": wrong(5),
    "wrong, heavy tails": wrong(1, law="pareto"),
    "wrong, of 4 or 32 runs": wrong(1, law="two"),
    "hidden amid others": wrong(1, benign=0.5),
    "hidden, 3 times larger": wrong(3, benign=0.5),
    "hidden, 5 times larger": wrong(5, benign=0.5),
    "hidden amid ICC .3": wrong(3, benign=0.3, icc=0.3),
    "seen, 3 times larger": seen(3),
    "attempts of an agent": by_agent,
    "one score a task": one_score_a_task,
}
#: where the default is worst, found by looking for it
WORST: dict[str, Draw] = {
    **{f"half in tasks, {count} attempts": wrong(1, 0.5, law=count) for count in (8, 16, 40, 100)},
    **{f"a third in tasks, {count} attempts": wrong(1, 0.7, law=count) for count in (40, 100)},
    "half in larger tasks": wrong(5, 0.5, law=16),
    "half in templates": wrong(1, 0.5, law=8, alike=4),
    "half in templates, as groups": grouped(wrong(1, 0.5, law=8, alike=4)),
    "templates of ICC .5": clustered(0.5, 8, alike=4),
    "templates of ICC .5, as groups": grouped(clustered(0.5, 8, alike=4)),
    "pool of single runs": wrong(5),
    "ICC .1, 40 attempts": clustered(0.1, 40),
    "a tenth labelled right": lambda tasks, error, *more: clustered(0.3)(tasks, 0.9 * error, *more),
}
#: other tasks than those of the table
POOLS = {"pool of single runs": clustered(0, 1)}


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


def joint_coverage(reject: Sample, release: Sample, settings: Settings) -> float:
    """Coverage of the wider of two sides at δ/2: the second sample is the release side."""
    table = observe(
        np.r_[reject.scores, 2 - release.scores],
        np.r_[reject.outcomes, 1 - release.outcomes],
        np.r_[reject.tasks, release.tasks],
    )
    half = settings.delta / 2
    made = [evaluate(table, settings.replace(side=side, delta=half)) for side in SIDES]
    return max(side.chosen_coverage for side in made)


def trial(name: str, draw: Draw, asked: argparse.Namespace, key: list[int]) -> Floats:
    """Return coverage and threshold of every rule on one table, (0, −∞) for nothing."""
    rng = np.random.default_rng(key)
    rules: Sequence[str] = asked.rule
    sample = draw(key[1], EXCESS * asked.alpha, rng)
    others = POOLS.get(name, draw)(asked.pool, EXCESS * asked.alpha, rng)
    table, pool = observe(*sample), observe_pool(others.scores, others.tasks + key[1])
    found = np.zeros((len(rules), 2))
    for place, rule in enumerate(rules):
        pooled = rule == "pool"
        procedure = "pseudo_task" if rule in ("pool", "joint") else rule
        settings = Settings(alpha=asked.alpha, delta=DELTA, procedure=procedure)
        if rule == "joint":
            release = draw(key[1], EXCESS * asked.alpha, rng)
            found[place] = joint_coverage(sample, release, settings), -math.inf
            continue
        made = evaluate(table, settings, pool=pool if pooled else None)
        chosen = made.chosen
        threshold = -math.inf if chosen is None else made.counts.thresholds[chosen]
        found[place] = made.chosen_coverage, threshold
    return found


def cell(name: str, draw: Draw, tasks: int, asked: argparse.Namespace) -> Floats:
    """Return an array of shape (trials, rules, 2); every cell has numbers of its own."""
    key = [SEED, tasks, *name.encode(), int(1e4 * asked.alpha)]
    return np.array([trial(name, draw, asked, [*key, n]) for n in range(asked.trials)])


def violations(asked: argparse.Namespace) -> Iterator[str]:
    yield f"\nViolations at a true error of {EXCESS} α, α = {asked.alpha:g}"
    yield f"{'design':30}{'tasks':>6}  " + "".join(f"{rule:>18}" for rule in asked.rule)
    for name in asked.design:
        for tasks in asked.tasks:
            rates = (cell(name, (DESIGNS | WORST)[name], tasks, asked)[:, :, 0] > 0).mean(axis=0)
            errors = np.sqrt(rates * (1 - rates) / asked.trials)
            yield f"{name:30}{tasks:6}  " + shown(rates, errors)


def coverage(asked: argparse.Namespace) -> Iterator[str]:
    yield f"\nCoverage where the judge is good, α = {asked.alpha:g}; violations of the worst ρ"
    yield f"{'sizes':30}{'tasks':>6}  " + "".join(f"{rule:>18}" for rule in asked.rule)
    for law in SIZES:
        for tasks in asked.tasks:
            parts = [(rho, cell(f"{law} {rho}", good(law, rho), tasks, asked)) for rho in RHOS]
            wrongly = np.max(
                [
                    (Clustered(tasks=2, rho=rho).true_error(part[:, :, 1]) > asked.alpha).mean(0)
                    for rho, part in parts
                ],
                axis=0,
            )
            covered = [part[:, :, 0] for _, part in parts]
            # trials of one ρ are alike, those of another are not: a stratified mean
            errors = np.sqrt(sum(part.var(axis=0) for part in covered) / asked.trials) / len(RHOS)
            rates = " ".join(f"{rate:.3f}" for rate in wrongly)
            yield f"{law:30}{tasks:6}  {shown(np.concatenate(covered).mean(0), errors)}  {rates}"


def shown(values: Floats, errors: Floats) -> str:
    return "".join(f"{v:>10.3f} ± {e:.3f}" for v, e in zip(values, errors, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--tasks", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--pool", type=int, default=200, help="unlabelled tasks")
    parser.add_argument("--design", action="append", choices=DESIGNS | WORST, help="first table")
    parser.add_argument("--rule", action="append", help="a procedure, pool or joint")
    parser.add_argument("--worst", action="store_true", help="where the default is worst")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    whole = not asked.design and not asked.worst
    if asked.worst:
        asked.design, asked.rule, asked.tasks = list(WORST), list(WORST_RULES), list(WORST_TASKS)
    asked.design, asked.rule = asked.design or list(DESIGNS), asked.rule or list(RULES)
    if asked.quick:
        asked.trials, asked.tasks = 3, [20]
    print(f"{asked.trials} tables a cell, seed {SEED}, δ = {DELTA}, a pool of {asked.pool} tasks")
    for line in violations(asked):
        print(line, flush=True)
    for line in coverage(asked) if whole else ():
        print(line, flush=True)


if __name__ == "__main__":
    main()
