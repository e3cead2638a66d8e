"""Freezing the provisional runs of batches, and drawing them."""

# The promise needs an order: plans, runs and scores are frozen by a hash, and only then the seed is
# drawn from the operating system. One event has both, and nothing of a draw is shown before that
# event is stored. Later draws of the same or of overlapping runs are further tries. The first is
# made at the whole δ, the j-th at δ·6/(π²j²), so that all of them together spend at most 1.4 δ.
# The labels of a draw hardly grow with its runs, so a draw of few runs saves nothing. Runs of
# batches that were decided by one judge wait until there are as many as the corpus says, or until
# the oldest of them waited as long. Nothing of this depends on a label, and the runs are frozen
# before the seed is drawn, so when they are drawn is no matter of the certificate.

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from certify_assets.certificates.batch import Batch, BatchPlan
from certify_assets.certificates.batch_draw import BatchDraw
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.judges.specs import DELTA, SIDES
from certify_assets.operations.batch_audit import FrozenDraw, frozen_batch, promise_of
from certify_assets.operations.batch_record import (
    DrawnBatch,
    ProvisionalBatch,
    UndrawnBatches,
    draw_of,
    identities_of,
    is_undone,
    read_draws,
)
from certify_assets.operations.decision_tables import PROVISIONAL, provisional_rows
from certify_assets.operations.deployment import DeploymentRecord, read_deployments
from certify_assets.operations.spending import Schedule

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.judged import JudgedCorpus


class _Frozen(NamedTuple):
    """Runs that a plan may certify, and the number of their draw among draws of them."""

    batches: tuple[str, ...]
    batch: Batch
    plan: BatchPlan
    draws: int


def begin_audit(
    judge: JudgedCorpus, deployed: DeploymentRecord, batch: str, frame: pd.DataFrame
) -> tuple[pd.DataFrame, str, str]:
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
        return frame, "", pool.sentence()
    rows = [provisional_rows(corpus, [name]) for name in pool.batches[:-1]]
    frozen = _frozen(judge, deployed, pool.batches, pd.concat([*rows, mine]))
    waits = frame["trajectory_id"].isin(frozen.batch.trajectories if frozen else ())
    left = (frame["decision"] == PROVISIONAL) & ~waits
    frame = frame.assign(decision=frame["decision"].mask(left, "human"))
    if frozen is not None:
        return frame, _drawn(corpus, frozen), ""
    if earlier_batches := pool.batches[:-1]:
        # the rows of the batch that is being decided say it themselves
        corpus.store.append(corpus.name, UndrawnBatches(batches=earlier_batches, why=""))
    return frame, "", ""


def draw_waiting(corpus: Corpus, *, every: bool = False) -> None:
    """Draw the runs of decided batches that waited long enough, or all that wait."""
    for item in waiting_runs(corpus):
        if not (every or item.is_due):
            continue
        judge = item.deployed.judge_on(corpus)
        why, frozen = "", None
        try:
            if corpus.current.config.new_agents == "review":
                raise InputError(f"new_agents of {corpus} is review now.")
            frozen = _frozen(
                judge, item.deployed, item.batches, provisional_rows(corpus, item.batches)
            )
        except CertifyError as error:
            # the judge that scored them is gone, or may not have them certified any more
            why = str(error)
        if frozen is not None:
            _drawn(corpus, frozen)
        else:
            corpus.store.append(corpus.name, UndrawnBatches(batches=item.batches, why=why))


def _frozen(
    judge: JudgedCorpus, deployed: DeploymentRecord, batches: Sequence[str], rows: pd.DataFrame
) -> _Frozen | None:
    """Plan the draw of runs; None where no labels are worth it."""
    every = frozen_batch(rows)
    draws = 1 + _overlapping(judge.corpus, set(every.trajectories))
    delta = DELTA if draws == 1 else Schedule("inverse_square", DELTA).share(draws)
    plan = plan_batch(every, alphas=_budgets(judge, deployed), delta=delta, history=_history(judge))
    if plan is None:
        return None
    return _Frozen(tuple(batches), _drawn_from(every, plan), plan, draws)


