"""What a scoring cost and how much of it was a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import IntegrityError
from certify_assets.judges.base import Scores

__all__ = ["EndpointReport", "EndpointRun"]

_SUMMED = (
    *(
        "decisions",
        "scored",
        "answers",
        "unparsed_answers",
        "same_votes",
        "requests",
        "retries",
        "cache_hits",
        "prompt_tokens",
    ),
    *("completion_tokens", "uncounted_answers", "cost", "cost_now", "seconds", "cut_texts"),
)


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """Counts of one scoring.

    Parameters
    ----------
    decisions, scored : int
        Texts, and those with a verdict.
    unscored : mapping of str to int
        Texts without, by reason: unparsed, missing, not_finite, refused or failed.
    answers, unparsed_answers : int
        Answers read, and those in which no verdict was found; with k votes a text has k.
    same_votes : int
        Texts whose votes, two or more, are word for word the same: where that is most of them, the server does not sample.
    requests, retries, cache_hits : int
        Sent now (those sent again included), sent again, and answers that the journal had.
    prompt_tokens, completion_tokens : int
        Of every answer, those of the journal included, as the server counts them.
    uncounted_answers : int
        Answers without usage: tokens and cost then are lower bounds.
    cost, cost_now : float
        Of all answers, and of those asked for now.
    currency : str
    seconds : float
        Wall time of this scoring.
    models, fingerprints : tuple of str
        What the server said it is.
    journal_sha256 : str
        Hash of the last line of the journal.
    cut_texts : int
        Texts whose middle was cut to the budget of tokens.
    """

    decisions: int
    scored: int
    unscored: Mapping[str, int]
    answers: int
    unparsed_answers: int
    same_votes: int
    requests: int
    retries: int
    cache_hits: int
    prompt_tokens: int
    completion_tokens: int
    uncounted_answers: int
    cost: float
    cost_now: float
    currency: str
    seconds: float
    models: tuple[str, ...]
    fingerprints: tuple[str, ...]
    journal_sha256: str
    cut_texts: int = 0

    @property
    def parse_rate(self) -> float:
        """Share of the answers in which a verdict was found; NaN without answers."""
        return 1 - self.unparsed_answers / self.answers if self.answers else float("nan")

    @property
    def cost_per_decision(self) -> float:
        """Cost of a text, scored or not; NaN without texts."""
        return self.cost / self.decisions if self.decisions else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object; what cannot be divided is null."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        shares = {"parse_rate": self.parse_rate, "cost_per_decision": self.cost_per_decision}
        lists = {
            "unscored": dict(self.unscored),
            "models": list(self.models),
            "fingerprints": list(self.fingerprints),
        }
        return {
            **counts,
            **lists,
            **{name: value if np.isfinite(value) else None for name, value in shares.items()},
        }

    @classmethod
    def merged(cls, reports: Sequence[EndpointReport]) -> EndpointReport:
        """Add up the scorings of several tables, in their order.

        Raises
        ------
        IntegrityError
            If the server answered as another model in one of them.
        """
        models = tuple(sorted({name for report in reports for name in report.models}))
        if len(models) > 1:
            raise IntegrityError(
                f"the server answered as {' and as '.join(models)} in one scoring; pin one model and score again."
            )
        unscored: Counter[str] = Counter()
        for report in reports:
            unscored.update(report.unscored)
        sums = {name: sum(getattr(report, name) for report in reports) for name in _SUMMED}
        prints = tuple(sorted({name for report in reports for name in report.fingerprints}))
        last = reports[-1]
        said: dict[str, Any] = {
            "currency": last.currency,
            "journal_sha256": last.journal_sha256,
            "models": models,
            "fingerprints": prints,
        }
        return cls(unscored=dict(sorted(unscored.items())), **said, **sums)


@dataclass(frozen=True, eq=False)
class EndpointRun:
    """Scores with their bill.

    Parameters
    ----------
    scores : Scores
    report : EndpointReport
    reasons : tuple of str
        Why a text has no score; empty where it has one.
    tokens : int64 array, shape (n, 2)
        Prompt and completion tokens of every text.
    costs : float64 array, shape (n,)
        In the currency of the report.
    """

    scores: Scores
    report: EndpointReport
    reasons: tuple[str, ...]
    tokens: NDArray[np.int64]
    costs: NDArray[np.float64]
