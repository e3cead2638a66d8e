"""CertHarvest (Algorithm 2 of the paper): self-training filtered by a certificate.

This module also prepares the data of a round: halves of CAL, a pool without outcomes, and training
rows without tasks that certify.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import (
    Certificate,
    Certifier,
    Settings,
    audit_certificate,
    decide,
    diagnose,
    n_min,
)
from certify_assets.errors import InputError, LeakError
from certify_assets.judges.record import columns

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest

#: the fewest tasks on which the paper validates its bootstrap
SMALLEST = 20
#: of the halves of CAL, the paper's
HALVES_SEED = 42

J = TypeVar("J")


@dataclass(frozen=True, eq=False)
class Gate:
    """Whether pseudo-labels may be taken, and below which score."""

    open: bool
    # the sentence that a skipped asset shows
    reason: str
    # of half A
    certificate: Certificate
    # tasks of half A, and the fewest with which this procedure's gate can open
    tasks: int
    needed: int

    def region(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which rows are inside the certified region; unscored rows never are."""
        if not self.open:
            return np.zeros(scores.size, dtype=bool)
        return np.asarray(decide(self.certificate, scores).decisions == self.certificate.side)

    def to_dict(self) -> dict[str, Any]:
        """Return the gate as JSON values."""
        return {
            "open": self.open,
            "reason": self.reason,
            "tasks": self.tasks,
            "needed": self.needed,
            "threshold": self.certificate.threshold if self.open else None,
            "coverage": self.certificate.coverage,
            "certificate_sha256": self.certificate.sha256,
        }


@dataclass(frozen=True, eq=False)
class Harvest(Generic[J]):
    """A round of CertHarvest."""

    gate: Gate
    # of each row of the pool
    taken: NDArray[np.bool_]
    label: int
    # what the judge was trained on
    training: pd.DataFrame
    # None where nothing was harvested
    judge: J | None

    @property
    def reason(self) -> str:
        """Say how many runs the gate let through, or why none."""
        if self.gate.open and not self.taken.any():
            return "the certified region holds no run of the pool."
        return self.gate.reason


def certharvest(
    half_a: pd.DataFrame,
    pool: pd.DataFrame,
    source: pd.DataFrame,
    fine_tune: Callable[[pd.DataFrame], J],
    *,
    settings: Settings,
    manifest: SplitManifest,
) -> Harvest[J]:
    """Run one round of CertHarvest (Algorithm 2).

    Parameters
    ----------
    half_a, pool : pandas.DataFrame
        Labelled runs of half of CAL's tasks, and unlabelled runs, with the scores of the judge s₀
        in the column `score`.
    source : pandas.DataFrame
        The runs with reviewers' labels that the judge learns from.
    fine_tune : callable
        Trains a judge from its base on labelled runs.
    settings : Settings
        Budget α, side and procedure of the certificate of half A.
    manifest : SplitManifest
        Names the tasks that certify and audit.

    Returns
    -------
    Harvest
        With the judge s₁, to certify on half B of CAL and audit on TEST, or with None if nothing
        was harvested.

    Raises
    ------
    LeakError
        If a run of the pool belongs to a task that certifies or audits.
    """
    gate = open_gate(half_a, settings)
    taken = gate.region(pool["score"].to_numpy(np.float64))
    label = 0 if settings.side == "reject" else 1
    training = training_set(source, pool[taken], label=label, manifest=manifest)
    judge = fine_tune(training) if taken.any() else None
    return Harvest(gate, taken, label, training, judge)


def open_gate(half_a: pd.DataFrame, settings: Settings) -> Gate:
    """Certify half A and decide whether a harvest is allowed."""
    certificate = Certifier.of(*columns(half_a)).issue(settings)
    tasks, needed = int(half_a["task_id"].nunique()), fewest_tasks(settings)
    if tasks < needed:
        reason = f"too few CAL tasks: {tasks} of {needed} needed in half A."
    elif certificate.certified:
        reason = f"half A certifies {certificate.coverage:.3f} at {settings.alpha:g}."
    else:
        found = diagnose(*columns(half_a), **dict(settings))
        reason = f"half A certifies nothing: {found.sentence}"
    return Gate(tasks >= needed and certificate.certified, reason, certificate, tasks, needed)


