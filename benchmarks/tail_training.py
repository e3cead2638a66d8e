"""What training for a clean tail is worth to the combined judge.

    python benchmarks/tail_training.py [--data DIR] [--corpus NAME …] [--idea NAME …] [--seeds 10]
                                       [--out DIR] [--quick]

The two embedded corpora, and those of the folder of published runs DIR (../shared/data) that are
there. A seed splits the tasks, but for SFT of the embedded corpora, which stays; a judge is trained
on SFT, and RL and CAL certify it at δ = .05 by pseudo_task. The rows:
  combined  as the package trains it: the mean of the standardised scores of words and steps;
  weighted  both outcomes weigh the same in the losses of both parts;
  tail      words are fitted to 3,000 pairs of a success and a failure, with hard runs drawn twice as
            often; in the trees a hard run weighs 2. Hard are the lower half of the successes and
            the upper half of the failures by out-of-fold scores of combined;
  stacked   a logistic regression on the out-of-fold scores weighs the parts, none below 0;
  fed       combined, whose trees have the out-of-fold score of the words as one more feature;
  ensemble  the mean of five combined judges, each trained without a fifth of the tasks;
  grouped   combined, calibrated on its out-of-fold scores within four groups of runs whose steps
            look alike; the groups are found without the names of agents;
  chosen    in each cell the one of these with the largest `share`;
  SFT+RL    combined, trained on SFT and RL, so that CAL alone certifies.
All share folds, features and settings with the judges of the package. The columns, means over seeds:
  folds     on SFT alone, which is what a row may be chosen by: AUROC on a third of its tasks after a
            training on the others, and share, the largest one decided there with an error of at
            most α, in the mean over sides and budgets;
  AUROC     on CAL and TEST together, which no judge is trained on;
  coverage  certified (0 for nothing), rejected at α = .1 and .2, then released at .1 and .2; mean
            is that of the four;
  above     certificates whose error on TEST is above α, of those issued (noise of TEST included).
Then the differences to `combined` of the same corpus and seed; after ±, their standard error over
seeds, which share runs, and in the last table over corpora. With --out a cell, that is a corpus and
a seed, is kept there as a file, and a run that was stopped resumes. --idea leaves out the other ideas, but never combined. --quick: one
embedded corpus, two attempts a task, one seed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from new_agents import DATA, PUBLISHED, labelled_runs
from numpy.typing import NDArray
from structure import FIRST_SEED, USING, combined, mean_and_error, thresholds

from certify_assets.certificates import Settings, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.files import write_atomic
from certify_assets.judges.base import score_table
from certify_assets.judges.crossfit import task_folds
from certify_assets.judges.features import structure_features
from certify_assets.judges.lexical import LexicalSettings
from certify_assets.judges.specs import ALPHAS, DELTA, SIDES
from certify_assets.judges.structure import StructureSettings, booster
from certify_assets.judges.task_folds import deal_tasks

HARD, PAIRS, PAIR_SEED, CHOICE_SEED, GROUPS = 2.0, 3000, 0x9A12, 7, 4
BUDGETS = tuple(product(SIDES, ALPHAS))
_Places = NDArray[np.int64]
_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Runs:
    """The labelled runs of a corpus: counts of every word and word pair, features of the steps."""

    frame: pd.DataFrame
    texts: Sequence[Any]
    counts: Any
    steps: NDArray[np.float32]
    outcomes: NDArray[np.int64]
    tasks: NDArray[Any]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Runs:
        from sklearn.feature_extraction.text import CountVectorizer

        texts = render_frame(frame, USING)
        # the words of a lexical judge, and columns in the order of their names
        vectorizer = CountVectorizer(ngram_range=(1, LexicalSettings().longest_ngram))
        return cls(
            frame,
            texts,
            vectorizer.fit_transform([item.text for item in texts]).tocsr(),
            structure_features(frame),
            frame["outcome"].to_numpy(np.int64),
            frame["task_id"].to_numpy(object),
        )

    def training(self, known: _Places, seed: int) -> Training:
        """Return a training on some runs: TF-IDF by their words, as the lexical judge has it."""
        from sklearn.feature_extraction.text import TfidfTransformer

        settings, mine = LexicalSettings(), self.counts[known]
        totals = np.asarray(mine.sum(axis=0)).ravel()
        kept = np.flatnonzero(mine.getnnz(axis=0) >= settings.min_documents)
        # the most frequent first, ties in the order of the names
        kept = np.sort(kept[np.argsort(-totals[kept], kind="stable")][: settings.max_features])
        weigh = TfidfTransformer(sublinear_tf=True).fit(mine[:, kept])
        words = weigh.transform(self.counts[:, kept])
        return Training(words, self.steps, self.outcomes, self.tasks, known, seed)


@dataclass(frozen=True, eq=False)
class Training:
    """What an idea is trained on, and all runs that it scores."""

    # (runs, words), (runs, features)
    words: Any
    steps: NDArray[np.float32]
    outcomes: NDArray[np.int64]
    tasks: NDArray[Any]
    known: _Places
    # of folds, trees and pairs
    seed: int

    @property
    def labels(self) -> NDArray[np.int64]:
        """Outcomes of the training runs."""
        return self.outcomes[self.known]

    def within(self, places: _Places) -> Training:
        """Return the training on some of the training runs."""
        return replace(self, known=self.known[places])


@dataclass(frozen=True, eq=False)
class Parts:
    """Scores of all runs by both parts, and those of training runs out of fold."""

    # (runs, 2): words, steps
    scores: _Floats
    # (training runs, 2); NaN where no fold holds the run out
    held: _Floats

    @cached_property
    def standardised(self) -> tuple[_Floats, _Floats]:
        """Both, each part in the unit of its out-of-fold scores."""
        of = self.scores if np.isnan(self.held).all() else self.held
        mean, deviation = np.nanmean(of, axis=0), np.nanstd(of, axis=0)
        deviation[deviation == 0] = 1.0
        return (self.scores - mean) / deviation, (self.held - mean) / deviation

    @property
    def joined(self) -> _Floats:
        """Scores of all runs by the mean of the standardised parts."""
        return self.standardised[0].mean(axis=1)


# of runs of a training, with a weight each, to scores of all runs
Fit = Callable[[Training, "_Floats | None"], _Floats]


def words(training: Training, weights: _Floats | None = None) -> _Floats:
    """Score all runs by a logistic regression on words."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=LexicalSettings().inverse_regularization, tol=1e-5, max_iter=2000
    ).fit(training.words[training.known], training.labels, sample_weight=weights)
    return np.asarray(model.decision_function(training.words))


