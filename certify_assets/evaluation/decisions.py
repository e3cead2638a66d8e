"""Decisions about a score table, one a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ScoreTable
from certify_assets.files import shortest

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate


@dataclass(frozen=True)
class Decisions:
    """What happens to each trajectory, and the hashes of the certificates that decided."""

    table: ScoreTable
    # of every row, as `decision_codes` has them
    codes: npt.NDArray[np.uint8]
    certificate_sha256: tuple[str, ...]
    # a side's, None where it certifies nothing
    sides: Mapping[str, float | None]

    @cached_property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds of the sides that certify something."""
        return tuple(value for value in self.sides.values() if value is not None)

    def columns(self, places: npt.NDArray[np.int64] | slice) -> dict[str, npt.NDArray[Any]]:
        """Return every column of the file for some rows, and what is decided of them."""
        from certify_assets.certificates.decision import DECISIONS, REASONS

        # to six digits, as they are shown; the certificates have them exactly
        limits = [self.sides.get(side) for side in ("reject", "release")]
        shown = [np.nan if limit is None else float(shortest(limit)) for limit in limits]
        hashes = ";".join(self.certificate_sha256)
        found = {
            "decision": np.array(DECISIONS, dtype=object)[self.codes],
            "reason": np.array(REASONS, dtype=object)[self.codes],
            "reject_threshold": np.full(self.codes.size, shown[0]),
            "release_threshold": np.full(self.codes.size, shown[1]),
            "certificate_sha256": np.full(self.codes.size, hashes, dtype=object),
        }
        own = {name: values for name, values in self._own.items() if name not in found}
        return {name: values[places] for name, values in {**own, **found}.items()}

    @cached_property
    def _own(self) -> dict[str, npt.NDArray[Any]]:
        return self.table.file_columns()

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return int(np.count_nonzero(self._is(decision)))

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        from certify_assets.certificates.decision import REASONS

        numbers = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return {
            name: number for name, number in sorted(zip(REASONS, numbers, strict=True)) if number
        }

    def human(self) -> npt.NDArray[np.bool_]:
        """Say of every row whether it goes to human review."""
        return self._is("human")

    def _is(self, decision: str) -> npt.NDArray[np.bool_]:
        from certify_assets.certificates.decision import DECISIONS

        return np.array([name == decision for name in DECISIONS])[self.codes]

    def queue(self) -> npt.NDArray[np.int64]:
        """Return the places of the rows for human review, the middle between thresholds first."""
        places = np.flatnonzero(self.human())
        away = _distances(self.table.scores[places], self.thresholds)
        return places[np.argsort(away, kind="stable")]


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table."""
    from certify_assets.certificates.decision import decision_codes

    sides = [certificate.side for certificate in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        raise InputError(
            f"there are {sides.count(repeated)} certificates of the {repeated} side; give one a "
            "side, of the procedure and budget to use."
        )
    return Decisions(
        table,
        decision_codes(certificates, table.scores),
        tuple(certificate.sha256 for certificate in certificates),
        {certificate.side: certificate.threshold for certificate in certificates},
    )


def _distances(
    scores: npt.NDArray[np.float64], thresholds: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Distance to the middle between the thresholds; unscored rows first."""
    middle = float(np.mean(thresholds)) if thresholds else 0.0
    distance: npt.NDArray[np.float64] = np.abs(np.nan_to_num(scores - middle, nan=0.0))
    return distance
