"""One corpus at a glance: what each judge certified, how the audit went, and where the page is."""

from __future__ import annotations

from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.evaluation.auditing import load_audits
from certify_assets.evaluation.certification import load_certificates, why_nothing
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import PROCEDURES, judges

__all__ = ["judge_overview", "overview"]


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
