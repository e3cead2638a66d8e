"""New runs in a folder: which corpora have files that are complete and not yet seen."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

from certify_assets.errors import InputError
from certify_assets.protocol.corpus_config import CorpusConfig, load_config, registered_corpora, save_config
from certify_assets.protocol.store import Store

__all__ = ["Arrival", "adopt", "scan_incoming"]

_UNFINISHED = (".part", ".tmp", ".crdownload", ".swp")


@dataclass(frozen=True)
class Arrival:
    """Files of one corpus that lie in the incoming folder.

    Parameters
    ----------
    corpus : str
        Name of the folder, which names the corpus.
    fingerprint : str
        Hash over names, sizes and modification times: changes when a file comes, goes or changes.
    files : int
        How many.
    """

    corpus: str
    fingerprint: str
    files: int


def scan_incoming(folder: Path, *, settle_seconds: float = 5.0, now: float | None = None) -> tuple[list[Arrival], dict[str, str]]:
    """Look into a folder whose subfolders are corpora.

    Parameters
    ----------
    folder : Path
        ``<folder>/<corpus>/…`` holds the runs of one corpus.
    settle_seconds : float
        A file younger than this may still be written: its corpus waits for the next look.
    now : float, optional
        Seconds since the epoch; the clock's by default.

    Returns
    -------
    arrivals : list of Arrival
        Corpora whose files are complete, sorted by name.
    waiting : dict of str to str
        Corpora that wait or cannot be used, with the reason.
    """
    arrivals, waiting = [], {}
    moment = time.time() if now is None else now
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith(".") or entry.is_symlink() or not entry.is_dir():
            continue
        try:
            CorpusConfig(entry.name)
        except InputError as error:
            waiting[entry.name] = str(error)
            continue
        files = sorted(path for path in entry.rglob("*") if path.is_file() and not path.is_symlink() and not path.name.startswith("."))
        stats = [(path, path.stat()) for path in files]
        young = [path.name for path, stat in stats if moment - stat.st_mtime < settle_seconds or path.suffix in _UNFINISHED]
        if not files:
            waiting[entry.name] = "the folder is empty"
        elif young:
            waiting[entry.name] = f"{young[0]} may still be written"
        else:
            lines = [f"{path.relative_to(entry)}\t{stat.st_size}\t{stat.st_mtime_ns}" for path, stat in stats]
            arrivals.append(Arrival(entry.name, hashlib.sha256("\n".join(lines).encode()).hexdigest(), len(files)))
    return arrivals, waiting


def adopt(store: Store, folder: Path, corpus: str) -> CorpusConfig:
    """Register the corpus of an incoming folder, or add the folder to the paths of a registered one."""
    path = str(folder / corpus)
    config = load_config(store, corpus) if corpus in registered_corpora(store) else CorpusConfig(corpus)
    if config.format == "embedded":
        raise InputError(f"{corpus} comes with the package; give the folder {path} the name of another corpus.")
    if path not in config.paths:
        config = replace(config, paths=(*config.paths, path))
        save_config(store, config)
    return config
