"""Figures of judges in MLflow, where every judge has one run a version of a corpus.

A name means the same in the run of a step and in that summary, for every judge. The best judge in
these figures on CAL was chosen on CAL: docs/comparison.md says what that costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit import CertificateAudit
from certify_assets.operations.certifier import deciding_sides
from certify_assets.storage.tracking import DatasetRead, Summary

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

#: figures by name; None where there is none now
Figures = Mapping[str, float | None]
#: what a step reads a split for
_READ_FOR: Final = {"sft": "training", "rl": "calibration", "cal": "calibration", "test": "test"}
#: figures that are of no rows
_SPENT: Final = {
    *("train_cpu_seconds", "score_cpu_seconds", "cpu_seconds_per_run"),
    *("cost", "cost_per_decision"),
}


def judge_summary(
    judge: JudgedCorpus, figures: Figures | None = None, splits: Sequence[str] = ()
) -> Summary:
    """Return what a step adds to the run of its judge: figures, and the splits that it read."""
    corpus, spec = judge.corpus, judge.spec
    return Summary(
        name=f"{judge} on {corpus}",
        tags={
            "certify.judge": judge.name,
            "certify.corpus": corpus.name,
            "certify.family": spec.kind,
            "certify.domain": corpus.domain.name or "not stated",
            "certify.corpus_version": str(corpus.version.number),
            **corpus.hashes,
        },
        metrics=figures or {},
        measured=[name for name in figures or {} if name not in _SPENT],
        datasets=[
            DatasetRead(
                name=f"{corpus} {split}",
                key=corpus.split_key(split),
                sha256=corpus.store.sha256(corpus.split_key(split)),
                context="training" if split in spec.training_splits else _READ_FOR[split],
            )
            for split in splits
        ],
    )


def training_figures(judge: JudgedCorpus) -> Figures:
    """Return what the training took."""
    return {"train_cpu_seconds": _cpu_seconds(judge, "train")}


def scoring_figures(judge: JudgedCorpus, table: pd.DataFrame) -> Figures:
    """Return how a judge ranks the labelled runs of CAL that certify it, and what scores took."""
    cal = table[(table["split"] == "cal") & table["outcome"].notna()]
    seconds, bill = _cpu_seconds(judge, "score"), judge.bill
    return {
        "auroc": judge_auroc(judge.spec.calibration_rows(cal)),
        "score_cpu_seconds": seconds,
        "cpu_seconds_per_run": seconds and seconds / max(1, len(table)),
        # nothing is paid without a server; one without a price is not one that costs nothing
        "cost": (bill["cost"] or None) if bill else 0.0,
        "cost_per_decision": (bill["cost_per_decision"] or None) if bill else 0.0,
    }


def certified_figures(certificates: Sequence[Certificate]) -> Figures:
    """Return the share that each certificate decides, both sides at a budget, and the strictest."""
    found = {f"coverage_{_place(item)}": float(item.coverage) for item in certificates}
    # judges are compared at one budget: the strictest that one has certified may be another's next
    for alpha in sorted({item.alpha for item in certificates}):
        sides = deciding_sides([item for item in certificates if item.alpha == alpha])
        found[f"decided_at_{alpha:g}"] = sides.decided
    return {**found, "decided": deciding_sides(certificates).decided}


def audited_figures(audits: Sequence[CertificateAudit]) -> Figures:
    """Return error and coverage on TEST; None of a side that is not certified."""
    found: dict[str, float | None] = {}
    for item in audits:
        known = item.realized_error is not None
        found[f"error_{_place(item)}"] = item.realized_error
        found[f"test_coverage_{_place(item)}"] = item.coverage if known else None
    return found


def _place(item: Certificate | CertificateAudit) -> str:
    return f"{item.side}_at_{item.alpha:g}"


def _cpu_seconds(judge: JudgedCorpus, stage: str) -> float | None:
    """Return the CPU seconds of a stage; None where another one made a part of its product."""
    found = judge.timings.get(stage)
    return None if found is None or found["continued"] else float(found["cpu_seconds"])
