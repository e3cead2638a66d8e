"""Data roots in object stores (S3, Google Cloud Storage, Azure): writes by conditional PUT."""

# A PUT is whole or not at all, so nothing is staged. What several processes change (journals,
# leases) is put on the condition that it is still the version that was read, or that there is none
# (If-Match, If-None-Match); who loses reads again. Nothing is removed on a condition, so an empty
# object stands for a lease that nobody holds. Credentials come from the environment alone, and no
# message repeats what a server answered: addresses may be signed.

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.files import sha256_file
from certify_assets.storage.backend import Backend, whole_lines

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import ObjectStore

#: schemes of URLs that obstore opens
OBJECT_STORES: Final = ("s3", "gs", "az")
# a larger object goes up in parts, which appear together at the end
_PART, _PARTS_AT_ONCE = 64 << 20, 4
_WRITER: Final = "certify-writer"
_LONGEST_WAIT = 1.0
_RETRIES: Final[dict[str, Any]] = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}


class ObjectBackend(Backend):
    """A URL such as ``s3://bucket/prefix``."""

    def exists(self, key: str) -> bool:
        """Whether an object, or a prefix, is stored."""
        with suppress(FileNotFoundError), self._asking(key) as store:
            store.head(key)
            return True
        return bool(self.names(key))

    def read(self, key: str) -> bytes:
        """Return a stored object."""
        with self._asking(key) as store:
            return bytes(store.get(key).bytes())

    def write(self, key: str, data: bytes) -> None:
        """Store an object."""
        self._store(key, data)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store a stream by way of a local file, never all of it in memory."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            with path.open("wb") as stream:
                write(stream)
            self._store(key, path)
            return sha256_file(path)

    def copy(self, key: str, target: str) -> None:
        """Copy an object where it is stored."""
        self.locate(target)
        with self._asking(key) as store:
            store.copy(key, target)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give a copy on this machine."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            with path.open("wb") as sink, self._asking(key) as store:
                for chunk in store.get(key).stream():
                    sink.write(chunk)
            yield path

    def delete(self, key: str) -> None:
        """Remove an object, if it is stored."""
        with suppress(FileNotFoundError), self._asking(key) as store:
            store.delete(key)

    def names(self, folder: str) -> list[str]:
        """Return the names below a prefix."""
        with self._asking(folder) as store:
            found = store.list_with_delimiter(folder)
        paths = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append a line to the version it was made for; `make` is asked again for a later one."""

        def longer(data: bytes | None) -> bytes | None:
            old = whole_lines(data or b"")
            line = make(old)
            return data if line is None else old + line.encode("utf-8") + b"\n"

        self.change(key, longer)

    def change(self, key: str, make: Callable[[bytes | None], bytes | None]) -> None:
        """Replace the version that `make` was given; it is asked again for a later one."""
        wait = 0.01
        while True:
            old, mode = self._version(key)
            new = make(old or None) or b""
            if new == old or self._put_if(key, new, mode):
                return
            # another writer was faster; waits of several differ
            time.sleep(wait * random.random())
            wait = min(_LONGEST_WAIT, 2 * wait)

    def is_exclusive(self) -> bool:
        """Whether the store refuses a PUT whose condition does not hold."""
        key = f"leases/conditions-{uuid.uuid4().hex}"
        try:
            first = self._put_if(key, b"1", "create")
            _, version = self._version(key)
            return (
                first
                and not self._put_if(key, b"2", "create")
                and self._put_if(key, b"3", version)
                and not self._put_if(key, b"4", version)
            )
        finally:
            self.delete(key)

    def _version(self, key: str) -> tuple[bytes, PutMode]:
        """Return an object and the condition for its replacement; empty where there is none."""
        try:
            with self._asking(key) as store:
                found = store.get(key)
                # stores know a version by one or the other
                about = {name: of for name in ("e_tag", "version") if (of := found.meta[name])}
                return bytes(found.bytes()), about
        except FileNotFoundError:
            return b"", "create"

    def _put_if(self, key: str, data: bytes, mode: PutMode) -> bool:
        """Put an object on a condition; return whether it is stored."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mine = uuid.uuid4().hex
        try:
            self._store(key, data, mode=mode, attributes={_WRITER: mine})
        except (AlreadyExistsError, PreconditionError):
            # where a server failed after it had stored the object, a second request finds the first
            with suppress(FileNotFoundError), self._asking(key) as store:
                return bool(store.get(key).attributes.get(_WRITER) == mine)
            return False
        return True

    def _store(self, key: str, content: bytes | Path, **more: Any) -> None:
        try:
            with self._asking(key) as store:
                store.put(key, content, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE, **more)
        except FileNotFoundError:
            raise InputError(
                f"there is no bucket for {self.root}; create it, or correct the data root."
            ) from None

    @contextmanager
    def _asking(self, key: str) -> Iterator[ObjectStore]:
        """Give the store; say what it refuses in a sentence, without what it answered."""
        place, store = self.locate(key), _opened(self.root)
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield store
        except FileNotFoundError:
            raise FileNotFoundError(place) from None
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            raise CertifyError(
                f"{place} cannot be read or written ({type(error).__name__}); check the address, "
                "and the credentials and rights that the environment gives."
            ) from None


def reasons_of_obstore() -> tuple[type[Exception], ...]:
    """Return the errors of obstore, none where it is not installed."""
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        return ()
    return (BaseError,)


@cache
def _opened(root: str) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise MissingToolError(
            f"the data root {root} needs the package obstore, which is not installed; install "
            "certify_assets[s3] or certify_assets[gcs]."
        ) from None
    try:
        return from_url(root, retry_config=_RETRIES)
    except (BaseError, ValueError) as error:
        raise InputError(
            f"the data root {root} cannot be opened ({type(error).__name__}); give a URL such as "
            "s3://bucket/prefix."
        ) from None
