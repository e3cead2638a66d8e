"""What every procedure certifies on real runs, and how often it was wrong on their other half.

    python benchmarks/corpora_by_procedure.py [--data DIR] [--corpus NAME …] [--halvings 40]
                                              [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. Scores are lexical and out of fold: the judge of a run saw no run of its task. The tasks are
halved by a seed; one half is
certified at δ = .05, and the realised error is read on the other, whose scores and sizes are the
pool of pseudo_task. A row a corpus, budget and side; a cell is the mean coverage (0 where nothing is
certified) and, after the slash, the share of halvings whose realised error exceeds α, which contains
the noise of the half it is read on. The halvings of a corpus share their runs, so there is no
standard error. --quick: one embedded corpus, two halvings.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from published import corpora_parser, labelled_corpora, out_of_fold

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.counts import count_at
from certify_assets.certificates.evidence import observe_pool
from certify_assets.corpora.embedded import EMBEDDED

DELTA, SEED = 0.05, 20
RULES = ("naive", "taskboot", "guarded_taskboot", "pseudo_task")


class Runs(NamedTuple):
    """Labelled runs with an out-of-fold score each."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    tasks: NDArray[np.str_]


def scored(frame: pd.DataFrame) -> Runs:
    """Score the runs of a corpus."""
    outcomes, tasks = frame["outcome"].to_numpy(np.int64), frame["task_id"].to_numpy(str)
    return Runs(out_of_fold(frame)[0], outcomes, tasks)


def halving(runs: Runs, settings: Settings, seed: int) -> list[tuple[float, bool]]:
    """Return coverage, and whether the other half's error exceeds α, of every procedure."""
    names = np.random.default_rng([SEED, seed]).permutation(np.unique(runs.tasks))
    mine = np.isin(runs.tasks, np.array_split(names, 2)[0])
    table, rest = (observe(*(column[part] for column in runs)) for part in (mine, ~mine))
    pool = observe_pool(runs.scores[~mine], runs.tasks[~mine])
    found = []
    for rule in RULES:
        given = pool if rule == "pseudo_task" else None
        made = evaluate(table, settings.replace(procedure=rule), pool=given)
        if made.chosen is None:
            found.append((0.0, False))
            continue
        read = count_at(rest, settings.side, made.counts.thresholds[[made.chosen]])
        above = read.error_totals[0] > settings.alpha * read.covered_trajectories[0]
        found.append((made.chosen_coverage, bool(above)))
    return found


def main() -> None:
    parser = corpora_parser(__doc__)
    parser.add_argument("--halvings", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.corpus, given.halvings = EMBEDDED[:1], 2
    print(f"{'corpus':22}{'α':>4} {'side':9}{'tasks':>6}  " + "".join(f"{r:18}" for r in RULES))
    rows = []
    for name, frame in labelled_corpora(given.corpus, given.data):
        runs = scored(frame)
        for alpha, side in product((0.1, 0.2), ("reject", "release")):
            asked = Settings(alpha=alpha, delta=DELTA, side=side)
            rows.append(
                np.mean([halving(runs, asked, number) for number in range(given.halvings)], axis=0)
            )
            tasks = np.unique(runs.tasks).size // 2
            print(f"{name:22}{alpha:4g} {side:9}{tasks:6}  " + shown(rows[-1]), flush=True)
    print(f"{'mean':43}" + shown(np.mean(rows, axis=0)))


def shown(row: NDArray[np.float64]) -> str:
    """Return the cells of a row."""
    return "".join(f"{coverage:.3f} / {wrong:.2f}      " for coverage, wrong in row)


if __name__ == "__main__":
    main()
