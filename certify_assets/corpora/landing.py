"""Files that land in the data root: which are complete, and which corpora have new runs."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from certify_assets.corpora.config import CorpusConfig, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.formats.files import DAMAGE, SmallHeader
from certify_assets.errors import InputError
from certify_assets.files import (
    canonical_json,
    read_json,
    sha256_bytes,
    stored_as,
    write_json_atomic,
)
from certify_assets.storage.store import Store
from certify_assets.storage.urls import RemoteFiles, is_url, shown_url

# incoming/<corpus>/ and the paths of declared corpora hold the runs that a corpus consists of,
# inbox/<corpus>/ holds runs to decide. A folder is read until nothing in it changes; a file is
# hashed again only after it changed. What is behind a URL is not read: two looks in a row that find
# the same, by what the other side says of its files, make it complete.
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
# a sensor that is not done within its minute sees no corpus: a file and all folders have limits
_FILE_SECONDS = 20.0
_SCAN_SECONDS = 30.0
_UNPACKED_BYTES = 8 << 30
_PATIENCE = 8.0
_OPENERS: Mapping[str, Callable[[Path], IO[bytes]]] = {
    ".gz": gzip.GzipFile,  # type: ignore[dict-item]
    ".tgz": gzip.GzipFile,  # type: ignore[dict-item]
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
_Stamp = tuple[int, int, int, int]


class WaitingError(InputError):
    """The files cannot be read yet, or not at all; the sentence says which and why."""


class _UnsettledError(WaitingError):
    """A file is still changing: a later scan may find it complete."""


class _RefusedError(WaitingError):
    """A file cannot be used as it is: it is not read again before it changes."""


@dataclass
class _SeenFile:
    """What a scan saw of one file, kept so that the next hashes it only if it changed."""

    stamp: _Stamp
    sha256: str | None = None
    refused: str | None = None
    #: hash under which it counted, where equal files are next to it
    counts: str | None = None

    def to_dict(self) -> Mapping[str, object]:
        optional = {"refused": self.refused, "counts": self.counts}
        kept = {name: value for name, value in optional.items() if value is not None}
        return {"stamp": list(self.stamp), "sha256": self.sha256, **kept}


@dataclass(frozen=True)
class FolderContent:
    """The files of the folders of a corpus: hash of each, and of all names and contents."""

    # over names and contents, not times; of equal files in one folder, one counts
    version: str
    files: dict[str, str]


@dataclass(frozen=True)
class FolderWatch:
    """Reads the folders of a corpus once they are complete."""

    # what earlier scans saw: it saves work, and nothing else depends on it
    seen: Path
    # a file younger than this may still be written
    settle_seconds: float = 5.0
    now: float | None = None
    # moment of time.monotonic after which nothing more is hashed, where watches share a budget
    until: float | None = None

    def read(self, roots: Sequence[Path]) -> FolderContent:
        """Return the content of files and folders, or raise a WaitingError that says why not."""
        try:
            before = {name: stored_as(_SeenFile, about) for name, about in _kept(self.seen).items()}
        except InputError:
            before = {}
        seen: dict[str, _SeenFile] = {}
        try:
            found = [(path, _stamp(path)) for root in roots for path in _files(root)]
            for path, stamp in found:
                old = before.get(str(path))
                same = old is not None and old.stamp == stamp
                seen[str(path)] = (
                    _SeenFile(stamp, old.sha256, old.refused) if old and same else _SeenFile(stamp)
                )
            self._refuse_unsettled(found, before)
            self._hash(found, seen)
            files = _once(seen, before)
        except OSError as error:
            raise WaitingError(
                f"{error.filename or 'a file'} cannot be read ({error.strerror or error})"
            ) from None
        finally:
            if seen != before:
                files_seen = {name: entry.to_dict() for name, entry in seen.items()}
                write_json_atomic(self.seen, files_seen)
        if not found:
            raise WaitingError("the folder has no file yet; links and pipes in it are not read")
        return FolderContent(sha256_bytes(canonical_json(files)), files)

    def read_places(self, places: Sequence[str | Path]) -> FolderContent:
        """Return the content of paths and URLs, as `read`; of URLs the stamps stand for hashes."""
        urls = [str(place) for place in places if is_url(place)]
        here = [Path(place) for place in places if not is_url(place)]
        files = self.read(here).files if here else {}
        if urls:
            files = {**files, **self._behind(urls)}
        return FolderContent(sha256_bytes(canonical_json(files)), files)

    def _behind(self, urls: Sequence[str]) -> dict[str, str]:
        path = self.seen.with_stem(f"{self.seen.stem}_urls")
        before = _kept(path)
        found = {url: RemoteFiles.of(url).stamps() for url in urls}
        seen = {
            "/".join(filter(None, (shown_url(url), place))): stamp
            for url, stamps in found.items()
            for place, stamp in stamps.items()
        }
        if seen != before:
            write_json_atomic(path, seen)
        if empty := [url for url, stamps in found.items() if not stamps]:
            raise WaitingError(f"there is no file in {shown_url(empty[0])}")
        for name, stamp in seen.items():
            if name.lower().endswith(_UNFINISHED):
                raise _UnsettledError(f"{name} may still be written")
            if before.get(name) != stamp:
                raise _UnsettledError(f"{name} is new or changed since the last look")
        if seen != before:
            raise _UnsettledError("files are gone since the last look")
        return seen

    def _refuse_unsettled(
        self, found: Sequence[tuple[Path, _Stamp]], before: Mapping[str, _SeenFile]
    ) -> None:
        moment = time.time() if self.now is None else self.now
        for path, stamp in found:
            old = before[str(path)].stamp if str(path) in before else None
            age = moment - stamp[1] / 1e9
            # a clock ahead of this one gives files of the future: two looks alike settle those
            if path.name.lower().endswith(_UNFINISHED) or (
                age < self.settle_seconds and (age >= 0 or old != stamp)
            ):
                raise _UnsettledError(f"{path.name} may still be written")
            if old is not None and old[0] < stamp[0]:
                raise _UnsettledError(
                    f"{path.name} grew from {old[0]:,} to {stamp[0]:,} bytes since the last look"
                )

    def _hash(self, found: Sequence[tuple[Path, _Stamp]], seen: Mapping[str, _SeenFile]) -> None:
        until = time.monotonic() + _SCAN_SECONDS if self.until is None else self.until
        for place, (path, stamp) in enumerate(found):
            entry = seen[str(path)]
            if entry.sha256:
                continue
            if entry.refused is not None:
                raise WaitingError(entry.refused)
            if time.monotonic() > until:
                raise _UnsettledError(
                    f"{place:,} of {len(found):,} files are read, the next look resumes"
                )
            try:
                digest = _read(path)
            except _RefusedError as error:
                entry.refused = str(error)
                raise
            if _stamp(path) != stamp:
                raise _UnsettledError(f"{path.name} changed while it was read")
            entry.sha256 = digest


def _kept(path: Path) -> dict[str, Any]:
    """Return what an earlier scan wrote; nothing where it cannot be read."""
    try:
        return dict(read_json(path))
    except (InputError, TypeError, ValueError):
        return {}


def _files(root: Path) -> list[Path]:
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
    """Return what cannot all stay the same while the content changes."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _read(path: Path) -> str:
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
                f"{path.name} takes longer than {_FILE_SECONDS:g} seconds to read; "
                "split or unpack it"
            )
        yield chunk


