"""The audit of certificates: thresholds from CAL, read on TEST through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, LedgerError, StaleCertificateError
from certify_assets.evaluation.certification import load_certificates, why_nothing
from certify_assets.evaluation.ledger import (
    LedgerEntry,
    ledger_entries,
    record_read,
    record_result,
    require_in_ledger,
)
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import PROCEDURES, judges
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


@dataclass(frozen=True)
class CertificateAudit:
    """A certificate on TEST, as it is stored.

    Attributes
    ----------
    side : {"reject", "release"}
    alpha : float
    verdict, realized_error, ..., reason
        As in `certificates.audit.Audit`.
    resampling : mapping or None
        `certificates.audit.ResampleAudit` of the threshold; None where nothing was certified.
    """

    side: str
    alpha: float
    verdict: str
    realized_error: float | None
    lower_bound: float
    coverage: float
    covered_tasks: int
    trajectories: int
    tasks: int
    unscored: int
    certificate_sha256: str
    own_coverage: float | None
    paper_rule_pass: bool
    reason: str
    resampling: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as it is stored."""
        found = asdict(self)
        if self.resampling is None:
            del found["resampling"]
        return found

    @classmethod
    def measure(cls, item: Certificate, table: pd.DataFrame) -> CertificateAudit:
        """Audit a certificate on labelled scores."""
        from certify_assets.certificates import audit_certificate, resample_audit

        resampled = None
        if item.threshold is not None:
            resampled = resample_audit(
                *columns(table),
                threshold=item.threshold,
                side=item.side,
                alpha=item.alpha,
                draws=3000,
                seed=item.seed,
            ).to_dict()
        found = audit_certificate(item, *columns(table)).to_dict()
        return cls(item.side, item.alpha, **found, resampling=resampled)


@dataclass(frozen=True)
class AuditResult:
    """Audits of one judge's certificates on TEST.

    Parameters
    ----------
    audits : list of CertificateAudit
    scores : pandas.DataFrame
        The TEST score table with outcomes.
    entry : LedgerEntry
        The ledger's line for this read.
    ledger_head : str
        Hash of the ledger's line that holds the result.
    """

    audits: list[CertificateAudit]
    scores: pd.DataFrame
    entry: LedgerEntry
    ledger_head: str

    def metrics(self) -> dict[str, float]:
        """Return realised error and coverage of each audited certificate by name."""
        found = {}
        for audit in self.audits:
            if audit.realized_error is not None:
                where = f"{audit.side}_at_{audit.alpha:g}"
                found[f"error_{where}"] = float(audit.realized_error)
                found[f"coverage_{where}"] = float(audit.coverage)
        return found


def audit_judge(judge: JudgedCorpus, *, run_id: str = "cli") -> AuditResult:
    """Read TEST through the ledger and audit every certificate of the deciding procedure.

    The audits and the labelled TEST scores are stored.

    Raises
    ------
    ManifestError
        If the stored TEST split is not the one of manifest and trajectories.
    StaleCertificateError, ForgedCertificateError
        If a stored certificate depends on something else than what is stored now.
    LedgerError
        If the ledger was altered, or lost lines that an earlier audit names.
    """
    deciding = [item for item in load_certificates(judge) if item.procedure == PROCEDURES[0]]
    key = judge.key("audits.json")
    if judge.store.exists(key):
        require_in_ledger(judge.corpus, str(judge.store.read_json(key).get("ledger_head", "")))
    hashes = {
        name: deciding[0].provenance[name]
        for name in ("adapter_sha256", "scores_sha256", "manifest_sha256", "trajectories_sha256")
    }
    entry = record_read(
        judge.corpus,
        judge=judge.name,
        registration=deciding[0].provenance["registration"],
        configuration={**hashes, "certificates": [item.sha256 for item in deciding]},
        run_id=run_id,
    )
    table = _with_outcomes(judge, judge.corpus.split("test"))
    audits = [CertificateAudit.measure(item, table) for item in deciding]
    documents = [audit.to_dict() for audit in audits]
    scores_sha256 = judge.store.write_table(judge.key("test_scores.parquet"), table)
    head = record_result(judge.store, entry, _result_sha256(documents, scores_sha256))
    document = {
        "audits": documents,
        "test_scores_sha256": scores_sha256,
        "registration": entry.registration,
        "ledger_head": head,
    }
    judge.store.write_json(key, document)
    return AuditResult(audits, table, entry, head)


