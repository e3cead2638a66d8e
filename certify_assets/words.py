"""The six words in which every surface speaks of a certificate.

decided, auto-fail, auto-pass, review, at most, held out: terminal, page, Dagster and notebook take
them, and the shares that go with them, from here.
"""

from __future__ import annotations

from typing import Final

#: what becomes of a run, by its decision, in the order in which it is shown
WORDS: Final = {"reject": "auto-fail", "human": "review", "release": "auto-pass"}


def percent(share: float) -> str:
    """Write a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def at_most(alpha: float) -> str:
    """Say the error budget: at most 10 % wrong."""
    return f"at most {100 * alpha:g} % wrong"


def number_of(count: int, noun: str) -> str:
    """Write a count with its noun: 1 run, 1,200 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
