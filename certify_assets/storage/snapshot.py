"""A data root in one operation: every file has one version, every answer is computed once."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, Protocol, TypeVar

from certify_assets.errors import ChangedInputError
from certify_assets.files import sha256_bytes, sha256_file
from certify_assets.storage.backend import whole_lines
from certify_assets.storage.store import Store

P = ParamSpec("P")
R = TypeVar("R")


class Snapshot(Store):
    """A `Store` that holds every file to the version that was read first, and remembers answers."""

    # A command, a request, or the steps of a run in one process use one and drop it. Two guarantees
    # follow, without a lock that would stop other processes:
    #
    # * A file that another process replaces between two reads ends the operation with an error, so
    #   no result mixes two versions. Journals (.jsonl) may grow, by whole lines at their end.
    # * What `remembered` functions return is computed once. A write through this snapshot drops the
    #   answers that were computed from the written key, and only those. `refresh`, behind a lock
    #   and between two steps, does so for what others have written.

    def __init__(self, base: Store) -> None:
        super().__init__(base.root)
        # the dataclass is frozen: what it names never changes, what was read of it grows
        for name, value in (
            ("_base", base),
            ("_versions", {}),
            ("_files", {}),
            ("_journals", {}),
            ("_places", {}),
            ("_answers", {}),
            ("_local", threading.local()),
        ):
            object.__setattr__(self, name, value)

    _base: Store
    _versions: dict[str, str]
    # identity of the files whose hash is known: a large one is hashed once
    _files: dict[str, tuple[int, int, int]]
    # length and hash of the whole lines that a journal had when it was read
    _journals: dict[str, tuple[int, str]]
    # what was in the place of every key when it was read, looked for, or listed
    _places: dict[str, object]
    _answers: dict[object, tuple[Any, frozenset[str]]]
    _local: threading.local

    @classmethod
    def of(cls, store: Store) -> Snapshot:
        """Return the store itself where it is a snapshot, else a new snapshot of it."""
        return store if isinstance(store, Snapshot) else cls(store)

    def __reduce__(self) -> tuple[type[Snapshot], tuple[Store]]:
        # another process starts its own operation
        return Snapshot, (self._base,)

    def refresh(self) -> None:
        """Forget what was replaced since, as after a lock behind which others may have written."""
        known = {
            key
            for key, place in (self._places.items() if self.is_local else ())
            if self._place(key) == place
        }
        for found in (self._versions, self._files, self._journals, self._places):
            for key in found.keys() - known:
                del found[key]
        for name in [name for name, (_, keys) in self._answers.items() if not keys <= known]:
            del self._answers[name]

    def require_unchanged(self, *folders: str) -> None:
        """Raise `ChangedInputError` if a file read below these folders was replaced since."""
        places = tuple(f"{folder}/" for folder in folders)
        for key, digest in list(self._versions.items()):
            if key.startswith(places) and (
                not self._base.exists(key) or self._base.sha256(key) != digest
            ):
                raise ChangedInputError(_changed(self.locate(key)))

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        self._touch(key)
        return self._base.exists(key)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        self._touch(f"{folder}/")
        return self._base.names(folder)

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key; refuse another version than was read before."""
        self._touch(key)
        data = self._base.read_bytes(key)
        if key.endswith(".jsonl"):
            self._hold_lines(key, whole_lines(data))
        else:
            self._hold(key, sha256_bytes(data))
        return data

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give what is stored under the key as a file, and hold it to one version while in use."""
        if not self.is_local:
            # a copy, of the version that was read
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "content"
                path.write_bytes(self.read_bytes(key))
                yield path
            return
        self._touch(key)
        with self._base.as_file(key) as path:
            before = _identity(path)
            # a table that is read here and hashed elsewhere must be one version as well
            if self._files.get(key) != before:
                self._hold(key, sha256_file(path))
                self._files[key] = before
            yield path
            if _identity(path) != before:
                raise ChangedInputError(_changed(self.locate(key)))

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of what is stored under the key, read once for an operation."""
        self._touch(key)
        if key in self._versions:
            return self._versions[key]
        found = self._base.sha256(key)
        self._hold(key, found)
        return found

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key; answers that came from it are dropped."""
        self.forget(key)
        digest = self._base.write_bytes(key, data)
        self._hold(key, digest)
        return digest

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream; answers that came from the key are dropped."""
        self.forget(key)
        digest = self._base.write_stream(key, write)
        self._hold(key, digest)
        return digest

    def copy(self, key: str, target: str) -> None:
        """Store the version of a key that was read first under another one as well."""
        self.forget(target)
        digest = self.sha256(key)
        self._base.copy(key, target)
        self._hold(target, digest)
        if self._base.sha256(target) != digest:
            # the copy is of what another process put there
            self._base.delete(target)
            raise ChangedInputError(_changed(self.locate(key)))

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append one line to a journal; answers that came from it are dropped."""
        held = self._journals.get(key)
        self.forget(key)
        self._base.append_line(key, make)
        # what the line was made from may have been remembered in between
        self.forget(key)
        if held is not None:
            self._journals[key] = held

    def delete(self, key: str) -> None:
        """Remove what is stored under the key; answers that came from it are dropped."""
        self.forget(key)
        self._base.delete(key)

    def remember(self, name: object, compute: Callable[[], R]) -> R:
        """Return what `compute` returned before under this name, or call it."""
        # an answer is kept with every key that was read on the way; an exception is not kept
        reads = self._open_reads()
        if name in self._answers:
            answer, keys = self._answers[name]
            for outer in reads:
                outer |= keys
            known: R = answer
            return known
        found: set[str] = set()
        reads.append(found)
        try:
            answer = compute()
        finally:
            reads.pop()
            for outer in reads:
                outer |= found
        self._answers[name] = (answer, frozenset(found))
        return answer

    def _open_reads(self) -> list[set[str]]:
        found: list[set[str]] | None = getattr(self._local, "reads", None)
        if found is None:
            found = self._local.reads = []
        return found

    def _touch(self, key: str) -> None:
        # before it is read: what is replaced in between is another place than the one kept here
        if self.is_local and key not in self._places:
            self._places[key] = self._place(key)
        for keys in self._open_reads():
            keys.add(key)

    def _place(self, key: str) -> object:
        """Return what tells a stored file, or the listing of a folder, from what replaces it."""
        if key.endswith("/"):
            return tuple(self._base.names(key[:-1]))
        try:
            return _identity(self.local_path(key))
        except OSError:
            return None

    def _hold(self, key: str, digest: str) -> None:
        if _moves(key):
            return
        if self._versions.setdefault(key, digest) != digest:
            raise ChangedInputError(_changed(self.locate(key)))

    def _hold_lines(self, key: str, lines: bytes) -> None:
        length, digest = self._journals.get(key, (0, sha256_bytes(b"")))
        if sha256_bytes(lines[:length]) != digest:
            raise ChangedInputError(_changed(self.locate(key)))
        self._journals[key] = len(lines), sha256_bytes(lines)

    def forget(self, key: str) -> None:
        """Forget the version of one key, and the answers that came from it."""
        for found in (self._versions, self._files, self._journals):
            found.pop(key, None)
        # a listing of the folder, or of one above it, is an answer of this key as well
        parts = key.split("/")
        stale = {key, *("/".join(parts[:n]) + "/" for n in range(1, len(parts)))}
        for place in stale:
            self._places.pop(place, None)
        for name in [name for name, (_, keys) in self._answers.items() if keys & stale]:
            del self._answers[name]


class View(Protocol):
    """What a remembered function is asked of: something in a snapshot, with a key of its own."""

    @property
    def store(self) -> Snapshot:
        """Snapshot that it is seen in."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Name among the views of the snapshot."""


V = TypeVar("V", bound=View)


def remembered(function: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
    """Let a function of a view answer once for an operation; see `Snapshot.remember`."""

    @functools.wraps(function)
    def wrapper(view: V, /, *args: P.args, **kwargs: P.kwargs) -> R:
        name = (
            function.__module__,
            function.__qualname__,
            view.identity,
            args,
            *sorted(kwargs.items()),
        )
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


def _moves(key: str) -> bool:
    """Whether other processes write a key while this one works: journals, looks, kept records."""
    return key.endswith(".jsonl") or key.startswith("tracking/") or "/landed_" in key


def _identity(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _changed(place: str) -> str:
    return f"{place} was replaced while it was in use; run this again."
