"""What two-way resampling and the finding `agent_shift` do with few agents.

    python benchmarks/few_agents.py [--trials 600] [--agents 2 3 5 10 20] [--quick]

A trial draws agents and 100 tasks; every agent runs every task once. A task succeeds with a Beta
probability (mean .3, ICC .3). The score is 2.5·outcome + agent + task + noise, each part normal:
standard deviation of tasks .5, of noise 1, of agents 0, .5 and 1. An agent whose part is low has
its successes scored like failures. Errors are exact: of a random agent of this population, and of
one agent. Reject side, α = .1, δ = .05, 40 thresholds.

First table, a row a number of agents and their spread:
  task      guarded_taskboot, which resamples tasks alone
  two-way   its widest threshold whose tail over tasks and agents is at most its level as well
`share` is the mean share decided (0 where nothing is), `issued` the share of trials with a
certificate, `above` that of trials whose threshold has an error above α over the population of
agents, `next` the probability that the next agent is above α under it. Two-way resampling promises
`above` at most δ; `next` is promised by nothing here.

Second table, from three agents on: the share of trials in which `agent_shift` is found, among those
with a certificate and a decided agent; its promise is at most .05 where no agent is above the budget (`within`: the
trials in which the truth is so, agent by agent, and how often it is found there). `power` is the
share of agents with a true error of .2 or more that it names.
Standard errors are binomial. --quick: two numbers of agents, four trials.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from certify_assets.certificates import certify, leave_one_agent_out
from certify_assets.certificates.agents import FEWEST_AGENTS, SHIFT_LEVEL, agent_shift

ALPHA, DELTA, TASKS, RATE, ICC, SIGNAL, TASK_SD = 0.1, 0.05, 100, 0.3, 0.3, 2.5, 0.5
SPREADS, LARGE, SEED = (0.0, 0.5, 1.0), 0.2, 7
# agents of the population at equal probabilities
QUANTILES = (np.arange(2000) + 0.5) / 2000


@dataclass(frozen=True)
class Trial:
    """Thresholds of both procedures, and what the finding says; NaN where nothing is certified."""

    task: float
    two_way: float
    share_task: float
    share_two_way: float
    found: bool | None
    within: bool
    large: int
    named: int


def error_at(threshold: NDArray[np.float64] | float, agent: NDArray[np.float64], spread: float):
    """Exact error of a threshold for agents, with `spread` left to average over."""
    scale = np.sqrt(1.0 + TASK_SD**2 + spread**2)
    success, failure = (
        rate * ndtr((threshold - mean - agent) / scale)
        for rate, mean in ((RATE, SIGNAL), (1.0 - RATE, 0.0))
    )
    return success / (success + failure)


def trial(agents: int, spread: float, rng: np.random.Generator) -> Trial:
    """Draw a table and certify it both ways."""
    effect = rng.normal(0.0, spread, agents) if spread else np.zeros(agents)
    size = 1.0 / ICC - 1.0
    chance = np.repeat(rng.beta(RATE * size, (1.0 - RATE) * size, TASKS), agents)
    tasks = np.repeat(np.arange(TASKS), agents)
    who = np.tile(np.arange(agents), TASKS)
    outcomes = (rng.random(tasks.size) < chance).astype(np.int64)
    scores = (
        SIGNAL * outcomes
        + effect[who]
        + np.repeat(rng.normal(0.0, TASK_SD, TASKS), agents)
        + rng.normal(0.0, 1.0, tasks.size)
    )
    task, two_way = (
        certify(
            scores, outcomes, tasks, alpha=ALPHA, delta=DELTA, procedure=name, agents=who.tolist()
        )
        for name in ("guarded_taskboot", "two_way")
    )
    shift, within, large, named = None, False, 0, 0
    if task.certified and agents >= FEWEST_AGENTS:
        rows = leave_one_agent_out(task, scores, outcomes, tasks, who)
        decided = [row for row in rows if row.tail is not None]
        if decided:
            shift = bool(agent_shift(rows, ALPHA))
            true = [float(error_at(row.threshold, effect[int(row.agent)], 0.0)) for row in decided]
            within = max(true) <= ALPHA
            high = [row for row, error in zip(decided, true, strict=True) if error >= LARGE]
            large = len(high)
            named = sum(row.tail <= SHIFT_LEVEL / len(decided) for row in high)
    at = (np.nan if item.threshold is None else item.threshold for item in (task, two_way))
    return Trial(*at, task.coverage, two_way.coverage, shift, within, large, named)


def share(values: list[bool]) -> str:
    """Return a share with its standard error."""
    if not values:
        return "-"
    mean = float(np.mean(values))
    return f"{mean:.3f} ± {(mean * (1 - mean) / len(values)) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--agents", type=int, nargs="+", default=[2, 3, 5, 10, 20])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    agents, trials = options.agents, options.trials
    if options.quick:
        agents, trials = [2, 3], 4
    started = time.process_time()
    print(f"{trials} trials a row, seed {SEED}")
    head = "share issued above         next "
    for number in agents:
        second = []
        print(f"\nagents spread | task: {head} | two-way: {head}")
        for spread in SPREADS:
            seeds = np.random.SeedSequence([SEED, number, int(10 * spread)]).spawn(trials)
            found = [trial(number, spread, np.random.default_rng(seed)) for seed in seeds]
            population = spread * _normal_quantiles()
            cells = []
            for name in ("task", "two_way"):
                at = np.array([getattr(one, name) for one in found])
                issued = np.isfinite(at)
                above = np.zeros(trials, bool)
                above[issued] = error_at(at[issued], 0.0, spread) > ALPHA
                after = [
                    float(np.mean(error_at(one, population, 0.0) > ALPHA)) for one in at[issued]
                ]
                mean = float(np.mean([getattr(one, f"share_{name}") for one in found]))
                cells.append(
                    f"{mean:.3f} {issued.mean():.2f}   {share(above.tolist())} "
                    f"{np.sum(after) / trials:.3f}"
                )
            print(f"{number:6d} {spread:6g} | {cells[0]} | {cells[1]}", flush=True)
            shifts = [one for one in found if one.found is not None]
            if shifts:
                inside = [bool(one.found) for one in shifts if one.within]
                large = sum(one.large for one in shifts)
                power = (
                    f"{sum(one.named for one in shifts) / large:.2f} of {large}" if large else "-"
                )
                second.append(
                    f"{number:6d} {spread:6g} | {share([bool(one.found) for one in shifts])} of "
                    f"{len(shifts)} | within: {share(inside)} of {len(inside)} | power {power}"
                )
        if second:
            print("agents spread | agent_shift found")
            print("\n".join(second), flush=True)
    print(f"{time.process_time() - started:.0f} CPU seconds")


def _normal_quantiles() -> NDArray[np.float64]:
    from scipy.special import ndtri

    found: NDArray[np.float64] = ndtri(QUANTILES)
    return found


if __name__ == "__main__":
    main()
