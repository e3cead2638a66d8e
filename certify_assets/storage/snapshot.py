"""A data root at one moment, and the two ways to change it: a step and a short one."""

# Events are never changed, so the data root as it was after event n can be read at any later time,
# without a transaction that stays open. A snapshot notes what it was asked, as the newest event of
# a key or kind. A step commits only if all that it asked still has the same answer. Otherwise
# another process was faster, nothing is stored, and the step is run again.

from __future__ import annotations

import functools
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from certify_assets.errors import LedgerError
from certify_assets.files import lock_file
from certify_assets.storage.database import chains, events, parts
from certify_assets.storage.events import Event, Head, P, Payload, Stored, TypedEvent, last_event
from certify_assets.storage.pages import publish
from certify_assets.storage.steps import (
    Changes,
    OpenStep,
    Question,
    append,
    changes_of,
    known,
    require_same,
)
from certify_assets.storage.store import CORPUS_PLACES, Store, chain_of

A = ParamSpec("A")
R = TypeVar("R")


class Pins(NamedTuple):
    """What the keys of some areas name in a view, whatever is stored under them now."""

    files: Mapping[str, str]
    areas: frozenset[str]  # keys, and folders with all that is below them

    def cover(self, key: str) -> bool:
        """Whether a key is of these areas."""
        parts = key.split("/")
        return any("/".join(parts[:end]) in self.areas for end in range(len(parts), 0, -1))


@dataclass
class _Seen:
    """What a snapshot has seen, and its views with it."""

    # that of a short step, which reads what it locked
    connection: sa.Connection | None = None
    # number and hash of the last event of each corpus that is seen
    last: dict[str, tuple[int, str]] = field(default_factory=dict)
    # what was remembered, and what it was made of
    answers: dict[object, tuple[Any, set[Question]]] = field(default_factory=dict)
    # what the answers that are being made were made of so far
    asked: list[set[Question]] = field(default_factory=list)
    # the step that is under way
    step: OpenStep | None = None


