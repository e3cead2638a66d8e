"""New agents on a known benchmark: the batch certificate against the corpus certificate.

    python benchmarks/new_agents.py [--data DIR] [--corpus NAME …] [--batches 200] [--scores DIR]
    [--quick]

Every agent of 50 runs or more is left out in turn, on the two embedded corpora and on those of the
folder of published runs DIR (../shared/data) that are there and have three such agents. Scores are
lexical and out of fold: the judge of a run saw neither its task nor the agent left out. They are
kept in a temporary folder, or in --scores, so that a further run costs little. A row has at least
--batches trials, that is seeds times agents.

A seed and an agent are one trial of
  corpus    guarded_taskboot on the CAL tasks of the other agents, applied to the runs of this one;
  batch     plan_batch with all runs of the others as history, a draw of this agent's runs, labels
            in order until the plan says stop;
  fixed     a uniform draw at the threshold of the corpus certificate, or where there is none, at
            the widest one with an error of α/2 in the history;
  hindsight a uniform draw at the best of 20 thresholds, chosen with this agent's labels: what no
            plan of one threshold can expect to exceed by the same test;
  bound     the larger of hindsight and a uniform draw at the best of 50 thresholds that is tested by
            the likelihood ratio of the number of errors that there is against one too many, which,
            but for overshoot, needs the fewest labels that a test of this level can expect (Wald).
Shares are of all runs of the agent; those of draws are net of the labels given. `above` is the
share of trials with more than ⌊αN⌋ errors among the N decided. `of corpus` is Σ batch / Σ corpus
over the trials in which the corpus certificate decides something within its budget; the goal is .8.
`at best` is Σ bound / Σ corpus over the same trials: where it is below .8 the goal is out of reach
of uniform draws at one threshold, whatever they know of the agent. The last line counts the rows.
--quick: one embedded corpus, one seed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from published import DATA, FOLDS, PUBLISHED, labelled_runs, out_of_fold
from scipy.special import gammaln

from certify_assets.certificates import certify
from certify_assets.certificates.batch import Batch, BatchDraw, error_limit, uniform_test
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Renderer
from certify_assets.corpora.splits import make_manifest

DELTA, FEWEST_RUNS, FEWEST_AGENTS, GOAL = 0.05, 50, 3, 0.8


@dataclass(frozen=True, eq=False)
class Runs:
    """Labelled runs with a row of scores for every agent left out."""

    name: str
    agents: NDArray[np.str_]
    scores: NDArray[np.float64]
    agent: NDArray[np.str_]
    task: NDArray[np.str_]
    outcome: NDArray[np.int64]


def scored(name: str, data: Path, cache: Path) -> Runs | str:
    """Read the scores of a corpus, or make them; a sentence where it cannot take part."""
    path = cache / f"{name}-{FOLDS}-{Renderer().sha256[:12]}.npz"
    if path.exists():
        with np.load(path) as stored:
            return Runs(name, *(stored[key] for key in Runs.__dataclass_fields__ if key != "name"))
    frame = labelled_runs(name, data)
    if isinstance(frame, str):
        return frame
    counts = frame["agent"].astype(str).value_counts()
    agents = np.array(sorted(counts[counts >= FEWEST_RUNS].index), dtype=str)
    if agents.size < FEWEST_AGENTS:
        return f"{name}: skipped, {agents.size} agents of {FEWEST_RUNS} runs or more"
    agent, task = (frame[column].to_numpy(str) for column in ("agent", "task_id"))
    outcome = frame["outcome"].to_numpy(np.int64)
    scores = out_of_fold(frame, tuple(agents))
    found = Runs(name, agents, scores, agent, task, outcome)
    cache.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in vars(found).items() if key != "name"})
    return found


@dataclass(frozen=True)
class Trial:
    """One agent and seed: shares of its runs that are decided, and what went wrong."""

    corpus: float
    corpus_other: float
    corpus_known: float
    corpus_above: bool
    batch: float
    batch_above: bool
    labels: int
    fixed: float
    hindsight: float
    bound: float


def trials(runs: Runs, alpha: float, side: str, seeds: int) -> Iterator[Trial]:
    """Leave every agent out, under every seed."""
    wrong = (runs.outcome == (1 if side == "reject" else 0)).astype(np.int64)
    names = np.array([f"{place:06d}" for place in range(wrong.size)])
    splits = [make_manifest(np.unique(runs.task), runs.name, seed=seed) for seed in range(seeds)]
    for agent, scores in zip(runs.agents, runs.scores, strict=True):
        mine = runs.agent == agent
        other = np.flatnonzero(~mine)
        errors = wrong[mine]
        batch = Batch.of(names[mine].tolist(), runs.task[mine].tolist(), scores[mine])
        history = History(
            scores[other],
            runs.outcome[other],
            runs.task[other].tolist(),
            agents=runs.agent[other].tolist(),
        )
        plan = plan_batch(batch, side=side, alpha=alpha, delta=DELTA, history=history)
        outcomes = dict(zip(batch.trajectories, runs.outcome[mine].tolist(), strict=True))
        usual = widest(side, scores[other], wrong[other], alpha / 2)
        best = max(
            float(np.mean([net(errors, batch, side, value, alpha, seed) for seed in range(10)]))
            for value in np.quantile(batch.scores, np.linspace(0.05, 1, 20))
        )
        bound = max(
            float(np.mean([least(errors[place], len(batch), alpha, seed) for seed in range(10)]))
            for value in np.quantile(batch.scores, np.linspace(0.02, 1, 50))
            for place in [batch.decided(side, value)]
        )
        for seed, split in enumerate(splits):
            in_cal = np.array([split.assignment[task] == "cal" for task in runs.task])
            cal = in_cal & ~mine
            certificate = certify(
                scores[cal],
                runs.outcome[cal],
                runs.task[cal],
                alpha=alpha,
                delta=DELTA,
                side=side,
                procedure="guarded_taskboot",
            )
            issued = certificate.threshold if certificate.certified else None
            inside = np.zeros(len(batch), bool)
            if issued is not None:
                inside = batch.decided(side, issued)
            draw = BatchDraw(plan, batch, seed)
            shown = [batch.trajectories[place] for place in draw.order.tolist()]
            labels = int(draw.trace([outcomes[run] for run in shown]).stops)
            closed = draw.close({run: outcomes[run] for run in shown[:labels]})
            decided = np.zeros(len(batch), bool)
            if closed.threshold is not None:
                decided = batch.decided(side, closed.threshold)
            known = in_cal[mine]
            tried = usual if issued is None else issued
            yield Trial(
                corpus=float(inside.mean()),
                corpus_other=float(inside[~known].mean()),
                corpus_known=float(inside[known].mean()),
                corpus_above=above(errors[inside], alpha),
                batch=closed.net_share,
                batch_above=above(errors[decided], alpha),
                labels=labels,
                fixed=0.0 if tried is None else net(errors, batch, side, tried, alpha, seed),
                hindsight=best,
                bound=max(best, bound),
            )


def widest(
    side: str, scores: NDArray[np.float64], wrong: NDArray[np.int64], error: float
) -> float | None:
    """Return the widest threshold with at most that error."""
    order = np.argsort(scores if side == "reject" else -scores, kind="stable")
    kept = np.cumsum(wrong[order]) <= error * np.arange(1, wrong.size + 1)
    return float(scores[order[np.flatnonzero(kept)[-1]]]) if kept.any() else None


def above(errors: NDArray[np.int64], alpha: float) -> bool:
    """Whether more errors were decided than the budget allows."""
    return bool(errors.sum() >= error_limit(alpha, errors.size))


def net(
    errors: NDArray[np.int64], batch: Batch, side: str, threshold: float, alpha: float, seed: int
) -> float:
    """Net share of the batch under a uniform draw at one threshold."""
    inside = errors[batch.decided(side, threshold)]
    if not inside.size:
        return 0.0
    drawn = np.random.default_rng([seed, inside.size]).permutation(inside)
    test = uniform_test(drawn, inside.size, alpha=alpha, delta=DELTA, predicted_error=0.3 * alpha)
    return (inside.size - test.labels) / len(batch) if test.certified else 0.0


def least(inside: NDArray[np.int64], runs: int, alpha: float, seed: int) -> float:
    """Net share under a uniform draw from a set, for who knows how many errors are in it."""
    size, found = inside.size, int(inside.sum())
    limit = error_limit(alpha, size)
    if not size or found >= limit:
        return 0.0
    wrong = np.cumsum(np.random.default_rng([seed, size]).permutation(inside))
    right = np.arange(1, size + 1) - wrong

    def log_chance(errors: int) -> NDArray[np.float64]:
        # of the sequence, but for a factor that does not depend on the errors
        left, kept = errors - wrong, size - errors - right
        ways = gammaln(np.maximum(left, 0) + 1) + gammaln(np.maximum(kept, 0) + 1)
        total = gammaln(errors + 1) + gammaln(size - errors + 1)
        return np.where((left >= 0) & (kept >= 0), total - ways, -np.inf)

    certified = log_chance(found) - log_chance(limit) >= -np.log(DELTA)
    return (size - int(np.flatnonzero(certified)[0]) - 1) / runs


COLUMNS = (
    ("alpha", 5),
    ("side", 7),
    ("corpus", 6),
    ("other", 6),
    ("known", 6),
    ("above", 5),
    ("batch", 6),
    ("above", 5),
    ("± se", 5),
    ("batches", 7),
    ("labels", 6),
    ("fixed", 6),
    ("hindsight", 9),
    ("of corpus", 9),
    ("at best", 7),
    ("goal", 12),
)


@dataclass(frozen=True)
class Kept:
    """What is kept of the corpus certificate's share where it stays within its budget."""

    batch: float
    bound: float

    @classmethod
    def of(cls, found: list[Trial]) -> Kept | None:
        kept = [trial for trial in found if trial.corpus > 0 and not trial.corpus_above]
        share = sum(trial.corpus for trial in kept)
        if not kept:
            return None
        return cls(
            sum(trial.batch for trial in kept) / share,
            sum(trial.bound for trial in kept) / share,
        )

    @property
    def verdict(self) -> str:
        if self.batch >= GOAL:
            return "met"
        return "not met" if self.bound >= GOAL else "out of reach"


