"""New agents on a known benchmark: the batch certificate against the corpus certificate.

    python benchmarks/new_agents.py [--data DIR] [--corpus NAME …] [--batches 200] [--scores DIR] [--quick]

Every agent of 50 runs or more is left out in turn, on the two embedded corpora and on those of the
folder of published runs DIR (../shared/data) that are there and have three such agents. Scores are
lexical and out of fold: the judge of a run saw neither its task nor the agent left out. They are
kept in a temporary folder, or in --scores, so that a further run costs little. A row has at least
--batches trials, that is seeds times agents.

A seed and an agent are one trial of
  corpus  guarded_taskboot on the CAL tasks of the other agents, applied to the runs of this one;
  batch   plan_batch with all runs of the others as history, and a draw of this agent's runs, which
          are labelled while the plan wants labels.
Shares are of all runs of the agent. `net` is decided less the labels of decided runs: the others
would be read anyway. `strict` is decided less all labels. `above` is the share of trials with more
than ⌊αN⌋ errors among the N decided, and `some` that of trials with a certificate.
--quick: one embedded corpus, one seed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from published import FOLDS, PUBLISHED, corpora_parser, labelled_runs, out_of_fold

from certify_assets.certificates import certify
from certify_assets.certificates.batch import Batch
from certify_assets.certificates.batch_draw import BatchDraw
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.certificates.batch_tables import error_limit
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.rendering import Renderer
from certify_assets.corpora.splits import make_manifest

DELTA, FEWEST_RUNS, FEWEST_AGENTS = 0.05, 50, 3
BATCH = ["labels", "net_share", "strict_share", "above", "certified"]
ROW = ["corpus", "side", "alpha"]
TITLES = ["corpus", "above", "labels", "net", "strict", "above", "some"]


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


def trials(runs: Runs, alpha: float, side: str, seeds: int) -> Iterator[dict[str, object]]:
    """Leave every agent out, under every seed."""
    wrong = runs.outcome == (1 if side == "reject" else 0)
    names = np.array([f"{place:06d}" for place in range(wrong.size)])
    splits = [make_manifest(np.unique(runs.task), runs.name, seed=seed) for seed in range(seeds)]
    for agent, scores in zip(runs.agents, runs.scores, strict=True):
        mine = runs.agent == agent
        batch = Batch.of(names[mine].tolist(), runs.task[mine].tolist(), scores[mine])
        history = History(scores[~mine], runs.outcome[~mine])
        plan = plan_batch(batch, alphas={side: alpha}, delta=DELTA, history=history)
        outcomes = dict(zip(batch.trajectories, runs.outcome[mine].tolist(), strict=True))
        for seed, split in enumerate(splits):
            in_cal = np.array([split.assignment[task] == "cal" for task in runs.task])
            cal = in_cal & ~mine
            issued = certify(
                scores[cal],
                runs.outcome[cal],
                runs.task[cal],
                alpha=alpha,
                delta=DELTA,
                side=side,
                procedure="guarded_taskboot",
            )
            covered = decided_by(batch, side, issued.threshold if issued.certified else None)
            labels: dict[str, int] = {}
            used, threshold = 0, None
            if plan is not None:
                draw = BatchDraw(plan, batch, seed)
                while wanted := draw.wanted(labels):
                    labels[wanted[0]] = outcomes[wanted[0]]
                (closed,) = draw.close(labels)
                used, threshold = closed.labels_used, closed.threshold
            decided = decided_by(batch, side, threshold)
            yield {
                "agent": agent,
                "coverage": covered.mean(),
                "corpus_above": above(wrong[mine][covered], alpha),
                "labels": len(labels),
                "net_share": (decided.sum() - used * decided.any()) / len(batch),
                "strict_share": (decided.sum() - len(labels)) / len(batch),
                "above": above(wrong[mine][decided], alpha),
                "certified": decided.any(),
            }


def decided_by(batch: Batch, side: str, threshold: float | None) -> NDArray[np.bool_]:
    return np.zeros(len(batch), bool) if threshold is None else batch.decided(side, threshold)


def above(errors: NDArray[np.bool_], alpha: float) -> bool:
    """Whether more errors were decided than the budget allows."""
    return bool(errors.sum() >= error_limit(alpha, errors.size))


def show(row: pd.Series) -> None:
    """Print one row of the table."""
    cells = [*row[["coverage", "corpus_above"]], *row[BATCH]]
    print(
        f"{row['corpus']:<21} {row['alpha']:<4g} {row['side']:<8} "
        + " ".join(
            f"{value:7.1f}" if place == 2 else f"{value:7.3f}" for place, value in enumerate(cells)
        )
    )


def main() -> None:
    parser = corpora_parser(__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    cache = options.scores or Path(tempfile.gettempdir()) / "certify_new_agents"
    names, batches = options.corpus or (*EMBEDDED, *PUBLISHED), options.batches
    if options.quick:
        names, batches = EMBEDDED[:1], 4
    rows = []
    for name in names:
        started = time.process_time()
        runs = scored(name, options.data, cache)
        if isinstance(runs, str):
            print(runs)
            continue
        seeds = -(-batches // len(runs.agents))
        print(f"\n{name}: {len(runs.agents)} agents left out in turn, {seeds} seeds", flush=True)
        print(" " * 36 + " ".join(f"{title:>7}" for title in TITLES))
        for alpha in (0.1, 0.2):
            for side in ("reject", "release"):
                found = pd.DataFrame(trials(runs, alpha, side, seeds))
                about = {"corpus": name, "side": side, "alpha": alpha}
                rows.append(pd.Series({**found.drop(columns="agent").mean(), **about}))
                show(rows[-1])
        print(f"{time.process_time() - started:.0f} CPU seconds", flush=True)
    labels, net, strict = (sum(row[name] for row in rows) for name in BATCH[:3])
    print(f"\nsum of {len(rows)} rows: labels {labels:.0f}, net {net:.2f}, strict {strict:.2f}")


if __name__ == "__main__":
    main()