def _overlapping(corpus: Corpus, runs: set[str]) -> int:
    """Count the draws that were made of these runs, or of some of them."""
    found = (entry.content.batches for entry in read_draws(corpus))
    return sum(
        any(runs & set(identities_of(corpus, name)["trajectory_id"]) for name in batches)
        for batches in found
    )


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
        hashes["scores_sha256"],
        [str(agent) for agent in rows["agent"]],
    )


def _drawn_from(every: Batch, plan: BatchPlan) -> Batch:
    """Return the runs that some threshold of a plan decides."""
    inside = np.zeros(len(every), dtype=bool)
    for item in plan.sides:
        part = every.side(item.side, plan.cut)
        inside |= part.decided(item.side, item.thresholds[-1])
    places = np.flatnonzero(inside).tolist()
    names, tasks = (
        tuple(values[place] for place in places) for values in (every.trajectories, every.tasks)
    )
    return Batch(names, tasks, every.scores[inside])


def _drawn(corpus: Corpus, frozen: _Frozen) -> str:
    """Draw frozen runs and store their audit; return what it promises."""
    draw = BatchDraw(frozen.plan, frozen.batch, secrets.randbits(62))
    audit = FrozenDraw(plan=frozen.plan, order=draw.order)
    drawn = DrawnBatch(
        batches=frozen.batches,
        batch_sha256=draw.batch_sha256,
        draws=frozen.draws,
        seed=draw.seed,
        objects={"audit": corpus.store.objects.put_json(audit.to_dict())},
    )
    corpus.store.append(corpus.name, drawn)
    return promise_of(frozen.plan, len(frozen.batches))


@dataclass(frozen=True)
class WaitingRuns:
    """Batches whose provisional runs wait for one draw, the oldest first."""

    corpus: Corpus
    deployed: DeploymentRecord  # that decided the last of them
    batches: tuple[str, ...]
    runs: int
    since: datetime

    def joined(self, deployed: DeploymentRecord, batch: str, runs: int) -> WaitingRuns:
        """Return these with the runs of a later batch."""
        batches = (*self.batches, batch)
        return replace(self, deployed=deployed, batches=batches, runs=self.runs + runs)

    @property
    def is_due(self) -> bool:
        """Whether they are enough, waited long enough, or will not be more."""
        config = self.corpus.current.config
        return (
            self.runs >= config.batch_runs
            or datetime.now(UTC) - self.since >= timedelta(days=config.batch_days)
            or config.new_agents == "review"
            or scorer_of(self.deployed) != scorer_of(read_deployments(self.corpus)[-1])
        )

    def sentence(self) -> str:
        """Describe what they wait for."""
        config = self.corpus.current.config
        until = self.since + timedelta(days=config.batch_days)
        names = ", ".join(self.batches)
        return (
            f"{self.runs} runs of {names} wait for a draw. It is made at {config.batch_runs} runs "
            f"or on {until:%Y-%m-%d}, whichever is first, or now: `certify ops ingest "
            f"{self.corpus} --draw`."
        )


def scorer_of(deployed: DeploymentRecord) -> tuple[str, str]:
    """Return the judge that scores under a deployment: scores of one judge compare."""
    return deployed.judge, deployed.fingerprint["adapter_sha256"]


def waiting_runs(corpus: Corpus) -> list[WaitingRuns]:
    """Return the provisional runs that wait for a draw, those of one judge together."""
    deployments = {item.number: item for item in read_deployments(corpus)}
    found: dict[tuple[str, str], WaitingRuns] = {}
    for name in corpus.store.subjects(corpus.name, ProvisionalBatch):
        if is_undone(corpus, name) or draw_of(corpus, name) is not None:
            continue
        last = corpus.store.last(corpus.name, ProvisionalBatch, name)
        assert last is not None
        made = deployments.get(last.content.deployment)
        if made is None:
            continue
        # one that is decided in the step that is under way has no time yet
        since = datetime.fromisoformat(last.time) if last.time else datetime.now(UTC)
        scorer = scorer_of(made)
        before = found.get(scorer, WaitingRuns(corpus, made, (), 0, since))
        found[scorer] = before.joined(made, name, last.content.runs)
    return list(found.values())