def line(alpha: float, side: str, found: list[Trial]) -> list[str]:
    """One row of the table."""
    mean = {
        name: float(np.mean([getattr(trial, name) for trial in found]))
        for name in Trial.__dataclass_fields__
    }
    kept = Kept.of(found)
    violating = mean["batch_above"]
    return [
        f"{alpha:g}",
        side,
        f"{mean['corpus']:.3f}",
        f"{mean['corpus_other']:.3f}",
        f"{mean['corpus_known']:.3f}",
        f"{mean['corpus_above']:.2f}",
        f"{mean['batch']:.3f}",
        f"{violating:.3f}",
        f"{(violating * (1 - violating) / len(found)) ** 0.5:.3f}",
        str(len(found)),
        f"{mean['labels']:.0f}",
        f"{mean['fixed']:.3f}",
        f"{mean['hindsight']:.3f}",
        *(
            ("-", "-", "-")
            if kept is None
            else (f"{kept.batch:.2f}", f"{kept.bound:.2f}", kept.verdict)
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", action="append", choices=(*EMBEDDED, *PUBLISHED))
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    cache = options.scores or Path(tempfile.gettempdir()) / "certify_new_agents"
    verdicts: Counter[str] = Counter()
    names, batches = options.corpus or (*EMBEDDED, *PUBLISHED), options.batches
    if options.quick:
        names, batches = EMBEDDED[:1], 4
    for name in names:
        started = time.process_time()
        runs = scored(name, options.data, cache)
        if isinstance(runs, str):
            print(runs)
            continue
        seeds = -(-batches // len(runs.agents))
        print(f"\n{name}: {len(runs.agents)} agents left out in turn, {seeds} seeds", flush=True)
        print(" ".join(f"{title:>{width}}" for title, width in COLUMNS))
        for alpha in (0.1, 0.2):
            for side in ("reject", "release"):
                row = line(alpha, side, list(trials(runs, alpha, side, seeds)))
                verdicts[row[-1]] += 1
                cells = zip(row, COLUMNS, strict=True)
                print(" ".join(f"{cell:>{width}}" for cell, (_, width) in cells), flush=True)
        print(f"{time.process_time() - started:.0f} CPU seconds")
    compared = verdicts.total() - verdicts["-"]
    print(
        f"\nOf {verdicts.total()} rows {compared} have trials to compare: the goal of {GOAL:g} is met "
        f"in {verdicts['met']}, not met in {verdicts['not met']}, and out of reach of one "
        f"threshold in {verdicts['out of reach']}."
    )


if __name__ == "__main__":
    main()
