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
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.certificates.batch_draw import BatchDraw
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.judges.specs import DELTA, SIDES
from certify_assets.operations.batch_audit import (
    BatchAudit,
    FrozenDraw,
    batch_audits,
    close_settled,
    frozen_batch,
    promise_of,
)
from certify_assets.operations.batches import (
    DrawnBatch,
    ProvisionalBatch,
    UndrawnBatches,
    draw_of,
    identities_of,
    is_undone,
)
from certify_assets.operations.decisions import PROVISIONAL, provisional_rows
from certify_assets.operations.deployment import DeploymentRecord, read_deployments
from certify_assets.operations.recertification_record import CERTIFICATES, recertification_key
from certify_assets.operations.spending import Schedule

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates.batch import BatchPlan
    from certify_assets.judges.judged import JudgedCorpus


@dataclass(frozen=True)
class Begun:
    """What becomes of the provisional runs of a batch that is being decided."""

    frame: pd.DataFrame  # decisions, without the runs that no plan may certify
    expected: str  # what labels of a draw would decide
    promise: str = ""  # of the draw, where one was made
    waits: str = ""  # what they wait for, where none was


def begin_audit(
    corpus: Corpus, deployed: DeploymentRecord, batch: str, frame: pd.DataFrame
) -> Begun:
    """Plan and draw the provisional runs of a batch that is being decided, with those that wait.

    Those that no plan may certify go to review, all of them where no plan is expected to save
    labels. While they are too few for a draw, they wait for later ones.
    """
    import pandas as pd

    provisional = frame["decision"] == PROVISIONAL
    alone = WaitingRuns(corpus, deployed, (), 0, datetime.now(UTC))
    earlier = {item.deployed.scorer: item for item in waiting_runs(corpus)}
    pool = earlier.get(deployed.scorer, alone).joined(deployed, batch, int(provisional.sum()))
    before = pool.batches[:-1]
    rows = pd.concat([*([provisional_rows(corpus, before)] if before else []), frame[provisional]])
    plan, draws = pool.plan(rows)
    expected = pool.expected(plan)
    if not pool.is_due:
        return Begun(frame, expected, waits=pool.sentence())
    drawn, promise = _draw(pool, plan, draws, rows)
    if before and not drawn:
        # the rows of the batch that is being decided say it themselves
        corpus.append(UndrawnBatches(batches=before, why=""))
    left = provisional & ~frame["trajectory_id"].isin(drawn)
    return Begun(frame.assign(decision=frame["decision"].mask(left, "human")), expected, promise)


def draw_waiting(corpus: Corpus, *, every: bool = False) -> None:
    """Draw the runs of decided batches that waited long enough, or all that wait."""
    for item in waiting_runs(corpus):
        if not (every or item.is_due):
            continue
        why, drawn = "", tuple[str, ...]()
        try:
            rows = provisional_rows(corpus, item.batches)
            drawn, _ = _draw(item, *item.plan(rows), rows)
        except CertifyError as error:
            # the judge that scored them is gone, or may not have them certified any more
            why = str(error)
        if not drawn:
            corpus.append(UndrawnBatches(batches=item.batches, why=why))


def close_batches(corpus: Corpus) -> tuple[list[BatchAudit], dict[str, str]]:
    """Close the provisional batches whose labels settle them; return as `batch_audits`.

    Runs that waited long enough for a draw get it.
    """
    audits, faults = batch_audits(corpus)
    settled = any(item.closing is None and not item.wanted for item in audits)
    if settled or any(item.is_due for item in waiting_runs(corpus)):
        # where another process was faster, the next look closes them
        with suppress(CertifyError), corpus.writing():
            close_settled(corpus)
            draw_waiting(corpus)
        return batch_audits(corpus)
    return audits, faults


def _draw(
    pool: WaitingRuns, plan: BatchPlan | None, draws: int, rows: pd.DataFrame
) -> tuple[tuple[str, ...], str]:
    """Freeze and draw runs; return those that are drawn from, and the promise of the draw.

    None is drawn where no labels are worth it.
    """
    if plan is None:
        return (), ""
    corpus, every = pool.corpus, frozen_batch(rows)
    inside = np.zeros(len(every), dtype=bool)
    for item in plan.sides:
        # the runs that some threshold decides
        inside |= every.side(item.side, plan.cut).decided(item.side, item.thresholds[-1])
    names = np.array(every.trajectories, dtype=object)[inside]
    draw = BatchDraw(
        plan, frozen_batch(rows[rows["trajectory_id"].isin(names)]), secrets.randbits(62)
    )
    audit = FrozenDraw(plan=plan, order=draw.order)
    drawn = DrawnBatch(
        batches=pool.batches,
        batch_sha256=draw.batch_sha256,
        draws=draws,
        seed=draw.seed,
        objects={"audit": corpus.store.objects.put_json(audit.to_dict())},
    )
    corpus.append(drawn)
    return draw.batch.trajectories, promise_of(plan, len(pool.batches))


