"""What training for a clean tail is worth to a language model.

    python benchmarks/lm_tail_training.py [--model compact] [--data DIR] [--corpus NAME …]
                                          [--row NAME …] [--per-task 5] [--seeds 1] [--out DIR]
                                          [--quick]

The two embedded corpora and Terminal-Bench, InterCode and τ-bench retail of the folder of published
runs DIR (../shared/data), where they are there, at most --per-task runs of a task. A seed splits
the tasks; a judge is trained on SFT, and RL and CAL certify it at δ = .05. The rows:
  combined  the mean of the standardised scores of words and steps, without a language model;
  sft       the language model with LoRA on verdicts, as the package trains it;
  weighted  both outcomes weigh the same in that training;
  tail      with the objective `pairs`: pairs of a success and a failure in place of verdicts, the
            logistic loss of a pair squared, so that those in the wrong order weigh most;
  ensemble  the mean of three such judges, each trained without a third of the tasks;
  grouped   sft, calibrated on out-of-fold scores within four groups of runs whose steps look alike,
            found without the names of agents;
  joined    the mean of the standardised scores of words, steps and sft;
  stacked   a logistic regression on out-of-fold scores weighs these three, none below 0.
Out-of-fold scores are those of the judges of the ensemble. The columns:
  AUROC     on CAL and TEST together, and on TEST alone;
  guarded   certified coverage by guarded_taskboot (0 where nothing is certified), rejected at α =
            .1 and .2, then released at .1 and .2; pseudo: … by pseudo_task; mean is that of all;
  above     certificates of both whose error on TEST is above α, of those issued (noise of TEST
            included);
  CPU s     of the trainings and scorings that the row needs and sft does not.
Then the means over corpora, and the differences to sft; after ±, their standard error over corpora.
With --out scores are kept there, and a run that was stopped resumes. --row leaves out the other
rows, but never sft. --quick: thirty tasks of one embedded corpus, two attempts a task, two steps of
a training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED
from numpy.typing import NDArray
from pretrained import CORPORA, MODELS, QUICK_TASKS, causal, corpus_rows
from structure import FIRST_SEED, PROCEDURES, USING, mean_and_error
from tail_training import (
    BUDGETS,
    Parts,
    Runs,
    Training,
    area_on,
    crossfit,
    grouped,
    issued,
    split_of,
    stacked,
    trained_on,
)

from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.files import write_atomic
from certify_assets.judges.base import score_table
from certify_assets.judges.crossfit import task_folds
from certify_assets.judges.lm.judge import CausalJudge
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.sft import train_sft
from certify_assets.judges.lm.sft_config import SftConfig, SftRow
from certify_assets.judges.lm.varlen import packable

ROWS = ("combined", "sft", "weighted", "tail", "ensemble", "grouped", "joined", "stacked")
# those that a training answers
_SINGLE = ("sft", "weighted", "tail")
_Places = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bench:
    """A corpus under one seed, and a language model that is trained on its SFT split."""

    name: str
    seed: int
    runs: Runs
    training: Training
    out: Path
    options: argparse.Namespace

    def scores(self, about: str, known: _Places, wanted: _Places) -> tuple[_Floats, float]:
        """Train on some runs as `about` says and score others; return CPU seconds, too."""
        kept = self.out / f"{self.name}-{self.options.model}-{self.seed}-{about}.json"
        if not kept.exists():
            started = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                judge = self._trained(about, known, Path(folder))
                frame = self.runs.frame.iloc[wanted]
                texts = [self.runs.texts[place] for place in wanted]
                table = score_table(judge, frame, USING, rendered=texts)
            found = table["score"].to_numpy(np.float64).tolist()
            document = {"scores": found, "seconds": time.process_time() - started}
            write_atomic(kept, json.dumps(document).encode())
            print(f"  {self.name}, {about}: {document['seconds']:.0f} CPU s", flush=True)
        document = json.loads(kept.read_text(encoding="utf-8"))
        return np.array(document["scores"]), document["seconds"]

    def _trained(self, about: str, known: _Places, folder: Path) -> CausalJudge:
        model, seed = self.options.model, FIRST_SEED + self.seed
        judge = causal(model, MODELS[model], folder, self.options)
        recipe = known_model(model).recipe
        labelled = recipe.drawn(self.runs.frame.iloc[known], seed)
        outcomes = labelled["outcome"].to_numpy(np.int64)
        rows = [
            SftRow(prompt, int(outcome))
            for prompt, outcome in zip(judge.encoder.encode_frame(labelled), outcomes, strict=True)
        ]
        epochs = 16 / len(rows) if self.options.quick else recipe.epochs
        config = SftConfig(
            epochs=epochs,
            learning_rate=recipe.learning_rate,
            max_tokens=judge.encoder.budget_tokens + 1,
            seed=seed,
        )
        if about == "tail":
            config = replace(config, objective="pairs")
        if about == "weighted":
            failures, successes = np.bincount(outcomes, minlength=2)
            config = replace(config, success_weight=float(failures / successes))
        packed = None if known_model(model).exact else packable(judge.language.model)
        train_sft(judge.language, rows, folder / about, config=config, packed=packed)
        return judge.with_adapter(folder / about)


def rows_of(bench: Bench) -> dict[str, tuple[_Floats, float]]:
    """Score all runs by every row; training runs have the scores that are out of fold."""
    training, count = bench.training, len(bench.runs.frame)
    rest = np.setdiff1d(np.arange(count), training.known)
    single: dict[str, tuple[_Floats, float]] = {}
    asked = bench.options.row or ROWS
    for name in [name for name in _SINGLE if name == "sft" or name in asked]:
        scores = np.full(count, np.nan)
        scores[rest], seconds = bench.scores(name, training.known, rest)
        single[name] = scores, seconds
    parts = crossfit(training)
    found = {"combined": (parts.joined, 0.0), **single}
    if not set(asked) - set(found):
        return found
    # (folds, runs) of the runs that no judge is trained on, and what the folds held out
    judged, held, spent = [], np.full(training.known.size, np.nan), 0.0
    folds = task_folds(training.tasks[training.known], training.labels, training.seed)
    for number, fold in enumerate(folds):
        mine = training.known[fold.held]
        wanted = np.concatenate([rest, mine])
        scores, seconds = bench.scores(f"fold{number}", training.known[fold.known], wanted)
        judged.append(scores[: rest.size])
        held[fold.held] = scores[rest.size :]
        spent += seconds
    filled = single["sft"][0].copy()
    filled[training.known] = np.where(np.isnan(held), np.nanmean(held), held)
    language = Parts(filled[:, None], held[:, None])
    three = Parts(np.column_stack([parts.scores, filled]), np.column_stack([parts.held, held]))
    mean = np.full(count, np.nan)
    mean[rest] = np.mean(judged, axis=0)
    return {
        **found,
        "ensemble": (mean, spent),
        "grouped": (grouped(training, language), spent),
        "joined": (three.joined, spent),
        "stacked": (stacked(training, three), spent),
    }


@dataclass(frozen=True)
class Row:
    """A judge on a corpus under one seed."""

    auroc: float
    test: float
    # by both procedures, over sides and budgets
    coverage: tuple[float, ...]
    above: int
    seconds: float

    @property
    def mean(self) -> float:
        """Certified coverage in the mean over procedures, sides and budgets."""
        return float(np.mean(self.coverage))

    @property
    def issued(self) -> int:
        """Certificates of something."""
        return sum(share > 0 for share in self.coverage)


def certified(runs: Runs, scores: _Floats, split: NDArray[Any], seconds: float) -> Row:
    """Certify scores on RL and CAL, and look at what is issued on TEST."""
    areas = [area_on(runs, scores, split, of) for of in (("cal", "test"), ("test",))]
    shares, above = issued(runs, scores, split, ("rl", "cal"), PROCEDURES)
    return Row(*areas, shares, above, seconds)


def measured(
    name: str, frame: pd.DataFrame, out: Path, options: argparse.Namespace
) -> dict[str, Row]:
    """Measure a corpus: every row, in the mean over seeds."""
    runs = Runs.of(frame)
    cells: dict[str, list[Row]] = {row: [] for row in ROWS}
    for seed in range(options.seeds):
        split = split_of(runs, name, seed)
        training = trained_on(runs, split, ("sft",), seed)
        if np.unique(training.labels).size < 2:
            continue
        bench = Bench(name, seed, runs, training, out, options)
        for row, (scores, seconds) in rows_of(bench).items():
            cells[row].append(certified(runs, scores, split, seconds))
    return {row: averaged(of) for row, of in cells.items() if of}


def averaged(rows: Sequence[Row]) -> Row:
    """Return the mean of rows of several seeds; certificates are added."""
    return Row(
        float(np.mean([row.auroc for row in rows])),
        float(np.mean([row.test for row in rows])),
        tuple(np.mean([row.coverage for row in rows], axis=0).tolist()),
        sum(row.above for row in rows),
        float(np.mean([row.seconds for row in rows])),
    )


def show(name: str, frame: pd.DataFrame, rows: Mapping[str, Row]) -> None:
    """Print the table of a corpus."""
    print(
        f"\n{name}: {len(frame)} runs of {frame['task_id'].nunique()} tasks, successes "
        f"{frame['outcome'].mean():.2f}\n{'judge':10}{'AUROC':>7}{'TEST':>7}  "
        f"{'guarded: reject, release':28}{'pseudo: reject, release':28}{'mean':>7}{'above':>7}"
        f"{'CPU s':>9}"
    )
    for key, row in rows.items():
        print(
            f"{key:10}{row.auroc:7.3f}{row.test:7.3f}  "
            + "".join(f"{share:7.3f}" for share in row.coverage)
            + f"{row.mean:7.3f}{row.above:4}/{row.issued}{row.seconds:9.0f}",
            flush=True,
        )


def summary(found: Mapping[str, Mapping[str, Row]]) -> None:
    """Print means over corpora, and differences to sft with their standard errors."""
    measures: Mapping[str, Callable[[Row], float]] = {
        "AUROC": lambda row: row.auroc,
        "TEST": lambda row: row.test,
        "guarded": lambda row: float(np.mean(row.coverage[: len(BUDGETS)])),
        "pseudo": lambda row: float(np.mean(row.coverage[len(BUDGETS) :])),
        "mean": lambda row: row.mean,
    }
    values = {
        row: np.array([[of(rows[row]) for of in measures.values()] for rows in found.values()])
        for row in next(iter(found.values()))
    }
    print(f"\n{len(found)} corpora\n{'':10}" + "".join(f"{name:>23}" for name in measures))
    for row, mine in values.items():
        cells = []
        for column, reference in zip(mine.T, values["sft"].T, strict=True):
            mean, error = mean_and_error(column - reference)
            apart = "" if row == "sft" else f" ({mean:+.3f} ± {error:.3f})"
            cells.append(f"{column.mean():.3f}{apart}")
        print(f"{row:10}" + "".join(f"{cell:>23}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=tuple(MODELS), default="compact")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--per-task", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    # what `causal` and `corpus_rows` of the other benchmark ask for
    options.tokens, options.seed = None, FIRST_SEED
    names = options.corpus or [*EMBEDDED, *CORPORA]
    if options.quick:
        names, options.per_task = [next(iter(EMBEDDED))], 2
    found: dict[str, dict[str, Row]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            frame = corpus_rows(name, options)
            if isinstance(frame, str):
                print(frame)
                continue
            if options.quick:
                first = frame["task_id"].unique()[: 3 * QUICK_TASKS]
                frame = frame[frame["task_id"].isin(first)].reset_index(drop=True)
            if rows := measured(name, frame, out, options):
                found[name] = rows
                show(name, frame, rows)
    if found:
        summary(found)


if __name__ == "__main__":
    main()