@remembered
def load_audits(judge: JudgedCorpus) -> tuple[list[CertificateAudit], pd.DataFrame]:
    """Return the stored audits of a judge and its labelled TEST scores.

    Raises
    ------
    LedgerError
        If they are not what the last read of TEST by this judge gave.
    """
    document = judge.store.read_json(judge.key("audits.json"))
    require_in_ledger(judge.corpus, document["ledger_head"])
    results = [
        entry
        for entry in ledger_entries(judge.corpus)
        if entry.kind == "result" and entry.judge == judge.name
    ]
    scores = judge.key("test_scores.parquet")
    found = _result_sha256(document["audits"], judge.store.sha256(scores))
    if not results or results[-1].configuration != found:
        raise LedgerError(
            f"the audits of {judge} on {judge.corpus} are not what the last read of TEST gave: "
            f"they were altered; materialize judges/{judge}/audit again."
        )
    audits = [CertificateAudit(**audit) for audit in document["audits"]]
    return audits, judge.store.read_table(scores)


def _result_sha256(audits: Sequence[Mapping[str, Any]], scores_sha256: str) -> str:
    return sha256_bytes(canonical_json({"audits": audits, "test_scores_sha256": scores_sha256}))


def _with_outcomes(judge: JudgedCorpus, test: pd.DataFrame) -> pd.DataFrame:
    table = judge.store.read_table(judge.key("scores.parquet"))
    scored = table[table["split"] == "test"].drop(columns="outcome")
    if set(scored["trajectory_id"]) != set(test["trajectory_id"]):
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} are not of the stored TEST split; "
            f"materialize judges/{judge}/scores again."
        )
    outcomes = test[["trajectory_id", "outcome"]]
    joined = scored.merge(outcomes, on="trajectory_id", how="left", validate="one_to_one")
    joined["outcome"] = joined["outcome"].astype("Int8")
    return joined[joined["outcome"].notna()].reset_index(drop=True)


def overview(corpus: Corpus) -> dict[str, Any]:
    """Return the figures of a corpus, and what each judge certified on it with its audit."""
    profile = corpus.store.read_json(corpus.key("profile.json"))
    keys = ("trajectories", "tasks", "success_rate", "icc", "deff", "n_eff", "duplicates")
    stale: dict[str, str] = {}
    found = []
    for name in judges(corpus.store.root):
        judge = JudgedCorpus(corpus, name)
        if not corpus.store.exists(judge.key("audits.json")):
            continue
        try:
            found.append(judge_overview(judge))
        except (StaleCertificateError, InputError) as error:
            # a judge that waits for its turn says nothing against the others of this corpus
            stale[name] = str(error)
    figures = {key: profile[key] for key in keys}
    return {"corpus": corpus.name, **figures, "judges": found, "stale": stale}


def judge_overview(judge: JudgedCorpus) -> dict[str, Any]:
    """Return what a judge certified on a corpus, with its audit on TEST."""
    audits = {(audit.side, audit.alpha): audit for audit in load_audits(judge)[0]}
    certificates = load_certificates(judge)
    cells = []
    for item in certificates:
        if item.procedure != PROCEDURES[0]:
            continue
        audit = audits.get((item.side, item.alpha))
        certified = audit if item.certified else None
        cells.append(
            {
                "side": item.side,
                "alpha": item.alpha,
                "certified": item.certified,
                "coverage": item.coverage,
                "threshold": item.threshold,
                "test_error": audit and audit.realized_error,
                "test_coverage": certified and certified.coverage,
                "audit": certified and certified.verdict,
            }
        )
    provenance = certificates[0].provenance
    return {
        "judge": judge.name,
        "certificates": cells,
        "certified_on": str(provenance["split"]),
        "pseudo_labels": provenance.get("pseudo_labels"),
        "why_nothing": why_nothing(judge),
        "page": judge.store.locate(judge.key("page.html")),
    }
