"""The choice among candidates on CAL, and what it costs."""

# A certificate holds for a judge that was fixed before its outcomes were read. The best of several
# on one table is a maximum: certified there at δ it breaks its promise more often than δ. So every
# candidate is counted: each is certified at δ over their number.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates import issue, observe

if TYPE_CHECKING:
    from certify_assets.certificates import Settings

#: how a certificate words the choice
_RULE = (
    "the largest certified coverage on CAL among {count} candidates ({names}), each certified at "
    "delta over their number; {baseline} on a tie"
)


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate in the choice."""

    name: str
    # certified at the level divided by the number of candidates: what is compared
    coverage: float
    # certified as if there were no other candidate: the paper's number, no promise
    uncorrected: float


@dataclass(frozen=True)
class Selection:
    """A choice among candidates."""

    chosen: str
    rows: tuple[CandidateRow, ...]
    # how certificates word it
    rule: str


def select(
    candidates: Mapping[str, ArrayLike],
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    settings: Settings,
    baseline: str,
) -> Selection:
    """Choose one of several judges by certified coverage on CAL; the baseline on a tie."""
    labels, right = list(tasks), np.asarray(outcomes)
    given = {name: np.asarray(scores, dtype=np.float64) for name, scores in candidates.items()}
    counted = settings.replace(candidates=len(given))
    rows = []
    for name, scores in given.items():
        observed = observe(scores, right, labels)
        rows.append(
            CandidateRow(
                name, issue(observed, counted).coverage, issue(observed, settings).coverage
            )
        )
    return Selection(
        max(rows, key=lambda row: (row.coverage, row.name == baseline)).name,
        tuple(rows),
        _RULE.format(count=len(given), names=", ".join(given), baseline=baseline),
    )