def steps(training: Training, weights: _Floats | None = None) -> _Floats:
    """Score all runs by boosted trees on features of the steps."""
    model = booster(StructureSettings(seed=training.seed)).fit(
        training.steps[training.known], training.labels, sample_weight=weights
    )
    return np.asarray(model.decision_function(training.steps))


def pairs(training: Training, weights: _Floats | None = None) -> _Floats:
    """Score all runs by words fitted to pairs: a success less a failure is a success."""
    from sklearn.linear_model import LogisticRegression

    draw, labels = np.random.default_rng([PAIR_SEED, training.seed]), training.labels
    drawn = np.ones(labels.size) if weights is None else weights
    rows = [np.flatnonzero(labels == label) for label in (0, 1)]
    below, above = (draw.choice(of, PAIRS, p=drawn[of] / drawn[of].sum()) for of in rows)
    mine = training.words[training.known]
    sign = np.where(np.arange(PAIRS) % 2, 1.0, -1.0)
    differences = (mine[above] - mine[below]).multiply(sign[:, None]).tocsr()
    # as many labels as the training has, whatever the number of pairs
    model = LogisticRegression(
        C=LexicalSettings().inverse_regularization, fit_intercept=False, tol=1e-4, max_iter=2000
    ).fit(differences, sign, sample_weight=np.full(sign.size, labels.size / sign.size))
    return np.asarray(training.words @ model.coef_[0])


def crossfit(
    training: Training, weights: _Floats | None = None, parts: Sequence[Fit] = (words, steps)
) -> Parts:
    """Score all runs by both parts, and training runs by parts that had none of their tasks."""
    held = np.full((training.known.size, len(parts)), np.nan)
    for fold in task_folds(training.tasks[training.known], training.labels, training.seed):
        mine, rows = training.within(fold.known), training.known[fold.held]
        some = None if weights is None else weights[fold.known]
        held[fold.held] = np.column_stack([part(mine, some)[rows] for part in parts])
    return Parts(np.column_stack([part(training, weights) for part in parts]), held)


