"""What the data root keeps of files that landed: configurations, and a line for every version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from certify_assets.corpora.config import (
    CorpusConfig,
    is_registered,
    load_config,
    registered_corpora,
    save_config,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.landing import Arrival, place_of
from certify_assets.errors import InputError
from certify_assets.files import parse_json
from certify_assets.storage.store import Store


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
    incoming = place_of(store, f"incoming/{config.name}")
    if registered is not None and incoming in registered.paths and incoming not in config.paths:
        config = replace(config, paths=(*config.paths, incoming))
    if config != registered:
        save_config(store, config)
    return config


@dataclass(frozen=True)
class CorpusVersion:
    """One line of ``versions.jsonl``: what the files of a corpus were when they arrived."""

    number: int
    version: str
    source: str
    time: str
    files: dict[str, str]


def read_versions(corpus: Corpus) -> list[CorpusVersion]:
    """Return the versions of a corpus's files, the oldest first."""
    key = "versions.jsonl"
    data = corpus.store.read_bytes(corpus.key(key)) if corpus.has(key) else b""
    # a last line without its end is the trace of a kill
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return [CorpusVersion(**parse_json(line.decode("utf-8"))) for line in lines]


def record_version(store: Store, arrival: Arrival) -> int:
    """Add an arrival to the versions of its corpus, unless it is the last; return its number."""
    # The number, from 1, makes the run key: content that comes back is a new version, and a scan
    # that was killed before it requested its run finds its own line and uses the same key.
    corpus, number = Corpus(store, arrival.corpus), 0

    def line(old: bytes) -> str:
        nonlocal number
        number = len(old.splitlines()) + 1
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        entry = CorpusVersion(number, arrival.version, arrival.source, moment, arrival.files)
        return json.dumps(asdict(entry), ensure_ascii=False)

    of_source = [entry for entry in read_versions(corpus) if entry.source == arrival.source]
    if of_source and of_source[-1].version == arrival.version:
        return of_source[-1].number
    store.append_line(corpus.key("versions.jsonl"), line)
    return number