def _once(seen: Mapping[str, _SeenFile], before: Mapping[str, _SeenFile]) -> dict[str, str]:
    """Of equal files in a folder keep one: that which counted at the last scan, if any."""
    hashes = {name: str(entry.sha256) for name, entry in seen.items()}
    counted = {name for name in before if before[name].counts == hashes.get(name)}
    kept: dict[tuple[str, str], str] = {}
    for name in sorted(seen, key=lambda name: (name not in counted, name)):
        kept.setdefault((str(Path(name).parent), hashes[name]), name)
    for name in kept.values():
        seen[name].counts = hashes[name]
    return {name: hashes[name] for name in sorted(kept.values())}


def _refuse_incomplete(path: Path, end: float) -> None:
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


@dataclass(frozen=True)
class Arrival:
    """A corpus whose files are complete, with their hashes."""

    corpus: str
    # where the files are: incoming, declared or inbox
    source: str
    # of the contents, and of the configuration where it is declared
    version: str
    files: dict[str, str]


class _Scan:
    """One scan of the folders of several corpora, which share a budget of seconds."""

    def __init__(self, store: Store, source: str, settle_seconds: float, now: float | None) -> None:
        self.arrivals: list[Arrival] = []
        self.waiting: dict[str, str] = {}
        self._store, self._source = store, source
        self._settle_seconds, self._now = settle_seconds, now
        self._until = time.monotonic() + _SCAN_SECONDS

    @property
    def result(self) -> tuple[list[Arrival], dict[str, str]]:
        return self.arrivals, self.waiting

    def entries(self, folder: str | Path) -> Iterator[tuple[str, bool]]:
        """Go through the visible names in a folder; say of each whether it is a folder."""
        if is_url(folder):
            places = [place.partition("/") for place in sorted(RemoteFiles.of(str(folder)).about)]
            found = {name: bool(below) for name, _, below in places}
        else:
            path = Path(folder)
            found = {
                entry.name: entry.is_dir()
                for entry in (sorted(path.iterdir()) if path.is_dir() else [])
                if not entry.is_symlink()
            }
        yield from ((name, below) for name, below in found.items() if not name.startswith("."))

    def look(
        self,
        corpus: str,
        roots: Sequence[str],
        version: Callable[[str], str] = str,
    ) -> None:
        """Note the corpus as arrived or as waiting; `version` adds to the hash of the files."""
        try:
            seen = _seen(self._store, self._source, CorpusConfig(corpus).name)
            watch = FolderWatch(seen, self._settle_seconds, now=self._now, until=self._until)
            found = watch.read_places(roots)
        except (InputError, OSError) as error:
            self.waiting[corpus] = str(error)
        else:
            arrival = Arrival(corpus, self._source, version(found.version), found.files)
            self.arrivals.append(arrival)