def weighted(training: Training, base: Parts) -> _Floats:
    labels = training.labels
    weights = labels.size / (2.0 * np.bincount(labels, minlength=2)[labels])
    return crossfit(training, weights).joined


def hardness(training: Training, base: Parts) -> _Floats:
    """Weigh the lower half of the successes and the upper half of the failures, out of fold."""
    labels, scores = training.labels, base.standardised[1].mean(axis=1)
    found = [scores[(labels == label) & ~np.isnan(scores)] for label in (0, 1)]
    middle = [np.median(of) if of.size else np.nan for of in found]
    hard = np.where(labels == 1, scores < middle[1], scores > middle[0])
    return np.where(hard, HARD, 1.0)


def tail(training: Training, base: Parts) -> _Floats:
    return crossfit(training, hardness(training, base), (pairs, steps)).joined


def stacked(training: Training, base: Parts) -> _Floats:
    from sklearn.linear_model import LogisticRegression

    scores, held = base.standardised
    there = ~np.isnan(held).any(axis=1)
    if np.unique(training.labels[there]).size < 2:
        return base.joined
    model = LogisticRegression().fit(held[there], training.labels[there])
    shares = np.maximum(model.coef_[0], 0.0)
    return scores @ shares if shares.any() else base.joined


def fed(training: Training, base: Parts) -> _Floats:
    scores, held = base.standardised
    read = scores[:, 0].copy()
    there = ~np.isnan(held[:, 0])
    read[training.known[there]] = held[there, 0]
    features = np.column_stack([training.steps, read.astype(np.float32)])
    return crossfit(replace(training, steps=features)).joined


def ensemble(training: Training, base: Parts) -> _Floats:
    tasks = training.tasks[training.known]
    scores, held = [], np.full((training.known.size, 2), np.nan)
    for number, left_out in enumerate(deal_tasks(sorted(set(tasks)), training.seed)):
        out = np.isin(tasks, left_out)
        mine = replace(training.within(np.flatnonzero(~out)), seed=training.seed + number)
        if np.unique(mine.labels).size < 2:
            continue
        found = np.column_stack([words(mine), steps(mine)])
        scores.append(found)
        held[out] = found[training.known[out]]
    return Parts(np.mean(scores, axis=0), held).joined if scores else base.joined


def grouped(training: Training, base: Parts) -> _Floats:
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    held = base.standardised[1].mean(axis=1)
    there = ~np.isnan(held)
    if np.unique(training.labels[there]).size < 2:
        return base.joined
    finder = make_pipeline(
        StandardScaler(), KMeans(GROUPS, n_init=10, random_state=training.seed)
    ).fit(training.steps[training.known])
    group = finder.predict(training.steps)

    def design(scores: _Floats, groups: NDArray[np.int32]) -> _Floats:
        member = np.equal.outer(groups, np.arange(GROUPS)).astype(np.float64)
        # the penalty draws a group of few runs to the slope and intercept of all
        return np.column_stack([scores, member, member * scores[:, None]])

    rows = design(held[there], group[training.known][there])
    model = LogisticRegression(max_iter=1000).fit(rows, training.labels[there])
    return np.asarray(model.decision_function(design(base.joined, group)))


IDEAS: Mapping[str, Callable[[Training, Parts], _Floats]] = {
    "combined": lambda _, base: base.joined,
    "weighted": weighted,
    "tail": tail,
    "stacked": stacked,
    "fed": fed,
    "ensemble": ensemble,
    "grouped": grouped,
}
NONE = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Row:
    """A judge under one seed; what it was chosen by is NaN where it takes part in no choice."""

    fold_auroc: float
    fold_share: float
    auroc: float
    coverage: tuple[float, ...]
    above: int

    @property
    def mean(self) -> float:
        """Certified coverage in the mean over sides and budgets."""
        return float(np.mean(self.coverage))

    @property
    def issued(self) -> int:
        """Certificates of something."""
        return sum(share > 0 for share in self.coverage)


def largest_share(scores: _Floats, outcomes: NDArray[np.int64]) -> float:
    """Return the largest decided share with an error of at most α, over sides and budgets."""
    found = []
    for side, alpha in BUDGETS:
        order = np.argsort(scores if side == "reject" else -scores, kind="stable")
        values, wrong = scores[order], outcomes[order] == (side == "reject")
        # a threshold decides all runs of one score
        last = np.append(values[1:] != values[:-1], True)
        within = np.cumsum(wrong) <= alpha * np.arange(1, wrong.size + 1)
        places = np.flatnonzero(last & within)
        found.append((places[-1] + 1) / wrong.size if places.size else 0.0)
    return float(np.mean(found))


