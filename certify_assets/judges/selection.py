"""The choice among candidates on CAL, and what it costs."""

# A certificate holds for a judge that was fixed before its outcomes were read. The best of several
# on one table is a maximum: certified there at δ it breaks its promise more often than δ. So every
# candidate is counted: each is certified at δ over their number.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from certify_assets.certificates import Certifier, Settings
from certify_assets.judges.record import CandidateScore, columns
from certify_assets.judges.specs import DELTA, PROCEDURES

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.config import CorpusConfig


def certify_candidates(
    tables: Mapping[str, pd.DataFrame], config: CorpusConfig
) -> list[CandidateScore]:
    """Certify every candidate on its scores of CAL, at δ over their number.

    The budget is the smallest at which one of them certifies anything, else the largest. Next to
    the coverage that counts stands the one as if there were no other candidate, which is no
    promise.
    """
    certifiers = {name: Certifier.of(*columns(table)) for name, table in tables.items()}
    rows: list[CandidateScore] = []
    for alpha in config.alphas:
        alone = Settings(alpha=alpha, delta=DELTA, procedure=PROCEDURES[0], grid=config.grid)
        counted = alone.replace(candidates=len(tables))
        rows = [
            {
                "name": name,
                "alpha": alpha,
                "coverage": certifier.issue(counted).coverage,
                "uncorrected": certifier.issue(alone).coverage,
            }
            for name, certifier in certifiers.items()
        ]
        if any(row["coverage"] for row in rows):
            break
    return rows
