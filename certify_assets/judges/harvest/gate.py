"""The gate of a harvest: no certificate on half A of CAL, no pseudo-labels."""

# What may be seen is cut here as well: halves of CAL, a pool without outcomes, training rows that
# hold no task kept for certifying; and what is reported of a harvest: errors and skew.

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from certify_assets.judges.harvest.rows import ContaminationRow, GateRow, SkewRow
from certify_assets.judges.reading import WHOLE
from certify_assets.judges.record import columns, texts

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.splits import SplitManifest

#: the fewest tasks on which the paper validates its bootstrap
SMALLEST = 20
#: of the halves of CAL, the paper's
HALVES_SEED = 42
#: column of training rows that says whether a reviewer or the certificate gave the label
LABEL_SOURCE = "label_source"
#: its value for labels of half A that were given up for training
HALF_A = "half_a"


@dataclass(frozen=True, eq=False)
class HarvestGate:
    """Whether, and below which score, pseudo-labels may be taken."""

    open: bool
    # the sentence that a skipped asset shows
    reason: str
    # of half A
    certificate: Certificate
    # tasks of half A, and the fewest with which this procedure's gate can open
    tasks: int
    needed: int

    def taken(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the rows inside the certified region, never an unscored one."""
        if not self.open:
            return np.zeros(scores.size, dtype=bool)
        return np.asarray(decide(self.certificate, scores).decisions == self.certificate.side)

    def to_dict(self) -> GateRow:
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


def open_gate(
    half: pd.DataFrame, settings: Settings, pilot: pd.DataFrame | None = None
) -> HarvestGate:
    """Certify half A and say whether there may be a harvest."""
    table, others = columns(half), None if pilot is None else columns(pilot)
    certificate = Certifier.of(*table, pilot=others).issue(settings)
    tasks, needed = int(half["task_id"].nunique()), fewest_tasks(settings)
    may_open = tasks >= needed and certificate.certified
    if tasks < needed:
        reason = f"too few CAL tasks: {tasks} of {needed} needed in half A."
    elif certificate.certified:
        reason = f"half A certifies {certificate.coverage:.3f} at {settings.alpha:g}."
    else:
        found = diagnose(*table, **dict(settings), pilot=others)
        reason = f"half A certifies nothing: {found.sentence}"
    return HarvestGate(may_open, reason, certificate, tasks, needed)


def fewest_tasks(settings: Settings) -> int:
    """Return the fewest tasks of half A with which a gate can open."""
    # the paper's 20 for a bootstrap, the error-free minimum for finite-sample certificates
    exact = settings.method.validity == "finite-sample"
    return n_min(settings.alpha, settings.delta) if exact else SMALLEST


@dataclass(frozen=True, eq=False)
class Splits:
    """The labelled trajectories of the four splits, and their manifest."""

    sft: pd.DataFrame
    rl: pd.DataFrame
    cal: pd.DataFrame
    test: pd.DataFrame
    manifest: SplitManifest


@dataclass(frozen=True, eq=False)
class HarvestPool:
    """Trajectories to harvest from."""

    # without outcomes: what a judge and a harvest are given
    frame: pd.DataFrame
    # the outcomes, to report contamination by; nothing that trains or decides reads them
    withheld: NDArray[np.int8]


def withhold(frame: pd.DataFrame) -> HarvestPool:
    """Take the outcomes of labelled trajectories away."""
    labelled = frame[frame["outcome"].notna()].reset_index(drop=True)
    if labelled.empty:
        raise InputError(
            "the pool of the harvest is empty: this corpus has no RL split; import it again with "
            "--set rl=true."
        )
    return HarvestPool(labelled.assign(outcome=None), labelled["outcome"].to_numpy(np.int8))


def halves(cal: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cut CAL by task: half A sets the threshold of the harvest, half B certifies its judge."""
    # half A is the smaller one of an odd number of tasks
    names = sorted({str(task) for task in cal["task_id"]})
    if len(names) < 2:
        raise InputError(f"CAL has {len(names)} task; halves of it need at least 2.")
    order = np.random.default_rng([seed, len(names)]).permutation(len(names))
    chosen = {names[place] for place in order[: len(names) // 2]}
    first = cal["task_id"].astype(str).isin(chosen)
    return cal[first].reset_index(drop=True), cal[~first].reset_index(drop=True)


def training_set(
    source: pd.DataFrame, harvested: pd.DataFrame, *, label: int, manifest: SplitManifest
) -> pd.DataFrame:
    """Join human-labelled source rows and pseudo-labelled ones."""
    import pandas as pd

    refuse_held_out(harvested, manifest, what="pseudo-labelled")
    parts = [
        source.assign(**{LABEL_SOURCE: "human"}),
        harvested.assign(**{"outcome": label, LABEL_SOURCE: "harvest"}),
    ]
    joined = pd.concat([part for part in parts if len(part)], ignore_index=True)
    joined["outcome"] = joined["outcome"].astype("int8")
    return joined


def refuse_held_out(
    frame: pd.DataFrame, manifest: SplitManifest, *, what: str, spent: Collection[str] = ()
) -> None:
    """Refuse rows whose tasks are kept for certifying or auditing."""
    kept = {task for task, split in manifest.assignment.items() if split in {"cal", "test"}} - set(
        spent
    )
    found = frame[frame["task_id"].isin(kept) & (frame["corpus"] == manifest.corpus)]
    if len(found):
        row = found.iloc[0]
        raise LeakError(
            f"{len(found)} {what} rows are of tasks that certify or audit, the first being "
            f"{row['trajectory_id']!r} of task {row['task_id']!r} in "
            f"{manifest.assignment[row['task_id']].upper()}; train on tasks of SFT and RL alone."
        )


def share_wrong(taken: NDArray[np.bool_], withheld: NDArray[np.int8], label: int) -> float | None:
    """Share of the pseudo-labels that are wrong; None where there are none."""
    return float(np.mean(withheld[taken] != label)) if taken.any() else None


def contamination(gate: HarvestGate, table: pd.DataFrame, pool: HarvestPool) -> ContaminationRow:
    """Compare pseudo-labels with the withheld outcomes: to be reported, never used."""
    scores = table["score"].to_numpy(np.float64)
    taken = gate.taken(scores)
    tasks = table["task_id"].to_numpy(object)
    audit = (
        audit_certificate(gate.certificate, scores, pool.withheld, tasks) if taken.any() else None
    )
    return {
        "size": int(taken.sum()),
        "pool": len(table),
        "unscored": int(np.isnan(scores).sum()),
        "contamination": audit.realized_error if audit else None,
        "lower_bound": audit.lower_bound if audit else None,
        "verdict": audit.verdict if audit else None,
    }


def rendered_lengths(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Characters of each whole run."""
    return np.array([len(text) for text in texts(frame, WHOLE.renderer)], dtype=np.int64)


def skew(
    frame: pd.DataFrame, taken: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> SkewRow | None:
    """Say how far a harvest is from its pool: what the bound on wrong labels does not cover."""
    if not taken.any():
        return None
    from scipy.stats import ks_2samp

    tasks = frame.loc[taken, "task_id"].value_counts().to_numpy(np.float64)
    return {
        "agents": _total_variation(frame["agent"], taken),
        "tasks": _total_variation(frame["task_id"], taken),
        "tasks_in_it": len(tasks),
        "tasks_in_pool": int(frame["task_id"].nunique()),
        "effective_tasks": float(tasks.sum() ** 2 / (tasks**2).sum()),
        "length_distance": float(ks_2samp(lengths[taken], lengths, method="asymp").statistic),
        "length_ratio": float(lengths[taken].mean() / lengths.mean()),
    }


def _total_variation(names: pd.Series[str], taken: NDArray[np.bool_]) -> float:
    pool, part = names.value_counts(normalize=True), names[taken].value_counts(normalize=True)
    return float(part.reindex(pool.index, fill_value=0.0).sub(pool).abs().sum() / 2)
