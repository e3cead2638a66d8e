"""What MLflow compares judges by: one run a judge and version of a corpus, under common names."""

# A name means the same in the run of a step and in the summary, for every judge. The best judge in
# these figures on CAL was chosen on CAL: docs/comparison.md says what that costs.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from certify_assets.evaluation.certification import deciding_sides
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.tracking import DatasetRead, Summary

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate
    from certify_assets.evaluation.audit import CertificateAudit

#: figures by name; None where there is none now
Figures = Mapping[str, float | None]
_READ_FOR = {"sft": "training", "rl": "calibration", "cal": "calibration", "test": "test"}


def judge_summary(
    judge: JudgedCorpus, figures: Figures | None = None, splits: Sequence[str] = ()
) -> Summary:
    """Return what a step adds to the run of its judge: figures, and the splits that it read."""
    corpus = judge.corpus
    learned = judge.spec.training_splits
    return Summary(
        name=f"{judge} on {corpus}",
        tags={
            "certify.judge": judge.name,
            "certify.corpus": corpus.name,
            "certify.family": judge.spec.kind,
            "certify.domain": corpus.domain.name or "not stated",
            "certify.corpus_version": str(corpus.version.number),
            **corpus.hashes,
        },
        metrics=figures or {},
        datasets=[
            DatasetRead(
                name=f"{corpus} {split}",
                key=corpus.split_key(split),
                sha256=corpus.store.sha256(corpus.split_key(split)),
                context="training" if split in learned else _READ_FOR[split],
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
    seconds = _cpu_seconds(judge, "score")
    bill = judge.bill
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
    coverage = {f"coverage_{_cell(item)}": float(item.coverage) for item in certificates}
    # judges are compared at one budget: the strictest that one has certified may be another's next
    budgets = sorted({item.alpha for item in certificates})
    decided = {
        f"decided_at_{alpha:g}": deciding_sides(
            [item for item in certificates if item.alpha == alpha]
        ).decided
        for alpha in budgets
    }
    return {**coverage, **decided, "decided": deciding_sides(certificates).decided}


def audited_figures(audits: Sequence[CertificateAudit]) -> Figures:
    """Return error and coverage on TEST; None of a side that is not certified."""
    errors = {f"error_{_cell(item)}": item.realized_error for item in audits}
    decided = {
        f"test_coverage_{_cell(item)}": None if item.realized_error is None else item.coverage
        for item in audits
    }
    return {**errors, **decided}


def _cell(item: Certificate | CertificateAudit) -> str:
    return f"{item.side}_at_{item.alpha:g}"


def _cpu_seconds(judge: JudgedCorpus, stage: str) -> float | None:
    """Return the CPU seconds of a stage; None where another one made a part of its product."""
    found = judge.timings.get(stage)
    return None if found is None or found["continued"] else float(found["cpu_seconds"])
