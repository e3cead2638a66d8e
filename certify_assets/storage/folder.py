"""Files below a root: a local folder, or a URL that fsspec knows."""

from __future__ import annotations

import functools
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from certify_assets.errors import InputError
from certify_assets.files import naming, replacing
from certify_assets.storage.urls import file_system, is_url

# a killed write leaves a part of a file, whose name begins with that of the package
_SEGMENT = re.compile(r"(\.certify\.)?[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class FoundFile(NamedTuple):
    """A file as a listing shows it."""

    key: str
    size: int

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def is_part(self) -> bool:
        """Whether it is the rest of an interrupted write."""
        return self.name.startswith(".")


class Folder:
    """Whole files by keys such as ``pages/corpora/retail/page.html``.

    A file is written completely or not at all, and is on disk when `write` returns.

    Parameters
    ----------
    root : str
        A path, or a URL such as ``s3://bucket/prefix``.
    """

    def __init__(self, root: str) -> None:
        self.root = root.removeprefix("file://")
        self.is_local = not is_url(self.root)

    def locate(self, key: str) -> str:
        """Return the path or URL of a key; refuse a key that could lead outside the root."""
        parts = key.split("/")
        bad = next((part for part in parts if not _SEGMENT.fullmatch(part)), None)
        if bad is not None:
            raise InputError(
                f"{bad!r} in {key!r} cannot be a file name of the data root; use letters, "
                "digits, '_', '-' and '.'."
            )
        return "/".join([self.root.rstrip("/"), *parts])

    def path(self, key: str) -> Path:
        """Return the local path of a key; refuse a remote root, which has none."""
        if not self.is_local:
            raise InputError(
                f"{key} is needed as a file, but {self.root} is remote; copy it to a local folder "
                "first."
            )
        return Path(self.locate(key))

    def exists(self, key: str) -> bool:
        """Whether there is a file, or a folder with files, under a key."""
        return bool(self._system.exists(self.locate(key)))

    def read(self, key: str) -> bytes:
        """Return the content of a file, or raise FileNotFoundError."""
        return bytes(self._system.cat_file(self.locate(key)))

    def write(self, key: str, data: bytes) -> None:
        """Store a file."""
        with self.writing(key) as stream:
            stream.write(data)

    @contextmanager
    def writing(self, key: str) -> Iterator[IO[bytes]]:
        """Open a stream; its content is stored at the end of the block, unless the block fails."""
        if not self.is_local:
            with tempfile.NamedTemporaryFile() as stream:
                yield stream
                stream.flush()
                place = self.locate(key)
                self._system.makedirs(place.rpartition("/")[0], exist_ok=True)
                self._system.put_file(stream.name, place)
            return
        path = self._inside(key)
        with naming(path), replacing(path) as stream:
            yield stream
        # the name must be on the disk before a row names it
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def renew(self, key: str, size: int) -> bool:
        """Set a file's time to now; return False if it must be written instead, as on a remote
        root.
        """
        with suppress(FileNotFoundError):
            if self.is_local:
                os.utime(self.locate(key))
                return self.path(key).stat().st_size == size
        return False

    def delete(self, key: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self._system.rm_file(str(self._inside(key)) if self.is_local else self.locate(key))

    def _inside(self, key: str) -> Path:
        path = self.path(key)
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root)):
            raise InputError(
                f"{path} leads out of {self.root} by a symbolic link; remove the link."
            )
        return path

    def names(self, key: str) -> list[str]:
        """Return the sorted names directly below a folder, without hidden ones."""
        place = self.locate(key)
        listed = self._system.ls(place, detail=False) if self._system.isdir(place) else []
        found = [str(entry).rstrip("/").rpartition("/")[2] for entry in listed]
        return sorted(name for name in found if not name.startswith("."))

    def files(self, key: str) -> Iterator[FoundFile]:
        """Iterate over the files below a folder that have a key, including rests of interrupted
        writes.
        """
        place = self._system._strip_protocol(self.locate(key))
        for name, about in self._system.find(place, detail=True).items():
            tail = name.removeprefix(place).lstrip("/")
            if all(map(_SEGMENT.fullmatch, tail.split("/"))):
                yield FoundFile(f"{key}/{tail}", int(about.get("size") or 0))

    def age(self, key: str) -> float:
        """Return the seconds since a file was written; 0 if it is gone."""
        with suppress(FileNotFoundError):
            return time.time() - float(self._system.modified(self.locate(key)).timestamp())
        return 0.0

    @property
    def _system(self) -> Any:
        if self.is_local:
            from fsspec.implementations.local import LocalFileSystem

            # not by a URL, in which some characters of a path mean something
            return LocalFileSystem()
        return _opened(self.root, os.getpid())


@functools.lru_cache(maxsize=8)
def _opened(root: str, process: int) -> Any:
    # connections do not survive a fork
    del process
    # a listing that is remembered says that a removed file exists
    return file_system(root, use_listings_cache=False, skip_instance_cache=True)[0]
