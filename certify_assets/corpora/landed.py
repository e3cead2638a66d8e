"""Files that land in a folder: which are complete, and one hash of what they hold; a look costs a hash only for what changed."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from certify_assets.corpora.formats.archives import DAMAGE, SmallHeader
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.store import Store

__all__ = ["Landed", "Look", "WaitingError"]

_UNFINISHED = (
    ".part",
    ".partial",
    ".tmp",
    ".temp",
    ".crdownload",
    ".download",
    ".filepart",
    ".swp",
)
_CHUNK = 1 << 20
# a sensor has a minute: what a look may take is this and the budget of the looks together
_FILE_SECONDS = 20.0
_UNPACKED_BYTES = 8 << 30
_OPENERS: Mapping[str, Callable[[Path], IO[bytes]]] = {
    ".gz": gzip.GzipFile,  # type: ignore[dict-item]
    ".tgz": gzip.GzipFile,  # type: ignore[dict-item]
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
_Stamp = tuple[int, int, int, int]


class WaitingError(InputError):
    """The files cannot be read yet, or not at all; the sentence says which and why."""


class _RefusedError(WaitingError):
    """A file cannot be used as it is: it is not read again before it changes."""


@dataclass(frozen=True)
class Landed:
    """What lies in the folders of a corpus.

    Parameters
    ----------
    version : str
        SHA-256 over names and contents. Times do not enter; of files with the same bytes in one folder, one does.
    files : dict of str to str
        SHA-256 of every file that counts, by path.
    """

    version: str
    files: dict[str, str]


@dataclass(frozen=True)
class Look:
    """One look at the folders of a corpus.

    Parameters
    ----------
    store : Store
        Data root, which keeps the journal of what earlier looks saw.
    journal : str
        Its key.
    settle_seconds : float
        A file younger than this may still be written.
    now : float, optional
        Seconds since the epoch; the clock's by default.
    budget_seconds : float
        How long to hash; what is left is hashed at the next look, because a sensor has a minute.
    until : float, optional
        Moment of `time.monotonic` that ends the budget, where looks at several corpora share one.
    """

    store: Store
    journal: str
    settle_seconds: float = 5.0
    now: float | None = None
    budget_seconds: float = 30.0
    until: float | None = None

    def at(self, roots: Sequence[Path]) -> Landed:
        """Return what lies in files and folders.

        Raises
        ------
        WaitingError
            If there is nothing, or a file is being written, is broken or cannot be read.
        """
        before = self._remembered()
        seen: dict[str, dict[str, Any]] = {}
        try:
            found = [(path, _stamp(path)) for root in roots for path in _files(root)]
            for path, stamp in found:
                old = before.get(str(path), {})
                same = old.get("stamp") == list(stamp)
                seen[str(path)] = {
                    "stamp": list(stamp),
                    "sha256": old.get("sha256") if same else None,
                }
                if same and isinstance(old.get("refused"), str):
                    seen[str(path)]["refused"] = old["refused"]
            self._refuse_unsettled(found, before)
            self._hash(found, seen)
            files = _once(seen, before)
        except OSError as error:
            raise WaitingError(
                f"{error.filename or 'a file'} cannot be read ({error.strerror or error})"
            ) from None
        finally:
            if seen != before:
                self.store.write_json(self.journal, {"files": seen})
        if not found:
            raise WaitingError("the folder is empty")
        return Landed(sha256_bytes(canonical_json(files)), files)

    def _remembered(self) -> dict[str, dict[str, Any]]:
        try:
            files = (
                self.store.read_json(self.journal)["files"]
                if self.store.exists(self.journal)
                else {}
            )
            return {str(name): dict(entry) for name, entry in files.items()}
        except (InputError, KeyError, TypeError, ValueError, AttributeError):
            # a journal saves work and is worth nothing else
            return {}

    def _refuse_unsettled(
        self, found: Sequence[tuple[Path, _Stamp]], before: Mapping[str, Mapping[str, Any]]
    ) -> None:
        moment = time.time() if self.now is None else self.now
        for path, stamp in found:
            old = before.get(str(path), {}).get("stamp")
            age = moment - stamp[1] / 1e9
            # a clock ahead of this one gives files of the future: two looks alike settle those
            if path.name.lower().endswith(_UNFINISHED) or (
                age < self.settle_seconds and (age >= 0 or old != list(stamp))
            ):
                raise WaitingError(f"{path.name} may still be written")
            if old is not None and old[0] < stamp[0]:
                raise WaitingError(
                    f"{path.name} grew from {old[0]:,} to {stamp[0]:,} bytes since the last look"
                )

    def _hash(
        self, found: Sequence[tuple[Path, _Stamp]], seen: Mapping[str, dict[str, Any]]
    ) -> None:
        until = time.monotonic() + self.budget_seconds if self.until is None else self.until
        for place, (path, stamp) in enumerate(found):
            entry = seen[str(path)]
            if entry["sha256"]:
                continue
            if "refused" in entry:
                raise WaitingError(entry["refused"])
            if time.monotonic() > until:
                raise WaitingError(
                    f"{place:,} of {len(found):,} files are read, the next look goes on"
                )
            try:
                digest = _read(path)
            except _RefusedError as error:
                entry["refused"] = str(error)
                raise
            if _stamp(path) != stamp:
                raise WaitingError(f"{path.name} changed while it was read")
            entry["sha256"] = digest


def _files(root: Path) -> list[Path]:
    """Regular files below a folder, sorted; hidden ones and links, which are not followed, left out."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise WaitingError(f"{root} does not exist")
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
    return found


