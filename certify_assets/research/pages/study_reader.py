"""Where the tables of the study take their numbers: stored documents, each remembered with its hash, and for what is not there the command that makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.reports.comparison_tables import Table
from certify_assets.research.full_study import Outcome, load_outcomes
from certify_assets.research.study_stages import STAGES
from certify_assets.storage.store import Store

__all__ = ["HOSTED", "NOT_RUN", "OURS", "PAPER", "Reader", "StudyTable", "number"]

OURS, PAPER = "ours", "paper"
NOT_RUN = "not run"
HOSTED = "hosted"
_COMMANDS = {stage.name: stage.command for stage in STAGES}


@dataclass(frozen=True)
class StudyTable:
    """A table with what a reader needs beside it.

    Parameters
    ----------
    table : Table
    about : str
        How to read it.
    sources : tuple of (str, str)
        Documents that its numbers come from, with their SHA-256.
    missing : tuple of str
        What was not run, with the command that runs it.
    figure : str
        Inline SVG of our own, or "".
    """

    table: Table
    about: str
    sources: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    figure: str = ""


@dataclass
class Reader:
    """Reads the documents of one table and remembers them.

    Parameters
    ----------
    store : Store
    corpora : tuple of str
    """

    store: Store
    corpora: tuple[str, ...]
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    _missing: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, store: Store) -> Reader:
        """Return a reader of every registered corpus."""
        outcomes = {(item.corpus, item.stage): item for item in load_outcomes(store)}
        return cls(store, tuple(registered_corpora(store)), outcomes)

    def fresh(self) -> Reader:
        """Return a reader for another table."""
        return Reader(self.store, self.corpora, self.outcomes)

    def document(self, key: str) -> dict[str, Any] | None:
        """Return a stored document, and remember that a number was taken from it; None where there is none."""
        if not self.store.exists(key):
            return None
        self._sources[key] = self.store.sha256(key)
        found: dict[str, Any] = self.store.read_json(key)
        return found

    def of_corpora(self, pattern: str, stage: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the documents that a stage left on each corpus; corpora without one are said to be missing."""
        found = []
        for corpus in self.corpora:
            document = self.document(pattern.format(corpus))
            if document is None:
                self.lacks(corpus, stage)
            else:
                found.append((corpus, document))
        return found

    def lacks(self, corpus: str, stage: str, what: str = "") -> None:
        """Say that something was not run on a corpus, why where that is known, and which command runs it."""
        outcome = self.outcomes.get((corpus, stage))
        why = f" ({outcome.reason.rstrip('.')})" if outcome and outcome.reason else ""
        command = _COMMANDS[stage].replace("CORPUS", corpus)
        sentence = f"{corpus}, {what or stage}: {NOT_RUN}{why}; {command}"
        if sentence not in self._missing:
            self._missing.append(sentence)

    def note(self, sentence: str) -> None:
        """Add a sentence to what is missing."""
        self._missing.append(sentence)

    def table(self, table: Table, about: str, figure: str = "") -> StudyTable:
        """Return the table with everything that was read for it."""
        return StudyTable(
            table, about, tuple(sorted(self._sources.items())), tuple(self._missing), figure
        )


Builder = Callable[[Reader], StudyTable]


def number(value: float | None, digits: int = 3) -> str:
    """Write a share as the paper does: .293; a dash where there is none."""
    from certify_assets.reports.wording import rate

    text = rate(value, digits)
    return text[1:] if text.startswith("0.") else text


def numbers(values: Sequence[float | None]) -> tuple[str, ...]:
    """Write several shares."""
    return tuple(number(value) for value in values)