def _seen(store: Store, source: str, corpus: str) -> Path:
    return store.scratch(f"landed/{source}") / f"{corpus}.json"


def place_of(store: Store, key: str) -> str:
    """Return where a folder of the data root is: its path, or its URL on a remote root."""
    return store.folder.locate(key)


def scan_incoming(
    store: Store, folder: str | Path, *, settle_seconds: float = 5.0, now: float | None = None
) -> tuple[list[Arrival], dict[str, str]]:
    """Scan a folder of corpora: those whose files are complete, and why the others wait."""
    scan = _Scan(store, "incoming", settle_seconds, now)
    for name, is_folder in scan.entries(folder):
        if is_folder:
            scan.look(name, [f"{folder}/{name}"])
        else:
            scan.waiting[name] = (
                f"it is next to the folders of corpora; move it into {Path(folder).name}/<corpus>/"
            )
    return scan.result


def scan_declared(
    store: Store,
    configs: Iterable[CorpusConfig],
    *,
    settle_seconds: float = 5.0,
    now: float | None = None,
) -> tuple[list[Arrival], dict[str, str]]:
    """Scan the paths of declared corpora, as `scan_incoming` scans its subfolders."""
    scan = _Scan(store, "declared", settle_seconds, now)
    for config in configs:
        document = asdict(config)
        scan.look(
            config.name,
            config.paths,
            lambda version, document=document: sha256_bytes(  # type: ignore[misc]
                canonical_json({"config": document, "content": version})
            ),
        )
    return scan.result


def scan_inbox(
    store: Store, *, settle_seconds: float = 5.0
) -> tuple[list[Arrival], dict[str, str]]:
    """Scan the inboxes of all registered corpora, as `scan_incoming` does."""
    scan = _Scan(store, "inbox", settle_seconds, None)
    known = set(registered_corpora(store))
    folder = place_of(store, "inbox")
    for name, is_folder in scan.entries(folder):
        if is_folder and name in known:
            scan.look(name, [f"{folder}/{name}"])
        else:
            scan.waiting[name] = (
                "no corpus has this name; put new runs into inbox/<corpus>/ of a registered one"
            )
    return scan.result


def inbox_key(corpus: str) -> str:
    """Return the key of the folder for new runs of a corpus."""
    return f"inbox/{corpus}"


def is_inbox_empty(corpus: Corpus) -> bool:
    """Whether the inbox of a corpus holds nothing; links and pipes, which are not read, count."""
    key = inbox_key(corpus.name)
    if not corpus.store.is_local:
        return not corpus.store.folder.names(key)
    found = corpus.store.local_path(key).rglob("*")
    return not any(path.is_symlink() or not path.is_dir() for path in found)


@contextmanager
def settled_inbox(corpus: Corpus, *, watched: bool) -> Iterator[Callable[[], None]]:
    """Wait until an inbox is complete; give a call that refuses later changes."""
    if not watched:
        yield lambda: None
        return
    watch = FolderWatch(_seen(corpus.store, "inbox", corpus.name))
    folder = [place_of(corpus.store, inbox_key(corpus.name))]
    before = _patient(watch, folder)

    def unchanged() -> None:
        try:
            same = watch.read_places(folder) == before
        except WaitingError:
            same = False
        if not same:
            raise WaitingError(
                f"the files in {folder[0]} changed while they were read; call it again."
            )

    yield unchanged


def _patient(watch: FolderWatch, folder: Sequence[str]) -> FolderContent:
    """Scan again for a while: a copy that ended a second ago is complete in a few more."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return watch.read_places(folder)
        except WaitingError as error:
            if time.monotonic() > end or not isinstance(error, _UnsettledError):
                raise WaitingError(
                    f"{folder[0]} waits: {str(error).rstrip('.')}; call it again."
                ) from None
        time.sleep(0.5)
