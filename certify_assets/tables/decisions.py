"""Decisions about a score table, one for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from certify_assets.arrays import Integers
from certify_assets.files import shortest
from certify_assets.tables.score_table import ScoreTable

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.certificates.sides import RowDecisions


@dataclass(frozen=True)
class Decisions:
    """The decision of each row, and the certificates that decide, at most one for each side."""

    table: ScoreTable
    certificates: Sequence[Certificate]
    rows: RowDecisions

    def columns(self, places: Integers | slice) -> dict[str, npt.NDArray[Any]]:
        """Return every column of the file for some rows, and their decisions."""
        limits = {item.side: item.threshold for item in self.certificates}
        hashes = ";".join(item.sha256 for item in self.certificates)
        found: dict[str, npt.NDArray[Any]] = {
            "decision": self.rows.decisions.astype(object),
            "reason": self.rows.reasons.astype(object),
        }
        for side in ("reject", "release"):
            limit = limits.get(side)
            # to six digits, as it is shown; the certificate has it exactly
            shown = np.nan if limit is None else float(shortest(limit))
            found[f"{side}_threshold"] = np.full(len(self.table), shown)
        found["certificate_sha256"] = np.full(len(self.table), hashes, dtype=object)
        own = self.table.file_columns().items()
        columns = {name: values for name, values in own if name not in found} | found
        return {name: values[places] for name, values in columns.items()}

    def disagreements(self) -> Integers:
        """Return the places of decided rows that contradict their label, the worst first."""
        from certify_assets.certificates.sides import disagreements

        return disagreements(self.rows.decisions, self.table.scores, self.table.labels)

    def queue(self) -> Integers:
        """Return the places of the rows for review, the middle between thresholds first."""
        places = np.flatnonzero(self.rows.decisions == "human")
        limits = [item.threshold for item in self.certificates if item.threshold is not None]
        middle = float(np.mean(limits)) if limits else 0.0
        # unscored rows come before all others
        away = np.abs(np.nan_to_num(self.table.scores[places] - middle, nan=0.0))
        return places[np.argsort(away, kind="stable")]


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate for each side to a score table."""
    from certify_assets.certificates import decide

    return Decisions(table, certificates, decide(certificates, table.scores))
