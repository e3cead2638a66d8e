"""What a data root holds by its keys, at one moment or now, and the two ways to change it."""

from __future__ import annotations

import functools
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import sqlalchemy as sa

from certify_assets.errors import InputError, LedgerError
from certify_assets.files import lock_file, parse_json
from certify_assets.storage.database import events, parts
from certify_assets.storage.events import Event, Head, P, Payload, Stored, TypedEvent
from certify_assets.storage.moment import Moment
from certify_assets.storage.root import CORPUS_PLACES, PAGES, Root, chain_of
from certify_assets.storage.steps import (
    CORPORA,
    OpenStep,
    Question,
    append,
    changes_of,
    require_same,
)

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R")
# pages, and tables and documents that commands take as files
_COPIED: Final = (
    *(".html", ".svg", ".csv"),
    *("/certificates.json", "/scores.parquet", "/audits.json", "/history.json"),
)


@dataclass(frozen=True)
class Store(Root):
    """A data root: documents and tables by keys, and events."""

    def now(self) -> Snapshot:
        """Return the data root as it is at this moment."""
        return Snapshot(self.root, Moment(Root(self.root)))

    # A snapshot has the first six of its own

    def current(self, key: str) -> str:
        """Return the SHA-256 of what is stored under a key; "" where nothing is."""
        return self.now().current(key)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        return self.now().names(folder)

    def corpora(self) -> list[str]:
        """Return the sorted names of all corpora that have events."""
        return self.now().corpora()

    def point(self, key: str, sha256: str) -> None:
        """Let a key name an object that is stored; "" lets it name none."""
        self.now().point(key, sha256)

    def append(self, corpus: str, *payloads: Payload) -> None:
        """Append events to the chain of a corpus."""
        self.now().append(corpus, *payloads)

    def events(
        self,
        corpus: str,
        kind: type[P],
        subject: str | None = None,
        *,
        last: int | None = None,
        after: int = 0,
        watched: bool = True,
    ) -> list[TypedEvent[P]]:
        """Return the events of a kind, of one subject or of all, the oldest first.

        Of these all, or so many of the last, or those after a number. A step that reads them
        commits even if others follow, unless they are watched.
        """
        rows = self.now().rows(corpus, kind.kind, subject, last=last, after=after, watched=watched)
        return [kind.typed(row) for row in rows]

    def last(
        self, corpus: str, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> TypedEvent[P] | None:
        """Return the last event of a kind, of one subject or of all; None where there is none."""
        found = self.events(corpus, kind, subject, last=1, watched=watched)
        return found[-1] if found else None

    def exists(self, key: str) -> bool:
        """Whether a document or table, or a folder with some, is stored under the key."""
        return bool(self.current(key)) or bool(self.names(key))

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of what is stored under the key; refuse one that has nothing."""
        found = self.current(key)
        if not found:
            raise InputError(
                f"{self.root} has no {key}; run the command, or materialize the asset, that "
                "writes it."
            )
        return found

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key."""
        return self.objects.get(self.sha256(key), key)

    def as_file(self, key: str) -> AbstractContextManager[Path]:
        """Give what is stored under the key as a file of this machine, which must not change."""
        return self.objects.as_file(self.sha256(key), key)

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key; return their SHA-256."""
        return self._named(key, self.objects.put(data))

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream; return its SHA-256."""
        return self._named(key, self.objects.put_stream(write))

    def _named(self, key: str, sha256: str) -> str:
        # a corpus name or a trajectory can never lead outside of the pages
        self.locate(key)
        self.point(key, sha256)
        return sha256

    def delete(self, key: str) -> None:
        """Let nothing be stored under the key any more."""
        self.point(key, "")

    def remove_tree(self, key: str) -> None:
        """Let nothing be stored under the key, nor below it."""
        for name in self.names(key):
            self.remove_tree(f"{key}/{name}")
        self.delete(key)

    def read_json(self, key: str) -> Any:
        """Return the JSON document under the key."""
        return parse_json(self.read_bytes(key).decode("utf-8"))

    def write_json(self, key: str, value: Any) -> str:
        """Store a JSON document, indented for readers; return its SHA-256."""
        return self._named(key, self.objects.put_json(value))

    def read_table(self, key: str) -> pd.DataFrame:
        """Return the Parquet table under the key."""
        return self.objects.get_table(self.sha256(key), key=key)

    def write_table(self, key: str, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index; return its SHA-256."""
        return self._named(key, self.objects.put_table(frame))

    @contextmanager
    def as_folder(self, key: str) -> Iterator[Path]:
        """Give the files directly below a key as a folder of this machine, for reading alone."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder, ExitStack() as files:
            for name in self.names(key):
                path = files.enter_context(self.as_file(f"{key}/{name}"))
                Path(folder, name).symlink_to(path.resolve())
            yield Path(folder)


class Pins(NamedTuple):
    """What the keys of some areas name in a view, whatever is stored under them now."""

    files: Mapping[str, str]
    areas: frozenset[str]  # keys, and folders with all that is below them

    def cover(self, key: str) -> bool:
        """Whether a key is of these areas."""
        return any(f"{key}/".startswith(f"{area}/") for area in self.areas)


@dataclass(frozen=True)
class Snapshot(Store):
    """A `Store` as it was when it was first asked, which remembers answers.

    Every answer is of one moment. `refresh` moves the moment to now. What is written is an event at
    once, or at the end of the step that is under way.
    """

    # views share it
    _seen: Moment = field(compare=False, repr=False)
    pins: Pins | None = field(default=None, hash=False)

    @classmethod
    def within(cls, store: Root, connection: sa.Connection) -> Snapshot:
        """Return what a transaction sees, its own events included."""
        return cls(store.root, Moment(Root(store.root), connection))

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
        return self._seen.corpora()

    def _below(self, folder: str) -> dict[str, str]:
        """Return what the keys below a folder name, "" where nothing is stored any more."""
        below, found = f"{folder}/", dict[str, str]()
        if self.pins is None or not self.pins.cover(folder):
            named, area = chain_of(below), below.partition("/")[0]
            others = self.corpora() if area in CORPUS_PLACES and not named else []
            for corpus in (named, *others):
                rows = self._seen.answer(Question(corpus, Stored.kind, below, begins=True))
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
            rows = self._seen.answer(Question(chain_of(key), Stored.kind, key), last=1)
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

    def subjects(self, corpus: str, kind: type[P]) -> list[str]:
        """Return the sorted subjects of the events of a kind."""
        return self._seen.subjects(Question(corpus, kind.kind, begins=True))

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
        question = Question(corpus, kind, subject or "", subject is None, watched)
        return self._seen.answer(question, last=last, after=after)

    def ledger(self, corpus: str) -> Head:
        """Return the head of a corpus as documents name it under ``ledger``.

        Every document that leaves the house carries it, so that an older database is noticed. No
        step fails when other events follow.
        """
        with self._seen.reading() as connection:
            sequence, sha256 = self._seen.last(connection, corpus)
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
        queries = [query]
        if column is not None:
            queries = [query.where(column.in_(part)) for part in parts(list(values))]
        with self._seen.reading() as connection:
            for one in queries:
                yield from connection.execute(one)

    def once_committed(self, done: Callable[[], None]) -> None:
        """Call something when the step that is under way is committed, at once without one."""
        if self._seen.step is not None:
            self._seen.step.after.append(done)
        else:
            done()

    # Remembering

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return what `compute` returned before under this name, or call it."""
        if self.pins is not None:
            name = (name, tuple(sorted(self.pins.files.items())))
        return self._seen.remember(name, compute)

    def refresh(self) -> None:
        """Move to now; refuse, in a step, where an answer of the step is another one now."""
        self._seen.refresh()

    # Writing

    def point(self, key: str, sha256: str) -> None:
        """Let a key name an object that is stored; "" lets it name none."""
        if self.pins is not None and self.pins.cover(key):
            raise ValueError(f"{key} is pinned, so that it names the same for ever")
        self.append(chain_of(key), Stored(key=key, objects={"content": sha256} if sha256 else {}))

    def append(self, corpus: str, *payloads: Payload) -> None:
        """Append events to the chain of a corpus."""
        with self.step(corpus) as step:
            new = [Event.draft(corpus, payload, step.token) for payload in payloads]
            step.drafts += new
            self._seen.forget(changes_of(draft.about for draft in new))

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
            self._seen.forget(outer.changes)
        step = self._seen.step = OpenStep(token or uuid.uuid4().hex, self._seen.asked_by_step())
        rows: list[Event] = []
        try:
            yield step
            if drafts := self._drafts(step):
                rows = self._commit(step, drafts)
        finally:
            self._seen.step = outer
            # what was remembered of it may never come to be
            self._seen.forget(step.changes)
            if outer is not None:
                self._seen.forget(outer.changes)
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
            if "".join(map(_content, self._seen.stored(question, last=1))) == _content(draft):
                # what stays as it is must still be so, like what was read
                self._seen.ask(question)
            else:
                drafts.append(draft)
        return drafts + [draft for draft in step.drafts if draft.kind != Stored.kind]

    def _commit(self, step: OpenStep, drafts: Sequence[Event]) -> list[Event]:
        """Append the events of a step; none where those of its token are there."""
        written = {draft.corpus for draft in drafts}
        read = {question.corpus for question in step.asked}
        with self.database.writing(written | self._begun(written), read) as connection:
            # before what was read: a call that is made again finds it changed by itself
            there = Snapshot.within(self, connection)
            if there.among(min(written), "token", [step.token]):
                return []
            require_same(step.asked, self._seen.changes(connection))
            return append(self, connection, drafts)

    def _begun(self, written: Iterable[str]) -> set[str]:
        """Return the chain that who asks for the corpora reads, where some of these are new."""
        with self._seen.reading() as connection:
            new = [corpus for corpus in written if not self._seen.last(connection, corpus)[0]]
        return {CORPORA.corpus} if new else set()

    def _done(self, step: OpenStep, rows: Sequence[Event]) -> None:
        self._move(rows)
        # unchanged ones too: a call that was killed after its commit left their copies behind
        publish(
            Store(self.root), [draft.subject for draft in step.drafts if draft.kind == Stored.kind]
        )
        for done in step.after:
            done()

    def _move(self, rows: Sequence[Event]) -> None:
        """Move to events that were just committed, and to now where no step is under way."""
        if self._seen.step is None:
            self.refresh()
        elif rows:
            self._seen.pass_over(rows)

    def short(self, corpus: str, work: Callable[[Snapshot], Mapping[str, Payload]]) -> list[Event]:
        """Append events while nobody else writes to the corpus; return them.

        For milliseconds of work: claims, numbers, labels. The work reads, and returns what happened
        by the names of requests. A request that is there already is not appended again. Within a
        step this is committed at once, whatever becomes of the step.
        """
        with self.database.writing({corpus} | self._begun([corpus])) as connection:
            # what the step has read so far must hold before something depends on it
            require_same(self._seen.asked_by_step(), self._seen.changes(connection))
            view = Snapshot.within(self, connection)
            said = work(view)
            known = view.among(corpus, "token", said)
            new = said.keys() - {event.token for event in known}
            drafts = [Event.draft(corpus, said[token], token) for token in said if token in new]
            rows = append(self, connection, drafts)
        self._move(rows)
        return known + rows


def _content(event: Event) -> str:
    return event.objects.get("content", "")


def publish(store: Store, keys: Iterable[str]) -> int:
    """Copy what is stored under keys to where people open it; return the number of copies."""
    count = 0
    for key in keys:
        if not key.endswith(_COPIED):
            continue
        # a killed call may have left the copy behind
        written = store.folder.sha256(f"{PAGES}/{key}")
        # another process may copy an older one at the same time: what is stored decides
        while (now := store.current(key)) != written:
            if now:
                store.folder.write(f"{PAGES}/{key}", store.objects.get(now))
            else:
                store.folder.delete(f"{PAGES}/{key}")
            written = now
        count += bool(written)
    return count


def publish_all(store: Store) -> int:
    """Make all pages again; return how many there are."""
    with store.database.reading() as connection:
        query = sa.select(events.c.subject).where(events.c.kind == Stored.kind).distinct()
        keys = list(connection.scalars(query))
    # not of one moment: a page that is stored meanwhile must not be put back
    return publish(Store(store.root), keys)
