"""Where the documents of operation lie, and the columns of a table of decisions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ASKED",
    "DECISION_COLUMNS",
    "batch_key",
    "batch_names",
    "batch_runs",
    "decisions_of",
    "deployment_key",
    "deployments_key",
    "labels_key",
    "load_decisions",
    "recertification_key",
    "require_as_decided",
]

_BATCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,79}")

#: why a person is asked about a run, the most needed first; "" where nobody is
ASKED: Final = ("audit_sample", "spot_check", "undecided", "")

#: of every row that was decided: whose run it is, what became of it, why, and what it stands on
DECISION_COLUMNS: Final = (
    "corpus",
    "batch",
    "trajectory_id",
    "task_id",
    "agent",
    "attempt",
    "judge",
    "score",
    "decision",  # reject, release or human
    # of certificates.decision.decide; seen_task or changed_run, of which the promise does not speak; or why nothing was decided: not_deployed,
    # stale_certificate, no_certificate, failed_audit, alarm
    "reason",
    "asked",  # one of ASKED
    "reject_threshold",
    "release_threshold",
    "certificate_sha256",
    "adapter_sha256",
    "source_file",
    "source_sha256",
)


def deployment_key(corpus: str) -> str:
    """Return where the deployment of now is stored."""
    return f"operations/{corpus}/deployment.json"


def deployments_key(corpus: str) -> str:
    """Return the journal of deployments."""
    return f"operations/{corpus}/deployments.jsonl"


def labels_key(corpus: str) -> str:
    """Return the journal of labels."""
    return f"operations/{corpus}/labels.jsonl"


def batch_key(corpus: str, batch: str, name: str) -> str:
    """Return where a document of a batch is stored.

    Raises
    ------
    InputError
        If the batch cannot be the name of a folder.
    """
    if not _BATCH.fullmatch(batch):
        raise InputError(
            f"{batch!r} cannot name a batch; use up to 80 letters, digits, '_', '-' and '.', a letter or digit first."
        )
    return f"operations/{corpus}/batches/{batch}/{name}"


def recertification_key(corpus: str, number: int, name: str) -> str:
    """Return where a document of a recertification is stored."""
    return f"operations/{corpus}/recertifications/{number}/{name}"


def batch_names(corpus: Corpus) -> list[str]:
    """Return the batches that were decided, the oldest first: in the order of their names, which begin with their number."""
    return [
        name
        for name in corpus.store.names(f"operations/{corpus}/batches")
        if corpus.store.exists(batch_key(corpus.name, name, "decisions.parquet"))
    ]


def decisions_of(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return the decisions of a batch, with `DECISION_COLUMNS`."""
    return corpus.store.read_table(batch_key(corpus.name, batch, "decisions.parquet"))


def batch_runs(corpus: Corpus, batch: str) -> pd.DataFrame:
    """Return the trajectories of a batch, with the columns of `corpora.schema.ARROW_SCHEMA`."""
    from certify_assets.corpora.schema import read_trajectories

    with corpus.store.as_file(batch_key(corpus.name, batch, "runs.parquet")) as path:
        return read_trajectories(path)


def require_as_decided(corpus: Corpus, batch: str, name: str) -> None:
    """Raise unless a table of a batch, ``runs`` or ``decisions``, is as when the batch was decided.

    Nothing is asked where no document of the batch tells its hash.

    Raises
    ------
    IntegrityError
    """
    key, about = (
        batch_key(corpus.name, batch, f"{name}.parquet"),
        batch_key(corpus.name, batch, "batch.json"),
    )
    told = (
        corpus.store.read_json(about).get(f"{name}_sha256") if corpus.store.exists(about) else None
    )
    if told is not None and corpus.store.sha256(key) != told:
        raise IntegrityError(
            f"{corpus.store.locate(key)} is not what it was when the batch was decided; restore it from a backup."
        )


def load_decisions(corpus: Corpus) -> pd.DataFrame:
    """Return the decisions of all batches, the oldest first; without rows where nothing was decided."""
    import pandas as pd

    parts = [decisions_of(corpus, name) for name in batch_names(corpus)]
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else pd.DataFrame({name: [] for name in DECISION_COLUMNS})
    )
