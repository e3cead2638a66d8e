"""Decisions on new trajectories: reject, release or human review, with a reason each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


@dataclass(frozen=True)
class Decisions:
    """What happens to each trajectory, and the hashes of the certificates that decided."""

    # the score table's columns, decision, reason, thresholds and certificate_sha256
    frame: pd.DataFrame
    certificate_sha256: tuple[str, ...]

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return int((self.frame["decision"] == decision).sum())

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        return {
            str(name): int(number)
            for name, number in self.frame["reason"].value_counts().sort_index().items()
        }

    def queue(self) -> pd.DataFrame:
        """Return the rows for human review, those in the middle between the thresholds first."""
        rows = self.frame[self.frame["decision"] == "human"]
        return rows.iloc[np.argsort(np.abs(_distance(rows)), kind="stable")] if len(rows) else rows


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table."""
    from certify_assets.certificates.decision import DECISIONS, REASONS, decision_codes

    sides = [certificate.side for certificate in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        raise InputError(
            f"there are {sides.count(repeated)} certificates of the {repeated} side; give one a "
            "side, of the procedure and budget to use."
        )
    codes = decision_codes(certificates, table.scores)
    hashes = tuple(certificate.sha256 for certificate in certificates)
    thresholds = {certificate.side: certificate.threshold for certificate in certificates}
    frame = table.to_frame().assign(
        decision=_named(DECISIONS, codes), reason=_named(REASONS, codes)
    )
    for side in ("reject", "release"):
        frame[f"{side}_threshold"] = np.nan if thresholds.get(side) is None else thresholds[side]
    frame["certificate_sha256"] = _named((";".join(hashes),), np.zeros_like(codes))
    return Decisions(frame, hashes)


def _named(names: Sequence[str], codes: NDArray[np.uint8]) -> pd.api.extensions.ExtensionArray:
    """Return a column of text from codes; without a Python string a row."""
    import pandas as pd
    import pyarrow as pa

    texts = pa.array(names, type=pa.large_string()).take(pa.array(codes))
    return pd.array(texts, dtype="str")


def _distance(rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Distance to the middle between the thresholds; unscored rows first."""
    known = rows[["reject_threshold", "release_threshold"]].to_numpy(dtype=np.float64)[0]
    middle = float(np.nanmean(known)) if not np.isnan(known).all() else 0.0
    distance: np.ndarray[tuple[int], np.dtype[np.float64]] = np.nan_to_num(
        rows["score"].to_numpy(dtype=np.float64) - middle, nan=0.0
    )
    return distance
