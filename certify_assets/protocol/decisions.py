"""Decisions on new trajectories: reject, release or a person, with a reason on every row."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.errors import InputError
from certify_assets.files import write_atomic
from certify_assets.protocol.score_table import ScoreTable

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

__all__ = ["Decisions", "decide_table", "write_table_file"]


@dataclass(frozen=True)
class Decisions:
    """What happens to each trajectory.

    Parameters
    ----------
    frame : pandas.DataFrame
        The score table's columns plus decision, reason, reject_threshold, release_threshold and certificate_sha256.
    certificate_sha256 : tuple of str
        Hashes of the certificates that decided.
    """

    frame: pd.DataFrame
    certificate_sha256: tuple[str, ...]

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return int((self.frame["decision"] == decision).sum())

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        return {str(name): int(number) for name, number in self.frame["reason"].value_counts().sort_index().items()}

    def queue(self) -> pd.DataFrame:
        """Return the rows that go to people, those in the middle between the thresholds first: there the judge is least sure."""
        rows = self.frame[self.frame["decision"] == "human"]
        return rows.iloc[np.argsort(np.abs(_distance(rows)), kind="stable")] if len(rows) else rows


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table.

    Raises
    ------
    InputError
        If two certificates are of the same side.
    """
    from certify_assets.certificates import decide

    sides = [certificate.side for certificate in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        raise InputError(
            f"there are {sides.count(repeated)} certificates of the {repeated} side; give one a side, of the procedure and budget to use."
        )
    decisions, reasons = decide(certificates, table.scores)
    hashes = tuple(certificate.sha256 for certificate in certificates)
    thresholds = {certificate.side: certificate.threshold for certificate in certificates}
    frame = table.to_frame().assign(decision=decisions, reason=reasons)
    for side in ("reject", "release"):
        frame[f"{side}_threshold"] = np.nan if thresholds.get(side) is None else thresholds[side]
    frame["certificate_sha256"] = ";".join(hashes)
    return Decisions(frame, hashes)


def write_table_file(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as CSV, Parquet or JSON Lines, told by the ending, atomically.

    Notes
    -----
    A cell of a CSV that a spreadsheet would run as a formula gets an apostrophe in front: task and agent names are untrusted.
    """
    suffix = path.suffix.lower()
    buffer = io.BytesIO()
    if suffix in {".parquet", ".pq"}:
        frame.to_parquet(buffer, index=False)
    elif suffix in {".jsonl", ".ndjson"}:
        frame.to_json(buffer, orient="records", lines=True, double_precision=15, force_ascii=False)
    elif suffix == ".csv":
        buffer.write(_spreadsheet_safe(frame).to_csv(index=False).encode("utf-8"))
    else:
        raise InputError(f"{path} does not end in .csv, .parquet or .jsonl; choose one of these formats.")
    write_atomic(path, buffer.getvalue())


# a sign before a digit is a number, which no spreadsheet runs
_FORMULA = re.compile(r"[=@\t\r]|[+\-](?!\d)")


def _spreadsheet_safe(frame: pd.DataFrame) -> pd.DataFrame:
    safe = frame.copy()
    for name in ("task_id", "trajectory_id", "agent", "split"):
        if name in safe:
            safe[name] = [f"'{value}" if _FORMULA.match(str(value)) else value for value in safe[name]]
    return safe


def _distance(rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Distance to the middle between the thresholds; unscored rows first."""
    known = rows[["reject_threshold", "release_threshold"]].to_numpy(dtype=np.float64)[0]
    middle = float(np.nanmean(known)) if not np.isnan(known).all() else 0.0
    distance: np.ndarray[tuple[int], np.dtype[np.float64]] = np.nan_to_num(rows["score"].to_numpy(dtype=np.float64) - middle, nan=0.0)
    return distance
