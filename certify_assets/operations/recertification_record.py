"""Stored recertifications: read with all their hashes, and recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import ForgedCertificateError, IntegrityError, StaleCertificateError
from certify_assets.evaluation.certification import recomputed_difference
from certify_assets.evaluation.pool import StoredPool, named_pool, read_pool, require_document
from certify_assets.evaluation.spending import read_spending
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.labels import labels_up_to
from certify_assets.operations.layout import operation_key, recertification_key
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

SCHEMA: Final = "certify_assets/recertification/1"
DOCUMENT: Final = "recertification.json"
SCORES: Final = "scores.parquet"
CERTIFICATES: Final = "certificates.json"
POOL: Final = "pool.json"
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


@dataclass(frozen=True)
class LabelPrefix:
    """The first lines of the journal of labels, by their number and hash."""

    lines: int
    sha256: str


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
    names = corpus.store.names(operation_key(corpus.name, "recertifications"))
    numbers = sorted(int(name) for name in names if name.isdecimal())
    return [
        load_recertification(corpus, number)
        for number in numbers
        if corpus.store.exists(recertification_key(corpus.name, number, DOCUMENT))
    ]


@remembered
def load_recertification(corpus: Corpus, number: int) -> RecertificationRecord:
    """Return the document of a recertification, if all that it was made of is as it was."""
    key = recertification_key(corpus.name, number, DOCUMENT)
    where = corpus.store.locate(key)
    try:
        record = RecertificationRecord.from_dict(corpus.store.read_json(key))
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"{where} is not what was written when it was finished ({error}); restore it from a "
            "backup."
        ) from None
    spending = read_spending(corpus)
    if spending.made.get(number, (found := corpus.store.sha256(key))) != found:
        raise IntegrityError(
            f"{where} is not what was written when it was finished; restore it from a backup."
        )
    rows = recertification_key(corpus.name, number, SCORES)
    if record.number != number or corpus.store.sha256(rows) != record.scores_sha256:
        raise IntegrityError(
            f"the rows of recertification {number} of {corpus} are not those that it was made of; "
            "restore its folder."
        )
    claim = next((item for item in spending.claims if item.number == number), None)
    if claim is None or (claim.inputs_sha256, claim.delta) != (record.inputs_sha256, record.delta):
        raise IntegrityError(
            f"recertification {number} of {corpus} is not the one that the journal of δ claims; "
            "restore both from a backup."
        )
    if labels_up_to(corpus, record.labels.lines).sha256 != record.labels.sha256:
        raise IntegrityError(
            f"the labels of {corpus} do not begin as they were when recertification {number} "
            "was made of it: labels were altered; restore it from a backup."
        )
    return record


def _pool(corpus: Corpus, number: int, certificates: Sequence[Certificate]) -> StoredPool | None:
    """Return the pool that the certificates of a recertification name, as it was stored then."""
    named = named_pool(certificates, f"recertification {number} of {corpus}")
    if named is None:
        return None
    return read_pool(corpus.store, recertification_key(corpus.name, number, POOL), named)


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
    of_pool = _pool(corpus, number, certificates)
    require_document(stored, certificates, of_pool)
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
