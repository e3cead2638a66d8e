"""What a judge of a run's structure, and its mean with the lexical one, rank and certify.

    python benchmarks/structure.py [--data DIR] [--corpus NAME …] [--seeds 5] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A seed splits the tasks. Each judge is trained on SFT, with RL and CAL certifying it at
δ = .05, and on SFT and RL, with CAL alone. A row a judge, means over the seeds:
  AUROC    on CAL and TEST together, which no judge is trained on;
  apart    its difference to lexical with the same training rows, and after ± the standard error
           over the seeds, which share runs;
  guarded  certified coverage by guarded_taskboot (0 where nothing is certified), rejected at α = .1
           and .2, then released at .1 and .2;
  pseudo   … by pseudo_task;
  above    certificates of guarded_taskboot whose error on TEST is above α, of those issued (noise
           of TEST included);
  CPU s    one training, without its explanation, and one scoring of the rest, without rendering.
The controls rank by length, steps and agent alone: direction and rates are those of SFT. The last
table has the mean over corpora and over sides and budgets, and the difference to lexical with its
standard error over corpora. --quick: one embedded corpus, one seed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs

from certify_assets.certificates import Observations, Settings, evaluate, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Rendered, Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.judges.base import Judge, score_table
from certify_assets.judges.combined import CombinedJudge
from certify_assets.judges.controls import AgentJudge
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, SIDES
from certify_assets.judges.structure import StructureJudge

FIRST_SEED = 42
PROCEDURES = ("guarded_taskboot", "pseudo_task")
TRAININGS = {"SFT": ("sft",), "SFT+RL": ("sft", "rl")}
USING = Renderer()


def lexical(runs: pd.DataFrame, texts: Sequence[str], seed: int) -> Judge:
    """Train the lexical judge."""
    outcomes = runs["outcome"].to_numpy(np.int8)
    return LexicalJudge.train(texts, outcomes, seed=seed, renderer_sha256=USING.sha256)


def structure(runs: pd.DataFrame, texts: Sequence[str], seed: int) -> Judge:
    """Train the structure judge."""
    outcomes = runs["outcome"].to_numpy(np.int8)
    return StructureJudge.train(
        runs, outcomes, seed=seed, renderer_sha256=USING.sha256, explained=False
    )


def combined(runs: pd.DataFrame, texts: Sequence[str], seed: int) -> Judge:
    """Train the combined judge."""
    outcomes = runs["outcome"].to_numpy(np.int8)
    return CombinedJudge.train(
        runs, texts, outcomes, seed=seed, renderer_sha256=USING.sha256, explained=False
    )


JUDGES: Mapping[str, Callable[[pd.DataFrame, Sequence[str], int], Judge]] = {
    "lexical": lexical,
    "structure": structure,
    "combined": combined,
}


@dataclass(frozen=True)
class Cell:
    """A judge under one seed and training."""

    judge: str
    training: str
    auroc: float
    coverage: tuple[float, ...] = ()
    issued: int = 0
    above: int = 0
    train_seconds: float = 0.0
    score_seconds: float = 0.0


def one_seed(frame: pd.DataFrame, texts: Sequence[Rendered], seed: int) -> Iterator[Cell]:
    """Split, train and certify every judge; nothing where the training has one outcome."""
    name = str(frame["corpus"].iloc[0])
    manifest = make_manifest(frame["task_id"].unique(), name, seed=FIRST_SEED + seed)
    split = frame["task_id"].map(manifest.assignment).to_numpy()
    yield from controls(frame, texts, split)
    for (training, splits), (judge, train) in product(TRAININGS.items(), JUDGES.items()):
        known, rest = (np.flatnonzero(np.isin(split, splits) == side) for side in (True, False))
        if frame["outcome"].iloc[known].nunique() < 2:
            continue
        started = time.process_time()
        model = train(frame.iloc[known], [texts[place].text for place in known], FIRST_SEED)
        trained = time.process_time()
        rendered = [texts[place] for place in rest]
        table = score_table(model, frame.iloc[rest], USING, rendered=rendered)
        scored = time.process_time()
        where = split[rest]
        test, certifying = (columns(table[(where == "test") == side]) for side in (True, False))
        unseen, observed = table[where != "rl"], observe(*certifying)
        found = [
            thresholds(
                observed,
                *test[:2],
                Settings(alpha=alpha, delta=DELTA, side=side, procedure=procedure),
            )
            for procedure, side, alpha in product(PROCEDURES, SIDES, ALPHAS)
        ]
        guarded = [over for coverage, over in found[: len(found) // 2] if coverage]
        yield Cell(
            judge,
            training,
            auroc(unseen["score"].to_numpy(), unseen["outcome"].to_numpy(np.float64)),
            tuple(coverage for coverage, _ in found),
            len(guarded),
            sum(guarded),
            trained - started,
            scored - trained,
        )


def thresholds(
    certifying: Observations, scores: np.ndarray, outcomes: np.ndarray, settings: Settings
) -> tuple[float, bool]:
    """Return what a procedure certifies, 0 for nothing, and whether its error on TEST exceeds α."""
    found = evaluate(certifying, settings)
    if found.chosen is None:
        return 0.0, False
    threshold, reject = found.counts.thresholds[found.chosen], settings.side == "reject"
    decided = scores <= threshold if reject else scores >= threshold
    wrong = outcomes[decided] == (1 if reject else 0)
    return float(found.counts.coverage[found.chosen]), bool(
        wrong.sum() > settings.alpha * wrong.size
    )


def controls(frame: pd.DataFrame, texts: Sequence[Rendered], split: np.ndarray) -> Iterator[Cell]:
    """Rank CAL and TEST by what is no judge; direction and rates are those of SFT."""
    outcomes = frame["outcome"].to_numpy(np.float64)
    known, unseen = split == "sft", np.isin(split, ("cal", "test"))
    if np.unique(outcomes[known]).size < 2:
        return
    agents = [str(agent) for agent in frame["agent"]]
    rates = AgentJudge.train([agents[place] for place in np.flatnonzero(known)], outcomes[known])
    for name, values in (
        ("length only", np.array([item.length for item in texts], np.float64)),
        ("steps only", frame["steps"].map(len).to_numpy(np.float64)),
        ("agent only", rates.score(agents).score),
    ):
        sign = 1.0 if auroc(values[known], outcomes[known]) >= 0.5 else -1.0
        yield Cell(name, "SFT", auroc(sign * values[unseen], outcomes[unseen]))


def show(name: str, cells: Sequence[Cell], seeds: int) -> None:
    """Print the table of a corpus."""
    print(
        f"\n{name}, {seeds} seeds\n{'judge':12}{'training':>9}{'AUROC':>7}  {'apart':13}"
        f"{'guarded: reject, release':28}{'pseudo: reject, release':28}{'above':>7}{'CPU s':>11}"
    )
    for (judge, training), mine in by_judge(cells).items():
        line = f"{judge:12}{training:>9}{np.mean([cell.auroc for cell in mine]):7.3f}  "
        if mine[0].coverage:
            mean, error = apart(cells, judge, training)
            coverage = np.mean([cell.coverage for cell in mine], axis=0)
            counts = [sum(getattr(cell, part) for cell in mine) for part in ("above", "issued")]
            line += f"{mean:+.3f} ±{error:.3f}  "
            line += " ".join(f"{value:6.3f}" for value in coverage)
            line += f"{counts[0]:4d}/{counts[1]:<3d}"
            line += f"{np.mean([cell.train_seconds for cell in mine]):6.1f}"
            line += f"{np.mean([cell.score_seconds for cell in mine]):5.1f}"
        print(line, flush=True)


def by_judge(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.judge, cell.training), []).append(cell)
    return found


def apart(cells: Sequence[Cell], judge: str, training: str) -> tuple[float, float]:
    """Return the difference in AUROC to lexical, and its standard error over the seeds."""
    kept = by_judge(cells)
    mine, floor = (
        np.array([cell.auroc for cell in kept[name, training]]) for name in (judge, "lexical")
    )
    return mean_and_error(mine - floor)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return float(values.mean()), float(error)


def summary(found: Mapping[str, Sequence[Cell]]) -> None:
    """Print means over corpora, and differences to lexical with the same training rows."""
    half = len(SIDES) * len(ALPHAS)
    parts: dict[str, Callable[[Cell], float]] = {
        "AUROC": lambda cell: cell.auroc,
        "guarded": lambda cell: float(np.mean(cell.coverage[:half])),
        "pseudo": lambda cell: float(np.mean(cell.coverage[half:])),
    }
    print(f"\n{len(found)} corpora {'':12}" + "".join(f"{part + ', apart':>26}" for part in parts))
    for training, judge in product(TRAININGS, JUDGES):
        line = f"{judge:12}{training:>9}"
        for of in parts.values():
            means = {
                name: [
                    np.mean([of(cell) for cell in by_judge(cells)[who, training]])
                    for cells in found.values()
                ]
                for name, who in (("mine", judge), ("floor", "lexical"))
            }
            mine, floor = (np.array(values) for values in means.values())
            mean, error = mean_and_error(mine - floor)
            line += f"{mine.mean():11.3f} {mean:+.3f} ±{error:.3f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one corpus, one seed")
    options = parser.parse_args()
    names = options.corpus or [*EMBEDDED, *PUBLISHED]
    if options.quick:
        names, options.seeds = names[:1], 1
    found: dict[str, list[Cell]] = {}
    for name in names:
        frame = labelled_runs(name, options.data)
        if isinstance(frame, str):
            print(frame)
            continue
        texts = render_frame(frame, USING)
        cells = [cell for seed in range(options.seeds) for cell in one_seed(frame, texts, seed)]
        show(name, cells, options.seeds)
        found[name] = cells
    summary(found)


if __name__ == "__main__":
    main()
