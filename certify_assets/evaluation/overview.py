"""One corpus at a glance: what each judge certified, how the audit went, and where the page is."""

from __future__ import annotations

from typing import Any

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.evaluation.auditing import load_audits
from certify_assets.evaluation.certification import load_certificates, why_nothing
from certify_assets.judges.specs import PROCEDURES, judges
from certify_assets.storage.store import Store

__all__ = ["judge_overview", "overview"]


def overview(store: Store, corpus: str) -> dict[str, Any]:
    """Return what stands in the data root about a corpus: its figures and every judge's certificates."""
    profile = store.read_json(f"corpora/{corpus}/profile.json")
    keys = ("trajectories", "tasks", "success_rate", "icc", "deff", "n_eff", "duplicates")
    known = judges(store.root)
    there = [name for name in known if store.exists(f"judges/{name}/{corpus}/audits.json")]
    stale: dict[str, str] = {}
    found = []
    for name in there:
        try:
            found.append(judge_overview(store, corpus, name))
        except (StaleCertificateError, InputError) as error:
            # a judge that waits for its turn says nothing against the others of this corpus
            stale[name] = str(error)
    return {"corpus": corpus, **{key: profile[key] for key in keys}, "judges": found, "stale": stale}


def judge_overview(store: Store, corpus: str, judge: str) -> dict[str, Any]:
    """Return what a judge certified on a corpus, with its audit on TEST."""
    audits = {(audit["side"], audit["alpha"]): audit for audit in load_audits(store, corpus, judge)[0]}
    certificates = load_certificates(store, corpus, judge)
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
        "judge": judge,
        "certificates": cells,
        "certified_on": str(certificates[0].provenance["split"]),
        "pseudo_labels": certificates[0].provenance.get("pseudo_labels"),
        "why_nothing": why_nothing(store, corpus, judge),
        "page": store.locate(f"judges/{judge}/{corpus}/page.html"),
    }