@dataclass(frozen=True)
class Snapshot(Store):
    """A `Store` as it was when it was first asked, which remembers answers.

    Every answer is of one moment. `refresh` moves the moment to now. What is written is an event at
    once, or at the end of the step that is under way.
    """

    pins: Pins | None = field(default=None, hash=False)
    _seen: _Seen = field(default_factory=_Seen, compare=False, repr=False)

    @classmethod
    def within(cls, store: Store, connection: sa.Connection) -> Snapshot:
        """Return what a transaction sees, its own events included."""
        return cls(store.root, None, _Seen(connection))

    def pinned(self, files: Mapping[str, str], areas: Iterable[str]) -> Snapshot:
        """Return a view in which the keys of some areas name what they are given, or nothing.

        All else, and the step that is under way, are those of the snapshot itself.

        Parameters
        ----------
        files : Mapping[str, str]
            SHA-256 of objects by keys.
        areas : Iterable[str]
            Keys, and folders with all that is below them.
        """
        pins = Pins({}, frozenset(areas))
        covered = {key: sha256 for key, sha256 in files.items() if pins.cover(key)}
        return replace(self, pins=pins._replace(files=covered))

    @property
    def unpinned(self) -> Snapshot:
        """The snapshot itself, where this is a pinned view of it."""
        return replace(self, pins=None)

    def now(self) -> Snapshot:
        """Return this snapshot."""
        return self

    # Reading

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        below = self._below(folder).items()
        return sorted({key[len(folder) + 1 :].partition("/")[0] for key, now in below if now})

    def corpora(self) -> list[str]:
        """Return the sorted names of all corpora that have events."""
        with self._reading() as connection:
            return sorted(filter(None, connection.scalars(sa.select(chains))))

    def _below(self, folder: str) -> dict[str, str]:
        """Return what the keys below a folder name, "" where nothing is stored any more."""
        below, found = f"{folder}/", dict[str, str]()
        if self.pins is None or not self.pins.cover(folder):
            named, area = chain_of(below), below.partition("/")[0]
            others = self.corpora() if area in CORPUS_PLACES and not named else []
            for corpus in (named, *others):
                rows = self._answer(Question(corpus, Stored.kind, below))
                found |= {row.subject: _content(row) for row in rows}
        if self.pins is not None:
            pinned, cover = self.pins.files, self.pins.cover
            found = {key: sha256 for key, sha256 in found.items() if not cover(key)}
            found |= {key: sha256 for key, sha256 in pinned.items() if key.startswith(below)}
        return found

    def current(self, key: str) -> str:
        """Return the SHA-256 of what is stored under a key; "" where nothing is."""
        if self.pins is not None and self.pins.cover(key):
            return self.pins.files.get(key, "")

        def find() -> str:
            rows = self._answer(Question(chain_of(key), Stored.kind, key), last=1)
            return _content(rows[0]) if rows else ""

        return self.unpinned.remember(("current", key), find)

    def hashes(self, areas: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of what is stored under keys, and directly below those of folders."""
        found: dict[str, str] = {}
        for area in areas:
            # what has content is no folder
            own = self.current(area)
            keys = [area] if own else [f"{area}/{name}" for name in self.names(area)]
            found |= {key: sha256 for key in keys if (sha256 := self.current(key))}
        return found

    def made(self, corpus: str, kind: type[P], token: str) -> TypedEvent[P]:
        """Return the event of a kind that a request has appended."""
        found = self.among(corpus, "token", [token])
        return next(kind.typed(row) for row in found if row.kind == kind.kind)

    def subjects(self, corpus: str, kind: type[P]) -> list[str]:
        """Return the sorted subjects of the events of a kind."""
        question = Question(corpus, kind.kind, None)
        self._ask(question)
        with self._reading() as connection:
            query = self._seen_rows(connection, question).order_by(events.c.subject)
            # in the order of the index, which then has all that is asked
            found = {*connection.scalars(query.with_only_columns(events.c.subject))}
        return sorted(found.union(draft.subject for draft in self._drafted(question)))

    def among(
        self, corpus: str, column: Literal["sequence", "token"], values: Collection[Any]
    ) -> list[Event]:
        """Return the events with these numbers, or of requests with these tokens, as of now.

        The oldest is the first.
        """
        query = sa.select(events).where(events.c.corpus == corpus)
        found = [Event._make(row) for row in self.indexed(query, events.c[column], values)]
        return sorted(found, key=lambda event: event.sequence)

    def rows(
        self,
        corpus: str,
        kind: str,
        subject: str | None = None,
        *,
        last: int | None = None,
        after: int = 0,
        watched: bool = True,
    ) -> list[Event]:
        """Return events as they are stored, and those of the step that is under way.

        Of the stored ones all, or so many of the last, or those after a number.
        """
        return self._answer(Question(corpus, kind, subject, watched), last=last, after=after)

    def _answer(
        self, question: Question, *, last: int | None = None, after: int = 0
    ) -> list[Event]:
        drafted = self._drafted(question)
        if last and len(drafted) >= last:
            # what a step says itself depends on nobody else
            self._ask(question._replace(watched=False))
            return drafted[-last:]
        self._ask(question)
        return self._stored(question, last=last, after=after) + drafted

    def _drafted(self, question: Question) -> list[Event]:
        """Return the events of the step that is under way which answer a question."""
        drafts = self._seen.step.drafts if self._seen.step is not None else []
        return [
            draft for draft in drafts if question.concerns(changes_of([draft.about])) is not None
        ]

    def _stored(
        self, question: Question, *, last: int | None = None, after: int = 0
    ) -> list[Event]:
        """Return the stored events that are seen, the oldest first."""
        with self._reading() as connection:
            query = self._seen_rows(connection, question).where(events.c.sequence > after)
            newest = query.order_by(events.c.sequence.desc()).limit(last)
            return [Event._make(row) for row in connection.execute(newest)][::-1]

    def _seen_rows(self, connection: sa.Connection, question: Question) -> sa.Select[Any]:
        seen, _ = self._last(connection, question.corpus)
        return sa.select(events).where(*question.conditions(), events.c.sequence <= seen)

    def ledger(self, corpus: str) -> Head:
        """Return the head of a corpus as documents name it under ``ledger``.

        Every document that leaves the house carries it, so that an older database is noticed. No
        step fails when other events follow.
        """
        with self._reading() as connection:
            sequence, sha256 = self._last(connection, corpus)
        return {"corpus": corpus, "sequence": sequence, "sha256": sha256}

    def holds(self, corpus: str, sequence: int, sha256: str) -> bool:
        """Whether the chain of a corpus has an event with this number and hash."""
        # no database has larger numbers
        if not 0 < sequence < 2**63:
            return not (sequence or sha256)
        return [row.sha256 for row in self.among(corpus, "sequence", [sequence])] == [sha256]

    def require_held(self, head: Head, who: str) -> None:
        """Refuse a database that lost the event that a document names under ``ledger``."""

        def require() -> None:
            if not self.holds(**head):
                raise LedgerError(
                    f"the ledger of {head['corpus']} lost event {head['sequence']} that {who} "
                    "names: an older database was put back; restore the newer one."
                )

        # many documents name the same event
        self.unpinned.remember(("held", *head.values()), require)

    @contextmanager
    def workplace(self, key: str) -> Iterator[Path]:
        """Give a folder for what long work keeps to resume, to one process at a time.

        It is removed once the block has ended well, and the step that it is part of is committed.
        """
        # not in the folder, which whoever held the lock removes
        above, _, name = key.rpartition("/")
        with (self.scratch(above) / f".{name}.lock").open("a") as lock:
            lock_file(lock.fileno())
            folder = self.scratch(key)
            yield folder
            self.once_committed(functools.partial(shutil.rmtree, folder, ignore_errors=True))

    def indexed(
        self,
        query: sa.Select[Any],
        column: sa.Column[Any] | None = None,
        values: Collection[Any] = (),
    ) -> Iterator[sa.Row[Any]]:
        """Give the rows of an index as of now: all, or those where a column has one of the values.

        A step that asks notices others only by the events that it asks for as well.
        """
        found = parts(list(values)) if column is not None else ()
        queries = (
            [query.where(column.in_(part)) for part in found] if column is not None else [query]
        )
        with self._reading() as connection:
            for one in queries:
                yield from connection.execute(one)

    def once_committed(self, done: Callable[[], None]) -> None:
        """Call something when the step that is under way is committed, at once without one."""
        if self._seen.step is not None:
            self._seen.step.after.append(done)
        else:
            done()

    def _reading(self) -> AbstractContextManager[sa.Connection]:
        known = self._seen.connection
        return self.database.reading() if known is None else nullcontext(known)

    def _last(self, connection: sa.Connection, corpus: str) -> tuple[int, str]:
        if corpus not in self._seen.last:
            self._seen.last[corpus] = last_event(connection, corpus)
        return self._seen.last[corpus]

    # Remembering

    def _ask(self, question: Question) -> None:
        if self._seen.step is not None and question.watched:
            self._seen.step.asked.add(question)
        for asked in self._seen.asked:
            asked.add(question)

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return what `compute` returned before under this name, or call it."""
        seen = self._seen
        if self.pins is not None:
            name = (name, tuple(sorted(self.pins.files.items())))
        if name in seen.answers:
            known: R
            known, questions = seen.answers[name]
            # who uses the answer depends on what it was made of
            for question in questions:
                self._ask(question)
            return known
        found = set[Question]()
        seen.asked.append(found)
        try:
            answer = compute()
        finally:
            seen.asked.pop()
        seen.answers[name] = (answer, found)
        return answer

    def _forget(self, changes: Changes) -> None:
        """Forget the answers that events of these kinds and subjects may change."""
        if not changes:
            return
        self._seen.answers = {
            name: (answer, asked)
            for name, (answer, asked) in self._seen.answers.items()
            if all(question.concerns(changes) is None for question in asked)
        }

    def refresh(self) -> None:
        """Move to now; refuse, in a step, where an answer of the step is another one now."""
        with self._reading() as connection:
            changes = self._changes(connection)
            require_same(self._asked(), changes)
            self._forget(changes)
            self._seen.last = {corpus: last_event(connection, corpus) for corpus in self._seen.last}

    def _changes(self, connection: sa.Connection) -> Changes:
        """Return what was changed after the moment that is seen."""
        found: list[Any] = []
        # of other corpora nothing was asked
        for corpus, (last, _) in self._seen.last.items():
            query = sa.select(events.c.corpus, events.c.kind, events.c.subject)
            later = query.where(events.c.corpus == corpus, events.c.sequence > last)
            found += connection.execute(later)
        return changes_of(found)

    # Writing

    def point(self, key: str, sha256: str) -> None:
        """Let a key name an object that is stored; "" lets it name none."""
        if self.pins is not None and self.pins.cover(key):
            raise ValueError(f"{key} is pinned, so that it names the same for ever")
        self.append(chain_of(key), Stored(key=key, objects={"content": sha256} if sha256 else {}))

    def append(
        self, corpus: str, *payloads: Payload, token: str = "", tokens: Sequence[str] = ()
    ) -> None:
        """Append events to the chain of a corpus, unless those of the token are there.

        With `tokens` each of them is a request of its own; one that is there must be left out.
        """
        with self.step(corpus, token=token) as step:
            named = tokens or [step.token] * len(payloads)
            new = [Event.draft(corpus, *of) for of in zip(payloads, named, strict=True)]
            step.drafts += new
            self._forget(changes_of(draft.about for draft in new))

    @contextmanager
    def step(self, corpus: str, *, token: str = "", apart: bool = False) -> Iterator[OpenStep]:
        """Read, compute and write in the block, and commit at its end, all or nothing.

        A step within a step is a part of it, unless it is `apart`: then it is committed at its own
        end, whatever becomes of the outer one, of which it sees nothing that is not committed.
        Nothing is locked while the block works.

        Parameters
        ----------
        corpus : str
            Corpus that it is about; "" is the data root.
        token : str, optional
            Name of the request: where events with it are there, nothing is committed again.
        apart : bool, optional
            Whether it is committed before the step that it is in.

        Raises
        ------
        ChangedInputError
            If something that the block read was replaced meanwhile.
        MissingObjectError
            If an object that the block stored was removed meanwhile.
        """
        outer = self._seen.step
        if outer is not None and not apart:
            yield outer
            return
        if outer is None:
            self.refresh()
        else:
            self._forget(outer.changes)
        step = self._seen.step = OpenStep(token or uuid.uuid4().hex, self._asked())
        rows: list[Event] = []
        try:
            yield step
            if drafts := self._drafts(step):
                rows = self._commit(step, drafts)
        finally:
            self._seen.step = outer
            # what was remembered of it may never come to be
            self._forget(step.changes)
            if outer is not None:
                self._forget(outer.changes)
        if outer is not None:
            # what it depends on, the outer step depends on as well
            outer.asked |= step.asked
        self._done(step, rows)

    def _drafts(self, step: OpenStep) -> list[Event]:
        """Return what a step commits: its events, and the keys that name something else now."""
        keys = {draft.subject: draft for draft in step.drafts if draft.kind == Stored.kind}
        drafts = []
        for draft in keys.values():
            question = Question(*draft.about)
            if "".join(map(_content, self._stored(question, last=1))) == _content(draft):
                # what stays as it is must still be so, like what was read
                self._ask(question)
            else:
                drafts.append(draft)
        return drafts + [draft for draft in step.drafts if draft.kind != Stored.kind]

    def _commit(self, step: OpenStep, drafts: Sequence[Event]) -> list[Event]:
        """Append the events of a step; none where those of its token are there."""
        written = {draft.corpus for draft in drafts}
        read = {question.corpus for question in step.asked}
        with self.database.writing(written, read) as connection:
            # before what was read: a call that is made again finds it changed by itself
            if known(connection, min(written), step.token):
                return []
            require_same(step.asked, self._changes(connection))
            return append(self, connection, drafts)

    def _asked(self) -> set[Question]:
        return set() if self._seen.step is None else set(self._seen.step.asked)

    def _done(self, step: OpenStep, rows: Sequence[Event]) -> None:
        """Move to the events that were just committed, and to now where no step is under way."""
        if self._seen.step is None:
            self.refresh()
        elif rows:
            with self._reading() as connection:
                self._forget(self._changes(connection))
            self._seen.last |= {row.corpus: (row.sequence, row.sha256) for row in rows}
        # unchanged ones too: a call that was killed after its commit left their copies behind
        publish(
            Store(self.root), [draft.subject for draft in step.drafts if draft.kind == Stored.kind]
        )
        for done in step.after:
            done()

    def short(self, corpus: str, work: Callable[[Snapshot], R], *, token: str = "") -> R | None:
        """Read, compute and write while nobody else writes to the corpus; None where it was done.

        For milliseconds of work: claims, numbers, labels. Within a step it is committed at once,
        whatever becomes of the step. Within another short one it is a part of that.
        """
        if self._seen.connection is not None:
            return work(self)
        step = OpenStep(token or uuid.uuid4().hex)
        with self.database.writing([corpus]) as connection:
            if known(connection, corpus, step.token):
                return None
            # what the step has read so far must hold before something depends on it
            require_same(self._asked(), self._changes(connection))
            inner = Snapshot.within(self, connection)
            inner._seen.step = step
            result = work(inner)
            rows = append(self, connection, inner._drafts(step))
        self._done(step, rows)
        return result


def _content(event: Event) -> str:
    return event.objects.get("content", "")


class View(Protocol):
    """What a remembered function is asked of: something in a snapshot, with a key of its own."""

    @property
    def store(self) -> Snapshot:
        """Snapshot that it is seen in."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Name among the views of the snapshot."""


V = TypeVar("V", bound=View)


def remembered(function: Callable[Concatenate[V, A], R]) -> Callable[Concatenate[V, A], R]:
    """Let a function of a view answer once for an operation; see `Snapshot.remember`."""

    @functools.wraps(function)
    def wrapper(view: V, /, *args: A.args, **kwargs: A.kwargs) -> R:
        about = (function.__module__, function.__qualname__, view.identity, args)
        name = (*about, *sorted(kwargs.items()))
        answer: R = _fresh(view.store.remember(name, lambda: function(view, *args, **kwargs)))
        return answer

    return wrapper


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
