"""The data root as documents and tables by key, and the two ways to change it."""

from __future__ import annotations

import functools
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import sqlalchemy as sa

from certify_assets.errors import InputError, LedgerError
from certify_assets.files import lock_file, parse_json
from certify_assets.storage.appending import append
from certify_assets.storage.database import events, parts
from certify_assets.storage.events import Event, Head, P, Payload, Stored
from certify_assets.storage.moment import CORPORA, Moment, OpenStep, Question
from certify_assets.storage.root import PAGES, Root, chain_of

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R")
# pages, and tables and documents that commands take as files
_COPIED: Final = (
    *(".html", ".svg", ".csv"),
    *("/certificates.json", "/scores.parquet", "/audits.json", "/history.json"),
)


class Pins(NamedTuple):
    """The objects that keys of some areas name in a view, independent of the current ones."""

    files: Mapping[str, str] = {}
    areas: frozenset[str] = frozenset()  # keys, and folders with all that is below them

    def cover(self, key: str) -> bool:
        """Whether a key lies in these areas."""
        return any(f"{key}/".startswith(f"{area}/") for area in self.areas)


@dataclass(frozen=True)
class Store(Root):
    """A data root: documents and tables by keys, and events.

    Every answer reflects the present. A store returned by `now` keeps answering for that moment
    until `refresh`. A write becomes an event at once, or at the end of the step that is under way.
    """

    pins: Pins = field(default=Pins(), hash=False)
    # views of one moment share it
    _moment: Moment | None = field(default=None, compare=False, repr=False)

    @property
    def _seen(self) -> Moment:
        return self._moment or Moment(Root(self.root))

    def now(self) -> Store:
        """Return the data root at this moment; a store of a moment returns itself."""
        return self if self._moment else replace(self, _moment=self._seen)

    def within(self, connection: sa.Connection) -> Store:
        """Return the data root as a transaction sees it, including its own events."""
        return Store(self.root, _moment=Moment(Root(self.root), connection))

    def pinned(self, files: Mapping[str, str], areas: Iterable[str]) -> Store:
        """Return a view in which the keys of some areas name only the given objects.

        Everything else, and the step that is under way, are those of the store itself.

        Parameters
        ----------
        files : Mapping[str, str]
            SHA-256 of objects by keys.
        areas : Iterable[str]
            Keys, and folders with everything below them.
        """
        pins = Pins({}, frozenset(areas))
        covered = {key: sha256 for key, sha256 in files.items() if pins.cover(key)}
        return replace(self, pins=pins._replace(files=covered))

    @property
    def unpinned(self) -> Store:
        """The store itself, if this is a pinned view of it."""
        return replace(self, pins=Pins())

    # Keys

    def current(self, key: str) -> str:
        """Return the SHA-256 of the object under a key; "" if there is none."""
        if self.pins.cover(key):
            return self.pins.files.get(key, "")
        seen, question = self._seen, Question(chain_of(key), Stored.kind, key)
        return seen.remember(("current", key), lambda: _content(seen.newest(question)))

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        below, pins = f"{folder}/", self.pins
        files = {key: sha256 for key, sha256 in pins.files.items() if key.startswith(below)}
        if not pins.cover(folder):
            found = self._seen.events(self._below(folder))
            files |= {row.subject: _content(row) for row in found if not pins.cover(row.subject)}
        tails = (key.removeprefix(below) for key, sha256 in files.items() if sha256)
        return sorted({tail.partition("/")[0] for tail in tails})

    def _below(self, folder: str) -> Question:
        return Question(chain_of(f"{folder}/"), Stored.kind, f"{folder}/", begins=True)

    def exists(self, key: str) -> bool:
        """Whether a document or table is stored under the key."""
        return bool(self.current(key))

    def hashes(self, areas: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of the objects under keys, and directly below folders."""
        keys = (key for area in areas for key in (area, *(f"{area}/{n}" for n in self.names(area))))
        return {key: sha256 for key in keys if (sha256 := self.current(key))}

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of the object under the key; refuse a key without one."""
        found = self.current(key)
        if not found:
            # a run writes all that is stored of a corpus
            corpus = re.match("corpora/([^/]+)/", key)
            command = f"`certify run {corpus[1]}`" if corpus else "the command"
            raise InputError(
                f"{self.root} has no {key}; run {command}, or materialize the asset, that "
                "writes it."
            )
        return found

    def read_bytes(self, key: str) -> bytes:
        """Return the bytes stored under the key."""
        return self.objects.get(self.sha256(key), key)

    def as_file(self, key: str) -> AbstractContextManager[Path]:
        """Give the object under the key as a local file, which must not be changed."""
        return self.objects.as_file(self.sha256(key), key)

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key; return their SHA-256."""
        return self.point(key, self.objects.put(data))

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store the data that `write` puts into a stream; return its SHA-256."""
        return self.point(key, self.objects.put_stream(write))

    def delete(self, key: str) -> None:
        """Remove the object from the key."""
        self.point(key, "")

    def remove_tree(self, folder: str) -> list[str]:
        """Remove all objects from keys below a folder; return these keys."""
        gone = [key for key in self._seen.subjects(self._below(folder)) if self.exists(key)]
        for key in gone:
            self.delete(key)
        return gone

    def read_json(self, key: str) -> Any:
        """Return the JSON document under the key."""
        return parse_json(self.read_bytes(key).decode("utf-8"))

    def write_json(self, key: str, value: Any) -> str:
        """Store a JSON document, indented for readers; return its SHA-256."""
        return self.point(key, self.objects.put_json(value))

    def read_table(self, key: str) -> pd.DataFrame:
        """Return the Parquet table under the key."""
        return self.objects.get_table(self.sha256(key), key=key)

    def write_table(self, key: str, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index; return its SHA-256."""
        return self.point(key, self.objects.put_table(frame))

    @contextmanager
    def as_folder(self, key: str) -> Iterator[Path]:
        """Give the files directly below a key as a local folder, for reading only."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder, ExitStack() as files:
            for name in self.names(key):
                path = files.enter_context(self.as_file(f"{key}/{name}"))
                Path(folder, name).symlink_to(path.resolve())
            yield Path(folder)

    def point(self, key: str, sha256: str) -> str:
        """Let a key name a stored object, and return the object's hash; "" empties the key."""
        # the name of a corpus or of a run can never lead outside of the pages
        self.locate(key)
        if self.pins.cover(key):
            raise ValueError(f"{key} is pinned, so it always names the same object")
        view, question = self.now(), Question(chain_of(key), Stored.kind, key, watched=False)
        if _content(view._seen.newest(question)) == sha256:
            # what stays as it is must still be so at the end of the step
            view._seen.ask(question._replace(watched=True))
        else:
            objects = {"content": sha256} if sha256 else {}
            view.append(question.corpus, Stored(key=key, objects=objects))
        # an unchanged page too: a call that was killed after its commit left its copy behind
        view.once_committed(functools.partial(publish, self.root, key))
        return sha256

    # Events

    def corpora(self) -> list[str]:
        """Return the sorted names of all corpora that have events."""
        return self._seen.corpora()

    def subjects(self, corpus: str, kind: type[P]) -> list[str]:
        """Return the sorted subjects of the events of a kind."""
        return self._seen.subjects(Question(corpus, kind.kind, begins=True))

    def events(
        self,
        corpus: str,
        kind: type[P],
        subject: str | None = None,
        *,
        after: int = 0,
        watched: bool = True,
    ) -> list[Event[P]]:
        """Return the events of a kind, of one subject or of all, the oldest first.

        With `after`, only those with a larger number. A step that reads them commits even if others
        follow, unless they are watched.
        """
        question = Question(corpus, kind.kind, subject or "", subject is None, watched)
        return self._seen.events(question, after=after)

    def last(
        self, corpus: str, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> Event[P] | None:
        """Return the last event of a kind, of one subject or of all, or None."""
        question = Question(corpus, kind.kind, subject or "", subject is None, watched)
        return self._seen.newest(question)

    def among(
        self, corpus: str, column: Literal["sequence", "token"], values: Collection[Any]
    ) -> list[Event[Any]]:
        """Return the events with these numbers, or of requests with these tokens, as of now.

        The oldest is the first.
        """
        query = sa.select(events).where(events.c.corpus == corpus)
        found = map(Event._make, self.indexed(query, events.c[column], values))
        return sorted(found, key=lambda event: event.sequence)

    def indexed(
        self,
        query: sa.Select[Any],
        column: sa.Column[Any] | None = None,
        values: Collection[Any] = (),
    ) -> Iterator[sa.Row[Any]]:
        """Give the rows of an index as of now: all, or those where a column has one of the values.

        A step notices changes by others only through the events that it also asks for.
        """
        queries = [query]
        if column is not None:
            queries = [query.where(column.in_(part)) for part in parts(list(values))]
        with self._seen.reading() as connection:
            for one in queries:
                yield from connection.execute(one)

    def ledger(self, corpus: str) -> Head:
        """Return the head of a corpus as documents name it under ``ledger``.

        Every document that leaves the data root carries it, so that an older database is noticed.
        Later events do not make a step fail.
        """
        sequence, sha256 = self._seen.last(corpus)
        return {"corpus": corpus, "sequence": sequence, "sha256": sha256}

    def holds(self, corpus: str, sequence: int, sha256: str) -> bool:
        """Whether the chain of a corpus has an event with this number and hash."""
        # no database has larger numbers
        if not 0 < sequence < 2**63:
            return not (sequence or sha256)
        return [row.sha256 for row in self.among(corpus, "sequence", [sequence])] == [sha256]

    def require_held(self, head: Head, who: str) -> None:
        """Refuse a database that lost the event that a document names under ``ledger``."""
        if not self.holds(**head):
            raise LedgerError(
                f"the ledger of {head['corpus']} lost event {head['sequence']} that {who} names: "
                "an older database was restored; restore the newer one."
            )

    # Moments and steps

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return the remembered result of `compute` under this name, or call it."""
        return self._seen.remember((name, *sorted(self.pins.files.items())), compute)

    def refresh(self) -> None:
        """Move to the present; in a step, refuse if an answer that the step used has changed."""
        with self._seen.reading() as connection:
            self._seen.refresh(connection)

    def append(self, corpus: str, *payloads: Payload) -> None:
        """Append events to the chain of a corpus."""
        view = self.now()
        with view.step() as step:
            new = [Event.draft(corpus, payload) for payload in payloads]
            step.drafts += new
            view._seen.forget(new)

    @contextmanager
    def step(self, token: str = "") -> Iterator[OpenStep]:
        """Read, compute and write in the block, and commit at its end, all or nothing.

        A step within a step is a part of it. Nothing is locked while the block works.

        Parameters
        ----------
        token : str, optional
            Name of the request; if events with this name exist, nothing is committed again.

        Raises
        ------
        ChangedInputError
            If an object that the block read was replaced meanwhile.
        MissingObjectError
            If an object that the block stored was removed meanwhile.
        """
        if self._moment is None:
            # each write would commit by itself
            raise ValueError("a step needs a store of one moment; use that of `now()`")
        seen = self._moment
        if seen.step is not None:
            yield seen.step
            return
        self.refresh()
        step = seen.step = OpenStep()
        try:
            yield step
            self._commit(step, token)
        finally:
            seen.step = None
            # what was remembered of it may never come to be
            seen.forget(step.drafts)
        self.refresh()
        step.committed()

    def commit(self) -> None:
        """Commit what the step has written so far, even if the step fails later."""
        if (step := self._seen.step) is not None:
            self._commit(step)
            step.committed()

    def _commit(self, step: OpenStep, token: str = "") -> None:
        """Append the step's events, unless events with its token exist already."""
        token = token or uuid.uuid4().hex
        drafts = [draft._replace(token=token) for draft in step.drafts]
        if not drafts:
            return
        with self._writing({draft.corpus for draft in drafts}) as connection:
            # before what was read: a call that is made again finds it changed by itself
            if self.within(connection).among(drafts[0].corpus, "token", [token]):
                return
            self._seen.refresh(connection)
            rows = append(self, connection, drafts)
        step.drafts.clear()
        self._seen.follow(rows)

    def short(
        self, corpus: str, work: Callable[[Store], Mapping[str, Payload]]
    ) -> list[Event[Any]]:
        """Append events while nobody else writes to the corpus; return them.

        Use it for milliseconds of work: claims, numbers, labels. The work reads, and returns events
        by the names of requests. A request that exists already is not appended again. Within a step
        this is committed at once, even if the step fails later.
        """
        seen = self._seen
        with self._writing({corpus}) as connection:
            # what the step has read so far must hold before something depends on it
            seen.refresh(connection)
            view = self.within(connection)
            said = work(view)
            known = view.among(corpus, "token", said)
            new = said.keys() - {event.token for event in known}
            drafts = [Event.draft(corpus, said[token], token) for token in said if token in new]
            rows = append(self, connection, drafts)
        seen.follow(rows)
        return known + rows

    @contextmanager
    def _writing(self, corpora: set[str]) -> Iterator[sa.Connection]:
        """Give a transaction with exclusive access to corpora, and to those that the step read."""
        seen = self._seen
        # who asks for the corpora reads the chain that a new one is noted in
        begun = {CORPORA.corpus for corpus in corpora if not seen.last(corpus)[0]}
        read = {question.corpus for question in (seen.step.asked if seen.step else ())}
        with self.database.writing(corpora | begun, read) as connection:
            yield connection

    @contextmanager
    def workplace(self, key: str) -> Iterator[Path]:
        """Give a folder for checkpoints of long work, to one process at a time.

        It is removed once the block has succeeded and its step is committed.
        """
        # not in the folder, which whoever held the lock removes
        above, _, name = key.rpartition("/")
        with (self.scratch(above) / f".{name}.lock").open("a") as lock:
            lock_file(lock.fileno())
            folder = self.scratch(key)
            yield folder
            self.once_committed(functools.partial(shutil.rmtree, folder, ignore_errors=True))

    def once_committed(self, done: Callable[[], object]) -> None:
        """Call a function when the current step is committed, or at once without a step."""
        if (step := self._seen.step) is not None:
            step.after.append(done)
        else:
            done()


def _content(event: Event[Any] | None) -> str:
    return event.objects.get("content", "") if event else ""


def publish(root: str, key: str) -> bool:
    """Copy the object under a key to the place where people open it; return whether there is a
    copy.
    """
    if not key.endswith(_COPIED):
        return False
    # as it is now: another process may copy an older one at the same time
    store, page, written = Store(root), f"{PAGES}/{key}", None
    while (now := store.current(key)) != written:
        if now:
            store.folder.write(page, store.objects.get(now))
        else:
            store.folder.delete(page)
        written = now
    return bool(written)


def publish_all(store: Store) -> int:
    """Write the copies of all pages again; return their number."""
    query = sa.select(events.c.subject).where(events.c.kind == Stored.kind).distinct()
    with store.database.reading() as connection:
        keys = list(connection.scalars(query))
    return sum(publish(store.root, key) for key in keys)
