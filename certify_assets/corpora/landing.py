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
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from certify_assets.corpora.config import CorpusConfig, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.formats.files import DAMAGE, SmallHeader
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_json_atomic
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
# a file younger than this may still be written
_SETTLE_SECONDS = 5.0
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
#: what an earlier look saw of a file: stamp, sha256 once it was read, refused where it cannot be
_Seen = dict[str, Any]


class WaitingError(InputError):
    """The files cannot be read yet, or not at all; the sentence says which and why."""


class _UnsettledError(WaitingError):
    """A file is still changing: a later look may find it complete."""


class _RefusedError(WaitingError):
    """A file cannot be used as it is: it is not read again before it changes."""


@dataclass(frozen=True)
class Look:
    """A look at the files of a corpus.

    Parameters
    ----------
    seen : Path
        What earlier looks saw: it saves work, and says of files behind a URL that they settled.
    now : float, optional
        Time by which the age of a file is judged.
    until : float, optional
        Moment of time.monotonic after which nothing more is hashed.
    """

    seen: Path
    now: float | None = None
    until: float | None = None

    def files(self, places: Sequence[str | Path]) -> dict[str, str]:
        """Return the hash of every file in paths and URLs, or say by a WaitingError why not."""
        before, seen = _kept(self.seen), dict[str, _Seen]()
        try:
            for place in places:
                for name, stamp in _remote(str(place)) if is_url(place) else _local(Path(place)):
                    old = before.get(name, {})
                    seen[name] = dict(old) if old.get("stamp") == stamp else {"stamp": stamp}
            if not seen:
                raise WaitingError("the folder has no file yet; links and pipes in it are not read")
            for name, entry in seen.items():
                self._require_settled(name, entry["stamp"], before.get(name, {}).get("stamp"))
            gone = (before[name].get("stamp") for name in before if name not in seen)
            if any(isinstance(stamp, str) for stamp in gone):
                raise _UnsettledError("files are gone since the last look")
            self._hash(seen)
        except OSError as error:
            raise WaitingError(
                f"{error.filename or 'a file'} cannot be read ({error.strerror or error})"
            ) from None
        finally:
            if seen != before:
                write_json_atomic(self.seen, seen)
        # of equal files in one folder one counts
        once: dict[tuple[str, str], str] = {}
        for name in sorted(seen):
            once.setdefault((_folder(name), str(seen[name]["sha256"])), name)
        return {name: digest for (_, digest), name in once.items()}

    def _require_settled(self, name: str, stamp: Any, old: Any) -> None:
        file = PurePosixPath(name).name
        if file.lower().endswith(_UNFINISHED):
            raise _UnsettledError(f"{file} may still be written")
        if isinstance(stamp, str):
            if stamp != old:
                raise _UnsettledError(f"{name} is new or changed since the last look")
            return
        age = (time.time() if self.now is None else self.now) - stamp[1] / 1e9
        # a clock ahead of this one gives files of the future: two looks alike settle those
        if age < _SETTLE_SECONDS and (age >= 0 or old != stamp):
            raise _UnsettledError(f"{file} may still be written")
        if isinstance(old, list) and old[0] < stamp[0]:
            raise _UnsettledError(
                f"{file} grew from {old[0]:,} to {stamp[0]:,} bytes since the last look"
            )

    def _hash(self, seen: Mapping[str, _Seen]) -> None:
        until = time.monotonic() + _SCAN_SECONDS if self.until is None else self.until
        for place, (name, entry) in enumerate(seen.items()):
            if isinstance(entry["stamp"], str):
                entry["sha256"] = entry["stamp"]
            if "sha256" in entry:
                continue
            if "refused" in entry:
                raise WaitingError(entry["refused"])
            if time.monotonic() > until:
                raise _UnsettledError(
                    f"{place:,} of {len(seen):,} files are read, the next look resumes"
                )
            path = Path(name)
            try:
                digest = _read(path)
            except _RefusedError as error:
                entry["refused"] = str(error)
                raise
            if _stamp(path) != entry["stamp"]:
                raise _UnsettledError(f"{path.name} changed while it was read")
            entry["sha256"] = digest


def _folder(name: str) -> str:
    return str(PurePosixPath(name).parent)


def _version(files: Mapping[str, str]) -> str:
    """Hash the contents of folders; of equal files in one folder it does not matter which."""
    contents = sorted([_folder(name), digest] for name, digest in files.items())
    return sha256_bytes(canonical_json(contents))


def _kept(path: Path) -> dict[str, _Seen]:
    """Return what an earlier look wrote; nothing where it cannot be read."""
    try:
        found = read_json(path)
    except InputError:
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict)}


def _remote(url: str) -> Iterator[tuple[str, str]]:
    stamps = RemoteFiles.of(url).stamps()
    if not stamps:
        raise WaitingError(f"there is no file in {shown_url(url)}")
    for place, stamp in stamps.items():
        yield "/".join(filter(None, (shown_url(url), place))), stamp


def _local(root: Path) -> Iterator[tuple[str, list[int]]]:
    if root.is_file():
        yield str(root), _stamp(root)
        return
    if not root.is_dir():
        raise WaitingError(f"{root} does not exist")
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(folder) / name for name in sorted(names) if not name.startswith(".")):
            if path.is_file() and not path.is_symlink():
                yield str(path), _stamp(path)


def _raise(error: OSError) -> None:
    raise error