def fewest_tasks(settings: Settings) -> int:
    """Return the fewest tasks of half A with which a gate can open."""
    # the paper's 20 for a bootstrap, the error-free minimum for finite-sample certificates
    exact = settings.method.validity == "finite-sample"
    return n_min(settings.alpha, settings.delta) if exact else SMALLEST


def halves(cal: pd.DataFrame, seed: int = HALVES_SEED) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split CAL by task: half A sets the threshold of the harvest, half B certifies its judge."""
    # half A is the smaller one of an odd number of tasks
    names = sorted({str(task) for task in cal["task_id"]})
    if len(names) < 2:
        raise InputError(f"CAL has {len(names)} task; two halves need at least 2.")
    order = np.random.default_rng([seed, len(names)]).permutation(len(names))
    chosen = {names[place] for place in order[: len(names) // 2]}
    first = cal["task_id"].astype(str).isin(chosen)
    return cal[first].reset_index(drop=True), cal[~first].reset_index(drop=True)


def withhold(frame: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.int8]]:
    """Return labelled runs as a pool without outcomes, and the outcomes for reports of errors."""
    labelled = frame[frame["outcome"].notna()].reset_index(drop=True)
    if labelled.empty:
        raise InputError(
            "the pool of the harvest is empty: this corpus has no RL split; import it again with "
            "--set rl=true."
        )
    return labelled.assign(outcome=None), labelled["outcome"].to_numpy(np.int8)


def training_set(
    source: pd.DataFrame, harvested: pd.DataFrame, *, label: int, manifest: SplitManifest
) -> pd.DataFrame:
    """Join source rows and pseudo-labelled ones, whose tasks may not certify or audit."""
    import pandas as pd

    refuse_held_out(harvested, manifest, what="pseudo-labelled")
    parts = [source, harvested.assign(outcome=label)]
    joined = pd.concat([part for part in parts if len(part)], ignore_index=True)
    return joined.astype({"outcome": "int8"})


def refuse_held_out(
    frame: pd.DataFrame, manifest: SplitManifest, *, what: str, spent: Collection[str] = ()
) -> None:
    """Refuse rows whose tasks are kept for certifying or auditing, and are not `spent`."""
    split = frame["task_id"].map(manifest.assignment)
    kept = split.isin(["cal", "test"]) & ~frame["task_id"].isin(set(spent))
    found = frame[kept & (frame["corpus"] == manifest.corpus)]
    if len(found):
        row = found.iloc[0]
        raise LeakError(
            f"{len(found)} {what} rows are of tasks that certify or audit, the first being "
            f"{row['trajectory_id']!r} of task {row['task_id']!r} in "
            f"{manifest.assignment[row['task_id']].upper()}; train only on tasks of SFT and RL."
        )


def contamination(
    harvest: Harvest[Any], pool: pd.DataFrame, withheld: NDArray[np.int8]
) -> dict[str, Any]:
    """Compare pseudo-labels with the withheld outcomes, only for reports."""
    scores, taken = pool["score"].to_numpy(np.float64), harvest.taken
    tasks = pool["task_id"].to_numpy(object)
    found: dict[str, Any] = {"contamination": None, "lower_bound": None, "verdict": None}
    if taken.any():
        audit = audit_certificate(harvest.gate.certificate, scores, withheld, tasks)
        found = {
            "contamination": audit.realized_error,
            "lower_bound": audit.lower_bound,
            "verdict": audit.verdict,
        }
    counts = {"size": int(taken.sum()), "pool": len(pool), "unscored": int(np.isnan(scores).sum())}
    return {**counts, **found}
