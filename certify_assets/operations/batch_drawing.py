"""Freezing the provisional runs of batches, and drawing them."""

# The order of writing is the promise. Plans, runs and scores are frozen by a hash, then the seed is
# drawn from the operating system into the journal of draws, a chained line that is not rewritten,
# and only then the documents are stored: in each of several batches one that names the others, and
# last the audit, in the folder of the last batch. A kill after the line leaves the seed, and the
# next run of the same frozen runs finds it. Other frozen runs that are the same or overlap are a
# further try: the first is made at the whole δ, the j-th at δ·6/(π²j²), so that all of them
# together spend at most 1.4 δ.

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

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
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation.spending import Schedule
from certify_assets.judges.specs import DELTA, SIDES
from certify_assets.operations.batch_audit import (
    AuditRecord,
    DrawnSeed,
    draws_journal,
    frozen_batch,
    read_draws,
)
from certify_assets.operations.batch_record import identities_of
from certify_assets.operations.batch_waiting import WaitingRuns, scorer_of, waiting_runs
from certify_assets.operations.layout import PROVISIONAL, batch_key, provisional_rows

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.operations.deployment_record import DeploymentRecord

#: schema of the document with which a batch says whose draw has its runs
POOLED_SCHEMA: Final = "certify_assets/pooled/1"


class _Frozen(NamedTuple):
    """Runs that a plan may certify, and the number of their draw among draws of them."""

    batch: Batch
    plan: SidesPlan
    draws: int


def begin_audit(
    judge: JudgedCorpus, deployed: DeploymentRecord, batch: str, frame: pd.DataFrame
) -> tuple[pd.DataFrame, AuditRecord | None, str]:
    """Plan and draw the provisional runs of a batch that is being decided, with those that wait.

    Those that no plan may certify go to review, all of them where no plan is expected to save
    labels. While they are too few for a draw, they wait for later ones, as the sentence says.
    """
    import pandas as pd

    corpus = judge.corpus.current
    mine = frame[frame["decision"] == PROVISIONAL]
    earlier = {scorer_of(item.deployed): item for item in waiting_runs(corpus)}
    alone = WaitingRuns(corpus, deployed, (), 0, datetime.now(UTC))
    pool = earlier.get(scorer_of(deployed), alone).joined(deployed, batch, len(mine))
    if not pool.is_due:
        return frame, None, pool.sentence()
    rows = [provisional_rows(corpus, [name]) for name in pool.batches[:-1]]
    frozen = _frozen(judge, deployed, pool.batches, pd.concat([*rows, mine]))
    waits = frame["trajectory_id"].isin(set(frozen.batch.trajectories))
    left = (frame["decision"] == PROVISIONAL) & ~waits
    frame = frame.assign(decision=frame["decision"].mask(left, "human"))
    # what is decided now needs no document: its rows say it
    others = pool.batches if len(pool.batches) > 1 else ()
    return frame, _drawn(corpus, pool.batches, others, frozen), ""


def draw_waiting(corpus: Corpus, *, every: bool = False) -> None:
    """Draw the runs of decided batches that waited long enough, or all that wait.

    One process at a time may call it, as `batch_closing.close_settled`.
    """
    for item in waiting_runs(corpus):
        if not (every or item.is_due):
            continue
        judge = item.deployed.judge_on(corpus)
        try:
            if corpus.current.config.new_agents == "review":
                raise InputError(f"new_agents of {corpus} is review now.")
            frozen = _frozen(
                judge, item.deployed, item.batches, provisional_rows(corpus, item.batches)
            )
        except CertifyError as error:
            # the judge that scored them is gone, or may not have them certified any more
            _share(corpus, "", item.batches, item.batches, why=str(error))
            continue
        _drawn(corpus, item.batches, item.batches, frozen)


def _frozen(
    judge: JudgedCorpus, deployed: DeploymentRecord, batches: Sequence[str], rows: pd.DataFrame
) -> _Frozen:
    """Plan the draw of runs; those of a draw that was cut off get the same plan again."""
    corpus, batch = judge.corpus, batches[-1]
    every = frozen_batch(rows)
    alphas, history = _budgets(judge, deployed), _history(judge)
    lines = _overlapping(corpus, batch, set(every.trajectories))
    mine = [line for line in lines if line.batch == batch][-1:]
    for draws in (*(line.draws for line in mine), len(lines) + 1):
        delta = DELTA if draws == 1 else Schedule("inverse_square", DELTA).share(draws)
        plan = plan_sides(every, alphas=alphas, delta=delta, history=history)
        frozen = _Frozen(_drawn_from(every, plan), plan, draws)
        # a killed call had drawn this very batch: it keeps its seed
        if mine and mine[0].batch_sha256 == sides_sha256(plan, frozen.batch):
            break
    return frozen


def _overlapping(corpus: Corpus, batch: str, runs: set[str]) -> list[DrawnSeed]:
    """Return the draws that were made of these runs, or of some of them."""

    def overlaps(other: str) -> bool:
        return bool(runs & set(identities_of(corpus, other)["trajectory_id"]))

    return [
        line
        for line in read_draws(corpus)
        if line.batch == batch or any(overlaps(name) for name in line.batches)
    ]


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


def _drawn(
    corpus: Corpus, batches: tuple[str, ...], others: Sequence[str], frozen: _Frozen
) -> AuditRecord | None:
    """Draw frozen runs and store their audit; those whose seed is recorded keep it.

    Nothing is drawn, and reviewers get the runs of the others, where no plan saves a label.
    """
    batch = batches[-1]
    if not len(frozen.batch):
        _share(corpus, "", batches, [name for name in batches if name in others])
        return None
    line = _recorded(
        corpus,
        DrawnSeed(
            batch=batch,
            batch_sha256=sides_sha256(frozen.plan, frozen.batch),
            draws=frozen.draws,
            seed=secrets.randbits(62),
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            batches=batches,
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
        batches=batches,
    )
    key = batch_key(corpus.name, batch, "audit.json")
    for stale in (key, batch_key(corpus.name, batch, "pooled.json")):
        # of a draw that was cut off, or that a batch was taken out of: it is not of these batches
        if corpus.store.exists(stale):
            corpus.store.delete(stale)
    _share(corpus, batch, batches, others)
    # last: the runs are drawn once this document is there
    corpus.store.write_json(key, record.to_dict())
    return record


def _share(
    corpus: Corpus, draw: str, batches: Sequence[str], said: Sequence[str], *, why: str = ""
) -> None:
    """Store in some of the batches which of them share a draw; an empty one is none at all."""
    about = {"schema": POOLED_SCHEMA, "draw": draw, "batches": list(batches), "why": why}
    for name in said:
        corpus.store.write_json(batch_key(corpus.name, name, "pooled.json"), about)


def _recorded(corpus: Corpus, line: DrawnSeed) -> DrawnSeed:
    """Return the line of a frozen batch: the one that is there, else this one, appended."""

    def same(known: DrawnSeed) -> bool:
        return (known.batch, known.batch_sha256) == (line.batch, line.batch_sha256)

    journal = draws_journal(corpus)
    return journal.append_unless(same, line) or next(filter(same, journal.read()))
