"""Every procedure on real scores: what it certifies on CAL and what TEST says of that, what it
would certify on TEST's own scores, and the naive audit.

The paper runs its five procedures on TEST scores; nobody deploys such a threshold, so both readings
are kept apart here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation.audit import load_audits
from certify_assets.evaluation.certification import load_certificates
from certify_assets.evaluation.judge_results import labelled_rows
from certify_assets.evaluation.ledger import LedgerEntry, announce_study, record_result
from certify_assets.files import canonical_json, rounded, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, SIDES, judges
from certify_assets.research.seed_study import REAL_PROCEDURES

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


REAL_SCORES_SCHEMA = "certify_assets/real_scores/1"
#: task resamples of the naive audit, the paper's
NAIVE_DRAWS = 3000


def real_scores_key(corpus: str) -> str:
    """Return where the document of a corpus is stored."""
    return f"real_scores/{corpus}.json"


@dataclass(frozen=True, eq=False)
class _Tables:
    """Score tables of one judge: labelled rows of CAL and TEST, and of RL for bets."""

    cal: pd.DataFrame
    test: pd.DataFrame
    pilot: pd.DataFrame


def write_real_scores(corpus: Corpus, *, run_id: str = "cli") -> dict[str, Any]:
    """Run every procedure on the scores of every audited judge; store and return the document.

    Returns
    -------
    dict
        ``judges``: AUROC on CAL and TEST, ``cells`` (side, budget, procedure: coverage on CAL;
        error and coverage of that threshold on TEST; coverage certified on TEST's own scores) and
        ``naive_audit``; ``test`` and ``cal``: size and clustering; ``gates`` of the base judge;
        ``missing``.

    Raises
    ------
    InputError
        If no judge was audited on this corpus.
    LedgerError
        If the ledger was altered.
    """
    names, missing = _audited(corpus)
    if not names:
        raise InputError(
            f"no judge was audited on {corpus}; materialize judges/lexical/audit of this corpus."
        )
    entry = _announced(corpus, names, run_id)
    tables = {name: _tables(corpus, name) for name in names}
    base = next((name for name in ("base", "lexical") if name in tables), names[0])
    document: dict[str, Any] = rounded(
        {
            "schema": REAL_SCORES_SCHEMA,
            "corpus": corpus.name,
            "alphas": list(ALPHAS),
            "delta": DELTA,
            "grid": GRID,
            "cal": _size(tables[base].cal),
            "test": _size(tables[base].test),
            "judges": [_judge(name, found) for name, found in tables.items()],
            "gates": {"base": base, "gates": _gates(tables, base)},
            "missing": missing,
        }
    )
    corpus.store.write_json(real_scores_key(corpus.name), document)
    record_result(corpus.store, entry, sha256_bytes(canonical_json(document)))
    return document


def _audited(corpus: Corpus) -> tuple[list[str], list[dict[str, str]]]:
    """Return the judges with valid audits, the others with the reason; TEST is not read."""
    found, missing = [], []
    for name in judges(corpus.store.root):
        if not corpus.store.exists(f"judges/{name}/{corpus}/audits.json"):
            continue
        try:
            load_certificates(JudgedCorpus(corpus, name))
            load_audits(JudgedCorpus(corpus, name))
        except CertifyError as error:
            missing.append({"judge": name, "reason": str(error)})
        else:
            found.append(name)
    return found, missing


def _announced(corpus: Corpus, names: list[str], run_id: str) -> LedgerEntry:
    """Write into the ledger what is run on TEST, before it is."""
    manifest = corpus.manifest
    scores = {
        name: corpus.store.read_json(f"judges/{name}/{corpus}/scores.json")["scores_sha256"]
        for name in names
    }
    plan = {
        "procedures": list(REAL_PROCEDURES),
        "alphas": list(ALPHAS),
        "delta": DELTA,
        "grid": GRID,
        "sides": list(SIDES),
        "draws": NAIVE_DRAWS,
        "manifest_sha256": manifest.sha256,
        "scores": scores,
    }
    return announce_study(corpus, reader="real scores", plan={"real_scores": plan}, run_id=run_id)


def _tables(corpus: Corpus, name: str) -> _Tables:
    cal = JudgedCorpus(corpus, name).calibration[0]
    scores = corpus.store.read_table(f"judges/{name}/{corpus}/scores.parquet").set_index(
        "trajectory_id"
    )["score"]
    rl = labelled_rows(corpus, "rl")
    return _Tables(
        cal,
        load_audits(JudgedCorpus(corpus, name))[1],
        rl.assign(score=scores.reindex(rl["trajectory_id"]).to_numpy(np.float64)),
    )


def _size(table: pd.DataFrame) -> dict[str, Any]:
    from certify_assets.corpora.profile import cluster_summary

    return asdict(cluster_summary(table))


def _judge(name: str, tables: _Tables) -> dict[str, Any]:
    from certify_assets.certificates.auroc import auroc

    areas = {
        split: auroc(*columns(table)[:2])
        for split, table in (("cal", tables.cal), ("test", tables.test))
    }
    return {
        "judge": name,
        **{
            f"auroc_{split}": value if np.isfinite(value) else None
            for split, value in areas.items()
        },
        "cells": list(_cells(tables)),
        "naive_audit": [_naive(tables.test, alpha) for alpha in ALPHAS],
    }


def _cells(tables: _Tables) -> Iterator[dict[str, Any]]:
    from certify_assets.certificates import audit_certificate

    for alpha in ALPHAS:
        for side in SIDES:
            for procedure in REAL_PROCEDURES:
                if procedure == "betting" and tables.pilot.empty:
                    continue
                certificate, own = (
                    _certified(table, tables.pilot, procedure, side, alpha)
                    for table in (tables.cal, tables.test)
                )
                audit = audit_certificate(certificate, *columns(tables.test))
                yield {
                    "side": side,
                    "alpha": alpha,
                    "procedure": procedure,
                    "certified": certificate.certified,
                    "coverage": certificate.coverage,
                    "test_coverage": audit.coverage if certificate.certified else 0.0,
                    "test_error": audit.realized_error if certificate.certified else None,
                    "verdict": audit.verdict if certificate.certified else None,
                    "on_test": own.coverage,
                }


def _certified(
    table: pd.DataFrame, pilot: pd.DataFrame, procedure: str, side: str, alpha: float
) -> Certificate:
    from certify_assets.certificates import certify

    others = columns(pilot) if procedure == "betting" else None
    return certify(
        *columns(table),
        alpha=alpha,
        delta=DELTA,
        side=side,
        grid=GRID,
        procedure=procedure,
        pilot=others,
    )


def _naive(test: pd.DataFrame, alpha: float) -> dict[str, Any]:
    """Resample tasks at the naive certificate's threshold on TEST, as the paper does."""
    from certify_assets.certificates import resample_audit

    naive = _certified(test, test, "naive", "reject", alpha)
    found: dict[str, Any] = {
        "alpha": alpha,
        "coverage": naive.coverage,
        "threshold": naive.threshold,
        "exceedance": None,
        "draws": NAIVE_DRAWS,
    }
    if naive.threshold is None:
        return found
    audit = resample_audit(
        *columns(test),
        threshold=naive.threshold,
        side="reject",
        alpha=alpha,
        delta=DELTA,
        draws=NAIVE_DRAWS,
    )
    return {**found, "exceedance": audit.exceedance}


def _gates(tables: dict[str, _Tables], base: str) -> list[dict[str, Any]]:
    """The three gates on CAL; the second needs a fine-tuned judge."""
    from certify_assets.certificates import table_gates
    from certify_assets.certificates.auroc import auroc

    area = auroc(*columns(tables["sft"].cal)[:2]) if "sft" in tables else float("nan")
    gates = table_gates(
        *columns(tables[base].cal),
        alpha=ALPHAS[0],
        delta=DELTA,
        grid=GRID,
        sft_auroc=area if np.isfinite(area) else None,
    )
    return [gate.to_dict() for gate in gates]
