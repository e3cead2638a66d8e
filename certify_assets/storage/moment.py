"""A snapshot of a data root: the answers of its events, and results computed from them."""

# Events are never changed, so the data root as it was after event n can be read at any later time,
# without a transaction that stays open. A moment notes what it was asked, as the newest event of
# a key or kind. A step commits only if all that it asked still has the same answer. Otherwise
# another process was faster, nothing is stored, and the step is run again.

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar, cast

import sqlalchemy as sa

from certify_assets.errors import ChangedInputError
from certify_assets.storage.database import chains, events
from certify_assets.storage.events import Event, Stored, last_event
from certify_assets.storage.root import Root

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
#: subjects of events, by their corpus and kind
Changes = Mapping[tuple[str, str], Sequence[str]]


class Question(NamedTuple):
    """A question to a snapshot: the newest events of a kind, and of one or several subjects."""

    corpus: str
    kind: str
    subject: str = ""
    # whether all subjects count that begin like this
    begins: bool = False
    watched: bool = True

    def changed(self, changes: Changes) -> str | None:
        """Return the subject of an event that may change the answer, or None."""
        for subject in changes.get((self.corpus, self.kind), ()):
            if subject == self.subject or (self.begins and subject.startswith(self.subject)):
                return subject
        return None

    def rows(self, *columns: sa.Column[Any]) -> sa.Select[Any]:
        """Return the query for the stored events that answer the question."""
        subject = events.c.subject
        query = sa.select(*columns or (events,)).where(
            events.c.corpus == self.corpus, events.c.kind == self.kind
        )
        if not self.begins:
            return query.where(subject == self.subject)
        # of a folder: "0" follows "/"
        within = subject > self.subject, subject < f"{self.subject[:-1]}0"
        return query.where(*within) if self.subject else query


#: which corpora there are: a corpus that begins is a change, about its name
CORPORA: Final = Question("", "corpus", begins=True)


@dataclass
class OpenStep:
    """A step that is under way."""

    asked: set[Question] = field(default_factory=set)
    # what it will commit
    drafts: list[Event[Any]] = field(default_factory=list)
    # what is done once that is committed
    after: list[Callable[[], object]] = field(default_factory=list)

    def committed(self) -> None:
        """Run the actions that wait for the commit."""
        after, self.after = self.after, []
        for done in after:
            done()


@dataclass
class Moment:
    """A snapshot of a data root, shared by the views of a store."""

    root: Root
    # that of a short step, which reads what it locked
    connection: sa.Connection | None = None
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
        """Give a connection for reading."""
        known = self.connection
        return self.root.database.reading() if known is None else nullcontext(known)

    def last(self, corpus: str) -> tuple[int, str]:
        """Return number and hash of the last event of a corpus in the snapshot."""
        if corpus not in self._last:
            with self.reading() as connection:
                self._last[corpus] = last_event(connection, corpus)
        return self._last[corpus]

    # Asking

    def ask(self, question: Question) -> None:
        """Record a question whose answer other processes may change."""
        if self.step is not None and question.watched:
            self.step.asked.add(question)
        for asked in self._asked:
            asked.add(question)

    def corpora(self) -> list[str]:
        """Return the sorted names of the corpora in the snapshot."""
        self.ask(CORPORA)
        if self._corpora is None:
            with self.reading() as connection:
                self._corpora = _corpora(connection)
        return sorted(self._corpora)

    def events(self, question: Question, *, after: int = 0) -> list[Event[Any]]:
        """Return the events that answer a question, the stored ones before those of the step."""
        self.ask(question)
        query = question.rows().where(events.c.sequence > after).order_by(events.c.sequence)
        return [*map(Event._make, self._stored(question, query)), *self._drafted(question)]

    def newest(self, question: Question) -> Event[Any] | None:
        """Return the newest event that answers a question, or None."""
        if drafts := self._drafted(question):
            # what a step says itself depends on nobody else
            self.ask(question._replace(watched=False))
            return drafts[-1]
        self.ask(question)
        query = question.rows().order_by(events.c.sequence.desc()).limit(1)
        return next(map(Event._make, self._stored(question, query)), None)

    def subjects(self, question: Question) -> list[str]:
        """Return the sorted subjects of the events that answer a question."""
        self.ask(question)
        # in the order of the index, which then has all that is asked
        query = question.rows(events.c.subject).order_by(events.c.subject)
        found = [row.subject for row in self._stored(question, query)]
        return sorted({*found, *(draft.subject for draft in self._drafted(question))})

    def _stored(self, question: Question, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        number, _ = self.last(question.corpus)
        with self.reading() as connection:
            return connection.execute(query.where(events.c.sequence <= number)).all()

    def _drafted(self, question: Question) -> list[Event[Any]]:
        drafts = self.step.drafts if self.step is not None else []
        return [draft for draft in drafts if question.changed(_changes([draft])) is not None]

    # Remembering

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return the remembered result of `compute` under this name, or call it."""
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

    def forget(self, rows: Iterable[Any]) -> None:
        """Forget answers that events of these corpora, kinds and subjects may change."""
        if changes := _changes(rows):
            self._answers = {
                name: (answer, asked)
                for name, (answer, asked) in self._answers.items()
                if all(question.changed(changes) is None for question in asked)
            }

    # Moving

    def refresh(self, connection: sa.Connection) -> None:
        """Move to the present; in a step, refuse if an answer that the step used has changed."""
        if self._corpora is not None:
            self._last |= dict.fromkeys(_corpora(connection) - self._corpora, (0, ""))
        rows: list[Any] = []
        about = sa.select(*events.c["corpus", "sequence", "kind", "subject", "sha256"])
        # of other corpora nothing was asked
        for corpus, (number, _) in self._last.items():
            later = about.where(events.c.corpus == corpus, events.c.sequence > number)
            rows += connection.execute(later.order_by(events.c.sequence))
        if self.step is not None:
            require_same(self.step.asked, _changes(rows))
        self.follow(rows)

    def follow(self, rows: Sequence[Any]) -> None:
        """Move to events that were committed, without a check of their effect."""
        self.forget(rows)
        self._last |= {row.corpus: (row.sequence, row.sha256) for row in rows}
        if self._corpora is not None:
            self._corpora |= {row.corpus for row in rows if row.corpus}


def require_same(asked: Iterable[Question], changes: Changes) -> None:
    """Refuse changes that alter the answer to a question already asked."""
    for question in asked if changes else ():
        if (subject := question.changed(changes)) is not None:
            named = question.kind == Stored.kind
            what = f"replaced {subject}" if named else f"added {question.kind} {subject}".strip()
            raise ChangedInputError(
                f"{question.corpus or 'the data root'} changed meanwhile: another process {what}. "
                "Run this again."
            )


def _changes(rows: Iterable[Any]) -> Changes:
    found = defaultdict[tuple[str, str], list[str]](list)
    for row in rows:
        found[row.corpus, row.kind].append(row.subject)
        if row.sequence == 1 and row.corpus:
            found[CORPORA.corpus, CORPORA.kind].append(row.corpus)
    return found


def _corpora(connection: sa.Connection) -> frozenset[str]:
    return frozenset(filter(None, connection.scalars(sa.select(chains))))


def remembered(function: F) -> F:
    """Cache the result of a view's function for one operation; see `Store.remember`.

    A view has attributes `store`, and `identity`, its name among the views of that store.
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
