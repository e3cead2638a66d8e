"""A data root at one moment: what its events answer, and what was made of the answers."""

# Events are never changed, so the data root as it was after event n can be read at any later time,
# without a transaction that stays open. A moment notes what it was asked, as the newest event of
# a key or kind. A step commits only if all that it asked still has the same answer. Otherwise
# another process was faster, nothing is stored, and the step is run again.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from certify_assets.storage.database import chains, events
from certify_assets.storage.events import Event, last_event
from certify_assets.storage.root import Root
from certify_assets.storage.steps import (
    CORPORA,
    Changes,
    OpenStep,
    Question,
    changes_of,
    require_same,
)

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


@dataclass
class Moment:
    """What a snapshot has seen, and its views with it."""

    root: Root
    # that of a short step, which reads what it locked
    connection: sa.Connection | None = None
    # the step that is under way
    step: OpenStep | None = None
    # number and hash of the last event of each corpus that is seen
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)
    # the corpora that are seen, once somebody asked for them
    _corpora: frozenset[str] | None = None
    # what was remembered, and what it was made of
    _answers: dict[object, tuple[Any, set[Question]]] = field(default_factory=dict)
    # what the answers that are being made were made of so far
    _asked: list[set[Question]] = field(default_factory=list)

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Give a connection that reads."""
        known = self.connection
        return self.root.database.reading() if known is None else nullcontext(known)

    def last(self, connection: sa.Connection, corpus: str) -> tuple[int, str]:
        """Return number and hash of the last event of a corpus that is seen."""
        if corpus not in self._last:
            self._last[corpus] = last_event(connection, corpus)
        return self._last[corpus]

    def corpora(self) -> list[str]:
        """Return the sorted names of the corpora that are seen."""
        self.ask(CORPORA)
        if self._corpora is None:
            with self.reading() as connection:
                self._corpora = _corpora(connection)
        return sorted(self._corpora)

    def ask(self, question: Question) -> None:
        """Note a question that others may answer anew."""
        if self.step is not None and question.watched:
            self.step.asked.add(question)
        for asked in self._asked:
            asked.add(question)

    def answer(self, question: Question, *, last: int | None = None, after: int = 0) -> list[Event]:
        """Return the events that answer, the stored ones before those of the step."""
        drafted = self._drafted(question)
        if last and len(drafted) >= last:
            # what a step says itself depends on nobody else
            self.ask(question._replace(watched=False))
            return drafted[-last:]
        self.ask(question)
        return self.stored(question, last=last, after=after) + drafted

    def stored(self, question: Question, *, last: int | None = None, after: int = 0) -> list[Event]:
        """Return the stored events that are seen, the oldest first."""
        with self.reading() as connection:
            query = self._rows(connection, question).where(events.c.sequence > after)
            newest = query.order_by(events.c.sequence.desc()).limit(last)
            return [Event._make(row) for row in connection.execute(newest)][::-1]

    def subjects(self, question: Question) -> list[str]:
        """Return the sorted subjects of the events that answer."""
        self.ask(question)
        with self.reading() as connection:
            query = self._rows(connection, question).order_by(events.c.subject)
            # in the order of the index, which then has all that is asked
            found = {*connection.scalars(query.with_only_columns(events.c.subject))}
        return sorted(found.union(draft.subject for draft in self._drafted(question)))

    def _drafted(self, question: Question) -> list[Event]:
        """Return the events of the step that is under way which answer a question."""
        drafts = self.step.drafts if self.step is not None else []
        return [
            draft for draft in drafts if question.concerns(changes_of([draft.about])) is not None
        ]

    def _rows(self, connection: sa.Connection, question: Question) -> sa.Select[Any]:
        seen, _ = self.last(connection, question.corpus)
        return sa.select(events).where(*question.conditions(), events.c.sequence <= seen)

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return what `compute` returned before under this name, or call it."""
        if name in self._answers:
            known: R
            known, questions = self._answers[name]
            # who uses the answer depends on what it was made of
            for question in questions:
                self.ask(question)
            return known
        found = set[Question]()
        self._asked.append(found)
        try:
            answer = compute()
        finally:
            self._asked.pop()
        self._answers[name] = (answer, found)
        return answer

    def forget(self, changes: Changes) -> None:
        """Forget the answers that events of these kinds and subjects may change."""
        if not changes:
            return
        self._answers = {
            name: (answer, asked)
            for name, (answer, asked) in self._answers.items()
            if all(question.concerns(changes) is None for question in asked)
        }

    def asked_by_step(self) -> set[Question]:
        """Return what the step that is under way has asked."""
        return set() if self.step is None else set(self.step.asked)

    def changes(self, connection: sa.Connection) -> Changes:
        """Return what was changed after the moment."""
        found: list[Any] = []
        # of other corpora nothing was asked
        for corpus, (last, _) in self._last.items():
            query = sa.select(events.c.corpus, events.c.kind, events.c.subject)
            later = query.where(events.c.corpus == corpus, events.c.sequence > last)
            found += connection.execute(later)
        if self._corpora is not None:
            begun = _corpora(connection) - self._corpora
            found += [(CORPORA.corpus, CORPORA.kind, corpus) for corpus in begun]
        return changes_of(found)

    def refresh(self) -> None:
        """Move to now; refuse, in a step, where an answer of the step is another one now."""
        with self.reading() as connection:
            changes = self.changes(connection)
            require_same(self.asked_by_step(), changes)
            self.forget(changes)
            self._last = {corpus: last_event(connection, corpus) for corpus in self._last}
            if self._corpora is not None:
                self._corpora = _corpora(connection)

    def pass_over(self, rows: Iterable[Event]) -> None:
        """Move to events that were just committed, within a step that is under way."""
        with self.reading() as connection:
            self.forget(self.changes(connection))
        self._last |= {row.corpus: (row.sequence, row.sha256) for row in rows}
        if self._corpora is not None:
            self._corpora |= {row.corpus for row in rows if row.corpus}


def _corpora(connection: sa.Connection) -> frozenset[str]:
    return frozenset(filter(None, connection.scalars(sa.select(chains))))


def remembered(function: F) -> F:
    """Let a function of a view answer once for an operation; see `Snapshot.remember`.

    A view has the snapshot as `store`, and as `identity` its name among the views of that.
    """

    @functools.wraps(function)
    def wrapper(view: Any, /, *args: Any, **kwargs: Any) -> Any:
        about = (function.__module__, function.__qualname__, view.identity, args)
        name = (*about, *sorted(kwargs.items()))
        return _fresh(view.store.remember(name, lambda: function(view, *args, **kwargs)))

    return cast("F", wrapper)


def _fresh(value: Any) -> Any:
    # shallow copies, so that a caller who changes a table or container changes nobody else's
    if type(value) is tuple:
        return tuple(map(_fresh, value))
    if isinstance(value, dict | list):
        return copy(value)
    if type(value).__name__ == "DataFrame":
        # pandas 3 copies on write
        return value.copy(deep=False)
    return value