def _budgets(judge: JudgedCorpus, deployed: DeploymentRecord) -> dict[str, float]:
    """Return the budget of each side that a batch may be certified on.

    A deployed side keeps its budget. A side that is not certified at any budget takes the budget of
    the other side. A side that is certified but not deployed has no budget.
    """
    number = deployed.recertification
    key = (
        recertification_key(deployed.corpus, number, CERTIFICATES)
        if number
        else judge.key("certificates.json")
    )
    issued = judge.store.read_json(key)["certificates"]
    certified = {item["side"] for item in issued if item["certified"]}
    other = next(iter(deployed.alpha.values()))
    return {
        side: deployed.alpha.get(side, other)
        for side in SIDES
        if side in deployed.alpha or side not in certified
    }


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
            or self.deployed.scorer != read_deployments(self.corpus)[-1].scorer
        )

    def plan(self, rows: pd.DataFrame) -> tuple[BatchPlan | None, int]:
        """Return the plan of a draw of their rows, and how many draws of such runs there are then.

        The plan is None where no labels are worth it.
        """
        judge, runs = self.deployed.judge_on(self.corpus), set(rows["trajectory_id"])
        earlier = (event.content.batches for event in self.corpus.events(DrawnBatch))
        draws = 1 + sum(
            any(runs & {*identities_of(self.corpus, name)["trajectory_id"]} for name in batches)
            for batches in earlier
        )
        labelled, hashes, _ = judge.calibration
        labelled = labelled[labelled["score"].notna()]
        plan = plan_batch(
            frozen_batch(rows),
            alphas=_budgets(judge, self.deployed),
            delta=DELTA if draws == 1 else Schedule("inverse_square", DELTA).share(draws),
            history=History(
                labelled["score"].to_numpy(np.float64),
                labelled["outcome"].to_numpy(np.int64),
                hashes["scores_sha256"],
            ),
        )
        return plan, draws

    def expected(self, plan: BatchPlan | None) -> str:
        """Say how many labels would decide how many of them."""
        if plan is None:
            return f"A draw from these {self.runs:,} runs is expected to save no label."
        labels = sum(side.expected_labels for side in plan.sides)
        decided = labels + self.runs * sum(side.expected_net_share for side in plan.sides)
        return (
            f"On average, at the error rates of CAL, about {labels:,.0f} labels of a random draw "
            f"decide {decided:,.0f} of {self.runs:,} runs."
        )

    def sentence(self) -> str:
        """Describe what they wait for."""
        config = self.corpus.current.config
        until = self.since + timedelta(days=config.batch_days)
        names = ", ".join(self.batches)
        return (
            f"{self.runs:,} runs of {names} wait for a draw. It is made at {config.batch_runs:,} "
            f"runs, or from {until:%Y-%m-%d} on by the next delivery or `certify ops status`. "
            f"To draw now: `certify ops ingest {self.corpus} --draw`."
        )

    def outlook(self) -> str:
        """Describe what they wait for, and what labels would decide now."""
        try:
            plan, _ = self.plan(provisional_rows(self.corpus, self.batches))
        except CertifyError:
            # the judge that scored them is gone: reviewers get them
            return self.sentence()
        return f"{self.sentence()} {self.expected(plan)}"


def waiting_runs(corpus: Corpus) -> list[WaitingRuns]:
    """Return the provisional runs that wait for a draw, those of one judge together."""
    deployments = {item.number: item for item in read_deployments(corpus)}
    found: dict[tuple[str, str], WaitingRuns] = {}
    for name in corpus.store.subjects(corpus.name, ProvisionalBatch):
        if is_undone(corpus, name) or draw_of(corpus, name) is not None:
            continue
        last = corpus.last(ProvisionalBatch, name)
        assert last is not None
        made = deployments.get(last.content.deployment)
        if made is None:
            continue
        # one that is decided in the step that is under way has no time yet
        since = datetime.fromisoformat(last.time) if last.time else datetime.now(UTC)
        before = found.get(made.scorer, WaitingRuns(corpus, made, (), 0, since))
        found[made.scorer] = before.joined(made, name, last.content.runs)
    return list(found.values())
