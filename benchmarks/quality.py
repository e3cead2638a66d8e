"""What judges that need seconds rank and certify on every corpus, over seeds of the splits.

    python benchmarks/quality.py [--data DIR] [--corpus NAME …] [--seeds 5] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A seed splits the tasks. Each judge is trained on SFT; RL and CAL certify it at δ = .05. Each
judge has a row of means over the seeds. AUROC is of CAL and TEST together. Certified coverage (0
where nothing is certified) follows: rejected at α = .1 and .2, then released at .1 and .2. It is by
`guarded_taskboot`, then by `pseudo_task` without a pool. The last rows are means over the corpora.
--quick: one embedded corpus, one seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
from published import corpora_parser, labelled_corpora

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import make_manifest
from certify_assets.judges.base import judge_auroc, score_table
from certify_assets.judges.family import FileFamily
from certify_assets.judges.reading import JudgeInput
from certify_assets.judges.specs import ALPHAS, DELTA, family_of

JUDGES = ("lexical", "structure", "combined")
PROCEDURES = ("guarded_taskboot", "pseudo_task")
SIDES = ("reject", "release")
SEED = 42


def measured(frame: pd.DataFrame, seed: int) -> Iterator[list[float]]:
    """Split, train and certify; yield AUROC and coverages of each judge."""
    name = str(frame["corpus"].iloc[0])
    manifest = make_manifest(frame["task_id"].unique(), name, seed=SEED + seed)
    split = frame["task_id"].map(manifest.assignment)
    for judge in JUDGES:
        family, reading = family_of(judge), JudgeInput()
        assert isinstance(family, FileFamily)
        model = family.fitted(frame[split == "sft"], reading, seed=SEED)
        table = score_table(model, frame[split != "sft"], reading.renderer)
        unseen = table["task_id"].map(manifest.assignment)
        certifying = table[unseen != "test"]
        observed = observe(certifying["score"], certifying["outcome"], certifying["task_id"])
        row = [judge_auroc(table[unseen != "rl"]) or np.nan]
        for procedure, side, alpha in product(PROCEDURES, SIDES, ALPHAS):
            asked = Settings(alpha=alpha, delta=DELTA, side=side, procedure=procedure)
            found = evaluate(observed, asked)
            row.append(0.0 if found.chosen is None else found.chosen_coverage)
        yield row


def show(name: str, judge: str, row: np.ndarray) -> None:
    cells = "  ".join(" ".join(f"{value:.3f}" for value in part) for part in np.split(row[1:], 2))
    print(f"{name:21} {judge:10} {row[0]:.3f}  {cells}", flush=True)


def main() -> None:
    parser = corpora_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.corpus, given.seeds = EMBEDDED[:1], 1
    print(f"{'corpus':21} {'judge':10} AUROC  {PROCEDURES[0]:25}{PROCEDURES[1]}")
    found = []
    for name, frame in labelled_corpora(given.corpus, given.data):
        rows = np.array([list(measured(frame, seed)) for seed in range(given.seeds)]).mean(axis=0)
        for judge, row in zip(JUDGES, rows, strict=True):
            show(name, judge, row)
        found.append(rows)
    for judge, row in zip(JUDGES, np.mean(found, axis=0), strict=True):
        show(f"mean of {len(found)}", judge, row)


if __name__ == "__main__":
    main()
