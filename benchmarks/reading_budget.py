"""What reading more of each run is worth to the lexical judge, and what it costs.

    python benchmarks/reading_budget.py [--data DIR] [--corpus NAME …] [--budget N[/STEP] …]
                                        [--seeds 5] [--side reject] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A budget N/STEP reads at most N characters of a run and STEP of each action and observation
(`whole` for no limit; N alone stands for N/whole). A seed splits the tasks; the judge is trained on
SFT and certified on RL and CAL at δ = .05 on one side. Means over the seeds of
  AUROC     on RL, CAL and TEST together; after ±, the standard error of the difference from the
            first budget over the seeds, which share runs;
  guarded   certified coverage by guarded_taskboot at α = .1 and .2 (0 where nothing is certified);
  pseudo    … by pseudo_task.
`cut` is the share of runs that are cut and `characters` the median length of a whole run. `CPU s`
are one training and one scoring of all runs, rendering included; `MiB` is the peak of the process
that did both, the runs themselves included. The last rows are means over corpora. --quick: one
embedded corpus, one seed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs
from numpy.typing import NDArray

from certify_assets.certificates import certify
from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.reading import JudgeInput

BUDGETS = ("6000/1200", "6000", "20000", "60000", "whole/1200", "whole")
PROCEDURES, ALPHAS = ("guarded_taskboot", "pseudo_task"), (0.1, 0.2)
FIRST_SEED = 42


@dataclass(frozen=True, eq=False)
class Row:
    """What a budget gives on a corpus: a row of AUROC and coverages a seed, and the cost."""

    values: NDArray[np.float64]
    cut: float
    characters: float
    cpu_seconds: float
    peak_mib: float


def renderer_of(budget: str) -> Renderer:
    """Return the renderer of a budget as it is written on the command line."""
    run, _, step = budget.partition("/")
    chars, step_chars = (None if part in ("", "whole") else int(part) for part in (run, step))
    return JudgeInput(chars, step_chars).renderer


def measure(path: Path, corpus: str, budget: str, seeds: int, side: str) -> Row:
    """Render the runs of a corpus, train and certify a seed at a time."""
    frame = pd.read_parquet(path)
    outcomes, tasks = frame["outcome"].to_numpy(np.int8), frame["task_id"].to_numpy(object)
    started = time.process_time()
    rendered = render_frame(frame, renderer_of(budget))
    texts = [item.text for item in rendered]
    cpu = time.process_time() - started
    del frame
    values = np.empty((seeds, 1 + len(PROCEDURES) * len(ALPHAS)))
    for number in range(seeds):
        manifest = make_manifest(np.unique(tasks), corpus, seed=FIRST_SEED + number)
        split = np.array([manifest.assignment[task] for task in tasks])
        started = time.process_time()
        known = np.flatnonzero(split == "sft")
        judge = LexicalJudge.train([texts[place] for place in known], outcomes[known])
        scores = judge.score(texts).score
        if number == 0:
            cpu += time.process_time() - started
        kept, unseen = np.isin(split, ("rl", "cal")), split != "sft"
        values[number] = [
            auroc(scores[unseen], outcomes[unseen].astype(np.float64)),
            *(
                certify(
                    scores[kept],
                    outcomes[kept],
                    tasks[kept],
                    alpha=alpha,
                    side=side,
                    procedure=procedure,
                ).coverage
                for procedure in PROCEDURES
                for alpha in ALPHAS
            ),
        ]
    return Row(
        values,
        cut=float(np.mean([item.cut_chars > 0 for item in rendered])),
        characters=float(np.median([item.length for item in rendered])),
        cpu_seconds=cpu,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        / (1024 if sys.platform != "darwin" else 1024**2),
    )


def averages(budgets: Sequence[str], found: Sequence[Sequence[Row]]) -> None:
    """Print the means over corpora, each counted once."""
    for place, budget in enumerate(budgets):
        means = np.mean([rows[place].values.mean(axis=0) for rows in found], axis=0)
        cells = "".join(f"{value:6.3f}" for value in means[1:])
        print(f"{'mean':22}{budget:>11}{'':17}{means[0]:7.3f}{'':9}{cells}")


def show(corpus: str, budgets: Sequence[str], rows: Sequence[Row]) -> None:
    """Print the table of a corpus."""
    for budget, row in zip(budgets, rows, strict=True):
        means = row.values.mean(axis=0)
        gain = row.values[:, 0] - rows[0].values[:, 0]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        print(
            f"{corpus:22}{budget:>11}{row.cut:6.2f}{row.characters:11,.0f}"
            f"{means[0]:7.3f} ±{error:.3f}  "
            + "".join(f"{value:6.3f}" for value in means[1:])
            + f"{row.cpu_seconds:8.1f}{row.peak_mib:8,.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--budget", action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--side", choices=("reject", "release"), default="reject")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    corpora, seeds = arguments.corpus or [*EMBEDDED, *PUBLISHED], arguments.seeds
    budgets = arguments.budget or list(BUDGETS)
    if arguments.quick:
        corpora, seeds, budgets = [next(iter(EMBEDDED))], 1, ["6000/1200", "whole"]
    print(
        f"{'corpus':22}{'budget':>11}{'cut':>6}{'characters':>11}{'AUROC':>7}{'':9}"
        f"{'guarded .1 .2':>12}{'pseudo .1 .2':>13}{'CPU s':>7}{'MiB':>8}"
    )
    found: list[list[Row]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in corpora:
            frame = labelled_runs(name, arguments.data)
            if isinstance(frame, str):
                print(frame)
                continue
            path = Path(temporary) / f"{name}.parquet"
            frame[["task_id", "instruction", "steps", "outcome"]].to_parquet(path)
            del frame
            rows = []
            for budget in budgets:
                # a process each, whose peak of memory is its own
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                    given = (path, name, budget, seeds, arguments.side)
                    rows.append(pool.submit(measure, *given).result())
            show(name, budgets, rows)
            found.append(rows)
    averages(budgets, found)


if __name__ == "__main__":
    main()
