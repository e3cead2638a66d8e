"""Files to import, on disk or in archives, and the tally of what an import leaves out."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Any

from certify_assets.errors import InputError, UnreadableFileError
from certify_assets.work import WorkStage, read_so_far, under_way

_CHUNK = 1 << 20
_FILE_BYTES = 256 << 20
#: what archives raise that are damaged, or made to be
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    struct.error,
)
_LONGEST = 1 << 20
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_TARS = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
_ZIPS = (".zip",)


class BrokenFileError(InputError):
    """One file cannot be decompressed; it costs that file, not the import."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much one import may read: guards against archives made to fill memory."""

    file_bytes: int = _FILE_BYTES
    archive_bytes: int = 8 << 30
    archive_members: int = 500_000


@dataclass
class Tally:
    """What an import left out, by reason, with one example of each."""

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    others: dict[str, str] = field(default_factory=dict)
    # what was understood of files, with those of which it was
    read_as: dict[str, list[str]] = field(default_factory=dict)

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
        for said, files in part.read_as.items():
            self.read_as.setdefault(said, []).extend(files)


@dataclass(frozen=True)
class SourceFile:
    """One file to read, on disk or inside an archive; one that ends in .gz is decompressed on the
    way.

    Parameters
    ----------
    name : str
        Where it was, relative to the path that was given and beginning with that path's last part;
        the same on every machine.
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
    # has the stream looked at, where it is one of a file on disk
    follow: Callable[[IO[bytes]], IO[bytes]] = lambda stream: stream

    @property
    def plain_name(self) -> str:
        """The name without .gz."""
        return self.name[:-3] if self.name.lower().endswith(".gz") else self.name

    @property
    def suffix(self) -> str:
        """Last suffix of the name but .gz, in lower case."""
        return PurePosixPath(self.plain_name).suffix.lower()

    def open(self) -> IO[bytes]:
        """Open the content for reading, decompressed."""
        stored = self.follow(self.stored())
        if self.plain_name == self.name:
            return stored
        unzipped = gzip.GzipFile(fileobj=stored)
        # a GzipFile closes only a file that it opened itself
        unzipped.myfileobj = stored  # type: ignore[assignment]
        return io.BufferedReader(unzipped)

    def read(self) -> bytes:
        """Return the whole content, decompressed."""
        data = b"" if self.size > self.limit else self.head(self.limit + 1)
        if self.size > self.limit:
            raise too_large(f"{self.name} has {self.size:,} bytes", self.limit)
        if len(data) > self.limit:
            raise too_large(f"{self.name} has more bytes than that when decompressed", self.limit)
        return data

    def head(self, count: int) -> bytes:
        """Return the first bytes of the content, at most `count`; enough to tell a format."""
        try:
            with self.open() as stream:
                return stream.read(count)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BrokenFileError(
                f"{self.name} cannot be decompressed ({error}); fetch it again."
            ) from None
        except OSError as error:
            raise self._unreadable(error) from error

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it is stored."""
        digest = hashlib.sha256()
        try:
            with self.stored() as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            raise self._unreadable(error) from error
        return digest.hexdigest()

    def _unreadable(self, error: OSError) -> OSError:
        # what fails in reading, unlike in opening, does not say which file it is of
        kind = UnreadableFileError if error.filename is None else OSError
        return kind(error.errno, error.strerror or str(error), self.name)


def too_large(what: str, limit: int) -> InputError:
    """Return the error of a file, or of a part of it, that is larger than the limit."""
    return InputError(f"{what}, the limit is {limit:,}; split it or raise the option max_file_mb.")


class SmallHeader(tarfile.TarInfo):
    """A member's header whose extensions hold at most a megabyte."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _EXTENSIONS and self.size > _LONGEST:
            raise tarfile.ReadError(
                f"a header of {self.size:,} bytes, of which {_LONGEST:,} are allowed"
            )
        return super()._proc_member(archive)  # type: ignore[misc]


class FileSet:
    """Files, folders and archives to import from, one file at a time, more than once."""

    def __init__(
        self,
        paths: Sequence[Path],
        suffixes: Iterable[str],
        tally: Tally,
        limits: ReadLimits | None = None,
    ) -> None:
        self._roots = _roots(paths)
        self._suffixes = frozenset(suffixes)
        self._tally, self._counted = tally, False
        self._limits = limits or ReadLimits()

    def __iter__(self) -> Iterator[SourceFile]:
        """Go through all files."""
        tally = Tally() if self._counted else self._tally
        self._counted = True
        return self._walk(tally, lambda name: True)

    def matching(self, *patterns: str) -> Iterator[SourceFile]:
        """Go through the files whose names match a shell pattern; counts nothing."""
        return self._walk(
            Tally(), lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def _walk(self, tally: Tally, wanted: Callable[[str], bool]) -> Iterator[SourceFile]:
        place = _Place([path for _, path in self._roots])
        walk = _Walk(self._suffixes, wanted, tally, self._limits, place)
        with under_way(WorkStage("reading files", 0, in_bytes=True, look=place.look)):
            for label, path in self._roots:
                if path.is_dir():
                    yield from walk.folder(label, path)
                elif not path.is_file():
                    raise InputError(
                        f"{path} does not exist or is neither file nor folder; check the path."
                    )
                else:
                    yield from walk.file(label, path)
                    place.passed(path)


def _roots(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Name every path by its last part, and by more where that is ambiguous."""
    unique = sorted(
        {Path(os.path.abspath(path)) for path in paths},  # noqa: PTH100 - links are not followed
        key=lambda path: (path.name, path.as_posix()),
    )
    labels = [(path.name, "/".join(path.parts[-2:]), path.as_posix()) for path in unique]
    used = Counter(label for all_of_path in labels for label in dict.fromkeys(all_of_path))
    return [
        (next(label for label in all_of_path if used[label] == 1), path)
        for all_of_path, path in zip(labels, unique, strict=True)
    ]


