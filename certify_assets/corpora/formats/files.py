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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from certify_assets.errors import InputError
from certify_assets.files import naming
from certify_assets.work import WorkStage, under_way

#: how much is read, as a guard against archives that are made to fill memory
FILE_BYTES = 256 << 20
ARCHIVE_BYTES = 8 << 30
ARCHIVE_MEMBERS = 500_000
_HEADER_BYTES = 1 << 20
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
#: what compressed files raise that are damaged
NOT_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
_LONG_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_TARS = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
#: endings of archives
ARCHIVES = (*_TARS, ".zip")
#: file of every folder with results of Inspect Scout
SCAN = "_scan.json"


def is_scan(path: Path) -> bool:
    """Whether a folder holds results of Inspect Scout."""
    return (path / SCAN).is_file()


class BrokenFileError(InputError):
    """One file cannot be read; it is left out, and the import continues."""


@dataclass
class Tally:
    """What an import left out, by reason, with one example of each."""

    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)
    #: files that are not of the format, with what they are
    others: dict[str, str] = field(default_factory=dict)
    #: what was understood of files that are not as their format has them, with their names
    read_as: dict[str, dict[str, None]] = field(default_factory=dict)

    def drop(self, reason: str, example: str) -> None:
        """Count one file or record that is left out; `example` is a sentence that names it."""
        self.dropped[reason] += 1
        self.examples.setdefault(reason, example)

    def other(self, name: str, words: str = "is not a file of this format.") -> None:
        """Note a file that is not of the format."""
        self.others.setdefault(name, f"{name} {words}")

    def understood(self, name: str, said: Sequence[str]) -> None:
        """Note how a file that deviates from its format was read."""
        if said:
            self.read_as.setdefault("; ".join(said), {})[name] = None


