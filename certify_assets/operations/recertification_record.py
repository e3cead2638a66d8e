"""Stored recertifications: read with all their hashes, and recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ForgedCertificateError, IntegrityError, StaleCertificateError
from certify_assets.evaluation.certification import recomputed_difference
from certify_assets.evaluation.pool import StoredPool, named_pool, pool_in
from certify_assets.evaluation.spending import read_spending
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.layout import recertification_key
from certify_assets.operations.monitor_record import LabelPrefix
from certify_assets.storage.events import Head
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

SCHEMA: Final = "certify_assets/recertification/1"
DOCUMENT: Final = "recertification.json"
SCORES: Final = "scores.parquet"
CERTIFICATES: Final = "certificates.json"
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
    audit_sample: Mapping[str, Any] | None = None  # its audit on the audit sample alone
    worst_error: float | None = None  # error if every open or tied run that it decides were wrong


@dataclass(frozen=True, kw_only=True)
class RecertificationRecord:
    """The document of a recertification; fields as stored."""

    schema: str
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
    drawn: int
    new_tasks: tuple[str, ...]
    left_out: Mapping[str, int]  # drawn tasks that do not count, by reason
    open_share: float
    came_again: int
    findings: tuple[Mapping[str, str], ...]
    labels: LabelPrefix  # that it was made of
    batches: Mapping[str, str]  # hash of the decisions of every batch

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RecertificationRecord:
        """Read a document; raise KeyError, TypeError or ValueError if it is none."""
        values = dict(document)
        sides = tuple(CertifiedSide(**side) for side in values.pop("sides"))
        for name in ("certificates", "new_tasks", "findings"):
            values[name] = tuple(values[name])
        labels = LabelPrefix(**values.pop("labels"))
        return cls(**values, sides=sides, labels=labels)

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


def recertifications(corpus: Corpus) -> list[RecertificationRecord]:
    """Return all finished recertifications, the oldest first."""
    return [load_recertification(corpus, number) for number in sorted(read_spending(corpus).made)]


@remembered
def load_recertification(corpus: Corpus, number: int) -> RecertificationRecord:
    """Return the document of a recertification, if all that it was made of is as it was."""
    store, key = corpus.store, recertification_key(corpus.name, number, DOCUMENT)
    name = f"recertification {number} of {corpus}"
    if read_spending(corpus).made.get(number) != store.sha256(key):
        raise IntegrityError(f"{name} is not what spent its share of δ; recertify.")
    record = RecertificationRecord.from_dict(store.read_json(key))
    if store.sha256(recertification_key(corpus.name, number, SCORES)) != record.scores_sha256:
        raise IntegrityError(f"the rows of {name} are not those that it was made of; recertify.")
    labels = record.labels
    head = Head(corpus=corpus.name, sequence=labels.sequence, sha256=labels.sha256)
    store.require_held(head, name)
    return record


def _pool(
    document: Mapping[str, Any], certificates: Sequence[Certificate], whose: str
) -> StoredPool | None:
    """Return the pool in the document of the certificates of a recertification."""
    named = named_pool(certificates, whose)
    if named is None:
        return None
    return pool_in(document, named, whose)


@remembered
def recertification_certificates(corpus: Corpus, number: int) -> list[Certificate]:
    """Return the certificates of a recertification, recomputed from its rows."""
    from certify_assets.certificates import Certificate

    record = load_recertification(corpus, number)
    table = corpus.store.read_table(recertification_key(corpus.name, number, SCORES))
    _, hashes, _ = JudgedCorpus(corpus, record.judge).calibration
    stored = corpus.store.read_json(recertification_key(corpus.name, number, CERTIFICATES))
    certificates = [Certificate.from_dict(item) for item in stored["certificates"]]
    if tuple(item.sha256 for item in certificates) != record.certificates:
        raise ForgedCertificateError(
            f"the certificates of recertification {number} of {corpus} are not those that its "
            "document names."
        )
    of_pool = _pool(stored, certificates, f"recertification {number} of {corpus}")
    pool = None if of_pool is None else of_pool.pool
    for item in certificates:
        stale = next(
            (name for name, value in hashes.items() if item.provenance.get(name) != value), None
        )
        if stale is not None:
            raise StaleCertificateError(
                f"recertification {number} of {corpus} belongs to another "
                f"{stale.removesuffix('_sha256')} than the stored one; recertify."
            )
        if difference := recomputed_difference(item, table, pool):
            raise ForgedCertificateError(
                f"a certificate of recertification {number} of {corpus} does not recompute: "
                f"{difference}"
            )
    return certificates
