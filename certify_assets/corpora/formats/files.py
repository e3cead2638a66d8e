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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from certify_assets.errors import InputError, UnreadableFileError
from certify_assets.work import WorkStage, under_way

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
_ARCHIVES = (*_TARS, ".zip")


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
    #: files that are not of the format, with what they are
    others: dict[str, str] = field(default_factory=dict)
    #: what was understood of files that are not as their format has them, with their names
    read_as: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, example: str) -> None:
        """Count one file or record that is left out; `example` is a sentence that names it."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, example)

    def other(self, name: str, words: str = "is no file of this format.") -> None:
        """Note a file that is not of the format."""
        self.others.setdefault(name, f"{name} {words}")

    def understood(self, name: str, said: Sequence[str]) -> None:
        """Note what was understood of a file that is not as its format has it."""
        if said:
            self.read_as.setdefault("; ".join(said), []).append(name)


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

    @property
    def plain_name(self) -> str:
        """The name without .gz."""
        return _without_gz(self.name)

    @property
    def suffix(self) -> str:
        """Last suffix of the name but .gz, in lower case."""
        return PurePosixPath(self.plain_name).suffix.lower()

    def open(self) -> IO[bytes]:
        """Open the content for reading, decompressed."""
        stored = self.stored()
        if self.plain_name == self.name:
            return stored
        unzipped = gzip.GzipFile(fileobj=stored)
        # a GzipFile closes only a file that it opened itself
        unzipped.myfileobj = stored  # type: ignore[assignment]
        return io.BufferedReader(unzipped)

    def read(self) -> bytes:
        """Return the whole content, decompressed."""
        if self.size > self.limit:
            raise too_large(f"{self.name} has {self.size:,} bytes", self.limit)
        data = self.head(self.limit + 1)
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


class _Member(NamedTuple):
    """One entry of an archive."""

    name: str
    # folder, file or other
    kind: str
    size: int
    read: Callable[[], bytes]


@dataclass(frozen=True)
class FileSet:
    """Files, folders and archives to read, one file at a time, as often as they are gone through.

    Parameters
    ----------
    paths : sequence of Path
        Files, folders and archives.
    suffixes : collection of str
        Suffixes of the files that are read.
    tally : Tally
        Counts what is left out, each time.
    limits : ReadLimits, optional
        How much may be read.
    patterns : tuple of str
        Shell patterns, of which a file's name matches one.
    """

    paths: Sequence[Path]
    suffixes: Collection[str]
    tally: Tally
    limits: ReadLimits | None = None
    patterns: tuple[str, ...] = ("*",)

    def matching(self, *patterns: str) -> FileSet:
        """Return the files whose names, but for .gz, match a shell pattern; counts nothing."""
        return replace(self, patterns=patterns, tally=Tally())

    def __iter__(self) -> Iterator[SourceFile]:
        """Go through the files."""
        found = [item for label, path in _labelled(self.paths) for item in self._disk(label, path)]
        total = sum(path.stat().st_size for _, path in found)
        with under_way(WorkStage("reading files", total, in_bytes=True)) as stage:
            for name, path in found:
                before, size = stage.done, path.stat().st_size
                if name.lower().endswith(_ARCHIVES):
                    yield from self._archive(name, path, stage)
                elif self._of_interest(name):
                    yield SourceFile(name, size, partial(_open, path), self._limits.file_bytes)
                stage.done = before + size

    @property
    def _limits(self) -> ReadLimits:
        return self.limits or ReadLimits()

    def _disk(self, label: str, root: Path) -> Iterator[tuple[str, Path]]:
        """Go through the files at a path, in the order of their names."""
        if root.is_file():
            yield label, root
        elif not root.is_dir():
            raise InputError(
                f"{root} does not exist or is neither file nor folder; check the path."
            )
        for parent, folders, names in os.walk(root):
            folders.sort()
            links = [folder for folder in folders if (Path(parent) / folder).is_symlink()]
            for path in (Path(parent) / name for name in sorted([*names, *links])):
                where = f"{label}/{path.relative_to(root).as_posix()}"
                if path.is_symlink() or not path.is_file():
                    self._irregular(where)
                else:
                    yield where, path

    def _archive(self, label: str, path: Path, stage: WorkStage) -> Iterator[SourceFile]:
        members = _tar if label.lower().endswith(_TARS) else _zip
        limits, before, total = self._limits, stage.done, 0
        try:
            with path.open("rb") as stored:
                for count, member in enumerate(members(stored), 1):
                    total += max(0, member.size)
                    if total > limits.archive_bytes or count > limits.archive_members:
                        raise InputError(
                            f"{label} unpacks to more than {limits.archive_bytes:,} bytes or "
                            f"{limits.archive_members:,} members; unpack what you need and import "
                            "that folder."
                        )
                    name = f"{label}/{member.name}"
                    if self._safe(name, member):
                        data = member.read()
                        if len(data) != member.size:
                            raise tarfile.ReadError(f"{name} is not as long as its archive says")
                        stage.done = max(stage.done, before + stored.tell())
                        yield SourceFile(
                            name, len(data), partial(io.BytesIO, data), limits.file_bytes
                        )
        except DAMAGE as error:
            reason = str(error) or type(error).__name__
            self.tally.drop("file_broken_archive", f"{label} is broken ({reason}); fetch it again.")

    def _safe(self, name: str, member: _Member) -> bool:
        """Say whether a member is a file to read: a regular one, of a wanted kind and size."""
        inside = PurePosixPath(member.name)
        if inside.is_absolute() or ".." in inside.parts or {"\\", "\0"} & {*member.name}:
            self.tally.drop(
                "file_unsafe_path", f"{name} leads out of its archive; it was not read."
            )
        elif member.kind == "other":
            self._irregular(name)
        elif member.kind == "file" and name.lower().endswith(_ARCHIVES):
            self.tally.drop(
                "file_nested_archive",
                f"{name} is an archive inside an archive; unpack the outer one and import its "
                "folder.",
            )
        elif member.kind == "file" and self._of_interest(name):
            if member.size > self._limits.file_bytes:
                raise too_large(f"{name} has {member.size:,} bytes", self._limits.file_bytes)
            return True
        return False

    def _of_interest(self, name: str) -> bool:
        plain = _without_gz(name)
        suffix = PurePosixPath(plain.lower()).suffix
        if suffix not in self.suffixes:
            said = f"has the suffix {suffix or '(none)'}, which this format does not use."
            self.tally.other(name, said)
            return False
        return any(fnmatchcase(plain, pattern) for pattern in self.patterns)

    def _irregular(self, name: str) -> None:
        self.tally.drop("file_not_regular", f"{name} is a link or device; links are not followed.")


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _without_gz(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


def _labelled(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Name paths by their last part, or by as many as tell them apart."""
    unique = sorted(
        {Path(os.path.abspath(path)) for path in paths},  # noqa: PTH100 - links are not followed
        key=lambda path: (path.name, path.as_posix()),
    )
    for count in range(1, max((len(path.parts) for path in unique), default=0) + 1):
        labels = ["/".join(path.parts[-count:]) for path in unique]
        if len(set(labels)) == len(unique):
            return list(zip(labels, unique, strict=True))
    return []


def _tar(stored: IO[bytes]) -> Iterator[_Member]:
    with tarfile.open(fileobj=stored, mode="r|*", tarinfo=SmallHeader) as archive:
        for member in archive:
            kind = "folder" if member.isdir() else "file" if member.isreg() else "other"
            yield _Member(member.name, kind, member.size, partial(_of_tar, archive, member))


def _of_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return stream.read() if stream else b""


def _zip(stored: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(stored) as archive:
        for member in archive.infolist():
            # the upper half holds the mode of a Unix file; 0 where the archive was made elsewhere
            mode = stat.S_IFMT(member.external_attr >> 16)
            regular = "file" if mode in (0, stat.S_IFREG) else "other"
            kind = "folder" if member.is_dir() else regular
            yield _Member(
                member.filename, kind, member.file_size, partial(_of_zip, archive, member)
            )


def _of_zip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    # one byte more than it says: a member that is longer is not read to its end
    with archive.open(member) as stream:
        return stream.read(member.file_size + 1)
