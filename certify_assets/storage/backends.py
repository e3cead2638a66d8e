"""Where a data root is stored: a local folder, an object store, or whatever fsspec knows."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from certify_assets.errors import InputError, MissingToolError
from certify_assets.files import lock_file, naming, replacing, sha256_file, write_atomic
from certify_assets.storage.backend import Backend, whole_lines
from certify_assets.storage.objects import OBJECT_STORES, ObjectBackend
from certify_assets.storage.urls import is_url


class LocalBackend(Backend):
    """A folder of this machine: written by rename, appended to under a lock."""

    local = True

    def path(self, key: str) -> Path:
        """Return the path of a key."""
        return Path(self.locate(key).removeprefix("file://"))

    def exists(self, key: str) -> bool:
        """Whether the file or folder exists."""
        return self.path(key).exists()

    def read(self, key: str) -> bytes:
        """Return a stored file."""
        return self.path(key).read_bytes()

    def write(self, key: str, data: bytes) -> None:
        """Store a file by rename."""
        write_atomic(self.path(key), data)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store a stream by rename, never all of it in memory."""
        path = Path(os.path.realpath(self.path(key)))
        with naming(path), replacing(path) as stream:
            write(stream)
        return sha256_file(path)

    def copy(self, key: str, target: str) -> None:
        """Link a file where the file system can: stored files are replaced, never changed."""
        source, path = Path(os.path.realpath(self.path(key))), self.path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f".certify.{uuid.uuid4().hex}.part")
        try:
            os.link(source, staged)
        except OSError:
            with source.open("rb") as stream, naming(path), replacing(path) as sink:
                shutil.copyfileobj(stream, sink)
            return
        staged.replace(path)
        # where both are links to one file already, a rename leaves both names
        staged.unlink(missing_ok=True)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give the file itself."""
        yield self.path(key)

    def delete(self, key: str) -> None:
        """Remove a file, if it is stored."""
        self.path(key).unlink(missing_ok=True)

    def is_exclusive(self) -> bool:
        """Return true: appends hold a lock."""
        return True

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, if it is empty."""
        with suppress(OSError):
            self.path(folder).rmdir()

    def remove_parts(self, name: str) -> None:
        """Remove what killed writes left in the folders of a corpus."""
        root = self.path("leases").parent
        for part in root.rglob(".certify.*.part"):
            above = part.relative_to(root).parts[:-1]
            # judges/JUDGE/CORPUS, else as corpora/CORPUS: a corpus may be named like a judge
            place = 2 if above[:1] == ("judges",) else 1
            if above[place : place + 1] == (name,):
                part.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Return the names below a folder, hidden ones left out."""
        path = self.path(folder)
        if not path.is_dir():
            return []
        return sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append a line and flush it to the disk, while no other process appends."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # without a buffer, which closing the file would write once more after an error
        with naming(path), path.open("a+b", buffering=0) as stream:
            lock_file(stream.fileno())
            stream.seek(0)
            old = whole_lines(stream.readall())
            line = make(old)
            if line is None:
                return
            stream.truncate(len(old))
            try:
                _write_all(stream, line.encode("utf-8") + b"\n")
                os.fsync(stream.fileno())
            except OSError:
                # of several lines the first may be on the disk already, and none was confirmed
                with suppress(OSError):
                    stream.truncate(len(old))
                raise

    def change(self, key: str, make: Callable[[bytes | None], bytes | None]) -> None:
        """Replace a file while no other process changes it."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # the lock is on a file of its own, since the one that changes is replaced or removed
        with path.with_name(f".{path.name}.lock").open("a") as stream:
            lock_file(stream.fileno())
            super().change(key, make)


class FsspecBackend(Backend):
    """A URL such as ``s3://bucket/prefix`` or ``memory://name``."""

    def exists(self, key: str) -> bool:
        """Whether an object, or a prefix, is stored."""
        filesystem, path = self._remote(key)
        return bool(filesystem.exists(path))

    def read(self, key: str) -> bytes:
        """Return a stored object."""
        filesystem, path = self._remote(key)
        return bytes(filesystem.cat_file(path))

    def write(self, key: str, data: bytes) -> None:
        """Store an object under a name of its own first: not every file system puts it whole."""
        filesystem, path = self._remote(key)
        staged = _staged(filesystem, path)
        filesystem.pipe_file(staged, data)
        filesystem.mv(staged, path)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store a stream by way of a local file, never all of it in memory."""
        filesystem, remote = self._remote(key)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "staged"
            with path.open("wb") as stream:
                write(stream)
            staged = _staged(filesystem, remote)
            filesystem.put_file(str(path), staged)
            filesystem.mv(staged, remote)
            return sha256_file(path)

    def copy(self, key: str, target: str) -> None:
        """Copy an object where it is stored."""
        filesystem, source = self._remote(key)
        _, path = self._remote(target)
        staged = _staged(filesystem, path)
        filesystem.copy(source, staged)
        filesystem.mv(staged, path)

    def delete(self, key: str) -> None:
        """Remove an object, if it is stored."""
        filesystem, path = self._remote(key)
        if filesystem.exists(path):
            filesystem.rm_file(path)

    def names(self, folder: str) -> list[str]:
        """Return the names below a prefix."""
        filesystem, remote = self._remote(folder)
        if not filesystem.isdir(remote):
            return []
        found = filesystem.ls(remote, detail=False)
        return sorted(str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in found)

    def _remote(self, key: str) -> tuple[Any, str]:
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.locate(key))
        except ImportError as error:
            raise MissingToolError(
                f"the data root {self.root} needs a package that is not installed ({error})."
            ) from None
        except ValueError as error:
            raise InputError(
                f"the data root {self.root} cannot be opened ({error}); give a folder or a URL "
                "that fsspec knows."
            ) from None
        return filesystem, path


#: Backends by URL scheme; fsspec opens every other URL.
BACKENDS: Final[dict[str, Callable[[str], Backend]]] = {
    "": LocalBackend,
    "file": LocalBackend,
    **dict.fromkeys(OBJECT_STORES, ObjectBackend),
}


def backend_of(root: str) -> Backend:
    """Return the backend of a data root."""
    scheme = root.partition("://")[0] if is_url(root) else ""
    return BACKENDS.get(scheme, FsspecBackend)(root)


def _staged(filesystem: Any, path: str) -> str:
    filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
    return f"{path}.{uuid.uuid4().hex}.part"


def _write_all(stream: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
