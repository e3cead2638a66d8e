"""Where labels come from: only tasks drawn at random before scoring may certify or feed the monitor, never the rows that were left to people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certify_assets.errors import InputError
from certify_assets.evaluation.score_files import read_rows

__all__ = ["NOT_STATED", "PROVENANCE_COLUMNS", "require_audit_sample"]

PROVENANCE_COLUMNS = ("provenance", "audit_sample", "asked")
NOT_STATED = {
    "code": "provenance_not_stated",
    "message": (
        "The table has no column provenance, audit_sample or asked: that its tasks were drawn at random before scoring, with all their attempts, and "
        "hold no label from the review queue is taken on trust."
    ),
}
_TRUE = frozenset({"true", "1", "1.0", "yes"})


def require_audit_sample(path: Path) -> bool:
    """Refuse a table of labels that says of any row that it is no audit sample.

    Parameters
    ----------
    path : Path
        A score table. Its column ``provenance`` must say ``audit_sample`` in every row, its column ``audit_sample`` be true in every row, its column
        ``asked``, as decisions have it, say ``audit_sample`` or ``spot_check``.

    Returns
    -------
    bool
        Whether the table has one of the columns; where it has none, its provenance is taken on trust.

    Raises
    ------
    InputError
        With the first row that is of something else, or does not say.
    """
    _, columns, rows = read_rows(path, set(PROVENANCE_COLUMNS))
    for name, values in columns.items():
        other = [index for index, value in enumerate(values) if not _is_audit_sample(name, value)]
        if other:
            shown = repr(values[other[0]])
            raise InputError(
                f"{path}, {rows.name(other[0])}, column {name!r}: {shown if len(shown) <= 60 else shown[:57] + '...'} is no audit sample "
                f"({len(other)} of {len(values)} rows are none); labels from the review queue are of what the judge could not decide, so give "
                "only tasks drawn at random before scoring, with all their attempts."
            )
    return bool(columns)


def _is_audit_sample(column: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if column == "asked":
        return text in {"audit_sample", "spot_check"}
    return (
        text in _TRUE
        if column == "audit_sample"
        else text.replace(" ", "_").replace("-", "_") == "audit_sample"
    )