def _stamp(path: Path) -> list[int]:
    """Return what cannot all stay the same while the content changes; the size is the first."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(path: Path) -> str:
    """Hash a file that is complete."""
    end = time.monotonic() + _FILE_SECONDS
    try:
        _require_whole(path, end)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            # of the disk, not of the file: it may pass
            raise
        raise _RefusedError(
            f"{path.name} is not complete or broken ({error}); copy it again"
        ) from None
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in _chunks(path, stream, end):
            digest.update(chunk)
    return digest.hexdigest()


def _require_whole(path: Path, end: float) -> None:
    suffix = path.suffix.lower()
    if suffix in _OPENERS:
        total = 0
        with _OPENERS[suffix](path) as stream:
            for chunk in _chunks(path, stream, end):
                total += len(chunk)
                if total > _UNPACKED_BYTES:
                    raise _RefusedError(
                        f"{path.name} unpacks to more than {_UNPACKED_BYTES:,} bytes; split it"
                    )
    elif suffix == ".tar":
        with tarfile.open(path, "r:", tarinfo=SmallHeader) as archive:
            archive.getmembers()
    elif suffix == ".zip":
        zipfile.ZipFile(path).close()
    elif suffix == ".parquet":
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 4))
            if stream.read() != b"PAR1":
                raise EOFError("its last bytes are not those of Parquet")


def _chunks(path: Path, stream: IO[bytes], end: float) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        if time.monotonic() > end:
            raise _RefusedError(
                f"{path.name} takes longer than {_FILE_SECONDS:g} seconds to read; "
                "split or unpack it"
            )
        yield chunk


@dataclass(frozen=True)
class Arrival:
    """A corpus whose files are complete, with their hashes."""

    corpus: str
    # where the files are: incoming, declared or inbox
    source: str
    # of the contents, and of the configuration where it is declared
    version: str
    files: dict[str, str]


#: the corpora whose files are complete, and why others wait
Arrivals = tuple[list[Arrival], dict[str, str]]


def scan_incoming(store: Store, folder: str | Path, *, now: float | None = None) -> Arrivals:
    """Look at the folders of corpora in a folder."""
    names = dict(_entries(folder))
    places = {name: [f"{folder}/{name}"] for name, is_folder in names.items() if is_folder}
    words = f"it is next to the folders of corpora; move it into {Path(folder).name}/<corpus>/"
    arrivals, waiting = _arrivals(store, "incoming", places, now)
    return arrivals, waiting | {name: words for name in names if name not in places}


def scan_declared(
    store: Store, configs: Iterable[CorpusConfig], *, now: float | None = None
) -> Arrivals:
    """Look at the paths of declared corpora; their settings are part of the version."""
    declared = {config.name: config for config in configs}
    places = {name: config.paths for name, config in declared.items()}
    arrivals, waiting = _arrivals(store, "declared", places, now)

    def versioned(arrival: Arrival) -> Arrival:
        whole = {"config": asdict(declared[arrival.corpus]), "content": arrival.version}
        return replace(arrival, version=sha256_bytes(canonical_json(whole)))

    return list(map(versioned, arrivals)), waiting


def scan_inbox(store: Store) -> Arrivals:
    """Look at the inboxes of all registered corpora."""
    known, folder = set(registered_corpora(store)), place_of(store, "inbox")
    names = dict(_entries(folder))
    places = {name: [f"{folder}/{name}"] for name in names if names[name] and name in known}
    words = "no corpus has this name; put new runs into inbox/<corpus>/ of a registered one"
    arrivals, waiting = _arrivals(store, "inbox", places, None)
    return arrivals, waiting | {name: words for name in names if name not in places}


def _arrivals(
    store: Store, source: str, places: Mapping[str, Sequence[str]], now: float | None
) -> Arrivals:
    """Look at corpora, which share a budget of seconds."""
    arrivals: list[Arrival] = []
    waiting: dict[str, str] = {}
    until = time.monotonic() + _SCAN_SECONDS
    for corpus, roots in places.items():
        try:
            seen = _seen(store, source, CorpusConfig(corpus).name)
            files = Look(seen, now=now, until=until).files(roots)
        except (InputError, OSError) as error:
            waiting[corpus] = str(error)
        else:
            arrivals.append(Arrival(corpus, source, _version(files), files))
    return arrivals, waiting


def _entries(folder: str | Path) -> Iterator[tuple[str, bool]]:
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


def _seen(store: Store, source: str, corpus: str) -> Path:
    return store.scratch(f"landed/{source}") / f"{corpus}.json"


def place_of(store: Store, key: str) -> str:
    """Return where a folder of the data root is: its path, or its URL on a remote root."""
    return store.folder.locate(key)


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
    look = Look(_seen(corpus.store, "inbox", corpus.name))
    folder = place_of(corpus.store, inbox_key(corpus.name))
    before = _patient(look, folder)

    def unchanged() -> None:
        try:
            same = look.files([folder]) == before
        except WaitingError:
            same = False
        if not same:
            raise WaitingError(
                f"the files in {folder} changed while they were read; call it again."
            )

    yield unchanged


def _patient(look: Look, folder: str) -> dict[str, str]:
    """Look again for a while: a copy that ended a second ago is complete in a few more."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return look.files([folder])
        except WaitingError as error:
            if time.monotonic() > end or not isinstance(error, _UnsettledError):
                raise WaitingError(
                    f"{folder} waits: {str(error).rstrip('.')}; call it again."
                ) from None
        time.sleep(0.5)
