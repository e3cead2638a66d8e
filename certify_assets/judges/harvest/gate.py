"""The gate: no certificate on half A, no harvest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Certificate, Settings, certify, decide, diagnose, n_min
from certify_assets.judges.judging import columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SMALLEST", "HarvestGate", "fewest_tasks", "open_gate"]

#: the fewest tasks on which the paper validates its bootstrap
SMALLEST = 20


@dataclass(frozen=True, eq=False)
class HarvestGate:
    """Whether, and below which score, pseudo-labels may be taken.

    Attributes
    ----------
    open : bool
    reason : str
        The sentence that a skipped asset shows.
    certificate : Certificate
        Of half A.
    tasks, needed : int
        Tasks of half A, and the fewest with which this procedure's gate can open.
    """

    open: bool
    reason: str
    certificate: Certificate
    tasks: int
    needed: int

    def taken(self, scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Rows of a pool inside the certified region; none where the gate is closed. An unscored row is never taken."""
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


def open_gate(
    half: pd.DataFrame, settings: Settings, pilot: pd.DataFrame | None = None
) -> HarvestGate:
    """Certify half A and say whether there may be a harvest.

    Parameters
    ----------
    half : pandas.DataFrame
        Score table of half A with outcomes.
    settings : Settings
        Side, α, δ, grid and procedure.
    pilot : pandas.DataFrame, optional
        Labelled score table of other tasks, for betting.
    """
    given = {
        name: getattr(settings, name)
        for name in ("alpha", "delta", "side", "procedure", "grid", "guard", "seed")
    }
    others = None if pilot is None else columns(pilot)
    certificate = certify(*columns(half), **given, pilot=others)
    tasks, needed = int(half["task_id"].nunique()), fewest_tasks(settings)
    if tasks < needed:
        return HarvestGate(
            False,
            f"too few CAL tasks: {tasks} of {needed} needed in half A.",
            certificate,
            tasks,
            needed,
        )
    if not certificate.certified:
        found = diagnose(*columns(half), **given, pilot=others)
        return HarvestGate(
            False, f"half A certifies nothing: {found.sentence}", certificate, tasks, needed
        )
    return HarvestGate(
        True,
        f"half A certifies {certificate.coverage:.3f} at {settings.alpha:g}.",
        certificate,
        tasks,
        needed,
    )


def fewest_tasks(settings: Settings) -> int:
    """Fewest tasks of half A: the paper's 20 for a bootstrap, the error-free minimum where the certificate is of finite samples."""
    exact = settings.method.validity == "finite-sample"
    return n_min(settings.alpha, settings.delta) if exact else SMALLEST
