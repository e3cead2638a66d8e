"""The six words in which every surface speaks of a certificate.

decided, auto-fail, auto-pass, review, at most, held out: terminal, page, Dagster and notebook take
them, and the shares that go with them, from here.
"""

from __future__ import annotations

from typing import Final

#: what becomes of a run, by its decision, in the order in which it is shown
WORDS: Final = {"reject": "auto-fail", "human": "review", "release": "auto-pass"}
#: why a run was decided as it was, by the code of the reason
REASON_WORDS: Final = {
    "below_threshold": "score at or below the auto-fail threshold",
    "above_threshold": "score at or above the auto-pass threshold",
    "middle": "score between the thresholds",
    "overlap": "both sides would decide it",
    "unscored": "no score",
    "not_certified": "nothing is certified",
    "changed_run": "came before with other content",
    "trained_task": "the judge was trained on its task",
    "new_agent": "its agent is not in CAL",
    "known_task": "its task is in the splits",
    "shifted": "its batch is unlike CAL",
    "batch_certificate": "decided by the certificate of its batch",
    "batch_draw": "labelled for the certificate of its batch",
    "batch_not_certified": "outside the certified thresholds of its batch",
    "not_deployed": "no judge is deployed",
    "stale_certificate": "the certificate no longer holds",
    "corrected_labels": "labels of CAL were corrected",
    "failed_audit": "the audit on TEST failed",
    "alarm": "the monitor raised an alarm",
}


def percent(share: float) -> str:
    """Write a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def at_most(alpha: float) -> str:
    """Say the error budget: at most 10 % wrong."""
    return f"at most {100 * alpha:g} % wrong"


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: 1 run, 1,200 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
