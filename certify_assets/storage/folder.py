"""Files below one place: a folder of this machine, or a URL that fsspec knows."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from certify_assets.errors import InputError, MissingToolError
from certify_assets.files import naming, replacing
from certify_assets.storage.urls import is_url

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
#: how the name of a file begins that a killed process did not finish
PART: Final = ".certify."


class FoundFile(NamedTuple):
    """A file as a listing shows it."""

    key: str
    size: int
    seconds: float  # since it was written


class Folder:
    """Whole files by keys such as ``pages/corpora/retail/page.html``.

    A file is written whole or not at all, and is on the disk when `write` returns.

    Parameters
    ----------
    root : str
        A path, or a URL such as ``s3://bucket/prefix``.
    """

    def __init__(self, root: str) -> None:
        self.root = root.removeprefix("file://")
        self.is_local = not is_url(self.root)

    def locate(self, key: str) -> str:
        """Return the path or URL of a key; refuse a key that could lead outside."""
        parts = key.split("/")
        bad = next((part for part in parts if not _SEGMENT.fullmatch(part)), None)
        if bad is not None:
            raise InputError(
                f"{bad!r} in {key!r} cannot be a file name of the data root; use letters, "
                "digits, '_', '-' and '.'."
            )
        return "/".join([self.root.rstrip("/"), *parts])

    def path(self, key: str) -> Path:
        """Return the path of a key on this machine; refuse a remote place, which has none."""
        if not self.is_local:
            raise InputError(
                f"{key} is needed as a file, but {self.root} is remote; copy it to a local folder "
                "first."
            )
        return Path(self.locate(key))

    def exists(self, key: str) -> bool:
        """Whether a file, or a folder with files, is there."""
        if self.is_local:
            return self.path(key).exists()
        return bool(self._remote.exists(self.locate(key)))

    def read(self, key: str) -> bytes:
        """Return a file; raise FileNotFoundError where there is none."""
        if self.is_local:
            return self.path(key).read_bytes()
        return bytes(self._remote.cat_file(self.locate(key)))

    def write(self, key: str, data: bytes) -> None:
        """Store a file."""
        if self.is_local:
            with self._durable(key) as stream:
                stream.write(data)
        else:
            self._remote.pipe_file(self._made(key), data)

    def write_file(self, key: str, path: Path) -> None:
        """Store a copy of a file of this machine."""
        if self.is_local:
            with path.open("rb") as source, self._durable(key) as stream:
                shutil.copyfileobj(source, stream)
        else:
            self._remote.put_file(str(path), self._made(key))

    @contextmanager
    def _durable(self, key: str) -> Iterator[IO[bytes]]:
        path = self.path(key)
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root)):
            raise InputError(
                f"{path} leads out of {self.root} by a symbolic link; remove the link."
            )
        with naming(path), replacing(path) as stream:
            yield stream
        # the name must be on the disk before a row names it
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _made(self, key: str) -> str:
        """Return the remote place of a key, in a folder that is there."""
        place = self.locate(key)
        self._remote.makedirs(place.rpartition("/")[0], exist_ok=True)
        return place

    def touch(self, key: str) -> bool:
        """Make a local file young; return whether it is there."""
        with suppress(FileNotFoundError):
            os.utime(self.path(key))
            return True
        return False

    def delete(self, key: str) -> None:
        """Remove a file, if it is there."""
        if self.is_local:
            self.path(key).unlink(missing_ok=True)
        elif self._remote.exists(self.locate(key)):
            self._remote.rm_file(self.locate(key))

    def names(self, key: str) -> list[str]:
        """Return the sorted names directly below a folder, hidden ones left out."""
        if self.is_local:
            path = self.path(key)
            found = [entry.name for entry in path.iterdir()] if path.is_dir() else []
        else:
            place = self.locate(key)
            listed = self._remote.ls(place, detail=False) if self._remote.isdir(place) else []
            found = [str(entry).rstrip("/").rpartition("/")[2] for entry in listed]
        return sorted(name for name in found if not name.startswith("."))

    def files(self, key: str) -> Iterator[FoundFile]:
        """Iterate over all files below a folder, those of killed writes too."""
        now = time.time()
        if self.is_local:
            base = self.path(key)
            for path in base.rglob("*"):
                with suppress(FileNotFoundError):
                    if path.is_file():
                        found = path.stat()
                        name = f"{key}/{path.relative_to(base).as_posix()}"
                        yield FoundFile(name, found.st_size, now - found.st_mtime)
            return
        place = self.locate(key)
        for name, about in self._remote.find(place, detail=True).items():
            written = about.get("LastModified") or about.get("updated") or about.get("created")
            seconds = now - (written.timestamp() if hasattr(written, "timestamp") else now)
            tail = name.rpartition(f"/{key}/")[2]
            yield FoundFile(f"{key}/{tail}", int(about.get("size") or 0), seconds)

    def remove_part(self, key: str) -> None:
        """Remove what a killed write left on a local folder."""
        folder, _, name = key.rpartition("/")
        if name.startswith(PART):
            (self.path(folder) / name).unlink(missing_ok=True)

    @cached_property
    def _remote(self) -> Any:
        import fsspec

        try:
            # a listing that is remembered says that a removed file exists
            filesystem, _ = fsspec.core.url_to_fs(
                self.root, use_listings_cache=False, skip_instance_cache=True
            )
        except ImportError as error:
            raise MissingToolError(
                f"the data root {self.root} needs a package that is not installed ({error}); "
                "install certify_assets[s3] or certify_assets[gcs]."
            ) from None
        except ValueError as error:
            raise InputError(
                f"the data root {self.root} cannot be opened ({error}); give a folder or a URL "
                "that fsspec knows."
            ) from None
        return filesystem
