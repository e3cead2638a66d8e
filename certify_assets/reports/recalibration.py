"""What recalibration does to a judge's certificates, as a table of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.evaluation.recalibration import recalibration_lines, recalibration_rows

__all__ = ["RecalibrationTable", "recalibration_table"]

_STALE = "The stored table is of other scores than the ones of this page; run `certify judge recalibrate` again."


@dataclass(frozen=True)
class RecalibrationTable:
    """A table with what is said of it; ``stale`` is a sentence instead of both where the scores have changed since."""

    caption: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()
    verdict: str = ""
    stale: str = ""


def recalibration_table(
    document: Mapping[str, Any], hashes: Mapping[str, str]
) -> RecalibrationTable:
    """Read a stored recalibration document.

    Parameters
    ----------
    document : mapping
        Of `evaluation.recalibration`.
    hashes : mapping of str to str
        Of what the page stands on now; a document of other scores is not shown.
    """
    caption = f"Fitted on {document['rows']} runs of {str(document['fitted_on']).upper()}, never on CAL or TEST."
    if any(document.get(name) != value for name, value in hashes.items()):
        return RecalibrationTable(caption, stale=_STALE)
    columns, rows = recalibration_rows(dict(document))
    lines = tuple(recalibration_lines(dict(document)))
    return RecalibrationTable(
        caption, tuple(columns), tuple(tuple(row) for row in rows), lines, str(document["verdict"])
    )
