"""Stored recertifications, and their certificates recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.certificates.sampling import Draw, table_hash
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Document
from certify_assets.errors import ForgedCertificateError, IntegrityError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batches import operation_key
from certify_assets.operations.certifier import require_current, require_recomputed
from certify_assets.operations.labels import LabelPrefix
from certify_assets.operations.spending import read_spending
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

DOCUMENT: Final = "recertification.json"
SCORES: Final = "scores.parquet"
CERTIFICATES: Final = "certificates.json"
#: findings that say what was tried second, and what the next stronger promise costs
SECOND_PROMISE: Final = "second_promise"
NEXT_PROMISE: Final = "next_promise"
#: finding of labels that reviewers replaced by what the judge says
OVERRULED: Final = "overruled"


@dataclass(frozen=True)
class CertifiedSide:
    """One certificate of a recertification."""

    side: str
    alpha: float
    certified: bool
    threshold: float | None
    coverage: float
    selective_error: float | None
    certificate_sha256: str
    promise: str = "confident"  # that of the certificate; a weaker one may not be deployed
    audit_sample: Mapping[str, Any] | None = None  # its audit on the audit sample alone
    worst_error: float | None = None  # error if every open or tied run that it decides were wrong


class RecertificationRecord(Document):
    """The document of a recertification."""

    SCHEMA = "certify_assets/recertification/1"
    TITLE = "recertification"

    corpus: str
    judge: str
    adapter_sha256: str
    number: int
    time: str
    # of this one; the next two are of the first certificate and of all recertifications
    delta: float
    first_delta: float
    spent: float
    schedule: str
    joint: str
    inputs_sha256: str
    scores_sha256: str
    certificates_key: str
    certificates: tuple[str, ...]  # hashes, in the order of the sides
    sides: tuple[CertifiedSide, ...]
    tasks: Mapping[str, int]  # of cal and of audit_sample
    labelled: int  # drawn runs of these tasks, whose labels certify
    drawn: int
    new_tasks: tuple[str, ...]
    left_out: Mapping[str, int]  # drawn tasks that do not count, by reason
    open_share: float
    findings: tuple[Mapping[str, str], ...]
    labels: LabelPrefix  # that it was made of
    batches: Mapping[str, str]  # hash of the decisions of every batch

    @property
    def metrics(self) -> dict[str, float]:
        """Coverage of every side and budget, tasks, open share and δ, at most twelve numbers."""
        coverage = {f"{side.side}_coverage_at_{side.alpha:g}": side.coverage for side in self.sides}
        return {
            **coverage,
            "audit_tasks": float(self.tasks["audit_sample"]),
            "open_share": self.open_share,
            "delta": self.delta,
            "spent": self.spent,
            "spent_in_all": self.first_delta + self.spent,
        }


def recertification_key(corpus: str, number: int, name: str) -> str:
    """Return the key of a document of a recertification."""
    return operation_key(corpus, "recertifications", str(number), name)


def recertifications(corpus: Corpus) -> list[RecertificationRecord]:
    """Return all finished recertifications, the oldest first."""
    return [load_recertification(corpus, number) for number in sorted(read_spending(corpus).made)]


@remembered
def load_recertification(corpus: Corpus, number: int) -> RecertificationRecord:
    """Return the document of a recertification, which its share of δ names by its hash."""
    sha256 = read_spending(corpus).made.get(number)
    if sha256 is None:
        raise IntegrityError(f"{corpus} has no recertification {number}. Recertify.")
    return RecertificationRecord.from_dict(corpus.store.objects.get_json(sha256))


@remembered
def recertification_certificates(corpus: Corpus, number: int) -> list[Certificate]:
    """Return the certificates of a recertification, recomputed from its rows."""
    from certify_assets.certificates import Certificate

    record, whose = load_recertification(corpus, number), f"recertification {number} of {corpus}"
    table = corpus.store.objects.get_table(record.scores_sha256)
    _, hashes, _ = JudgedCorpus(corpus, record.judge).calibration
    stored = corpus.store.read_json(recertification_key(corpus.name, number, CERTIFICATES))
    certificates = [Certificate.from_dict(item) for item in stored["certificates"]]
    if tuple(item.sha256 for item in certificates) != record.certificates:
        raise ForgedCertificateError(
            f"the certificates of {whose} are not those that its document names."
        )
    require_current(certificates, hashes, f"certificates of {whose}", "recertify.")
    samples = [item.inputs.get("sample") for item in certificates]
    rows = table if samples[0] is None else rows_of_draw(table, Draw.from_inputs(samples[0]))
    if rows is None or any(other != samples[0] for other in samples):
        raise ForgedCertificateError(
            f"some certificates of {whose} are not of the draw from its table."
        )
    whose = f"the certificates of {whose}"
    require_recomputed(certificates, rows, None, whose, sample=samples[0])
    return certificates


def rows_of_draw(table: pd.DataFrame, draw: Draw) -> pd.DataFrame | None:
    """Return the rows that a draw draws from a table; None where it was made from another one."""
    names = table["task_id"].tolist(), table["trajectory_id"].tolist()
    if draw.sha256 != table_hash(*names, table["score"].to_numpy(float)):
        return None
    return table.iloc[sorted(draw.rows(*names).tolist())].reset_index(drop=True)