@dataclass(frozen=True)
class SourceFile:
    """One file to read, on disk or inside an archive; one that ends in .gz is decompressed on the
    way.

    Parameters
    ----------
    name : str
        Its place relative to the given path, beginning with that path's last part; equal on every
        machine.
    stored : callable
        Opens it in its stored form, at its start.
    """

    name: str
    stored: Callable[[], Any]

    @property
    def path(self) -> PurePosixPath:
        """The name without .gz."""
        return PurePosixPath(_without_gz(self.name))

    @property
    def suffix(self) -> str:
        """Last suffix of the name, without .gz, in lower case."""
        return self.path.suffix.lower()

    def open(self) -> IO[bytes]:
        """Open the content for reading, decompressed."""
        stored: IO[bytes] = self.stored()
        if str(self.path) == self.name:
            return stored
        unzipped = gzip.GzipFile(fileobj=stored)
        # a GzipFile closes only a file that it opened itself
        unzipped.myfileobj = stored  # type: ignore[assignment]
        return io.BufferedReader(unzipped)

    def read(self) -> bytes:
        """Return the whole content, decompressed."""
        data = self.head(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise too_large(self.name, FILE_BYTES)
        return data

    def head(self, count: int) -> bytes:
        """Return the first bytes of the content, at most `count`; enough to recognise a format."""
        try:
            with naming(Path(self.name)), self.open() as stream:
                return stream.read(count)
        except NOT_GZIP as error:
            raise BrokenFileError(
                f"{self.name} cannot be decompressed ({error}); fetch it again."
            ) from None

    def sha256(self) -> str:
        """Return the SHA-256 of the stored file."""
        with naming(Path(self.name)), self.stored() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def too_large(what: str, limit: int) -> BrokenFileError:
    """Return the error of a file, or of a part of it, that is larger than the limit."""
    return BrokenFileError(f"{what} is too large (the limit is {limit:,} bytes); split it.")


class _SmallHeader(tarfile.TarInfo):
    """A member's header whose extensions hold at most a megabyte."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type in _LONG_HEADERS and self.size > _HEADER_BYTES:
            raise tarfile.ReadError(
                f"a header of {self.size:,} bytes, of which {_HEADER_BYTES:,} are allowed"
            )
        return super()._proc_member(archive)  # type: ignore[misc]


class _Member(NamedTuple):
    """One file, link or device of an archive."""

    name: str
    is_regular: bool
    size: int
    open: Callable[[], IO[bytes] | None]


@dataclass(frozen=True)
class FileSet:
    """Files, folders and archives to read, one file at a time, at every iteration.

    Parameters
    ----------
    paths : sequence of Path
        Files, folders and archives.
    suffixes : collection of str
        Suffixes of the files that are read.
    tally : Tally
        Counts the files left out, at every iteration.
    patterns : tuple of str
        Shell patterns; a file's name must match one.
    """

    paths: Sequence[Path]
    suffixes: Collection[str]
    tally: Tally
    patterns: tuple[str, ...] = ("*",)

    def matching(self, *patterns: str) -> FileSet:
        """Return the files whose names, without .gz, match a shell pattern; count nothing."""
        return replace(self, patterns=patterns, tally=Tally())

    def __iter__(self) -> Iterator[SourceFile]:
        """Iterate over the files."""
        found = [*files_at(self.paths, self.tally)]
        sizes = [path.stat().st_size for _, path in found]
        with under_way(WorkStage("reading files", sum(sizes), in_bytes=True)) as stage:
            for (name, path), size in zip(found, sizes, strict=True):
                end = stage.done + size
                if name.lower().endswith(ARCHIVES):
                    yield from self._archive(name, path, stage)
                elif self._of_interest(name):
                    yield SourceFile(name, partial(path.open, "rb"))
                stage.done = end

    def _archive(self, label: str, path: Path, stage: WorkStage) -> Iterator[SourceFile]:
        members = _tar if label.lower().endswith(_TARS) else _zip
        before, total = stage.done, 0
        try:
            with path.open("rb") as stored:
                for count, member in enumerate(members(stored), 1):
                    total += max(0, member.size)
                    if total > ARCHIVE_BYTES or count > ARCHIVE_MEMBERS:
                        raise InputError(
                            f"{label} unpacks to more than {ARCHIVE_BYTES:,} bytes or "
                            f"{ARCHIVE_MEMBERS:,} members; unpack what you need and import that "
                            "folder."
                        )
                    name = f"{label}/{member.name}"
                    if not self._is_readable(name, member) or not (stream := member.open()):
                        continue
                    # a member may be longer than it says
                    data = stream.read(member.size + 1)
                    if len(data) != member.size:
                        raise tarfile.ReadError(f"{name} is not as long as its archive says")
                    stage.done = max(stage.done, before + stored.tell())
                    yield SourceFile(name, partial(io.BytesIO, data))
        except DAMAGE as error:
            reason = str(error) or type(error).__name__
            self.tally.drop("file_broken_archive", f"{label} is broken ({reason}); fetch it again.")

    def _is_readable(self, name: str, member: _Member) -> bool:
        """Whether a member is a file to read: a regular one, of a wanted kind and size."""
        inside = PurePosixPath(member.name)
        if inside.is_absolute() or ".." in inside.parts or {"\\", "\0"} & {*member.name}:
            self.tally.drop(
                "file_unsafe_path", f"{name} leads out of its archive; it was not read."
            )
        elif any(folder.startswith(".") for folder in inside.parts[:-1]):
            self.tally.drop(
                "file_hidden",
                f"{name} is in a hidden folder; unpack the archive and name that folder to read "
                "it.",
            )
        elif not member.is_regular:
            _irregular(name, self.tally)
        elif name.lower().endswith(ARCHIVES):
            self.tally.drop(
                "file_nested_archive",
                f"{name} is an archive inside an archive; unpack the outer one and import its "
                "folder.",
            )
        elif self._of_interest(name):
            if member.size <= FILE_BYTES:
                return True
            self.tally.drop("file_unreadable", str(too_large(name, FILE_BYTES)))
        return False

    def _of_interest(self, name: str) -> bool:
        plain = _without_gz(name)
        suffix = PurePosixPath(plain.lower()).suffix
        if suffix not in self.suffixes:
            said = f"has the suffix {suffix or '(none)'}, which this format does not use."
            self.tally.other(name, said)
            return False
        return any(fnmatchcase(plain, pattern) for pattern in self.patterns)


def files_at(paths: Iterable[Path], tally: Tally) -> Iterator[tuple[str, Path]]:
    """Iterate over the files at some paths, in the order of their unique names.

    The names do not depend on the location of the paths. Links and hidden folders are counted and
    left out.
    """
    for label, root in _labelled(paths):
        if root.is_file():
            yield label, root
        elif not root.is_dir():
            raise InputError(
                f"{root} does not exist or is neither file nor folder; check the path."
            )
        for parent, folders, names in os.walk(root):
            place = f"{label}/{Path(parent).relative_to(root).as_posix()}".removesuffix("/.")
            for hidden in sorted(folder for folder in folders if folder.startswith(".")):
                folders.remove(hidden)
                said = "is a hidden folder; name it to read it."
                tally.drop("file_hidden", f"{place}/{hidden} {said}")
            folders.sort()
            links = [folder for folder in folders if (Path(parent) / folder).is_symlink()]
            for name in sorted([*names, *links]):
                path = Path(parent) / name
                if path.is_symlink() or not path.is_file():
                    _irregular(f"{place}/{name}", tally)
                else:
                    yield f"{place}/{name}", path


def _irregular(name: str, tally: Tally) -> None:
    tally.drop("file_not_regular", f"{name} is a link or device; links are not followed.")


def _without_gz(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


def _labelled(paths: Iterable[Path]) -> list[tuple[str, Path]]:
    """Name paths by their last part, or by as many parts as make them unique."""
    # links are not followed
    given = {Path(os.path.abspath(path)): path for path in paths}  # noqa: PTH100
    unique = sorted(given, key=lambda path: (path.name, path.as_posix()))
    for count in range(1, max((len(path.parts) for path in unique), default=0) + 1):
        labels = ["/".join(path.parts[-count:]) for path in unique]
        if len(set(labels)) == len(unique):
            return list(zip(labels, (given[path] for path in unique), strict=True))
    return []


def _tar(stored: IO[bytes]) -> Iterator[_Member]:
    with tarfile.open(fileobj=stored, mode="r|*", tarinfo=_SmallHeader) as archive:
        for member in archive:
            if not member.isdir():
                read = partial(archive.extractfile, member)
                yield _Member(member.name, member.isreg(), member.size, read)


def _zip(stored: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(stored) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                # the upper half holds the mode of a Unix file; 0 where it was made elsewhere
                is_regular = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
                read = partial(archive.open, member)
                yield _Member(member.filename, is_regular, member.file_size, read)
