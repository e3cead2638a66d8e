"""Stored deployments: an event for each, and one for what MLflow answered."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.evaluation.spending import Spending, read_spending
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.layout import own_key, recertification_number
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.events import Head, Payload, TypedEvent
from certify_assets.storage.snapshot import remembered

SCHEMA: Final = "certify_assets/deployment/1"


class Deployed(Payload):
    """A judge was deployed: it decides the new runs of a corpus, under certificates.

    Its objects are, by their keys, all files that the decisions depend on, and the certificates
    that decide.
    """

    kind = "deployed"
    number: int  # among the deployments of the corpus, from 1
    corpus: str
    judge: str
    alpha: Mapping[str, float]  # budget of each side that is decided
    certificates_key: str
    certificates: tuple[str, ...]  # SHA-256 of those that decide, at most one a side
    fingerprint: Mapping[str, str]  # hashes that the decisions depend on, and the grid
    sampling: SamplingPlan
    findings: tuple[Mapping[str, str], ...] = ()  # code and message of what the user should know
    policy: str = ""  # of the corpus, where it deployed; empty where a user did
    # budgets of batches, where certificates of batches alone decide; else empty
    batch_alpha: Mapping[str, float] = {}

    @property
    def batch_only(self) -> bool:
        """Whether it has no certificate, and every batch waits for one of its own."""
        return bool(self.batch_alpha)

    @property
    def budgets(self) -> str:
        """The budgets in words."""
        sides = ", ".join(
            f"{side} at {a:g}" for side, a in (self.alpha or self.batch_alpha).items()
        )
        return f"batch certificates alone, {sides}" if self.batch_only else sides

    @property
    def own(self) -> bool:
        """Whether the certificates are those on CAL, not those of a recertification."""
        return self.certificates_key == own_key(self.corpus, self.judge)

    @property
    def recertification(self) -> int:
        """Number of the recertification whose certificates decide; 0 for those on CAL."""
        return recertification_number(self.corpus, self.certificates_key)

    @property
    def version(self) -> str:
        """Hash of the number and of all that it names."""
        return sha256_bytes(canonical_json([self.number, dict(self.objects)]))

    def judge_on(self, corpus: Corpus) -> JudgedCorpus:
        """Return the judge as it was deployed, with its corpus."""
        return JudgedCorpus(corpus, self.judge).pinned(self.objects)


class TrackedDeployment(Payload):
    """MLflow was told of a deployment: model, version, alias and run, or the error."""

    kind = "tracked"
    number: int  # of the deployment
    answer: Mapping[str, str]


class DeploymentRecord(Deployed):
    """A deployment with what its event adds, and what MLflow answered."""

    time: str  # UTC, ISO 8601
    ledger: Head
    mlflow: Mapping[str, str] | None = None  # None before it is asked

    @classmethod
    def of(cls, entry: TypedEvent[Deployed], mlflow: Mapping[str, str] | None) -> DeploymentRecord:
        """Return the record of an event."""
        made = entry.content
        head = Head(corpus=made.corpus, sequence=entry.sequence, sha256=entry.sha256)
        return cls(**dict(made), time=entry.time, ledger=head, mlflow=mlflow)

    def is_again(self, made: Deployed) -> bool:
        """Whether another deployment names the same, under whatever number, whoever asked for it."""
        names = Deployed.model_fields.keys() - {"number", "policy"}
        return all(getattr(self, name) == getattr(made, name) for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the deployment."""
        return {"schema": SCHEMA, **self.model_dump(mode="json")}


@remembered
def load_deployment(corpus: Corpus) -> DeploymentRecord | None:
    """Return the current deployment, the last one; None where there is none."""
    found = read_deployments(corpus)
    return found[-1] if found else None


@remembered
def read_deployments(corpus: Corpus) -> list[DeploymentRecord]:
    """Return every deployment of a corpus, the oldest first."""
    # no decision depends on what MLflow answers
    told = {
        entry.content.number: entry.content.answer
        for entry in corpus.store.events(corpus.name, TrackedDeployment, watched=False)
    }
    return [
        DeploymentRecord.of(entry, told.get(entry.content.number))
        for entry in corpus.store.events(corpus.name, Deployed)
    ]


def deployed_spending(corpus: Corpus) -> Spending:
    """Return what the deployed judge spent; what all judges did where none is deployed."""
    spending, now = read_spending(corpus), load_deployment(corpus)
    return spending if now is None else spending.of(now.judge)


def plan_before(corpus: Corpus) -> SamplingPlan:
    """Return the sampling of the last deployment; at first .05 and .05 under a new secret seed."""
    now = load_deployment(corpus)
    return SamplingPlan(seed=secrets.randbelow(2**31)) if now is None else now.sampling
