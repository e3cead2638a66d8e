"""Outcomes of all sources, read by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from certify_assets.corpora.formats.base import Draft, Reading
from certify_assets.errors import InputError
from certify_assets.tables.cells import number_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings

#: options of every format
OUTCOME_OPTIONS: Mapping[str, str] = {
    "threshold": "number from which on an outcome is a success",
    "success": "outcomes that are a success, separated by commas; all others are failures",
    "failure": "outcomes that are a failure; all others are successes, or refused with success",
    "no_label": "outcomes that say nothing of the run, separated by commas",
}
_ALMOST_ONE = 1 - 1e-6


@dataclass(frozen=True)
class Unclear:
    """An outcome that the source does not give, with the fault and the remedy."""

    problem: str


def outcome_settings(options: Mapping[str, Any]) -> TableSettings:
    """Return the options about outcomes; InputError names a wrong one."""
    return TableSettings.of({name: options.get(name) for name in OUTCOME_OPTIONS})


class Outcomes:
    """The outcomes of an import; an unclear one makes the import fail after all are read."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._settings = reading, outcome_settings(reading.options)
        # by the name of the column, score or label, with the files where it holds words
        self._columns: dict[str, tuple[OutcomeColumn, dict[str, None]]] = {}
        self._first: Draft | None = None
        self._labelled = self._unclear = 0
        self._found: set[int] = set()

    def read(self, drafts: Iterable[Draft], marks: Mapping[str, float] | None) -> Iterator[Draft]:
        """Give every run its outcome, or None."""
        for draft in drafts:
            column, files = self._columns.setdefault(
                draft.outcome_name, (OutcomeColumn(draft.outcome_name, self._settings), {})
            )
            value, found = draft.outcome, None
            if not isinstance(value, Unclear):
                found = self._outcome(value, column, marks)
                if isinstance(value, str) and number_of(value) is None:
                    files[draft.origin.file] = None
            if found is None:
                self._unclear += 1
                self._first = self._first or draft
            elif found >= 0:
                self._found.add(found)
            self._labelled += found != -1
            yield replace(draft, outcome=None if found == -1 else found)

    def _outcome(
        self, value: Any, column: OutcomeColumn, marks: Mapping[str, float] | None
    ) -> int | None:
        found, settings = column.read(value), self._settings
        if marks is None or settings.success or settings.failure or found == -1:
            return found
        mark = marks.get(str(value).strip().lower())
        number = number_of(value) if mark is None else mark
        if settings.threshold is not None:
            return found if mark is None else int(mark >= settings.threshold)
        # under a name that means a failure a letter is clear and 1 is not
        if (
            number is None
            or not 0 <= number <= 2 - _ALMOST_ONE
            or (mark is None and column.contrary)
        ):
            return found
        if 0 < number < _ALMOST_ONE:
            self._reading.notes[
                "outcomes between 0 and 1 counted as failures; "
                "the option threshold says where success begins"
            ] += 1
        return int(number >= _ALMOST_ONE)

    def require_clear(self) -> None:
        """Refuse an import with an unclear outcome."""
        if self._first is not None:
            raise InputError(self._refusal(self._first))
        for column, files in self._columns.values():
            # new runs may all have failed
            if len(self._found) == 1 and not self._reading.options.get("keep_unlabelled"):
                column.require_named(next(iter(self._reading.hashes), ""), "--option")
            for said in column.notes() if files else ():
                self._reading.read_as.setdefault(said, {}).update(files)

    def _refusal(self, draft: Draft) -> str:
        name, value = draft.outcome_name, draft.outcome
        if isinstance(value, Unclear):
            return f"{draft.origin}, {name}: {value.problem}"
        problem, _ = self._columns[name][0].problem(value, "--option")
        more = f" {self._unclear:,} of {self._labelled:,} runs have such values."
        return f"{draft.origin}, {name}: {problem}{more if self._unclear > 1 else ''}"
