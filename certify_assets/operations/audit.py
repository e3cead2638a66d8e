"""The audit of certificates: thresholds from CAL, read on TEST through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.certificates.audit import Audit
from certify_assets.certificates.findings import RELABELLED, SHARED_TASKS
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, LedgerError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import judges
from certify_assets.operations.certifier import deciding_certificates, deciding_sides, why_nothing
from certify_assets.operations.ledger import (
    LedgerEntry,
    reading_delta,
    record_read,
    record_result,
    results_of,
)
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


@dataclass(frozen=True, kw_only=True)
class CertificateAudit(Audit):
    """The audit of a certificate on TEST, as it is stored."""

    side: str
    alpha: float
    # a `ResampleAudit` of the threshold; None where nothing was certified
    resampling: Mapping[str, float | str | bool | None] | None = None
    # j where this is the j-th audit that sees some of the same TEST runs
    reading: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as it is stored, without what does not apply."""
        found = super().to_dict()
        for name, default in (("resampling", None), ("reading", 1)):
            if found[name] == default:
                del found[name]
        return found

    @classmethod
    def measure(cls, item: Certificate, table: pd.DataFrame, reading: int = 1) -> CertificateAudit:
        """Audit a certificate on labelled scores, for the `reading`-th time."""
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
        delta = reading_delta(item.delta, reading)
        found = audit_certificate(item, *columns(table), delta=delta).to_dict()
        if reading > 1:
            found["reason"] += (
                f" These TEST runs were read before (this is reading {reading}), so the bound uses "
                f"δ = {delta:.2g} instead of {item.delta:g}."
            )
        return cls(side=item.side, alpha=item.alpha, **found, resampling=resampled, reading=reading)


@dataclass(frozen=True)
class AuditResult:
    """Audits of one judge's certificates on TEST, and the event of this read in the ledger."""

    audits: list[CertificateAudit]
    scores: pd.DataFrame
    entry: LedgerEntry


def audit_judge(judge: JudgedCorpus, *, run_id: str = "cli") -> AuditResult:
    """Read TEST through the ledger and audit every certificate that decides; store the audits."""
    with judge.corpus.writing():
        deciding = deciding_certificates(judge)
        about = deciding[0].provenance
        entry = record_read(
            judge.corpus,
            judge=judge.name,
            registration=about["registration"],
            configuration={
                **{name: about[name] for name in _READ_WITH},
                "certificates": [item.sha256 for item in deciding],
            },
            run_id=run_id,
            runs=judge.corpus.run_contents("test"),
        )
        test = judge.corpus.split("test")[["trajectory_id", "outcome"]]
        scores = judge.store.read_table(judge.key("scores.parquet"))
        scored = scores[scores["split"] == "test"].drop(columns="outcome")
        table = scored.merge(test, on="trajectory_id", how="left", validate="one_to_one")
        table["outcome"] = table["outcome"].astype("Int8")
        table = table[table["outcome"].notna()].reset_index(drop=True)
        audits = [CertificateAudit.measure(item, table, entry.number) for item in deciding]
        documents = [audit.to_dict() for audit in audits]
        scores_sha256 = judge.store.write_table(judge.key("test_scores.parquet"), table)
        record_result(judge.store, entry, _result_sha256(documents, scores_sha256))
        document = {
            "audits": documents,
            "test_scores_sha256": scores_sha256,
            "registration": entry.registration,
            "ledger": entry.ledger,
        }
        judge.store.write_json(judge.key("audits.json"), document)
    return AuditResult(audits, table, entry)


@remembered
def load_audits(judge: JudgedCorpus) -> tuple[list[CertificateAudit], pd.DataFrame]:
    """Return the stored audits of a judge and its labelled TEST scores, if the ledger has them."""
    document = judge.store.read_json(judge.key("audits.json"))
    judge.store.require_held(document["ledger"], f"an audit of {judge}")
    scores = judge.key("test_scores.parquet")
    found = _result_sha256(document["audits"], judge.store.sha256(scores))
    results = results_of(judge.corpus, judge.name, document["ledger"]["sequence"])
    if results[-1:] != [found]:
        raise LedgerError(
            f"the stored audits of {judge} on {judge.corpus} differ from what their read of TEST "
            f"gave. Materialize judges/{judge}/audit again."
        )
    audits = [CertificateAudit(**audit) for audit in document["audits"]]
    return audits, judge.store.read_table(scores)


def _result_sha256(audits: Sequence[Mapping[str, Any]], scores_sha256: str) -> str:
    return sha256_bytes(canonical_json({"audits": audits, "test_scores_sha256": scores_sha256}))


# hashes that an audit names with its read
_READ_WITH = ("adapter_sha256", "scores_sha256", "manifest_sha256", "trajectories_sha256")
_FIGURES = ("trajectories", "tasks", "success_rate", "icc", "deff", "n_eff", "duplicates")
#: figures of a corpus, or of a judge on it, as they are printed
Overview = dict[str, Any]


def overview(corpus: Corpus) -> Overview:
    """Return the figures of a corpus, and of its audited judges; stale ones with their reason."""
    profile = corpus.store.read_json(corpus.key("profile.json"))
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
    return {
        "corpus": corpus.name,
        **{name: profile[name] for name in _FIGURES},
        "judges": found,
        "stale": stale,
    }


def judge_overview(judge: JudgedCorpus) -> Overview:
    """Return what a judge certified on a corpus, with its audit on TEST."""
    audits = {audit.certificate_sha256: audit for audit in load_audits(judge)[0]}
    deciding = deciding_certificates(judge)
    sides = deciding_sides(deciding)
    codes = (RELABELLED, SHARED_TASKS)
    findings = [item for item in deciding[0].findings if item["code"] in codes]
    provenance = deciding[0].provenance
    return {
        "judge": judge.name,
        "certificates": [audited_cell(item, audits.get(item.sha256)) for item in deciding],
        # shares of scored CAL runs that both sides decide in all and leave to reviewers
        "decided": sides.decided,
        "human": sides.human,
        "summary": sides.sentence,
        "certified_on": str(provenance["split"]),
        "pseudo_labels": provenance.get("pseudo_labels"),
        "why_nothing": why_nothing(judge),
        "unread": judge.unread,
        "findings": findings,
        "page": judge.store.locate(judge.key("page.html")),
    }


def audited_cell(item: Certificate, audit: CertificateAudit | None) -> Overview:
    """Return a certificate with its audit, whose figures are there only where it certifies."""
    known = audit if item.certified else None
    return {
        "side": item.side,
        "alpha": item.alpha,
        "certified": item.certified,
        "coverage": item.coverage,
        "threshold": item.threshold,
        "candidates": item.candidates,
        "certificate_sha256": item.sha256,
        "test_error": known.realized_error if known else None,
        "test_coverage": known.coverage if known else None,
        "audit": known.verdict if known else None,
    }
