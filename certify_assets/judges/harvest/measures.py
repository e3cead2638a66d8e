"""What is said of a harvest: how many pseudo-labels are wrong, and how far it is from its pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import audit_certificate
from certify_assets.judges.harvest.gate import HarvestGate
from certify_assets.judges.harvest.withholding import Pool
from certify_assets.judges.judging import renderer, texts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["contamination", "rendered_lengths", "share_wrong", "skew"]


def share_wrong(taken: NDArray[np.bool_], withheld: NDArray[np.int8], label: int) -> float | None:
    """Share of the pseudo-labels that are wrong; None where there are none."""
    return float(np.mean(withheld[taken] != label)) if taken.any() else None


def contamination(gate: HarvestGate, table: pd.DataFrame, pool: Pool) -> dict[str, Any]:
    """Compare pseudo-labels with the withheld outcomes: to be reported, never used.

    Returns
    -------
    dict
        ``size``, ``pool``, ``contamination``, its task-level lower bound, and the verdict of an audit of the gate on the pool: ERROR only where
        the bound is above α, because the promise is on the population below the threshold and a finite pool scatters around it.
    """
    scores = table["score"].to_numpy(np.float64)
    taken = gate.taken(scores)
    found: dict[str, Any] = {
        "size": int(taken.sum()),
        "pool": len(table),
        "unscored": int(np.isnan(scores).sum()),
    }
    if not taken.any():
        return found | {"contamination": None, "lower_bound": None, "verdict": None}
    audit = audit_certificate(
        gate.certificate, scores, pool.withheld, table["task_id"].to_numpy(object)
    )
    return found | {
        "contamination": audit.realized_error,
        "lower_bound": audit.lower_bound,
        "verdict": audit.verdict,
    }


def rendered_lengths(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Characters of each run as a judge reads it."""
    return np.array([len(text) for text in texts(frame, renderer())], dtype=np.int64)


def skew(
    frame: pd.DataFrame, taken: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> dict[str, Any] | None:
    """Say how far a harvest is from its pool: what the bound on wrong labels does not cover.

    Parameters
    ----------
    frame : pandas.DataFrame
        The pool.
    taken : bool array, shape (rows,)
    lengths : int array, shape (rows,)
        Characters of the rendered runs.

    Returns
    -------
    dict or None
        Total variation distance of agents and of tasks between harvest and pool (0 = alike, 1 = disjoint), tasks that are in it, the number of
        equally large tasks that would be as concentrated (Kish), the Kolmogorov-Smirnov distance of lengths, and mean length against the pool's.
        None for an empty harvest.
    """
    if not taken.any():
        return None
    tasks = frame.loc[taken, "task_id"].value_counts().to_numpy(np.float64)
    return {
        "agents": _total_variation(frame["agent"], taken),
        "tasks": _total_variation(frame["task_id"], taken),
        "tasks_in_it": len(tasks),
        "tasks_in_pool": int(frame["task_id"].nunique()),
        "effective_tasks": float(tasks.sum() ** 2 / (tasks**2).sum()),
        "length_distance": _kolmogorov_smirnov(lengths[taken], lengths),
        "length_ratio": float(lengths[taken].mean() / lengths.mean()),
    }


def _total_variation(names: pd.Series[str], taken: NDArray[np.bool_]) -> float:
    pool, part = names.value_counts(normalize=True), names[taken].value_counts(normalize=True)
    return float(part.reindex(pool.index, fill_value=0.0).sub(pool).abs().sum() / 2)


def _kolmogorov_smirnov(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    at = np.unique(whole)
    steps = [
        np.searchsorted(np.sort(values), at, side="right") / values.size for values in (part, whole)
    ]
    return float(np.abs(steps[0] - steps[1]).max())
