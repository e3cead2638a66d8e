"""Decisions about a score table, one a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ScoreTable

if TYPE_CHECKING:
    import pandas as pd

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

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The score table's columns, decision, reason, thresholds and certificate_sha256."""
        import pandas as pd

        return pd.DataFrame(self._columns(_arrow_texts))

    def columns(self, places: npt.NDArray[np.int64] | slice) -> dict[str, npt.NDArray[Any]]:
        """Return rows of the frame as plain columns, which need no pandas."""
        return {name: values[places] for name, values in self._columns(_texts).items()}

    def _columns(self, texts: Callable[..., Any]) -> dict[str, Any]:
        from certify_assets.certificates.decision import DECISIONS, REASONS

        thresholds = {
            f"{side}_threshold": np.full(
                self.codes.size, np.nan if self.sides.get(side) is None else self.sides[side]
            )
            for side in ("reject", "release")
        }
        return {
            **self.table.columns(),
            "decision": texts(DECISIONS, self.codes),
            "reason": texts(REASONS, self.codes),
            **thresholds,
            "certificate_sha256": texts(
                (";".join(self.certificate_sha256),), np.zeros_like(self.codes)
            ),
        }

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


def _texts(names: Sequence[str], codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
    texts: npt.NDArray[np.object_] = np.array(names, dtype=object)[codes]
    return texts


def _arrow_texts(
    names: Sequence[str], codes: npt.NDArray[np.uint8]
) -> pd.api.extensions.ExtensionArray:
    """Return a column of text from codes; without a Python string a row."""
    import pandas as pd
    import pyarrow as pa

    texts = pa.array(names, type=pa.large_string()).take(pa.array(codes))
    return pd.array(texts, dtype="str")


def _distances(
    scores: npt.NDArray[np.float64], thresholds: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Distance to the middle between the thresholds; unscored rows first."""
    middle = float(np.mean(thresholds)) if thresholds else 0.0
    distance: npt.NDArray[np.float64] = np.abs(np.nan_to_num(scores - middle, nan=0.0))
    return distance
