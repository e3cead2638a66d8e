"""What `pseudo_task` certifies on real runs, next to guarded TaskBoot.

    python benchmarks/pseudo_task_corpora.py [--data DIR] [--corpus NAME …] [--halvings 40]
                                             [--scores DIR] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. Scores are lexical and out of fold: the judge of a run saw no run of its task. They are kept
in --scores, so that a further run costs little. The tasks are halved by a seed; one half is
certified at δ = .05 on both sides, and the realised error is read on the other, whose scores and
sizes are the pool. A row a corpus, budget and side; for each rule the mean coverage (0 where
nothing is certified) and, after the slash, the share of halvings whose realised error exceeds α, which
contains the noise of the half it is read on.
  guarded   guarded_taskboot
  alone     pseudo_task, size ratio from the certified half
  pool      … and from the other half, and no size charged
  equal     … with wrong tasks supposed no larger than others
  charged   pseudo_task with that pool, as it is
The halvings of a corpus share their runs, so there is no standard error. --quick: one embedded
corpus, two halvings.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from new_agents import DATA, PUBLISHED, labelled_runs
from numpy.typing import NDArray

from certify_assets.certificates import Settings, TaskCounts, count_at, evaluate, observe
from certify_assets.certificates.evaluation import pseudo_task
from certify_assets.certificates.pool import observe_pool
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.judges.lexical import LexicalJudge

DELTA, FOLDS, SEED = 0.05, 3, 20
RULES = ("guarded", "alone", "pool", "equal", "charged")


@dataclass(frozen=True, eq=False)
class Runs:
    """Labelled runs with an out-of-fold score each."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int64]
    tasks: NDArray[np.str_]

    def of(self, tasks: NDArray[np.str_]) -> Runs:
        """Return the runs of some tasks."""
        kept = np.isin(self.tasks, tasks)
        return Runs(self.scores[kept], self.outcomes[kept], self.tasks[kept])


def scored(name: str, data: Path, cache: Path) -> Runs | str:
    """Read the scores of a corpus, or make them; a sentence where it is not there."""
    path = cache / f"pseudo-{name}-{FOLDS}-{Renderer().sha256[:12]}.npz"
    if path.exists():
        with np.load(path) as stored:
            return Runs(*(stored[key] for key in Runs.__dataclass_fields__))
    frame = labelled_runs(name, data)
    if isinstance(frame, str):
        return frame
    outcomes, tasks = frame["outcome"].to_numpy(np.int64), frame["task_id"].to_numpy(str)
    texts = [rendered.text for rendered in render_frame(frame, Renderer())]
    names, code = np.unique(tasks, return_inverse=True)
    fold = (np.random.default_rng(0).permutation(names.size) % FOLDS)[code]
    scores = np.empty(len(texts))
    for number in range(FOLDS):
        known, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        judge = LexicalJudge.train([texts[place] for place in known], outcomes[known])
        scores[held] = judge.score([texts[place] for place in held]).score
    found = Runs(scores, outcomes, tasks)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(path, **vars(found))
    return found


def halving(runs: Runs, settings: Settings, seed: int) -> NDArray[np.float64]:
    """Return coverage, and whether the other half's error exceeds α, of every rule."""
    names = np.random.default_rng([SEED, seed]).permutation(np.unique(runs.tasks))
    one, other = (runs.of(part) for part in np.array_split(names, 2))
    table, rest = (observe(part.scores, part.outcomes, part.tasks) for part in (one, other))
    boot = evaluate(table, replace(settings, procedure="guarded_taskboot"))
    alone = evaluate(table, settings)
    pool = observe_pool(other.scores, other.tasks)
    with_pool, charged = (
        pseudo_task(table, alone.counts, settings, pool, charge=charge) for charge in (False, True)
    )
    places = [boot.chosen, alone.chosen]
    for pseudo in (with_pool, with_pool.equal, charged):
        counts, test = alone.counts, replace(alone.test, pseudo=pseudo)
        tails = settings.method.tails(counts, test, counts.tasks)
        passed = np.flatnonzero(tails <= settings.level)
        places.append(int(passed[-1]) if passed.size else None)
    grids = [boot.counts, *[alone.counts] * 4]
    found = np.zeros((len(RULES), 2))
    for rule, (counts, place) in enumerate(zip(grids, places, strict=True)):
        if place is not None:
            read = count_at(rest, settings.side, counts.thresholds[place : place + 1])
            found[rule] = counts.coverage[place], above(read, settings.alpha)
    return found


def above(read: TaskCounts, alpha: float) -> bool:
    """Whether the errors of a threshold exceed its budget."""
    return bool(read.error_totals[0] > alpha * read.covered_trajectories[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--halvings", type=int, default=40)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    corpora, halvings = arguments.corpus or [*EMBEDDED, *PUBLISHED], arguments.halvings
    if arguments.quick:
        corpora, halvings = [next(iter(EMBEDDED))], 2
    print(f"{'corpus':22}{'α':>4} {'side':9}{'tasks':>6}  " + "".join(f"{r:14}" for r in RULES))
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in corpora:
            runs = scored(name, arguments.data, arguments.scores or Path(temporary))
            if isinstance(runs, str):
                print(runs)
                continue
            for alpha in (0.1, 0.2):
                for side in ("reject", "release"):
                    settings = Settings(
                        alpha=alpha, delta=DELTA, side=side, procedure="pseudo_task"
                    )
                    row = np.mean(
                        [halving(runs, settings, seed) for seed in range(halvings)], axis=0
                    )
                    rows.append(row)
                    tasks = np.unique(runs.tasks).size // 2
                    print(f"{name:22}{alpha:4g} {side:9}{tasks:6d}  " + shown(row), flush=True)
    print(f"{'mean':43}" + shown(np.mean(rows, axis=0)))


def shown(row: NDArray[np.float64]) -> str:
    """Return the cells of a row."""
    return "".join(f"{coverage:.3f} / {wrong:.2f}  " for coverage, wrong in row)


if __name__ == "__main__":
    main()
