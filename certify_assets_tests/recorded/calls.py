"""The calls of the Python interface on one score table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

_PROCEDURES = ("pseudo_task", "guarded_taskboot", "taskboot", "naive")


def answers(path: Path) -> dict[str, Any]:
    """Return what each call returns for the scores under the path."""
    import pandas as pd

    import certify_assets as product

    frame = pd.read_parquet(path)
    order = {task: place for place, task in enumerate(sorted(frame["task_id"].unique()))}
    even = frame["task_id"].map(order) % 2 == 0
    table, others = (_columns(part) for part in (frame[even], frame[~even]))
    found: dict[str, Any] = {}
    for side in ("reject", "release"):
        for procedure in _PROCEDURES:
            keywords: dict[str, Any] = {"alpha": 0.2, "side": side, "procedure": procedure}
            made = product.certify(*table, **keywords)
            decisions, reasons = product.decide(made, others[0])
            found[f"{side} {procedure}"] = {
                **{name: getattr(made, name) for name in ("certified", "coverage", "threshold")},
                **{name: getattr(made, name) for name in ("tail", "selective_error", "n_eff")},
                "findings": made.to_dict()["findings"],
                "audit": product.audit_certificate(made, *others).to_dict(),
                "decisions": dict(Counter(map(str, decisions))),
                "reasons": dict(Counter(map(str, reasons))),
                "difference": product.verify(made.to_dict(), *table),
                "differs": product.verify(made.to_dict(), *others) is not None,
            }
            if made.certified:
                monitored = product.monitor_certificate(made, *others).to_dict()
                found[f"{side} {procedure}"]["alarm"] = monitored["alarm"]
    resampled = product.resample_audit(*others, threshold=float(pd.Series(table[0]).median()))
    curve = product.threshold_curve(*table, alpha=0.2)
    points = {name: [float(x) for x in getattr(curve, name)] for name in ("thresholds", "coverage")}
    return {"certificates": found, "resample": resampled.to_dict(), "curve": points}


def _columns(frame: Any) -> tuple[Any, Any, Any]:
    return frame["score"].to_numpy(), frame["outcome"].to_numpy(int), frame["task_id"].to_numpy()