def by_folds(training: Training, ideas: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Look at ideas on training tasks that they are not trained on."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ideas}
    for fold in task_folds(training.tasks[training.known], training.labels, CHOICE_SEED):
        mine, held = training.within(fold.known), training.known[fold.held]
        outcomes = training.outcomes[held]
        if np.unique(outcomes).size < 2:
            continue
        base = crossfit(mine)
        for name in ideas:
            scores = IDEAS[name](mine, base)[held]
            area = auroc(scores, outcomes.astype(np.float64))
            found[name].append((area, largest_share(scores, outcomes)))
    return {
        name: tuple(np.mean(mine, axis=0).tolist()) if mine else NONE
        for name, mine in found.items()
    }


def certified(
    runs: Runs, scores: _Floats, split: NDArray[Any], splits: Sequence[str], folds: Sequence[float]
) -> Row:
    """Certify scores on some splits, and look at what is issued on TEST."""
    shares, above = issued(runs, scores, split, splits, ("pseudo_task",))
    return Row(folds[0], folds[1], area_on(runs, scores, split, ("cal", "test")), shares, above)


def issued(
    runs: Runs,
    scores: _Floats,
    split: NDArray[Any],
    splits: Sequence[str],
    procedures: Sequence[str],
) -> tuple[tuple[float, ...], int]:
    """Return what each procedure certifies of every budget, and how many are above it on TEST."""
    where, test = np.isin(split, splits), split == "test"
    observed = observe(scores[where], runs.outcomes[where], runs.tasks[where])
    found = [
        thresholds(
            observed,
            scores[test],
            runs.outcomes[test],
            Settings(alpha=alpha, delta=DELTA, side=side, procedure=procedure),
        )
        for procedure, (side, alpha) in product(procedures, BUDGETS)
    ]
    return tuple(share for share, _ in found), sum(over for share, over in found if share)


def area_on(runs: Runs, scores: _Floats, split: NDArray[Any], splits: Sequence[str]) -> float:
    """Return the AUROC on some splits."""
    where = np.isin(split, splits)
    return auroc(scores[where], runs.outcomes[where].astype(np.float64))


def cell(runs: Runs, name: str, seed: int, ideas: Sequence[str]) -> dict[str, Row]:
    """Split, train, choose and certify; nothing where SFT has one outcome."""
    split = split_of(runs, name, seed)
    training = trained_on(runs, split, ("sft",), seed)
    if np.unique(training.labels).size < 2:
        return {}
    base, folds = crossfit(training), by_folds(training, ideas)
    found = {
        idea: certified(runs, IDEAS[idea](training, base), split, ("rl", "cal"), folds[idea])
        for idea in ideas
    }
    # equal ones go to the first, which is combined
    found["chosen"] = found[max(ideas, key=lambda idea: np.nan_to_num(folds[idea][1]))]
    more = crossfit(trained_on(runs, split, ("sft", "rl"), seed))
    return found | {"SFT+RL": certified(runs, more.joined, split, ("cal",), NONE)}


def split_of(runs: Runs, name: str, seed: int) -> NDArray[Any]:
    manifest = make_manifest(runs.frame["task_id"].unique(), name, seed=FIRST_SEED + seed)
    return runs.frame["task_id"].map(manifest.assignment).to_numpy()


def trained_on(runs: Runs, split: NDArray[Any], splits: Sequence[str], seed: int) -> Training:
    return runs.training(np.flatnonzero(np.isin(split, splits)), FIRST_SEED + seed)


def same_as_the_package(runs: Runs, name: str) -> float:
    """Return how far the scores here are from those of the judge that the package trains."""
    mine = trained_on(runs, split_of(runs, name, 0), ("sft",), 0)
    texts = [runs.texts[place].text for place in mine.known]
    judge = combined(runs.frame.iloc[mine.known], texts, FIRST_SEED)
    table = score_table(judge, runs.frame, USING, rendered=runs.texts)
    return float(np.abs(table["score"].to_numpy() - crossfit(mine).joined).max())


def stored(path: Path) -> dict[str, Row]:
    """Read a cell."""
    return {
        name: Row(**{**values, "coverage": tuple(values["coverage"])})
        for name, values in json.loads(path.read_text(encoding="utf-8")).items()
    }


def measured(
    name: str, data: Path, seeds: int, out: Path, per_task: int | None, ideas: Sequence[str]
) -> Iterator[dict[str, Row]]:
    """Measure the cells of a corpus, those of `out` aside."""
    asked = "" if len(ideas) == len(IDEAS) else "".join(f"-{idea}" for idea in ideas[1:])
    paths = [out / f"{name}{asked}-{seed}.json" for seed in range(seeds)]
    runs: Runs | None = None
    for seed, path in enumerate(paths):
        if not path.exists():
            if runs is None:
                frame = labelled_runs(name, data)
                if isinstance(frame, str):
                    print(frame)
                    return
                if per_task:
                    frame = frame.groupby("task_id").head(per_task).reset_index(drop=True)
                runs = Runs.of(frame)
            rows = {key: vars(row) for key, row in cell(runs, name, seed, ideas).items()}
            write_atomic(path, json.dumps(rows).encode())
        if rows_of := stored(path):
            yield rows_of
    if runs is not None:
        print(
            f"{name}: {same_as_the_package(runs, name):.1e} from the package's own combined judge"
        )


MEASURES: Mapping[str, Callable[[Row], float]] = {
    "folds AUROC": lambda row: row.fold_auroc,
    "share": lambda row: row.fold_share,
    "AUROC": lambda row: row.auroc,
    **{
        f"{side} {alpha}".replace("0.", "."): lambda row, place=place: row.coverage[place]
        for place, (side, alpha) in enumerate(BUDGETS)
    },
    "mean": lambda row: row.mean,
}


def show(title: str, values: Mapping[str, _Floats], above: Mapping[str, str]) -> None:
    """Print a table, and the differences to combined: `values` is (cells, measures) a row."""
    head = "".join(f"{name:>14}" for name in MEASURES)
    print(f"\n{title}\n{'':10}{head}{'above':>9}")
    for name, found in values.items():
        print(f"{name:10}{row_of(found, '{:.3f}')}{above[name]:>9}")
    for name in list(values)[1:]:
        print(
            f"{name:10}{row_of(values[name] - values['combined'], '{:+.3f} ±{:.3f}')}", flush=True
        )


def row_of(found: _Floats, form: str) -> str:
    """Write the mean, and where asked the standard error, of every column that has values."""
    known = [column[~np.isnan(column)] for column in found.T]
    cells = [form.format(*mean_and_error(column)) if column.size else "" for column in known]
    return "".join(f"{cell:>14}" for cell in cells)


def tables(found: Mapping[str, Sequence[Mapping[str, Row]]]) -> None:
    """Print the table of every corpus, and of the means of corpora."""
    rows = list(next((cells[0] for cells in found.values() if cells), {}))
    means: dict[str, list[_Floats]] = {name: [] for name in rows}
    total = dict.fromkeys(rows, (0, 0))
    for corpus, cells in found.items():
        values = {
            name: np.array([[of(cell[name]) for of in MEASURES.values()] for cell in cells])
            for name in rows
        }
        above = {}
        for name in rows:
            counts = [sum(getattr(cell[name], of) for cell in cells) for of in ("above", "issued")]
            above[name] = f"{counts[0]}/{counts[1]}"
            total[name] = (total[name][0] + counts[0], total[name][1] + counts[1])
            means[name].append(values[name].mean(axis=0))
        show(f"{corpus}, {len(cells)} seeds", values, above)
    if rows:
        over = {name: np.array(mean) for name, mean in means.items()}
        show(f"{len(found)} corpora", over, {name: f"{a}/{b}" for name, (a, b) in total.items()})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--idea", action="append", choices=tuple(IDEAS)[1:])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--per-task", type=int, help="runs a task at most")
    parser.add_argument(
        "--quick", action="store_true", help="one corpus, two attempts a task, one seed"
    )
    options = parser.parse_args()
    names = options.corpus or [*EMBEDDED, *PUBLISHED]
    ideas = [idea for idea in IDEAS if idea == "combined" or idea in (options.idea or IDEAS)]
    if options.quick:
        names, options.seeds, options.per_task = names[:1], 1, 2
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        found = {
            name: list(measured(name, options.data, options.seeds, out, options.per_task, ideas))
            for name in names
        }
    tables({name: cells for name, cells in found.items() if cells})


if __name__ == "__main__":
    main()
