"""A data root at one moment, and the two ways to change it: a step and a short one."""

# Events are never changed, so the data root as it was after event n can be read at any later time,
# without a transaction that stays open. A snapshot notes what it was asked, as the newest event of
# a key or kind. A step commits only if all that it asked still has the same answer. Otherwise
# another process was faster, nothing is stored, and the step is run again.

from __future__ import annotations

import functools
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from certify_assets.errors import LedgerError
from certify_assets.files import lock_file, parse_json
from certify_assets.storage.database import chains, events, parts
from certify_assets.storage.events import (
    Event,
    EventDraft,
    Head,
    P,
    Payload,
    Stored,
    TypedEvent,
    last_event,
)
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
from certify_assets.storage.store import Store, chain_of, keys_of

A = ParamSpec("A")
R = TypeVar("R")
_LOCK = ".lock"


class Pins(NamedTuple):
    """What the keys of some areas name in a view, whatever is stored under them now."""

    base: Snapshot
    files: Mapping[str, str]
    areas: frozenset[str]  # keys, and folders with all that is below them

    def cover(self, key: str) -> bool:
        """Whether a key is of these areas."""
        parts = key.split("/")
        return any("/".join(parts[:end]) in self.areas for end in range(len(parts), 0, -1))


class Snapshot(Store):
    """A `Store` as it was when it was first asked, which remembers answers.

    Every answer is of one moment. `refresh` moves the moment to now. What is written is an event at
    once, or at the end of the step that is under way.
    """

    def __init__(self, base: Store, connection: sa.Connection | None = None) -> None:
        super().__init__(base.root)
        # the dataclass is frozen: what it names never changes, what was read of it grows
        vars(self).update(
            _connection=connection,
            _upto={},
            _currents={},
            _answers={},
            _steps=[],
            _local=threading.local(),
            _pins=None,
        )

    # that of a short step, which reads what it locked
    _connection: sa.Connection | None
    # number of the last event of each corpus that is seen
    _upto: dict[str, int]
    # what is stored under keys, "" for nothing
    _currents: dict[str, str]
    _answers: dict[object, tuple[Any, frozenset[Question]]]
    # the steps that are under way, each within the one before
    _steps: list[OpenStep]
    _local: threading.local
    _pins: Pins | None

    def __reduce__(self) -> tuple[Callable[..., Snapshot], tuple[Any, ...]]:
        # another process starts its own operation
        return (Snapshot, (Store(self.root),)) if self._pins is None else (_pinned, (*self._pins,))

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
        pins = Pins(self.unpinned, dict(files), frozenset(areas))
        files = {key: sha256 for key, sha256 in files.items() if pins.cover(key)}
        view = object.__new__(Snapshot)
        vars(view).update(vars(self), _pins=pins._replace(files=files))
        return view

    @property
    def unpinned(self) -> Snapshot:
        """The snapshot itself, where this is a pinned view of it."""
        return self if self._pins is None else self._pins.base

    @property
    def is_pinned(self) -> bool:
        """Whether some keys do not name what is stored under them now."""
        return self._pins is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        # without the base, which compares itself
        return (self.root, self._pins and self._pins[1:]) == (
            other.root,
            other._pins and other._pins[1:],
        )

    def __hash__(self) -> int:
        return hash(self.root)

    def now(self) -> Snapshot:
        """Return this snapshot."""
        return self

    @property
    def is_working(self) -> bool:
        """Whether a step is under way."""
        return bool(self._steps)

    # Reading

    def exists(self, key: str) -> bool:
        """Whether a document or table, or a folder with some, is stored under the key."""
        return bool(self.current(key)) or bool(self.names(key))

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of what is stored under the key."""
        found = self.current(key)
        if not found:
            raise self.missing(key)
        return found

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key; else name the step that writes it."""
        return self.objects.get(self.sha256(key))

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give what is stored under the key as a file of this machine, which must not change."""
        with self.objects.as_file(self.sha256(key)) as path:
            yield path

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        below = f"{folder}/"
        found: set[str] = set()
        if self._pins is not None and self._pins.cover(folder):
            return _names(self._pins.files, below)
        with self._reading() as connection:
            for corpus in keys_of(lambda: connection.scalars(sa.select(chains)), folder):
                found |= self._stored_below(connection, corpus, below)
        for key, sha256 in (item for step in self._steps for item in step.keys.items()):
            if key.startswith(below):
                found = found | {key} if sha256 else found - {key}
        if self._pins is not None:
            found = {key for key in found if not self._pins.cover(key)} | {*self._pins.files}
        return _names(found, below)

    def corpora(self) -> list[str]:
        """Return the sorted names of all corpora that have events."""
        with self._reading() as connection:
            return sorted(filter(None, connection.scalars(sa.select(chains))))

    def _stored_below(self, connection: sa.Connection, corpus: str, below: str) -> set[str]:
        self._ask(Question(corpus, Stored.kind, below, below=True))
        query = self._select(connection, corpus, Stored.kind).where(
            events.c.subject >= below, events.c.subject < below[:-1] + "0"
        )
        newest = query.order_by(events.c.subject, events.c.sequence)
        found = {row.subject: _content(row.payload) for row in connection.execute(newest)}
        # what they name now is known without asking again
        self._currents.update(found)
        return {key for key, sha256 in found.items() if sha256}

    def current(self, key: str) -> str:
        """Return the SHA-256 of what is stored under a key; "" where nothing is."""
        if self._pins is not None and self._pins.cover(key):
            return self._pins.files.get(key, "")
        for step in reversed(self._steps):
            if key in step.keys:
                return step.keys[key]
        self._ask(Question(chain_of(key), Stored.kind, key))
        return self._committed(key)

    def _committed(self, key: str) -> str:
        if key not in self._currents:
            rows = self._stored(chain_of(key), Stored.kind, events.c.subject == key, last=1)
            self._currents[key] = _content(rows[0].payload) if rows else ""
        return self._currents[key]

    def hashes(self, areas: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of what is stored under keys, and directly below those of folders."""
        found: dict[str, str] = {}
        for area in areas:
            # what has content is no folder
            own = self.current(area)
            keys = [area] if own else [f"{area}/{name}" for name in self.names(area)]
            found |= {key: sha256 for key in keys if (sha256 := self.current(key))}
        return found

    def events(
        self,
        corpus: str,
        kind: type[P],
        subject: str | None = None,
        *,
        after: int = 0,
        watched: bool = True,
    ) -> list[TypedEvent[P]]:
        """Return the events of a kind, of one subject or of all, the oldest first.

        A step that reads them commits even if others follow, unless they are watched. With `after`
        those with a higher number alone.
        """
        rows = self.rows(corpus, kind.kind, subject, after=after, watched=watched)
        return [_entry(kind, row) for row in rows]

    def made(self, corpus: str, kind: type[P], token: str) -> TypedEvent[P]:
        """Return the event of a kind that a request has appended."""
        return next(
            _entry(kind, row) for row in self.named(corpus, [token]) if row.kind == kind.kind
        )

    def last(
        self, corpus: str, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> TypedEvent[P] | None:
        """Return the last event of a kind, of one subject or of all; None where there is none."""
        rows = self.rows(corpus, kind.kind, subject, last=1, watched=watched)
        return _entry(kind, rows[-1]) if rows else None

    def subjects(self, corpus: str, kind: type[P], *, watched: bool = True) -> list[str]:
        """Return the sorted subjects of the events of a kind."""
        self._ask(Question(corpus, kind.kind, None, watched=watched))
        drafts = self._steps[0].drafts if self._steps else []
        found = {item.subject for item in drafts if item[:2] == (corpus, kind.kind)}
        with self._reading() as connection:
            query = self._select(connection, corpus, kind.kind).order_by(events.c.subject)
            # in the order of the index, which then has all that is asked
            found.update(connection.scalars(query.with_only_columns(events.c.subject)))
        return sorted(found)

    def named(self, corpus: str, tokens: Collection[str]) -> list[Event]:
        """Return the events of requests with these tokens, the oldest first."""
        return self._among(corpus, events.c.token, tokens)

    def numbered(self, corpus: str, sequences: Collection[int]) -> list[Event]:
        """Return the events with these numbers, the oldest first."""
        return self._among(corpus, events.c.sequence, sequences)

    def _among(self, corpus: str, column: sa.Column[Any], values: Collection[Any]) -> list[Event]:
        query = sa.select(events).where(events.c.corpus == corpus)
        found = [Event._make(row) for row in self.indexed(query, column, values)]
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
        question = Question(corpus, kind, subject, watched=watched)
        self._ask(question)
        asked = [] if subject is None else [events.c.subject == subject]
        found = self._stored(corpus, kind, *asked, events.c.sequence > after, last=last)
        drafts = [draft for step in self._steps for draft in step.drafts]
        return found + [
            Event(corpus, 0, kind, draft.subject, "", 0, "", draft.payload, "", "")
            for draft in drafts
            if draft.corpus == corpus
            and question.concerns(changes_of([(draft.kind, draft.subject)])) is not None
        ]

    def head(self, corpus: str) -> tuple[int, str]:
        """Return number and hash of the last event that is seen; no step fails when others follow.

        Every document that leaves the house carries it, so that an older database is noticed.
        """
        rows = self._stored(corpus, None, last=1)
        return (rows[0].sequence, rows[0].sha256) if rows else (0, "")

    def ledger(self, corpus: str) -> Head:
        """Return the head of a corpus as documents name it under ``ledger``."""
        sequence, sha256 = self.head(corpus)
        return {"corpus": corpus, "sequence": sequence, "sha256": sha256}

    def holds(self, corpus: str, sequence: int, sha256: str) -> bool:
        """Whether the chain of a corpus has an event with this number and hash."""
        if not sequence:
            return not sha256
        rows = self._stored(corpus, None, events.c.sequence == sequence)
        return bool(rows) and rows[0].sha256 == sha256

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
        folder = self.scratch(key)
        with (folder / _LOCK).open("a") as lock:
            lock_file(lock.fileno())
            yield folder
            self.once_committed(functools.partial(shutil.rmtree, folder, ignore_errors=True))

    def asked(self, query: sa.Select[Any]) -> list[sa.Row[Any]]:
        """Return the rows of an index as of now; as `indexed`."""
        with self._reading() as connection:
            return list(connection.execute(query))

    def indexed(
        self, query: sa.Select[Any], column: sa.Column[Any], values: Collection[Any]
    ) -> Iterator[sa.Row[Any]]:
        """Give the rows of an index where a column has one of the values, as of now.

        A step that asks notices others only by the events that it asks for as well.
        """
        with self._reading() as connection:
            for part in parts(list(values)):
                yield from connection.execute(query.where(column.in_(part)))

    def once_committed(self, done: Callable[[], None]) -> None:
        """Call something when the step that is under way is committed, at once without one."""
        if self._steps:
            self._steps[-1].after.append(done)
        else:
            done()

    def _reading(self) -> AbstractContextManager[sa.Connection]:
        return nullcontext(self._connection) if self._connection else self.database.reading()

    def _stored(
        self,
        corpus: str,
        kind: str | None,
        *asked: sa.ColumnElement[bool],
        last: int | None = None,
    ) -> list[Event]:
        """Return the events that are seen, the oldest first: all of them, or the last ones."""
        with self._reading() as connection:
            query = self._select(connection, corpus, kind).where(*asked)
            newest = query.order_by(events.c.sequence.desc()).limit(last)
            return [Event._make(row) for row in connection.execute(newest)][::-1]

    def _select(
        self, connection: sa.Connection, corpus: str, kind: str | None = None
    ) -> sa.Select[Any]:
        if corpus not in self._upto:
            self._upto[corpus] = last_event(connection, corpus)[0]
        query = sa.select(events).where(
            events.c.corpus == corpus, events.c.sequence <= self._upto[corpus]
        )
        return query if kind is None else query.where(events.c.kind == kind)

    # Remembering

    def _ask(self, question: Question) -> None:
        if self._steps and question.watched:
            self._steps[-1].asked.add(question)
        for asked in self._open_answers():
            asked.add(question)

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return what `compute` returned before under this name, or call it."""
        if self._pins is not None:
            name = (name, tuple(sorted(self._pins.files.items())))
        # an answer is kept with every question on the way; an exception is not kept
        if name in self._answers:
            answer, questions = self._answers[name]
            for question in questions:
                self._ask(question)
            known: R = answer
            return known
        opened, found = self._open_answers(), set[Question]()
        opened.append(found)
        try:
            answer = compute()
        finally:
            opened.pop()
        for outer in opened:
            outer |= found
        self._answers[name] = (answer, frozenset(found))
        return answer

    def _open_answers(self) -> list[set[Question]]:
        found: list[set[Question]] | None = getattr(self._local, "open", None)
        if found is None:
            found = self._local.open = []
        return found

    def _forget(self, corpus: str, changes: Changes) -> None:
        """Forget the answers that events of these kinds and subjects may change."""
        for subject in changes.get(Stored.kind, ()):
            self._currents.pop(subject, None)
        stale = [
            name
            for name, (_, asked) in self._answers.items()
            if any(item.corpus == corpus and item.concerns(changes) is not None for item in asked)
        ]
        for name in stale if changes else ():
            del self._answers[name]

    def refresh(self) -> None:
        """Move to now; refuse, in a step, where an answer of the step is another one now."""
        with self._reading() as connection:
            for corpus in list(self._upto):
                changed = self._changed(connection, corpus)
                require_same(self._asked(), corpus, changed)
                self._forget(corpus, changed)
                self._upto[corpus] = last_event(connection, corpus)[0]

    def _changed(self, connection: sa.Connection, corpus: str, last: int | None = None) -> Changes:
        """Return what was changed after the last event that is seen, by default up to now."""
        if corpus not in self._upto:
            # nothing was asked of it
            return {}
        query = sa.select(events.c.kind, events.c.subject).where(
            events.c.corpus == corpus, events.c.sequence > self._upto[corpus]
        )
        if last is not None:
            query = query.where(events.c.sequence <= last)
        return changes_of((row.kind, row.subject) for row in connection.execute(query))

    # Writing

    def point(self, key: str, sha256: str) -> None:
        """Let a key name an object that is stored; "" lets it name none."""
        if self._pins is not None and self._pins.cover(key):
            raise ValueError(f"{key} is pinned, so that it names the same for ever")
        with self.step(chain_of(key)):
            self._steps[-1].keys[key] = sha256
            self._forget(chain_of(key), changes_of([(Stored.kind, key)]))

    def append(
        self, corpus: str, *payloads: Payload, token: str = "", tokens: Sequence[str] = ()
    ) -> None:
        """Append events to the chain of a corpus, unless those of the token are there.

        With `tokens` each of them is a request of its own; one that is there must be left out.
        """
        with self.step(corpus, token=token) as step:
            named = tokens or [""] * len(payloads)
            step.drafts += [
                EventDraft.of(corpus, payload, name)
                for payload, name in zip(payloads, named, strict=True)
            ]
            self._forget(corpus, changes_of((item.kind, item.subject) for item in payloads))

    @contextmanager
    def step(self, corpus: str, *, token: str = "", apart: bool = False) -> Iterator[OpenStep]:
        """Read, compute and write in the block, and commit at its end, all or nothing.

        A step within a step is a part of it, unless it is `apart`: then it is committed at its own
        end, whatever becomes of the outer one. Nothing is locked while the block works.

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
        if self._steps and not apart:
            yield self._steps[-1]
            return
        if not self._steps:
            self.refresh()
        step = OpenStep(token or uuid.uuid4().hex)
        self._steps.append(step)
        try:
            yield step
            written = self._drafts(step)
            if written:
                self._commit(step, written)
        except BaseException:
            # what was remembered of it never came to be
            for key in step.keys:
                self._forget(chain_of(key), changes_of([(Stored.kind, key)]))
            for draft in step.drafts:
                self._forget(draft.corpus, changes_of([(draft.kind, draft.subject)]))
            raise
        finally:
            self._steps.pop()
        if self._steps:
            # what it depends on, the outer step depends on as well
            self._steps[-1].asked |= step.asked
        self._see(step.rows)
        if self._connection is None:
            publish(self, [draft.subject for draft in written if draft.kind == Stored.kind])
        for done in step.after:
            done()

    def _drafts(self, step: OpenStep) -> list[EventDraft]:
        """Return what a step commits: its events, and the keys that name something else now."""
        stored = [
            EventDraft.of(
                chain_of(key), Stored(key=key, objects={"content": sha256} if sha256 else {})
            )
            for key, sha256 in step.keys.items()
            if self._committed(key) != sha256
        ]
        return [*stored, *step.drafts]

    def _commit(self, step: OpenStep, drafts: Sequence[EventDraft]) -> None:
        written, asked = {draft.corpus for draft in drafts}, self._asked()
        read = {question.corpus for question in asked}
        if self._connection is not None:
            step.rows = append(self, self._connection, drafts, step.token)
            return
        with self.database.writing(written, read) as connection:
            # before what was read: a call that is made again finds it changed by itself
            if known(connection, min(written), step.token):
                return
            for corpus in read:
                require_same(asked, corpus, self._changed(connection, corpus))
            step.rows = append(self, connection, drafts, step.token)

    def _asked(self) -> set[Question]:
        return {question for step in self._steps for question in step.asked}

    def _see(self, rows: Sequence[Event]) -> None:
        """Move to the events that were just committed, and to now where no step is under way."""
        if not self._steps and self._connection is None:
            self.refresh()
            return
        with self._reading() as connection:
            for corpus, last in {row.corpus: row.sequence for row in rows}.items():
                self._forget(corpus, self._changed(connection, corpus, last))
                self._upto[corpus] = last

    def short(self, corpus: str, work: Callable[[Snapshot], R], *, token: str = "") -> R | None:
        """Read, compute and write while nobody else writes to the corpus; None where it was done.

        For milliseconds of work: claims, numbers, labels. Within a step it is committed at once,
        whatever becomes of the step.
        """
        if self._connection is not None:
            with self.step(corpus):
                return work(self)
        token = token or uuid.uuid4().hex
        with self.database.writing([corpus]) as connection:
            if known(connection, corpus, token):
                return None
            # what the step has read so far must hold before something depends on it
            for read in self._upto:
                require_same(self._asked(), read, self._changed(connection, read))
            inner = Snapshot(Store(self.root), connection)
            with inner.step(corpus, token=token) as step:
                result = work(inner)
        self._see(step.rows)
        publish(self, list(step.keys))
        return result


def _entry(kind: type[P], row: Event) -> TypedEvent[P]:
    content = kind.model_validate_json(row.payload)
    return TypedEvent(content, row.sequence, row.time, row.sha256)


def _names(keys: Iterable[str], below: str) -> list[str]:
    return sorted({key[len(below) :].partition("/")[0] for key in keys if key.startswith(below)})


def _pinned(base: Snapshot, files: Mapping[str, str], areas: Iterable[str]) -> Snapshot:
    return base.pinned(files, areas)


def _content(payload: str) -> str:
    found: Mapping[str, str] = parse_json(payload)["objects"]
    return found.get("content", "")


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
    if isinstance(value, dict):
        return {name: _fresh(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_fresh(item) for item in value]
    if type(value) is tuple:
        return tuple(_fresh(item) for item in value)
    if type(value).__name__ == "DataFrame":
        # pandas 3 copies on write
        return value.copy(deep=False)
    return value
