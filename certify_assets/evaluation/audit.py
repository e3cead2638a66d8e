"""The audit: thresholds of CAL, read on TEST through the ledger."""

from __future__ import annotations

from dataclasses import dataclass
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
    ledger_head : str
        Hash of the ledger's line that holds the result.
    """

    audits: list[dict[str, Any]]
    scores: pd.DataFrame
    entry: LedgerEntry
    ledger_head: str


def audit_judge(judge: JudgedCorpus, *, run_id: str = "cli") -> AuditResult:
    """Read TEST through the ledger and audit every certificate that decides; store the audits and the labelled TEST scores.

    Raises
    ------
    ManifestError
        If the stored TEST split is not the one of manifest and trajectories.
    StaleCertificateError, ForgedCertificateError
        If a stored certificate is of something else than what is stored now.
    LedgerError
        If the ledger was altered, or lost lines that an earlier audit names.
    """
    certificates = load_certificates(judge)
    deciding = [item for item in certificates if item.procedure == PROCEDURES[0]]
    folder = judge.key()
    if judge.store.exists(f"{folder}/audits.json"):
        require_in_ledger(
            judge.corpus, str(judge.store.read_json(f"{folder}/audits.json").get("ledger_head", ""))
        )
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
    audits = [_audit(item, table) for item in deciding]
    scores_sha256 = judge.store.write_table(f"{folder}/test_scores.parquet", table)
    head = record_result(judge.store, entry, _result_sha256(audits, scores_sha256))
    document = {
        "audits": audits,
        "test_scores_sha256": scores_sha256,
        "registration": entry.registration,
        "ledger_head": head,
    }
    judge.store.write_json(f"{folder}/audits.json", document)
    return AuditResult(audits=audits, scores=table, entry=entry, ledger_head=head)


@remembered
def load_audits(judge: JudgedCorpus) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """Return the stored audits of a judge and its labelled TEST scores, after checking them against the ledger.

    Raises
    ------
    LedgerError
        If they are not what the last read of TEST by this judge gave.
    """
    folder = judge.key()
    document = judge.store.read_json(f"{folder}/audits.json")
    require_in_ledger(judge.corpus, document["ledger_head"])
    results = [
        entry
        for entry in ledger_entries(judge.corpus)
        if entry.kind == "result" and entry.judge == judge.name
    ]
    found = _result_sha256(document["audits"], judge.store.sha256(f"{folder}/test_scores.parquet"))
    if not results or results[-1].configuration != found:
        raise LedgerError(
            f"the audits of {judge} on {judge.corpus} are not what the last read of TEST gave: they were altered; materialize judges/{judge}/audit again."
        )
    return document["audits"], judge.store.read_table(f"{folder}/test_scores.parquet")


def _result_sha256(audits: list[dict[str, Any]], scores_sha256: str) -> str:
    return sha256_bytes(canonical_json({"audits": audits, "test_scores_sha256": scores_sha256}))


def _audit(item: Certificate, table: pd.DataFrame) -> dict[str, Any]:
    from certify_assets.certificates import audit_certificate, resample_audit

    audit: dict[str, Any] = {
        "side": item.side,
        "alpha": item.alpha,
        **audit_certificate(item, *columns(table)).to_dict(),
    }
    if item.threshold is not None:
        resampled = resample_audit(
            *columns(table),
            threshold=item.threshold,
            side=item.side,
            alpha=item.alpha,
            draws=3000,
            seed=item.seed,
        )
        audit["resampling"] = resampled.to_dict()
    return audit


def audit_metrics(result: AuditResult) -> dict[str, float]:
    """Return realised error and coverage of each audited certificate as numbers with a name."""
    metrics = {}
    for audit in result.audits:
        if audit["realized_error"] is not None:
            where = f"{audit['side']}_at_{audit['alpha']:g}"
            metrics[f"error_{where}"] = float(audit["realized_error"])
            metrics[f"coverage_{where}"] = float(audit["coverage"])
    return metrics


def _with_outcomes(judge: JudgedCorpus, test: pd.DataFrame) -> pd.DataFrame:
    table = judge.store.read_table(judge.key("scores.parquet"))
    scored = table[table["split"] == "test"].drop(columns="outcome")
    if set(scored["trajectory_id"]) != set(test["trajectory_id"]):
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} are not of the stored TEST split; materialize judges/{judge}/scores again."
        )
    joined = scored.merge(
        test[["trajectory_id", "outcome"]], on="trajectory_id", how="left", validate="one_to_one"
    )
    joined["outcome"] = joined["outcome"].astype("Int8")
    return joined[joined["outcome"].notna()].reset_index(drop=True)


def overview(corpus: Corpus) -> dict[str, Any]:
    """Return what stands in the data root about a corpus: its figures and every judge's certificates."""
    profile = corpus.store.read_json(corpus.key("profile.json"))
    keys = ("trajectories", "tasks", "success_rate", "icc", "deff", "n_eff", "duplicates")
    known = judges(corpus.store.root)
    there = [name for name in known if corpus.store.exists(f"judges/{name}/{corpus}/audits.json")]
    stale: dict[str, str] = {}
    found = []
    for name in there:
        try:
            found.append(judge_overview(JudgedCorpus(corpus, name)))
        except (StaleCertificateError, InputError) as error:
            # a judge that waits for its turn says nothing against the others of this corpus
            stale[name] = str(error)
    return {
        "corpus": corpus.name,
        **{key: profile[key] for key in keys},
        "judges": found,
        "stale": stale,
    }


def judge_overview(judge: JudgedCorpus) -> dict[str, Any]:
    """Return what a judge certified on a corpus, with its audit on TEST."""
    audits = {(audit["side"], audit["alpha"]): audit for audit in load_audits(judge)[0]}
    certificates = load_certificates(judge)
    cells = []
    for item in certificates:
        if item.procedure != PROCEDURES[0]:
            continue
        audit = audits.get((item.side, item.alpha), {})
        cells.append(
            {
                "side": item.side,
                "alpha": item.alpha,
                "certified": item.certified,
                "coverage": item.coverage,
                "threshold": item.threshold,
                "test_error": audit.get("realized_error"),
                "test_coverage": audit.get("coverage") if item.certified else None,
                "audit": audit.get("verdict") if item.certified else None,
            }
        )
    return {
        "judge": judge.name,
        "certificates": cells,
        "certified_on": str(certificates[0].provenance["split"]),
        "pseudo_labels": certificates[0].provenance.get("pseudo_labels"),
        "why_nothing": why_nothing(judge),
        "page": judge.store.locate(judge.key("page.html")),
    }
