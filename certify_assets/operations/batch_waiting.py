"""Provisional runs that wait for a draw: those of several small deliveries share one."""

# The labels of a draw hardly grow with its runs, so a draw of few runs saves nothing. Runs of
# batches that were decided by one judge wait until there are as many as the corpus says, or until
# the oldest of them waited as long. Nothing of this depends on a label, and the runs are frozen
# before the seed is drawn, so when they are drawn is no matter of the certificate.

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_draws import draw_of
from certify_assets.operations.batch_record import ProvisionalBatch, is_undone
from certify_assets.operations.deployment import DeploymentRecord, read_deployments


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