def _suffix(name: str) -> str:
    lower = name.lower()
    return PurePosixPath(lower.removesuffix(".gz")).suffix


@dataclass
class _Place:
    """How many of the bytes on disk a walk has come past."""

    paths: Sequence[Path]
    before: int = 0
    stream: IO[bytes] | None = None

    def follow(self, stream: IO[bytes]) -> IO[bytes]:
        self.stream = stream
        return stream

    def passed(self, path: Path) -> None:
        with suppress(OSError):
            self.before += path.stat().st_size
        self.stream = None

    def look(self, stage: WorkStage) -> None:
        stage.total = stage.total or sum(map(_bytes_below, self.paths))
        stream = self.stream
        stage.done = self.before + (0 if stream is None else read_so_far(stream))


def _bytes_below(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.is_file() else 0
    files = (Path(parent) / name for parent, _, names in os.walk(path) for name in names)
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


@dataclass(frozen=True, slots=True)
class _Walk:
    suffixes: frozenset[str]
    wanted: Callable[[str], bool]
    tally: Tally
    limits: ReadLimits
    place: _Place

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
                    self.place.passed(path)

    def file(self, label: str, path: Path) -> Iterator[SourceFile]:
        if path.name.lower().endswith(_TARS):
            yield from self._guarded(label, self._tar(label, path))
        elif path.name.lower().endswith(_ZIPS):
            yield from self._guarded(label, self._zip(label, path))
        elif self._of_interest(label):
            size, limit = path.stat().st_size, self.limits.file_bytes
            yield SourceFile(label, size, lambda: path.open("rb"), limit, self.place.follow)

    def _guarded(self, label: str, members: Iterator[SourceFile]) -> Iterator[SourceFile]:
        count = 0
        try:
            for member in members:
                count += 1
                yield member
        except DAMAGE as error:
            reason = str(error) or type(error).__name__
            self.tally.drop(
                "file_broken_archive",
                f"{label} is broken after {count} files ({reason}); fetch it again.",
            )

    def _tar(self, label: str, path: Path) -> Iterator[SourceFile]:
        total = count = 0
        with (
            self.place.follow(path.open("rb")) as stored,
            tarfile.open(fileobj=stored, mode="r|*", tarinfo=SmallHeader) as archive,
        ):
            for member in archive:
                total, count = total + max(0, member.size), count + 1
                self._check_archive(label, total, count)
                kind = "folder" if member.isdir() else "file" if member.isreg() else "other"
                if self._safe(label, member.name, kind, member.size):
                    stream = archive.extractfile(member)
                    yield self._member(
                        f"{label}/{member.name}", stream.read() if stream else b"", member.size
                    )

    def _zip(self, label: str, path: Path) -> Iterator[SourceFile]:
        total = 0
        with (
            self.place.follow(path.open("rb")) as stored,
            zipfile.ZipFile(stored) as archive,
        ):
            for count, member in enumerate(archive.infolist(), 1):
                total += member.file_size
                self._check_archive(label, total, count)
                # the upper half holds the mode of a Unix file; 0 where the archive was made
                # elsewhere
                mode = stat.S_IFMT(member.external_attr >> 16)
                kind = (
                    "folder"
                    if member.is_dir()
                    else "file"
                    if mode in (0, stat.S_IFREG)
                    else "other"
                )
                if self._safe(label, member.filename, kind, member.file_size):
                    with archive.open(member) as stream:
                        data = stream.read(member.file_size + 1)
                    yield self._member(f"{label}/{member.filename}", data, member.file_size)

    def _of_interest(self, name: str) -> bool:
        suffix = _suffix(name)
        if suffix not in self.suffixes:
            self.tally.other(
                name, f"{name} has the suffix {suffix or '(none)'}, which this format does not use."
            )
        return suffix in self.suffixes and self.wanted(name)

    def _irregular(self, name: str) -> None:
        self.tally.drop("file_not_regular", f"{name} is a link or device; links are not followed.")

    def _check_archive(self, label: str, total: int, count: int) -> None:
        if total > self.limits.archive_bytes or count > self.limits.archive_members:
            raise InputError(
                f"{label} unpacks to more than {self.limits.archive_bytes:,} bytes or "
                f"{self.limits.archive_members:,} members; "
                "unpack what you need and import that folder."
            )

    def _safe(self, label: str, member: str, kind: str, size: int) -> bool:
        """Say whether a member is a file to read: a regular one, of a wanted kind and size."""
        name, inside = f"{label}/{member}", PurePosixPath(member)
        if inside.is_absolute() or ".." in inside.parts or "\\" in member or "\0" in member:
            self.tally.drop(
                "file_unsafe_path", f"{name} leads out of its archive; it was not read."
            )
            return False
        if kind == "folder":
            return False
        if kind != "file":
            self._irregular(name)
            return False
        if member.lower().endswith((*_TARS, *_ZIPS)):
            self.tally.drop(
                "file_nested_archive",
                f"{name} is an archive inside an archive; unpack the outer one and import its "
                "folder.",
            )
            return False
        if not self._of_interest(name):
            return False
        if size > self.limits.file_bytes:
            raise too_large(f"{name} has {size:,} bytes", self.limits.file_bytes)
        return True

    def _member(self, name: str, data: bytes, size: int) -> SourceFile:
        if len(data) != size:
            raise tarfile.ReadError(f"{name} is not as long as its archive says")
        return SourceFile(name, len(data), lambda: io.BytesIO(data), self.limits.file_bytes)
