"""Files that others put into a corpus's folders: which are complete, and their versions.

``incoming/<corpus>/`` and the paths of declared corpora hold the runs of a corpus.
``inbox/<corpus>/`` holds runs to decide.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import (
    CorpusConfig,
    is_registered,
    load_config,
    registered_corpora,
    save_config,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.files import (
    canonical_json,
    read_json,
    sha256_bytes,
    sha256_file,
    write_json_atomic,
)
from certify_assets.storage.events import Payload
from certify_assets.storage.store import Store
from certify_assets.storage.urls import RemoteFiles, is_url, shown_url

_UNFINISHED = (
    *(".part", ".partial", ".tmp", ".temp", ".swp"),
    *(".crdownload", ".download", ".filepart"),
)
# a file younger than this may still be written
_SETTLE_SECONDS = 5.0
# a sensor has a minute: all corpora of one look share this
_HASH_SECONDS = 30.0
# a command waits so long for an inbox
_PATIENCE = 8.0
# what is known of a file: what changes with its content, and its hash once it was read
_Known = dict[str, dict[str, Any]]


class WaitingError(InputError):
    """The files cannot be used yet; the message says which and why."""


def complete_files(
    places: Sequence[str | Path],
    known: Path,
    *,
    now: float | None = None,
    until: float = float("inf"),
) -> dict[str, str]:
    """Return the hash of every file; raise a WaitingError while one may still change.

    Parameters
    ----------
    places : sequence of str or Path
        Files, folders and URLs.
    known : Path
        File with the results of the last look. A file is hashed again only if it has changed since.
    now : float, optional
        Time by which the age of files is judged, seconds since the epoch.
    until : float, optional
        Value of time.monotonic() after which no further file is hashed.
    """
    before = _last_look(known)
    found: _Known = {}
    try:
        for place in places:
            for name, stamp in _remote(str(place)) if is_url(place) else _local(Path(place)):
                old = before.get(name, {})
                found[name] = dict(old) if old.get("stamp") == stamp else {"stamp": stamp}
        _require_settled(found, before, time.time() if now is None else now)
        for number, (name, entry) in enumerate(found.items()):
            if "sha256" not in entry:
                if time.monotonic() > until:
                    raise WaitingError(
                        f"{number:,} of {len(found):,} files are read, the next look resumes"
                    )
                entry["sha256"] = _hash(name, entry["stamp"])
    except OSError as error:
        raise WaitingError(
            f"{error.filename or 'a file'} cannot be read ({error.strerror or error})"
        ) from None
    finally:
        if found != before:
            write_json_atomic(known, found)
    return {name: found[name]["sha256"] for name in sorted(found)}


def _require_settled(found: _Known, before: _Known, now: float) -> None:
    if not found:
        raise WaitingError("the folder has no file yet; links and pipes in it are not read")
    for name, entry in found.items():
        stamp, old = entry["stamp"], before.get(name, {}).get("stamp")
        is_remote = isinstance(stamp, str)
        is_young = not is_remote and abs(now - stamp[1] / 1e9) < _SETTLE_SECONDS
        if is_young or name.lower().endswith(_UNFINISHED):
            raise WaitingError(f"{name} may still be written")
        if stamp != old and (is_remote or old is not None):
            raise WaitingError(f"{name} is new or changed since the last look")
    if gone := sorted(before.keys() - found.keys()):
        raise WaitingError(f"{gone[0]} is gone since the last look")


def _hash(name: str, stamp: str | list[int]) -> str:
    if isinstance(stamp, str):
        # what is behind a URL is not read: what the other side says of it stands for its content
        return stamp
    digest = sha256_file(Path(name))
    if _stamp(Path(name)) != stamp:
        raise WaitingError(f"{name} changed while it was read")
    return digest


def _last_look(known: Path) -> _Known:
    try:
        found: _Known = read_json(known)
    except InputError:
        # without it every file is read again
        return {}
    return found


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
    """Return facts that cannot all stay equal when the content changes."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


@dataclass(frozen=True)
class Arrival:
    """A corpus whose files are complete, with their hashes."""

    corpus: str
    # where the files are: incoming, declared or inbox
    source: str
    # of names and contents, and of the configuration where it is declared
    version: str
    files: dict[str, str]


#: the corpora whose files are complete, and why others wait
Arrivals = tuple[list[Arrival], dict[str, str]]


def scan_incoming(store: Store, folder: str | Path, *, now: float | None = None) -> Arrivals:
    """Look at the folders of corpora in a folder."""
    names = dict(_entries(folder))
    places = {name: [f"{folder}/{name}"] for name, is_folder in names.items() if is_folder}
    words = f"it is next to the folders of corpora; move it into {Path(folder).name}/<corpus>/"
    arrivals, waiting = _scan(store, "incoming", places, now)
    return arrivals, waiting | dict.fromkeys(names.keys() - places.keys(), words)


