"""New runs: which corpora have files that are complete and not yet seen, in the incoming folder or where a declaration says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import CorpusConfig, load_config, registered_corpora, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.landed import Look
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.store import Store

__all__ = [
    "Arrival",
    "adopt",
    "declare",
    "read_versions",
    "record_version",
    "scan_declared",
    "scan_incoming",
]

# for all corpora together: a sensor that is not done within its minute sees none of them
_SCAN_SECONDS = 30.0


@dataclass(frozen=True)
class Arrival:
    """A corpus whose files are complete.

    Parameters
    ----------
    corpus : str
        Its name.
    source : {"incoming", "declared"}
        Who looked.
    version : str
        Hash of the contents, and of the configuration where it is declared.
    files : dict of str to str
        SHA-256 of every file that counts, by path.
    """

    corpus: str
    source: str
    version: str
    files: dict[str, str]


def scan_incoming(
    store: Store, folder: Path, *, settle_seconds: float = 5.0, now: float | None = None
) -> tuple[list[Arrival], dict[str, str]]:
    """Look into a folder whose subfolders are corpora.

    Parameters
    ----------
    store : Store
        Data root, which keeps what earlier looks saw.
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
    until = time.monotonic() + _SCAN_SECONDS
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if not entry.is_dir():
            waiting[entry.name] = (
                f"it lies beside the folders of corpora; move it into {folder.name}/<corpus>/"
            )
            continue
        try:
            key = f"corpora/{CorpusConfig(entry.name).name}/landed_incoming.json"
            landed = Look(store, key, settle_seconds=settle_seconds, now=now, until=until).at(
                [entry]
            )
        except (InputError, OSError) as error:
            waiting[entry.name] = str(error)
        else:
            arrivals.append(Arrival(entry.name, "incoming", landed.version, landed.files))
    return arrivals, waiting


def scan_declared(
    store: Store,
    configs: Iterable[CorpusConfig],
    *,
    settle_seconds: float = 5.0,
    now: float | None = None,
) -> tuple[list[Arrival], dict[str, str]]:
    """Look at the paths of declared corpora; parameters and result are those of `scan_incoming`."""
    arrivals, waiting = [], {}
    until = time.monotonic() + _SCAN_SECONDS
    for config in configs:
        try:
            look = Look(
                store,
                f"corpora/{config.name}/landed_declared.json",
                settle_seconds=settle_seconds,
                now=now,
                until=until,
            )
            landed = look.at([Path(path) for path in config.paths])
        except (InputError, OSError) as error:
            waiting[config.name] = str(error)
        else:
            version = sha256_bytes(
                canonical_json({"config": config.to_dict(), "content": landed.version})
            )
            arrivals.append(Arrival(config.name, "declared", version, landed.files))
    return arrivals, waiting


def adopt(store: Store, folder: Path, corpus: str) -> CorpusConfig:
    """Register the corpus of an incoming folder, or add the folder to the paths of a registered one."""
    path = str(folder / corpus)
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
    """Register a declared corpus where it is not registered like that; its incoming folder, once adopted, stays among its paths."""
    key = f"corpora/{config.name}/corpus.json"
    registered = load_config(store, config.name) if store.exists(key) else None
    incoming = str(store.local_path(f"incoming/{config.name}")) if store.is_local else ""
    if registered is not None and incoming in registered.paths and incoming not in config.paths:
        config = replace(config, paths=(*config.paths, incoming))
    if config != registered:
        save_config(store, config)
    return config


def read_versions(corpus: Corpus) -> list[dict[str, Any]]:
    """Return what landed in a corpus, version by version, the oldest first."""
    key = corpus.key("versions.jsonl")
    data = corpus.store.read_bytes(key) if corpus.store.exists(key) else b""
    # a last line without its end is the trace of a kill
    return [parse_json(line.decode("utf-8")) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def record_version(store: Store, arrival: Arrival) -> int:
    """Add an arrival to the versions of its corpus, unless it is the last already; return its number there, from 1.

    Notes
    -----
    The number makes the run key: content that comes back is a new version, and a look that was killed before its run was asked for
    finds its own line and asks under the same key.
    """
    number = 0

    def line(old: bytes) -> str:
        nonlocal number
        versions = [parse_json(entry.decode("utf-8")) for entry in old.splitlines()]
        number = len(versions) + 1
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {
            "number": number,
            "version": arrival.version,
            "source": arrival.source,
            "time": moment,
            "files": arrival.files,
        }
        return json.dumps(entry, ensure_ascii=False)

    of_source = [
        entry
        for entry in read_versions(Corpus(store, arrival.corpus))
        if entry["source"] == arrival.source
    ]
    if of_source and of_source[-1]["version"] == arrival.version:
        return int(of_source[-1]["number"])
    store.append_line(f"corpora/{arrival.corpus}/versions.jsonl", line)
    return number
