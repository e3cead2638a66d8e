"""Which division of the labels between training and calibration certifies most.

    python benchmarks/divisions.py [--data DIR] [--corpus NAME …] [--share PER_CENT …]
    [--procedure NAME] [--seeds 10] [--quick]

A quarter of the tasks is TEST. Of the other three quarters a share trains the lexical judge and the
rest certifies it, on both sides at α = .1 and .2, on the two embedded corpora and on those of the
folder of published runs DIR (../shared/data) that are there. As in the study, the pool of
`pseudo_task`, the default, is every task that does not certify, SFT scored out of fold. A column is
the share of SFT in per cent of all tasks; `25 alone` is the profile `certify` without the labels of
its RL split, 10 %. Figures are means over seeds, sides and budgets, where nothing certified counts
as 0:
  certified  coverage of the certificate on the runs that calibrate it;
  on TEST    share of TEST that the threshold decides;
  above      share of the issued certificates whose error on TEST is above the budget (noise of TEST
             included), and in brackets those beyond chance, by the audit's own bound.
The last table has a row for each corpus, the mean over corpora, the mean of the differences to
column 25 with its standard error over corpora, and counts of certificates over all of them. A seed
whose SFT has one outcome trains no judge: it certifies nothing. --quick: one embedded corpus, two
seeds, three columns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs

from certify_assets.certificates import Settings
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Rendered, Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.errors import InputError
from certify_assets.judges.specs import PROCEDURES
from certify_assets.research.seed_study import SeedCell, SeedPlan, certify_splits

CORPORA = sorted({*PUBLISHED, "miniwob_demos"})
TEST, RL = 25, 10
SHARES = (10, 15, 20, 25, 30, 35, 40, 50)
TODAY = "25 alone"
# every certificate of a corpus, by division
Divisions = dict[str, list[SeedCell]]


def one_seed(
    frame: pd.DataFrame, texts: Sequence[Rendered], shares: Sequence[int], seed: int, procedure: str
) -> Iterator[tuple[str, SeedCell]]:
    """Divide, train and certify once a share of SFT; TEST has the same tasks under all of them."""
    for share in shares:
        wanted = {"sft": share, "rl": RL, "cal": 100 - TEST - RL - share, "test": TEST}
        manifest = make_manifest(
            frame["task_id"].unique(), str(frame["corpus"].iloc[0]), seed=seed, shares=wanted
        )
        alone = [("cal",)] if f"{share} alone" == TODAY else []
        plan = SeedPlan((seed,), procedures=(procedure,), calibrations=(CERTIFYING, *alone))
        for cell in certify_splits(frame, texts, manifest, plan):
            yield (TODAY if cell.rows == "cal" else str(share)), cell


def show(name: str, found: Divisions, seeds: int) -> None:
    """Print the table of a corpus."""
    print(f"\n{name}, {seeds} seeds\n{'SFT':>9}  certified  on TEST  issued  above (beyond chance)")
    for division, mine in found.items():
        issued = [cell for cell in mine if cell.certified]
        coverage = np.mean([cell.coverage for cell in mine])
        beyond = np.mean([beyond_chance(cell) for cell in issued]) if issued else 0.0
        exceeding = np.mean([above(cell) for cell in issued]) if issued else 0.0
        on_test = np.mean([cell.certified * cell.test_coverage for cell in mine])
        print(
            f"{division:>9}  {coverage:9.3f}  {on_test:7.3f}  {len(issued) / len(mine):6.2f}"
            f"  {exceeding:.3f} ({beyond:.3f})",
            flush=True,
        )


def above(cell: SeedCell) -> bool:
    """Whether a certificate is issued and its error on TEST above the budget."""
    return cell.certified and (cell.error or 0.0) > cell.alpha


def beyond_chance(cell: SeedCell) -> bool:
    """Whether it is above the budget by the lower bound of the audit."""
    return cell.certified and cell.verdict == "ERROR"


def summary(found: dict[str, Divisions]) -> None:
    """Print certified coverage of all corpora, and the differences to the share of today."""
    divisions = list(next(iter(found.values()), {}))
    table = np.array(
        [
            [np.mean([cell.coverage for cell in mine[name]]) for name in divisions]
            for mine in found.values()
        ]
    )
    print(f"\n{'certified coverage':22}" + "".join(f"{name:>10}" for name in divisions))
    for name, row in zip(found, table, strict=True):
        print(f"{name:22}" + "".join(f"{value:10.3f}" for value in row))
    print(f"{'mean':22}" + "".join(f"{value:10.3f}" for value in table.mean(axis=0)))
    apart = table - table[:, [divisions.index("25")]]
    print(f"{'difference to 25':22}" + "".join(f"{value:+10.3f}" for value in apart.mean(axis=0)))
    if len(table) > 1:
        errors = apart.std(axis=0, ddof=1) / len(table) ** 0.5
        print(f"{'standard error':22}" + "".join(f"{value:10.3f}" for value in errors))
    for title, counted in (
        ("certified", lambda cell: cell.certified),
        ("above", above),
        ("beyond chance", beyond_chance),
    ):
        counts = [
            sum(counted(cell) for mine in found.values() for cell in mine[name])
            for name in divisions
        ]
        print(f"{title:22}" + "".join(f"{count:10d}" for count in counts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=[*EMBEDDED, *CORPORA])
    parser.add_argument("--share", action="append", type=int, help="of SFT; 25 is always there")
    parser.add_argument("--procedure", choices=PROCEDURES, default=Settings().procedure)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one corpus, two seeds, three columns")
    options = parser.parse_args()
    names = options.corpus or [*EMBEDDED, *CORPORA]
    shares = sorted({25, *options.share}) if options.share else SHARES
    if options.quick:
        names, shares, options.seeds = names[:1], (15, 25, 40), 2
    print(f"{options.procedure}:")
    found: dict[str, Divisions] = {}
    for name in names:
        frame = labelled_runs(name, options.data)
        if isinstance(frame, str):
            print(frame)
            continue
        texts = list(render_frame(frame, Renderer()))
        cells: Divisions = {}
        try:
            for seed in range(options.seeds):
                for division, cell in one_seed(frame, texts, shares, seed, options.procedure):
                    cells.setdefault(division, []).append(cell)
        except InputError as error:
            print(f"{name}: skipped, {error}")
            continue
        show(name, cells, options.seeds)
        found[name] = cells
    summary(found)


if __name__ == "__main__":
    main()
