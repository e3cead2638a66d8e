"""What the data root keeps of files that landed: configurations, and an event for each version."""

from __future__ import annotations

from dataclasses import replace
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
from certify_assets.storage.events import Payload
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


class CorpusVersion(Payload):
    """What the files of a corpus were when they arrived."""

    kind = "arrived"
    number: int
    version: str
    source: str
    files: dict[str, str]

    @property
    def subject(self) -> str:
        """Where the files arrived."""
        return self.source


def read_versions(corpus: Corpus) -> list[CorpusVersion]:
    """Return the versions of a corpus's files, the oldest first."""
    return [entry.content for entry in corpus.store.events(corpus.name, CorpusVersion)]


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
        made = CorpusVersion(
            number=len(versions) + 1,
            version=arrival.version,
            source=arrival.source,
            files=arrival.files,
        )
        corpus.store.append(corpus.name, made)
    return made.number
