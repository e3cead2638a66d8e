"""Which division of the labels between training and calibration certifies most.

    python benchmarks/divisions.py [--data DIR] [--corpus NAME …] [--share PER_CENT …]
    [--seeds 10] [--quick]

A quarter of the tasks is TEST. Of the other three quarters a share trains the lexical judge and the
rest certifies it, on both sides at α = .1 and .2, on the two embedded corpora and on those of the
folder of published runs DIR (../shared/data) that are there. A column is the share of SFT in per
cent of all tasks; `25 alone` is the profile `certify` without the labels of its RL split, 10 %.
Figures are means over seeds, sides and budgets, where nothing certified counts as 0:
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
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs

from certify_assets.certificates import audit_certificate, certify
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Rendered, Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.errors import InputError
from certify_assets.judges.base import score_table
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, SIDES

CORPORA = sorted({*PUBLISHED, "miniwob_demos"})
TEST, RL = 25, 10
SHARES = (10, 15, 20, 25, 30, 35, 40, 50)
TODAY = "25 alone"


@dataclass(frozen=True)
class Cell:
    """A certificate of one division and seed."""

    division: str
    coverage: float = 0.0
    test_coverage: float = 0.0
    certified: bool = False
    above: bool = False
    beyond_chance: bool = False


def one_seed(
    frame: pd.DataFrame, texts: Sequence[Rendered], shares: Sequence[int], seed: int
) -> Iterator[Cell]:
    """Divide, train and certify once a share of SFT; TEST has the same tasks under all of them."""
    for share in shares:
        wanted = {"sft": share, "rl": RL, "cal": 100 - TEST - RL - share, "test": TEST}
        manifest = make_manifest(
            frame["task_id"].unique(), str(frame["corpus"].iloc[0]), seed=seed, shares=wanted
        )
        split = frame["task_id"].map(manifest.assignment).to_numpy()
        names = [str(share), *([TODAY] if f"{share} alone" == TODAY else [])]
        tables = scored(frame, texts, split, seed)
        for name, side, alpha in product(names, SIDES, ALPHAS):
            if tables is None:
                yield Cell(name)
                continue
            labelled = ("cal",) if name == TODAY else ("rl", "cal")
            rows = pd.concat([tables[part] for part in labelled], ignore_index=True)
            found = certify(*columns(rows), alpha=alpha, side=side, procedure="guarded_taskboot")
            audit = audit_certificate(found, *columns(tables["test"]))
            yield Cell(
                name,
                found.coverage,
                audit.coverage if found.certified else 0.0,
                found.certified,
                found.certified and (audit.realized_error or 0.0) > alpha,
                found.certified and audit.verdict == "ERROR",
            )


def scored(
    frame: pd.DataFrame, texts: Sequence[Rendered], split: np.ndarray, seed: int
) -> dict[str, pd.DataFrame] | None:
    """Train on SFT and score the rest; None where SFT has one outcome."""
    places = {name: np.flatnonzero(split == name) for name in ("sft", "rl", "cal", "test")}
    outcomes = frame["outcome"].iloc[places["sft"]].to_numpy(np.int8)
    if len(np.unique(outcomes)) < 2:
        return None
    using = Renderer()
    known = [texts[place].text for place in places["sft"]]
    judge = LexicalJudge.train(known, outcomes, seed=seed, renderer_sha256=using.sha256)
    return {
        name: score_table(judge, frame.iloc[rows], using, rendered=[texts[place] for place in rows])
        for name, rows in places.items()
        if name != "sft"
    }


def show(name: str, cells: Sequence[Cell], seeds: int) -> None:
    """Print the table of a corpus."""
    print(f"\n{name}, {seeds} seeds\n{'SFT':>9}  certified  on TEST  issued  above (beyond chance)")
    for division, mine in by_division(cells).items():
        issued = [cell for cell in mine if cell.certified]
        coverage = np.mean([cell.coverage for cell in mine])
        above = np.mean([cell.above for cell in issued]) if issued else 0.0
        beyond = np.mean([cell.beyond_chance for cell in issued]) if issued else 0.0
        on_test = np.mean([cell.test_coverage for cell in mine])
        print(
            f"{division:>9}  {coverage:9.3f}  {on_test:7.3f}  {len(issued) / len(mine):6.2f}"
            f"  {above:.3f} ({beyond:.3f})",
            flush=True,
        )


def by_division(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    names = dict.fromkeys(cell.division for cell in cells)
    return {name: [cell for cell in cells if cell.division == name] for name in names}


def summary(found: dict[str, list[Cell]]) -> None:
    """Print certified coverage of all corpora, and the differences to the share of today."""
    every = by_division([cell for cells in found.values() for cell in cells])
    divisions = list(every)
    table = np.array(
        [
            [np.mean([cell.coverage for cell in mine]) for mine in by_division(cells).values()]
            for cells in found.values()
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
    for name in ("certified", "above", "beyond_chance"):
        counts = [sum(getattr(cell, name) for cell in mine) for mine in every.values()]
        print(f"{name.replace('_', ' '):22}" + "".join(f"{count:10d}" for count in counts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=[*EMBEDDED, *CORPORA])
    parser.add_argument("--share", action="append", type=int, help="of SFT; 25 is always there")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="one corpus, two seeds, three columns")
    options = parser.parse_args()
    names = options.corpus or [*EMBEDDED, *CORPORA]
    shares = sorted({25, *options.share}) if options.share else SHARES
    if options.quick:
        names, shares, options.seeds = names[:1], (15, 25, 40), 2
    found: dict[str, list[Cell]] = {}
    for name in names:
        frame = labelled_runs(name, options.data)
        if isinstance(frame, str):
            print(frame)
            continue
        texts = list(render_frame(frame, Renderer()))
        cells = []
        try:
            for seed in range(options.seeds):
                cells += one_seed(frame, texts, shares, seed)
        except InputError as error:
            print(f"{name}: skipped, {error}")
            continue
        show(name, cells, options.seeds)
        found[name] = cells
    summary(found)


if __name__ == "__main__":
    main()
