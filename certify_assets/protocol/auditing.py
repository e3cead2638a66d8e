"""The audit: thresholds of CAL, read on TEST through the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.protocol.certification import load_certificates
from certify_assets.protocol.judge_specs import PROCEDURES
from certify_assets.protocol.judging import columns
from certify_assets.protocol.ledger import LedgerEntry, read_test
from certify_assets.protocol.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AuditResult", "audit_judge", "audit_metrics"]


@dataclass(frozen=True)
class AuditResult:
    """Audits of one judge's certificates on TEST.

    Parameters
    ----------
    audits : list of dict
        One an audited certificate: verdict, realised error, bounds, coverage, resampling.
    scores : pandas.DataFrame
        The TEST score table with outcomes.
    entry : LedgerEntry
        The ledger's line for this read.
    """

    audits: list[dict[str, Any]]
    scores: pd.DataFrame
    entry: LedgerEntry


def audit_judge(store: Store, corpus: str, judge: str, *, run_id: str = "cli") -> AuditResult:
    """Read TEST through the ledger and audit every certificate that decides; store the audits and the labelled TEST scores."""
    from certify_assets.certificates import audit_certificate, resample_audit

    certificates = load_certificates(store, corpus, judge)
    deciding = [item for item in certificates if item.procedure == PROCEDURES[0]]
    hashes = {name: deciding[0].provenance[name] for name in ("adapter_sha256", "scores_sha256", "manifest_sha256")}
    test, entry = read_test(
        store,
        corpus,
        judge=judge,
        registration=deciding[0].provenance["registration"],
        configuration={**hashes, "certificates": [item.sha256 for item in deciding]},
        run_id=run_id,
    )
    table = _with_outcomes(store, corpus, judge, test)
    scores, outcomes, tasks = columns(table)
    audits = []
    for item in deciding:
        audit: dict[str, Any] = {"side": item.side, "alpha": item.alpha, **audit_certificate(item, scores, outcomes, tasks).to_dict()}
        if item.threshold is not None:
            audit["resampling"] = resample_audit(
                scores, outcomes, tasks, threshold=item.threshold, side=item.side, alpha=item.alpha, draws=3000, seed=item.seed
            ).to_dict()
        audits.append(audit)
    store.write_table(f"judges/{judge}/{corpus}/test_scores.parquet", table)
    store.write_json(f"judges/{judge}/{corpus}/audits.json", {"audits": audits, "ledger": entry.__dict__})
    return AuditResult(audits=audits, scores=table, entry=entry)


def audit_metrics(result: AuditResult) -> dict[str, float]:
    """Return realised error and coverage of each audited certificate as numbers with a name."""
    metrics = {}
    for audit in result.audits:
        if audit["realized_error"] is not None:
            where = f"{audit['side']}_at_{audit['alpha']:g}"
            metrics[f"error_{where}"] = float(audit["realized_error"])
            metrics[f"coverage_{where}"] = float(audit["coverage"])
    return metrics


def _with_outcomes(store: Store, corpus: str, judge: str, test: pd.DataFrame) -> pd.DataFrame:
    table = store.read_table(f"judges/{judge}/{corpus}/scores.parquet")
    scored = table[table["split"] == "test"].drop(columns="outcome")
    joined = scored.merge(test[["trajectory_id", "outcome"]], on="trajectory_id", how="left", validate="one_to_one")
    joined["outcome"] = joined["outcome"].astype("Int8")
    return joined[joined["outcome"].notna()].reset_index(drop=True)
