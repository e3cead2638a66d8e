"""One file to import from, on disk or inside an archive, and the tally of what an import leaves out."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO

from certify_assets.errors import InputError

__all__ = ["BrokenFileError", "Limits", "SourceFile", "Tally"]

_CHUNK = 1 << 20
_FILE_BYTES = 256 << 20


class BrokenFileError(InputError):
    """One file cannot be decompressed; it costs that file, not the import."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one import may read: guards against archives made to fill memory."""

    file_bytes: int = _FILE_BYTES
    archive_bytes: int = 8 << 30
    archive_members: int = 500_000


@dataclass
class Tally:
    """What an import left out, by reason, with one example of each.

    Reasons that begin with "file_" count files, the others records.

    Parameters
    ----------
    dropped : Counter of str
        How many, by reason.
    examples : dict of str to str
        For every reason, a sentence on the first.
    notes : Counter of str
        What was left out of records that were kept.
    others : dict of str to str
        Files that are not of the format, with the sentence that says so; another format may read them.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    others: dict[str, str] = field(default_factory=dict)

    def drop(self, reason: str, example: str) -> None:
        """Count one file or record that is left out; `example` is a sentence that names it."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, example)

    def other(self, name: str, example: str) -> None:
        """Note a file that is not of the format."""
        self.others.setdefault(name, example)

    def add(self, part: Tally) -> None:
        """Add what another tally counted, but for the files of other formats."""
        self.dropped += part.dropped
        self.notes += part.notes
        self.examples = {**part.examples, **self.examples}


@dataclass(frozen=True)
class SourceFile:
    """One file to read, on disk or inside an archive; one that ends in .gz is decompressed on the way.

    Parameters
    ----------
    name : str
        Where it was, relative to the path that was given and beginning with that path's last part; the same on every machine.
    size : int
        Bytes as stored.
    stored : callable
        Opens it as it is stored, for reading from its start.
    limit : int
        Bytes that `read` may return.
    """

    name: str
    size: int
    stored: Callable[[], IO[bytes]]
    limit: int = _FILE_BYTES

    @property
    def plain_name(self) -> str:
        """The name without .gz."""
        return self.name[:-3] if self.name.lower().endswith(".gz") else self.name

    @property
    def suffix(self) -> str:
        """Last suffix of the name but .gz, in lower case."""
        return PurePosixPath(self.plain_name).suffix.lower()

    def open(self) -> IO[bytes]:
        """Open the content for reading, decompressed; what is not as announced shows when it is read."""
        if self.plain_name == self.name:
            return self.stored()
        stored = self.stored()
        unzipped = gzip.GzipFile(fileobj=stored)
        # a GzipFile closes only a file that it opened itself
        unzipped.myfileobj = stored  # type: ignore[assignment]
        return io.BufferedReader(unzipped)

    def read(self) -> bytes:
        """Return the whole content, decompressed.

        Raises
        ------
        InputError
            If it is larger than the limit.
        BrokenFileError
            If it cannot be decompressed.
        """
        data = b"" if self.size > self.limit else self.head(self.limit + 1)
        if self.size > self.limit or len(data) > self.limit:
            size = (
                f"{self.size:,} bytes"
                if self.size > self.limit
                else "more bytes than that when decompressed"
            )
            raise InputError(
                f"{self.name} has {size}, the limit is {self.limit:,}; split it or raise the option max_file_mb."
            )
        return data

    def head(self, count: int) -> bytes:
        """Return the first bytes of the content, at most `count`; enough to tell a format.

        Raises
        ------
        BrokenFileError
            If they cannot be decompressed.
        """
        try:
            with self.open() as stream:
                return stream.read(count)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BrokenFileError(
                f"{self.name} cannot be decompressed ({error}); fetch it again."
            ) from None

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it is stored."""
        digest = hashlib.sha256()
        with self.stored() as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()
