"""How much certificates vary with the split seed: AUROC, certified coverage, error and coverage on
TEST, over seeds.

    python benchmarks/split_seeds.py [--corpus miniwob_mixed] [--seeds 20] [--profile certify]
    [--quick]

Certificates are of RL's and CAL's labels, as those of a judge trained on SFT, and the pool of
`pseudo_task` is every other task, SFT scored out of fold. TEST is read once a seed, for this table
only: nothing is chosen from it. Without --corpus, both embedded corpora are run. --quick: one
corpus, two seeds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from itertools import groupby

from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.embedded import load_embedded
from certify_assets.corpora.leakage import check_leaks
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.research.seed_study import SeedCell, SeedPlan, certify_splits

EMBEDDED = ("miniwob_mixed", "miniwob_weak")
PROCEDURES = ("pseudo_task", "guarded_taskboot", "naive")


def spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def show(corpus: str, seeds: Sequence[Sequence[SeedCell]]) -> None:
    """Print a row a procedure, side and budget."""
    aurocs = [cells[0].auroc for cells in seeds if cells[0].auroc is not None]
    print(
        f"\n{corpus}, lexical judge, {len(seeds)} split seeds: AUROC on TEST {spread(aurocs)}\n"
        f"{'procedure':17} {'side':8} {'α':4} {'certified':10} "
        f"{'certified coverage, mean (range)':32} {'error on TEST, mean (range)':30} over α  ERROR"
    )
    cells = sorted((cell for found in seeds for cell in found), key=place)
    for (number, side, alpha), group in groupby(cells, key=place):
        mine = list(group)
        # a threshold that covers nothing on TEST has made no error there
        errors = [cell.error or 0.0 for cell in mine if cell.certified]
        over = sum(error > alpha for error in errors)
        failed = sum(cell.certified and cell.verdict == "ERROR" for cell in mine)
        print(
            f"{PROCEDURES[number]:17} {side:8} {alpha:<4g} {len(errors):3d}/{len(mine):<6d} "
            f"{spread([cell.coverage for cell in mine]):32} {spread(errors):30} {over:4d}   "
            f"{failed:4d}"
        )


def place(cell: SeedCell) -> tuple[int, str, float]:
    """Return what a row is of."""
    return PROCEDURES.index(cell.procedure), cell.side, cell.alpha


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", choices=EMBEDDED, action="append")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--profile", default="certify")
    parser.add_argument("--quick", action="store_true", help="one corpus, two seeds")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.corpus, arguments.seeds = (arguments.corpus or EMBEDDED)[:1], 2
    for corpus in arguments.corpus or EMBEDDED:
        frame = load_embedded(corpus)
        texts = list(render_frame(frame, Renderer()))
        profile, alone = profile_corpus(frame, rendered=texts), check_leaks(frame, rendered=texts)
        print(
            f"\n{corpus}: {profile.trajectories} trajectories, {profile.tasks} tasks, π "
            f"{profile.success_rate:.3f}, ICC {profile.icc:.3f}, "
            f"DEFF {profile.deff:.2f}, n_eff {profile.n_eff:.0f}, duplicates "
            f"{profile.duplicates}; AUROC of length alone {alone.length_auroc:.3f}, "
            f"steps {alone.step_auroc:.3f}, agent {alone.agent_auroc:.3f}",
            end="",
        )
        found = []
        for seed in range(42, 42 + arguments.seeds):
            tasks = frame["task_id"].unique()
            manifest = make_manifest(tasks, corpus, arguments.profile, seed)
            plan = SeedPlan((seed,), procedures=PROCEDURES, calibrations=(CERTIFYING,))
            found.append(certify_splits(frame, texts, manifest, plan))
        show(corpus, found)


if __name__ == "__main__":
    main()
