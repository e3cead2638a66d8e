"""Freezing the provisional runs of a batch, and drawing them."""

# The order of writing is the promise. Plans, runs and scores are frozen by a hash, then the seed is
# drawn from the operating system into the journal of draws, a chained line that is not rewritten,
# and only then the document of the audit is stored. A kill after the line leaves the seed, and the
# next run of the same frozen batch finds it. Another frozen batch of the same or of overlapping
# runs is a further try: the first is made at the whole δ, the j-th at δ·6/(π²j²), so that all of
# them together spend at most 1.4 δ.

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from certify_assets.certificates.batch import Batch
from certify_assets.certificates.batch_planning import History
from certify_assets.certificates.batch_sides import (
    SidesDraw,
    SidesPlan,
    plan_sides,
    side_of,
    sides_sha256,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.evaluation.spending import Schedule
from certify_assets.judges.specs import DELTA, SIDES
from certify_assets.operations.batch_audit import (
    AuditRecord,
    DrawnSeed,
    draws_journal,
    frozen_batch,
    read_draws,
)
from certify_assets.operations.layout import PROVISIONAL, batch_key

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.operations.deployment_record import DeploymentRecord


class _Frozen(NamedTuple):
    """Runs that a plan may certify, and the number of their draw among draws of them."""

    batch: Batch
    plan: SidesPlan
    draws: int


def begin_audit(
    judge: JudgedCorpus, deployed: DeploymentRecord, batch: str, frame: pd.DataFrame
) -> tuple[pd.DataFrame, AuditRecord | None]:
    """Plan and draw the provisional runs of a batch; those that no plan may certify go to review.

    Nothing is drawn where no plan is expected to save labels.
    """
    corpus = judge.corpus
    every = frozen_batch(frame[frame["decision"] == PROVISIONAL])
    alphas, history = _budgets(judge, deployed), _history(judge)
    lines = _overlapping(corpus, batch, set(every.trajectories))
    mine = [line for line in lines if line.batch == batch][-1:]
    for draws in (*(line.draws for line in mine), len(lines) + 1):
        delta = DELTA if draws == 1 else Schedule(total=DELTA).share(draws)
        plan = plan_sides(every, alphas=alphas, delta=delta, history=history)
        frozen = _Frozen(_drawn_from(every, plan), plan, draws)
        # a killed call had drawn this very batch: it keeps its seed
        if mine and mine[0].batch_sha256 == sides_sha256(plan, frozen.batch):
            break
    waits = frame["trajectory_id"].isin(set(frozen.batch.trajectories))
    left = (frame["decision"] == PROVISIONAL) & ~waits
    frame = frame.assign(decision=frame["decision"].mask(left, "human"))
    return frame, _drawn(corpus, batch, frozen) if len(frozen.batch) else None


def _overlapping(corpus: Corpus, batch: str, runs: set[str]) -> list[DrawnSeed]:
    """Return the draws that were made of these runs, or of some of them."""

    def overlaps(other: str) -> bool:
        key = batch_key(corpus.name, other, "identities.parquet")
        # what was drawn from a batch that is gone is not known any more
        return not corpus.store.exists(key) or bool(
            runs & set(corpus.store.read_table(key)["trajectory_id"])
        )

    return [line for line in read_draws(corpus) if line.batch == batch or overlaps(line.batch)]


def _budgets(judge: JudgedCorpus, deployed: DeploymentRecord) -> dict[str, float]:
    """Return the budget of each side that a batch may be certified on.

    A deployed side keeps its budget. A side on which the corpus certificate certifies nothing, at
    any budget, takes that of the other one; a side that could be deployed and is not, none. Where
    no certificate is deployed, the budgets are those of the deployment for batches, else the
    strictest of the corpus.
    """
    if not deployed.alpha:
        return dict(deployed.batch_alpha) or dict.fromkeys(SIDES, min(judge.corpus.config.alphas))
    key = judge.key("certificates.json") if deployed.own else deployed.certificates_key
    issued = judge.store.read_json(key)["certificates"]
    certified = {item["side"] for item in issued if item["certified"]}
    other = next(iter(deployed.alpha.values()))
    return {
        side: deployed.alpha.get(side, other)
        for side in SIDES
        if side in deployed.alpha or side not in certified
    }


def _history(judge: JudgedCorpus) -> History:
    rows, hashes, _ = judge.calibration
    rows = rows[rows["score"].notna()]
    return History(
        rows["score"].to_numpy(np.float64),
        rows["outcome"].to_numpy(np.int64),
        [str(task) for task in rows["task_id"]],
        hashes["scores_sha256"],
        [str(agent) for agent in rows["agent"]],
    )


def _drawn_from(every: Batch, plan: SidesPlan) -> Batch:
    """Return the runs that some threshold of a plan decides."""
    inside = np.zeros(len(every), dtype=bool)
    for item in plan.plans:
        part = side_of(every, item.side, plan.cut)
        inside |= part.decided(item.side, item.thresholds[-1])
    places = np.flatnonzero(inside).tolist()
    return Batch(
        tuple(every.trajectories[place] for place in places),
        tuple(every.tasks[place] for place in places),
        every.scores[inside],
    )


def _drawn(corpus: Corpus, batch: str, frozen: _Frozen) -> AuditRecord:
    """Draw a frozen batch and store its audit; a batch whose seed is recorded keeps it."""
    line = _recorded(
        corpus,
        DrawnSeed(
            batch=batch,
            batch_sha256=sides_sha256(frozen.plan, frozen.batch),
            draws=frozen.draws,
            seed=secrets.randbits(62),
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        ),
    )
    draw = SidesDraw(frozen.plan, frozen.batch, line.seed)
    record = AuditRecord(
        corpus=corpus.name,
        batch=batch,
        time=line.time,
        draws=line.draws,
        runs=len(frozen.batch),
        plan=frozen.plan,
        batch_sha256=line.batch_sha256,
        seed=line.seed,
        order=tuple(name for names in draw.orders for name in names),
    )
    corpus.store.write_json(batch_key(corpus.name, batch, "audit.json"), record.to_dict())
    return record


def _recorded(corpus: Corpus, line: DrawnSeed) -> DrawnSeed:
    """Return the line of a frozen batch: the one that is there, else this one, appended."""

    def same(known: DrawnSeed) -> bool:
        return (known.batch, known.batch_sha256) == (line.batch, line.batch_sha256)

    journal = draws_journal(corpus)
    return journal.append_unless(same, line) or next(filter(same, journal.read()))
