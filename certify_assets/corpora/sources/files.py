"""Files to import from: single files, folders and tar archives, read where they lie and never unpacked to disk."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from certify_assets.errors import InputError

__all__ = ["Limits", "SourceFile", "Tally", "iter_files"]

_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
_CHUNK = 1 << 20
_FILE_BYTES = 256 << 20


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
    """

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: str, example: str) -> None:
        """Count one file or record that is left out; `example` is a sentence that names it."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, example)


@dataclass(frozen=True)
class SourceFile:
    """One file to read, on disk or inside an archive.

    Parameters
    ----------
    name : str
        Where it was, relative to the path that was given and beginning with that path's last part; the same on every machine.
    size : int
        Bytes.
    open : callable
        Opens it for reading from its start.
    limit : int
        Bytes that `read` may return.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    limit: int = _FILE_BYTES

    @property
    def suffix(self) -> str:
        """Last suffix of the name, in lower case."""
        return PurePosixPath(self.name).suffix.lower()

    def read(self) -> bytes:
        """Return the whole content.

        Raises
        ------
        InputError
            If it is larger than the limit.
        """
        if self.size > self.limit:
            raise InputError(f"{self.name} has {self.size:,} bytes, the limit is {self.limit:,}; split it or raise the option max_file_mb.")
        with self.open() as stream:
            return stream.read()

    def sha256(self) -> str:
        """Return the SHA-256 of the content."""
        digest = hashlib.sha256()
        with self.open() as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()


def iter_files(paths: Sequence[Path], suffixes: Iterable[str], tally: Tally, limits: Limits) -> Iterator[SourceFile]:
    """Go through files, folders (in the order of their names) and tar archives (in their own order), one file at a time.

    Parameters
    ----------
    paths : sequence of Path
        What to read. Each must exist.
    suffixes : iterable of str
        Suffixes of interest; other files are counted as file_other_format and not opened.
    tally : Tally
        Where files that are left out are counted: links and devices, names that lead out of the archive or folder, broken archives.
    limits : Limits
        Largest file and archive.

    Raises
    ------
    InputError
        If a path does not exist or a limit is exceeded.
    """
    walk = _Walk(frozenset(suffixes), tally, limits)
    for label, path in _roots(paths):
        if path.is_dir():
            yield from walk.folder(label, path)
        elif not path.is_file():
            raise InputError(f"{path} does not exist or is not a file; check the path.")
        else:
            yield from walk.file(label, path)


def _roots(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Name every path by its last part, and by more of it where that is not enough to tell two apart."""
    unique = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda path: (path.name, path.as_posix()))  # noqa: PTH100 - links stay links
    names = Counter(path.name for path in unique)
    labels = [path.name if names[path.name] == 1 else "/".join(path.parts[-2:]) for path in unique]
    repeated = Counter(labels)
    seen: Counter[str] = Counter()
    for position, label in enumerate(labels):
        seen[label] += 1
        if repeated[label] > 1:
            labels[position] = f"{label}#{seen[label]}"
    return list(zip(labels, unique, strict=True))


@dataclass(frozen=True, slots=True)
class _Walk:
    suffixes: frozenset[str]
    tally: Tally
    limits: Limits

    def folder(self, label: str, root: Path) -> Iterator[SourceFile]:
        for parent, folders, names in os.walk(root):
            folders.sort()
            links = [folder for folder in folders if (Path(parent) / folder).is_symlink()]
            for name in sorted([*names, *links]):
                path = Path(parent) / name
                where = f"{label}/{path.relative_to(root).as_posix()}"
                if path.is_symlink() or not path.is_file():
                    self._irregular(where)
                else:
                    yield from self.file(where, path)

    def file(self, label: str, path: Path) -> Iterator[SourceFile]:
        if path.name.lower().endswith(_ARCHIVES):
            yield from self.archive(label, path)
        elif self._wanted(label):
            yield SourceFile(label, path.stat().st_size, lambda: path.open("rb"), self.limits.file_bytes)

    def archive(self, label: str, path: Path) -> Iterator[SourceFile]:
        total = count = 0
        try:
            with tarfile.open(path, "r|*") as archive:
                for member in archive:
                    total, count = total + max(0, member.size), count + 1
                    self._check_archive(label, total, count)
                    if self._safe(f"{label}/{member.name}", member):
                        yield self._member(f"{label}/{member.name}", archive, member)
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            reason = str(error) or type(error).__name__
            self.tally.drop("file_broken_archive", f"{label} is broken after {count} members ({reason}); fetch it again.")

    def _wanted(self, name: str) -> bool:
        suffix = PurePosixPath(name).suffix.lower()
        if suffix not in self.suffixes:
            self.tally.drop("file_other_format", f"{name} has the suffix {suffix or '(none)'}, which this format does not use.")
        return suffix in self.suffixes

    def _irregular(self, name: str) -> None:
        self.tally.drop("file_not_regular", f"{name} is a link or device; links are not followed.")

    def _check_archive(self, label: str, total: int, count: int) -> None:
        if total > self.limits.archive_bytes or count > self.limits.archive_members:
            raise InputError(
                f"{label} unpacks to more than {self.limits.archive_bytes:,} bytes or {self.limits.archive_members:,} members; "
                "unpack what you need and import that folder."
            )

    def _safe(self, name: str, member: tarfile.TarInfo) -> bool:
        """Say whether a member is a file to read: a regular one, of a wanted kind, whose name stays inside the archive."""
        inside = PurePosixPath(member.name)
        if inside.is_absolute() or ".." in inside.parts or "\\" in member.name:
            self.tally.drop("file_unsafe_path", f"{name} leads out of its archive; it was not read.")
            return False
        if member.isdir():
            return False
        if not member.isreg():
            self._irregular(name)
            return False
        return self._wanted(name)

    def _member(self, name: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> SourceFile:
        limit = self.limits.file_bytes
        if member.size > limit:
            raise InputError(f"{name} has {member.size:,} bytes, the limit is {limit:,}; split it or raise the option max_file_mb.")
        stream = archive.extractfile(member)
        data = stream.read() if stream else b""
        if len(data) != member.size:
            raise tarfile.ReadError(f"{member.name} ends early")
        return SourceFile(name, len(data), lambda: io.BytesIO(data), limit)
