"""What a place for data roots answers: whole files by keys, journals and leases."""

# Another backend is one class: five abstract methods, registered under the scheme of its URLs. The
# other methods work on top of these five and may be replaced where a backend can do better.

from __future__ import annotations

import io
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, ClassVar

from certify_assets.errors import InputError
from certify_assets.files import sha256_bytes

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class Backend(ABC):
    """Whole files below one root, by keys such as ``corpora/retail/corpus.json``."""

    #: whether the root is a folder of this machine
    local: ClassVar = False

    def __init__(self, root: str) -> None:
        self.root = root

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether a file, or a folder with files, is stored under the key."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """Return a stored file; raise FileNotFoundError where there is none."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Store a file, whole or not at all."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove a file, if it is stored."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder; empty where there is none."""

    def path(self, key: str) -> Path | None:
        """Return the path of a key on this machine; None where the root has none."""
        del key
        return None

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream, whole or not at all; return its SHA-256."""
        buffer = io.BytesIO()
        write(buffer)
        self.write(key, buffer.getvalue())
        return sha256_bytes(buffer.getvalue())

    def copy(self, key: str, target: str) -> None:
        """Store a file under another key as well, whole or not at all."""
        self.write(target, self.read(key))

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give a stored file as a file of this machine, here a copy."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            path.write_bytes(self.read(key))
            yield path

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append the line that `make` returns for the whole lines that are stored."""
        # without a lock: let one process at a time write
        old = whole_lines(self.read(key) if self.exists(key) else b"")
        line = make(old)
        if line is not None:
            self.write(key, old + line.encode("utf-8") + b"\n")

    def change(self, key: str, make: Callable[[bytes | None], bytes | None]) -> None:
        """Store what `make` returns for what is stored; None is nothing."""
        # without a lock: let one process at a time change a key
        old = self.read(key) if self.exists(key) else None
        new = make(old)
        if new is None:
            self.delete(key)
        elif new != old:
            self.write(key, new)

    def is_exclusive(self) -> bool:
        """Whether of several processes that append to a journal none loses a line."""
        return False

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder; object stores have none."""
        del folder

    def remove_parts(self, name: str) -> None:
        """Remove what killed writes left in the folders of a corpus; object stores show none."""
        del name

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


def whole_lines(data: bytes) -> bytes:
    """Return a journal without the torn last line of a writer that was killed."""
    return data[: data.rfind(b"\n") + 1]