def _raise(error: OSError) -> None:
    raise error


def _stamp(path: Path) -> _Stamp:
    """Size, times of content and of inode, and the inode: what cannot stay while the content changes."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _read(path: Path) -> str:
    """Refuse a file that is incomplete, broken or takes too long to read; return its SHA-256."""
    end = time.monotonic() + _FILE_SECONDS
    _refuse_incomplete(path, end)
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in _chunks(path, stream, end):
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, stream: IO[bytes], end: float) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        if time.monotonic() > end:
            raise _RefusedError(
                f"{path.name} takes longer than {_FILE_SECONDS:g} seconds to read; split or unpack it"
            )
        yield chunk


def _once(
    seen: Mapping[str, dict[str, Any]], before: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Leave out files with the bytes of another in their folder; the one that counted at the last look goes on counting, and is marked."""
    kept: dict[tuple[str, str], str] = {}
    for name in sorted(
        seen, key=lambda name: (before.get(name, {}).get("counts") != seen[name]["sha256"], name)
    ):
        kept.setdefault((str(Path(name).parent), seen[name]["sha256"]), name)
    for name in kept.values():
        seen[name]["counts"] = seen[name]["sha256"]
    return {name: seen[name]["sha256"] for name in sorted(kept.values())}


def _refuse_incomplete(path: Path, end: float) -> None:
    """Refuse compressed files, archives and tables without their end."""
    name = path.name.lower()
    try:
        if path.suffix.lower() in _OPENERS:
            _read_through(path, end)
        elif name.endswith(".tar"):
            with tarfile.open(path, "r:", tarinfo=SmallHeader) as archive:
                archive.getmembers()
        elif name.endswith(".zip"):
            zipfile.ZipFile(path).close()
        elif name.endswith(".parquet") and not _ends_like_parquet(path):
            raise EOFError("its last bytes are not those of Parquet")
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            # of the disk, not of the file: it may pass
            raise
        raise _RefusedError(
            f"{path.name} is not complete or broken ({error}); copy it again"
        ) from None


def _read_through(path: Path, end: float) -> None:
    total = 0
    with _OPENERS[path.suffix.lower()](path) as stream:
        for chunk in _chunks(path, stream, end):
            total += len(chunk)
            if total > _UNPACKED_BYTES:
                raise _RefusedError(
                    f"{path.name} unpacks to more than {_UNPACKED_BYTES:,} bytes; split it"
                )


def _ends_like_parquet(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 4))
        return stream.read() == b"PAR1"
