"""Decisions on new trajectories: reject, release or human review, with a reason each."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ScoreTable
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


_ENDINGS = frozenset({".csv", ".parquet", ".pq", ".jsonl", ".ndjson"})
# a whole number with its sign is no formula; a sign before anything else is
_FORMULA = re.compile(r"\s*([=@＝＠]|[+\-＋－](?!\d+(\.\d+)?\s*$))|[\t\r\n]")


@dataclass(frozen=True)
class Decisions:
    """What happens to each trajectory.

    Parameters
    ----------
    frame : pandas.DataFrame
        The score table's columns plus decision, reason, reject_threshold, release_threshold and
        certificate_sha256.
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
        return {
            str(name): int(number)
            for name, number in self.frame["reason"].value_counts().sort_index().items()
        }

    def queue(self) -> pd.DataFrame:
        """Return the rows for human review, those in the middle between the thresholds first."""
        rows = self.frame[self.frame["decision"] == "human"]
        return rows.iloc[np.argsort(np.abs(_distance(rows)), kind="stable")] if len(rows) else rows


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table.

    Raises
    ------
    InputError
        If two certificates are of the same side.
    """
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


def check_table_file(path: Path, frame: pd.DataFrame) -> None:
    """Refuse a table that its kind of file cannot hold, before anything is written.

    Raises
    ------
    InputError
        If the ending is unknown, or a CSV would hold a name that a spreadsheet runs as a formula.

    Notes
    -----
    Names of tasks, runs and agents are untrusted, and reviewers open the queue in a spreadsheet. A
    name in another spelling would be lost to every later join, so it is neither altered nor
    written: the other formats hold it as it is.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"{path} does not end in .csv, .parquet or .jsonl; choose one of these formats."
        )
    if path.suffix.lower() != ".csv":
        return
    for column in ("task_id", "trajectory_id", "agent", "split"):
        found = (
            [str(value) for value in frame[column] if _FORMULA.match(str(value))]
            if column in frame
            else []
        )
        if found:
            raise InputError(
                f"{path} cannot hold the {column} {found[0]!r} ({len(found)} such): a "
                "spreadsheet would run it as a formula; "
                "choose a name that ends in .jsonl or .parquet, which hold it as it is."
            )


def write_table_file(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as CSV, Parquet or JSON Lines, by the ending, atomically.

    Raises
    ------
    InputError
        As `check_table_file` does.
    """
    check_table_file(path, frame)
    suffix = path.suffix.lower()
    buffer = io.BytesIO()
    if suffix == ".csv":
        buffer.write(frame.to_csv(index=False).encode("utf-8"))
    elif suffix in {".jsonl", ".ndjson"}:
        frame.to_json(buffer, orient="records", lines=True, double_precision=15, force_ascii=False)
    else:
        frame.to_parquet(buffer, index=False)
    write_atomic(path, buffer.getvalue())


def _distance(rows: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Distance to the middle between the thresholds; unscored rows first."""
    known = rows[["reject_threshold", "release_threshold"]].to_numpy(dtype=np.float64)[0]
    middle = float(np.nanmean(known)) if not np.isnan(known).all() else 0.0
    distance: np.ndarray[tuple[int], np.dtype[np.float64]] = np.nan_to_num(
        rows["score"].to_numpy(dtype=np.float64) - middle, nan=0.0
    )
    return distance
