"""What the order of the review queue is made of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.operations.layout import ASKED

if TYPE_CHECKING:
    import pandas as pd

#: why a reviewer is asked, the most needed first
KINDS: Final = tuple(kind for kind in ASKED if kind)
#: of a label: an assumption, as in the paper's table of reviewer-hours
MINUTES_PER_RUN: Final = 6.0


def review_place(run: str) -> float:
    """Return a place in [0, 1): runs below a share are reviewed twice."""
    digest = hashlib.sha256(f"two\0{run}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2.0**64


def threshold_distance(frame: pd.DataFrame) -> tuple[pd.Series, NDArray[np.int64]]:
    """Return the distance to the nearest threshold, and 0 unscored, 1 known, 2 no threshold."""
    import pandas as pd

    score = frame["score"].to_numpy(dtype=np.float64)
    thresholds = frame[["reject_threshold", "release_threshold"]].to_numpy(dtype=np.float64)
    away = (
        np.nan_to_num(np.abs(score[:, None] - thresholds), nan=np.inf).min(axis=1)
        if len(frame)
        else np.zeros(0)
    )
    known = np.where(np.isnan(score), 0, np.where(np.isfinite(away), 1, 2))
    return pd.Series(np.where(known == 0, 0.0, away), index=frame.index), known
