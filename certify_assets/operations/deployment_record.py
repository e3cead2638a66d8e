"""What is written down of a deployment: the document of now, and the journal of every one that was."""

from __future__ import annotations

import secrets
import time as clock
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.layout import deployment_key, deployments_key
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.journal import Journal, LineFormat, canonical_line
from certify_assets.storage.snapshot import remembered
from certify_assets.storage.store import Store

__all__ = [
    "SCHEMA",
    "Deployment",
    "append_deployment",
    "load_deployment",
    "own_key",
    "plan_before",
    "read_deployments",
]

SCHEMA: Final = "certify_assets/deployment/1"
_FORMAT = LineFormat(
    number="number", unchained_start=True, encode=canonical_line, entry="a deployment"
)
# between the line of a journal and the document that repeats it
_PATIENCE = 0.5


@dataclass(frozen=True)
class Deployment:
    """Which judge decides the new runs of a corpus.

    Parameters
    ----------
    corpus, judge : str
    alpha : mapping of str to float
        Budget of each side that is decided.
    certificates_key : str
        Where the certificates are stored.
    certificates : tuple of str
        SHA-256 of those that decide, at most one a side.
    fingerprint : mapping of str to str
        What they stand on: hashes of adapter, renderer, prompt, split manifest, scores and trajectories, and the grid.
    sampling : SamplingPlan
    number : int
        From 1; the line of the journal.
    time : str
        UTC, ISO 8601.
    findings : tuple of dict
        code and message of what the user should know.
    mlflow : mapping or None
        Model, version, alias and run, or why MLflow has no record; None before it was asked.
    previous : str
        Hash of the journal's line before; "" in the first.
    """

    corpus: str
    judge: str
    alpha: Mapping[str, float]
    certificates_key: str
    certificates: tuple[str, ...]
    fingerprint: Mapping[str, str]
    sampling: SamplingPlan
    number: int
    time: str
    findings: tuple[Mapping[str, str], ...] = ()
    mlflow: Mapping[str, str] | None = None
    previous: str = field(default="", compare=False)

    @property
    def own(self) -> bool:
        """Whether the certificates are the judge's own, not those of a recertification."""
        return self.certificates_key == own_key(self.corpus, self.judge)

    def to_dict(self) -> dict[str, Any]:
        """Return the deployment as a JSON object."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "certificates": list(self.certificates),
            "findings": list(self.findings),
        }

    @classmethod
    def from_dict(cls, document: Any, where: str) -> Deployment:
        """Read a deployment.

        Raises
        ------
        IntegrityError
            If it is none; the sentence names the file.
        """
        try:
            values = dict(document)
            if values.pop("schema") != SCHEMA:
                raise ValueError(f"it is not {SCHEMA}")
            plan = SamplingPlan(**values.pop("sampling"))
            certificates, findings = (
                tuple(values.pop(name, ())) for name in ("certificates", "findings")
            )
            return cls(**values, certificates=certificates, findings=findings, sampling=plan)
        except (TypeError, ValueError, KeyError, InputError) as error:
            raise IntegrityError(
                f"{where} is not a deployment ({error}); deploy the judge again."
            ) from None


@remembered
def load_deployment(corpus: Corpus) -> Deployment | None:
    """Return the deployment of now; None where nothing was deployed.

    Raises
    ------
    IntegrityError
        If it is not the last line of the journal of deployments.
    """
    key = deployment_key(corpus.name)
    if not corpus.store.exists(key):
        return None
    found, journal = _now(corpus)
    if found in journal[:-1]:
        # somebody may be deploying just now: the line comes first
        clock.sleep(_PATIENCE)
        found, journal = _now(corpus)
    if found not in journal:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is not line {found.number} of the journal of deployments: it was altered; deploy again."
        )
    if found != journal[-1]:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is line {found.number} of {len(journal)} of the journal of deployments: an earlier one was put back, or a deployment was "
            "cut off; deploy again."
        )
    return replace(found, mlflow=corpus.store.read_json(key).get("mlflow"))


def _now(corpus: Corpus) -> tuple[Deployment, list[Deployment]]:
    key = deployment_key(corpus.name)
    found = Deployment.from_dict(corpus.store.read_json(key), corpus.store.locate(key))
    # what MLflow said came after the line was written
    return replace(found, mlflow=None), read_deployments(corpus)


def read_deployments(corpus: Corpus) -> list[Deployment]:
    """Return every deployment of a corpus, the oldest first.

    Raises
    ------
    IntegrityError
        If a line before the last was altered, taken out or put in.
    """
    return _journal(corpus.store, corpus.name).read()


def plan_before(corpus: Corpus) -> SamplingPlan:
    """Return the sampling of the deployment before; at first .05 and .05, under a seed that nobody knows yet."""
    journal = read_deployments(corpus)
    return journal[-1].sampling if journal else SamplingPlan(seed=secrets.randbelow(2**31))


def own_key(corpus: str, judge: str) -> str:
    """Return where a judge's own certificates are stored."""
    return f"judges/{judge}/{corpus}/certificates.json"


def append_deployment(store: Store, deployment: Deployment) -> Deployment:
    """Write the line of a deployment, and return it with its number."""
    return _journal(store, deployment.corpus).append(deployment)[0]


def _journal(store: Store, corpus: str) -> Journal[Deployment]:
    key = deployments_key(corpus)
    where = store.locate(key)
    return Journal(
        store, key, lambda entry: Deployment.from_dict(entry, where), _FORMAT, Deployment.to_dict
    )