def scan_inbox(store: Store) -> Arrivals:
    """Look at the inboxes of all registered corpora."""
    folder = store.folder.locate("inbox")
    names, known = dict(_entries(folder)), registered_corpora(store)
    places = {name: [f"{folder}/{name}"] for name in names if names[name] and name in known}
    words = "no corpus has this name; put new runs into inbox/<corpus>/ of a registered one"
    arrivals, waiting = _scan(store, "inbox", places, None)
    return arrivals, waiting | dict.fromkeys(names.keys() - places.keys(), words)


def scan_declared(
    store: Store, configs: Iterable[CorpusConfig], *, now: float | None = None
) -> Arrivals:
    """Look at the paths of declared corpora; their settings are part of the version."""
    declared = {config.name: config for config in configs}
    places = {name: config.paths for name, config in declared.items()}
    return _scan(store, "declared", places, now, declared)


def _scan(
    store: Store,
    source: str,
    places: Mapping[str, Sequence[str]],
    now: float | None,
    configs: Mapping[str, CorpusConfig] | None = None,
) -> Arrivals:
    arrivals: list[Arrival] = []
    waiting: dict[str, str] = {}
    until = time.monotonic() + _HASH_SECONDS
    for corpus, roots in places.items():
        try:
            known = _known(store, source, CorpusConfig(corpus).name)
            files = complete_files(roots, known, now=now, until=until)
        except (InputError, OSError) as error:
            waiting[corpus] = str(error)
        else:
            about = {"files": files, "config": asdict(configs[corpus]) if configs else None}
            arrivals.append(Arrival(corpus, source, sha256_bytes(canonical_json(about)), files))
    return arrivals, waiting


def _entries(folder: str | Path) -> Iterator[tuple[str, bool]]:
    """Iterate over the visible names in a folder, and whether each is a folder."""
    if is_url(folder):
        places = [place.partition("/") for place in sorted(RemoteFiles.of(str(folder)).about)]
        found = {name: bool(below) for name, _, below in places}
    else:
        path = Path(folder)
        entries = sorted(path.iterdir()) if path.is_dir() else []
        found = {entry.name: entry.is_dir() for entry in entries if not entry.is_symlink()}
    yield from ((name, below) for name, below in found.items() if not name.startswith("."))


def _known(store: Store, source: str, corpus: str) -> Path:
    return store.scratch(f"inbox/{source}") / f"{corpus}.json"


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
    """Wait until an inbox is complete; return a function that refuses later changes."""
    if not watched:
        yield lambda: None
        return
    known = _known(corpus.store, "inbox", corpus.name)
    folder = corpus.store.folder.locate(inbox_key(corpus.name))
    # a copy that ended a second ago is complete in a few more
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            before = complete_files([folder], known)
            break
        except WaitingError as error:
            if time.monotonic() > end:
                raise WaitingError(f"{folder} waits: {error}; call it again.") from None
        time.sleep(0.5)

    def unchanged() -> None:
        try:
            same = complete_files([folder], known) == before
        except WaitingError:
            same = False
        if not same:
            raise WaitingError(
                f"the files in {folder} changed while they were read; call it again."
            )

    yield unchanged


def adopt(store: Store, folder: str | Path, corpus: str) -> CorpusConfig:
    """Register the corpus of an incoming folder, or add the folder to a registered one."""
    path = f"{folder}/{corpus}"
    config = (
        load_config(store, corpus) if corpus in registered_corpora(store) else CorpusConfig(corpus)
    )
    if config.format == "embedded":
        raise InputError(
            f"{corpus} comes with the package; give the folder {path} the name of another corpus."
        )
    if path not in config.paths:
        config = replace(config, paths=(*config.paths, path))
        save_config(store, config)
    return config


def declare(store: Store, config: CorpusConfig) -> CorpusConfig:
    """Register a corpus as declared; its incoming folder, once adopted, stays among its paths."""
    registered = load_config(store, config.name) if is_registered(store, config.name) else None
    incoming = store.folder.locate(f"incoming/{config.name}")
    if registered is not None and incoming in registered.paths and incoming not in config.paths:
        config = replace(config, paths=(*config.paths, incoming))
    if config != registered:
        save_config(store, config)
    return config


class CorpusVersion(Payload):
    """The files of a corpus as they arrived, by their hashes."""

    kind = "arrived"
    number: int
    version: str
    source: str
    files: dict[str, str]

    @property
    def subject(self) -> str:
        """The place where the files arrived."""
        return self.source


def read_versions(corpus: Corpus) -> list[CorpusVersion]:
    """Return the versions of a corpus's files, the oldest first."""
    return [entry.content for entry in corpus.events(CorpusVersion)]


def record_version(store: Store, arrival: Arrival) -> int:
    """Add an arrival to the versions of its corpus, unless it is the last; return its number."""
    # The number, from 1, makes the run key: content that comes back is a new version, and a scan
    # that was killed before it requested its run finds its own event and uses the same key.
    corpus = Corpus(store, arrival.corpus)
    with corpus.writing():
        versions = read_versions(corpus)
        of_source = [entry for entry in versions if entry.source == arrival.source]
        if of_source and of_source[-1].version == arrival.version:
            return of_source[-1].number
        about = {name: value for name, value in vars(arrival).items() if name != "corpus"}
        made = CorpusVersion(number=len(versions) + 1, **about)
        corpus.append(made)
    return made.number
