"""The batch certificate that commit c403f435 had, as `new_agents.py` measures today's.

    git worktree add --detach ../earlier c403f435
    PYTHONPATH=../earlier python benchmarks/earlier_batches.py ../earlier [--batches 200]

Every agent is left out in turn, with the scores, history and seeds of `new_agents.py`. A row has the
mean labels of a batch, runs decided less the labels of decided runs, runs decided less all labels,
and the share of trials above the budget.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CORPORA = (
    *("miniwob_mixed", "miniwob_weak", "intercode_bash", "multi_swe_bench_java"),
    *("swebench_lite_acr", "taubench_retail"),
)


def trials(earlier: Any, runs: Any, alpha: float, side: str, seeds: int) -> Iterator[list[float]]:
    """Return labels, both shares, and whether the budget was exceeded, of every agent and seed."""
    wrong = (runs.outcome == (side == "reject")).astype(np.int64)
    names = np.array([f"{place:06d}" for place in range(wrong.size)])
    for agent, scores in zip(runs.agents, runs.scores, strict=True):
        mine = runs.agent == agent
        batch = earlier.Batch.of(names[mine].tolist(), runs.task[mine].tolist(), scores[mine])
        history = earlier.History(
            scores[~mine],
            runs.outcome[~mine],
            runs.task[~mine].tolist(),
            agents=runs.agent[~mine].tolist(),
        )
        plan = earlier.plan_batch(batch, side=side, alpha=alpha, delta=0.05, history=history)
        outcomes = dict(zip(batch.trajectories, runs.outcome[mine].tolist(), strict=True))
        for seed in range(seeds):
            draw = earlier.BatchDraw(plan, batch, seed)
            order = [batch.trajectories[place] for place in draw.order.tolist()]
            labels = int(draw.trace([outcomes[run] for run in order]).stops)
            closed = draw.close({run: outcomes[run] for run in order[:labels]})
            decided = np.zeros(len(batch), bool)
            if closed.threshold is not None:
                decided = batch.decided(side, closed.threshold)
            less_all = float(decided.mean()) - labels / len(batch)
            above = earlier.above(wrong[mine][decided], alpha)
            yield [labels, closed.net_share, less_all, above]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a checkout of c403f435")
    parser.add_argument("--batches", type=int, default=200)
    asked = parser.parse_args()
    sys.path.insert(0, str(asked.checkout / "benchmarks"))
    import new_agents as earlier

    total = np.zeros(4)
    with tempfile.TemporaryDirectory() as cache:
        for name in CORPORA:
            runs = earlier.scored(name, earlier.DATA, Path(cache))
            if isinstance(runs, str):
                print(runs)
                continue
            seeds = math.ceil(asked.batches / runs.agents.size)
            for alpha in (0.1, 0.2):
                for side in ("reject", "release"):
                    rows = np.array(list(trials(earlier, runs, alpha, side, seeds)))
                    labels, net, less_all, above = rows.mean(axis=0)
                    total += rows.mean(axis=0)
                    shares = f"net {net:.3f}  less all {less_all:+.3f}  above {above:.3f}"
                    print(
                        f"{name:22}{alpha:5}{side:>8}  labels {labels:5.1f}  {shares}", flush=True
                    )


if __name__ == "__main__":
    main()
