"""Stored deployments: the document of the current one and the journal of all."""

from __future__ import annotations

import secrets
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.evaluation.spending import Spending, read_spending
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.layout import (
    deployment_key,
    deployments_key,
    kept_key,
    own_key,
    recertification_number,
)
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.journal import Journal, LineFormat, canonical_line, heads_key
from certify_assets.storage.snapshot import remembered

SCHEMA: Final = "certify_assets/deployment/1"
_FORMAT = LineFormat(number="number", encode=canonical_line, entry="a deployment")
# seconds between the line of the journal and the document that repeats it
_PATIENCE = 0.5


@dataclass(frozen=True, kw_only=True)
class DeploymentRecord:
    """Which judge decides the new runs of a corpus, and under which certificates."""

    schema: str = SCHEMA
    corpus: str
    judge: str
    alpha: Mapping[str, float]  # budget of each side that is decided
    certificates_key: str
    certificates: tuple[str, ...]  # SHA-256 of those that decide, at most one a side
    fingerprint: Mapping[str, str]  # hashes that the decisions depend on, and the grid
    sampling: SamplingPlan
    number: int  # line of the journal, from 1
    time: str  # UTC, ISO 8601
    findings: tuple[Mapping[str, str], ...] = ()  # code and message of what the user should know
    policy: str = ""  # of the corpus, where it deployed; empty where a user did
    # budgets of batches, where certificates of batches alone decide; else empty
    batch_alpha: Mapping[str, float] = field(default_factory=dict)
    kept: str  # of the list of files that it keeps copies of; empty until they are made
    # model, version, alias and run, or the error; None before it is asked
    mlflow: Mapping[str, str] | None = None
    # hash of the previous line; empty in the first
    previous: str = field(default="", compare=False)

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

    def judge_on(self, corpus: Corpus) -> JudgedCorpus:
        """Return the judge as it was deployed, with its corpus."""
        kept = kept_key(corpus.name, self.kept) if self.kept else ""
        return JudgedCorpus(Corpus(corpus.store, corpus.name, kept), self.judge)

    @classmethod
    def from_dict(cls, document: Any, where: str) -> DeploymentRecord:
        """Read a deployment; `where` is named if the document is none."""
        try:
            values = dict(document)
            if values["schema"] != SCHEMA:
                raise ValueError(f"it is not {SCHEMA}")
            plan = SamplingPlan(**values.pop("sampling"))
            certificates, findings = (
                tuple(values.pop(name)) for name in ("certificates", "findings")
            )
            return cls(**values, certificates=certificates, findings=findings, sampling=plan)
        except (TypeError, ValueError, KeyError, InputError) as error:
            raise IntegrityError(
                f"{where} is not a deployment ({error}); deploy the judge again."
            ) from None


@remembered
def stored_deployment(corpus: Corpus) -> DeploymentRecord | None:
    """Return the current deployment without a look at the journal; None where there is none."""
    key = deployment_key(corpus.name)
    if not corpus.store.exists(key):
        return None
    return DeploymentRecord.from_dict(corpus.store.read_json(key), corpus.store.locate(key))


@remembered
def load_deployment(corpus: Corpus) -> DeploymentRecord | None:
    """Return the current deployment, the last line of its journal; None where there is none."""
    stored = stored_deployment(corpus)
    if stored is None:
        return None
    # the answer of MLflow came after the line was written
    found, journal = replace(stored, mlflow=None), read_deployments(corpus)
    if found in journal[:-1]:
        # another process may be deploying just now: its line comes first
        clock.sleep(_PATIENCE)
        stored = stored_deployment(corpus) or stored
        found, journal = replace(stored, mlflow=None), read_deployments(corpus)
    where = corpus.store.locate(deployment_key(corpus.name))
    if found not in journal:
        raise IntegrityError(
            f"{where} is not line {found.number} of the journal of deployments: it was altered; "
            "deploy again."
        )
    if found != journal[-1]:
        raise IntegrityError(
            f"{where} is line {found.number} of {len(journal)} of the journal of deployments: an "
            "earlier one was put back, or a deployment was cut off; deploy again."
        )
    return stored


def deployed_spending(corpus: Corpus) -> Spending:
    """Return what the deployed judge spent; what all judges did where none is deployed."""
    spending, now = read_spending(corpus), stored_deployment(corpus)
    return spending if now is None else spending.of(now.judge)


def read_deployments(corpus: Corpus) -> list[DeploymentRecord]:
    """Return every deployment of a corpus, the oldest first."""
    return _journal(corpus).read()


def plan_before(corpus: Corpus) -> SamplingPlan:
    """Return the sampling of the last deployment; at first .05 and .05 under a new secret seed."""
    journal = read_deployments(corpus)
    return journal[-1].sampling if journal else SamplingPlan(seed=secrets.randbelow(2**31))


def append_deployment(corpus: Corpus, record: DeploymentRecord) -> DeploymentRecord:
    """Append a deployment to the journal, and return it with its number."""
    return _journal(corpus).append(record)[0]


def _journal(corpus: Corpus) -> Journal[DeploymentRecord]:
    key = deployments_key(corpus.name)
    where = corpus.store.locate(key)
    return Journal(
        corpus.store,
        key,
        lambda entry: DeploymentRecord.from_dict(entry, where),
        _FORMAT,
        heads=heads_key(corpus.name),
    )
