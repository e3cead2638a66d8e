"""What one labelled run of each task decides, against all labels.

    python benchmarks/few_labels.py [TABLE …] [--draws 200] [--quick]

Each TABLE is a score table with all outcomes; by default docs/examples/scores.csv. Runs are drawn by
seeds 0, 1, … and certified on the reject side. A row has the mean coverage over draws with its
standard error, the mean number of labels that are read until the stop, and the coverage of the
default with every label. --quick: twenty draws.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.one_run import rows_until_stop, stop_limit
from certify_assets.certificates.sampling import Draw
from certify_assets.tables.score_table import ScoreTable, read_score_table

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "scores.csv"


def measured(table: ScoreTable, procedure: str, alpha: float, draws: int) -> tuple[float, ...]:
    """Mean coverage, its standard error, and mean number of labels read."""
    assert table.trajectories is not None
    tasks, runs = list(map(str, table.tasks)), list(map(str, table.trajectories))
    asked, number = Settings(procedure=procedure, alpha=alpha), len(set(tasks))
    level = asked.level(number)
    limit = stop_limit(procedure, number, alpha=alpha, level=level, share=asked.planned_share)
    covered, read = [], []
    for seed in range(draws):
        rows = Draw.of(tasks, runs, table.scores, count=number, seed=seed).rows(tasks, runs)
        scores, outcomes = table.scores[rows], table.labels[rows]
        found = evaluate(observe(scores, outcomes, table.tasks[rows]), asked).threshold
        covered.append(0.0 if found is None else float(np.mean(table.scores <= found)))
        read.append(rows_until_stop(outcomes[np.argsort(scores, kind="stable")] == 1, limit))
    return float(np.mean(covered)), float(np.std(covered)) / math.sqrt(draws), float(np.mean(read))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", type=Path, metavar="TABLE", default=[EXAMPLE])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print("| table | α | procedure | decided | labels read | all labels, default |")
    print("|---|---|---|---|---|---|")
    for path in given.tables:
        table = read_score_table(path)
        whole = observe(table.scores, table.labels, table.tasks)
        for alpha in (0.1, 0.2):
            best = evaluate(whole, Settings(alpha=alpha)).chosen_coverage
            for procedure in ("one_run", "average"):
                mean, spread, read = measured(
                    table, procedure, alpha, 20 if given.quick else given.draws
                )
                print(
                    f"| {path.stem} | {alpha:g} | `{procedure}` | {100 * mean:.1f} % ± "
                    f"{100 * spread:.1f} | {read:.0f} of {len(whole.labels)} | {len(table):,} → "
                    f"{100 * best:.1f} % |"
                )


if __name__ == "__main__":
    main()
