"""Data that others write: its versions, which sensors and commands observe."""

import dagster as dg

from certify_assets.corpora.arrivals import read_versions
from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import VERSION, key
from certify_assets.files import canonical_json, sha256_bytes

SOURCE, INBOX, SAMPLE = "corpora/source_runs", "operations/inbox", "operations/audit_sample"


def observation(name: str, corpus: str, version: str) -> dg.AssetObservation:
    """Return the event that an asset of a corpus was seen at a version."""
    return dg.AssetObservation(key(name), partition=corpus, tags={VERSION: version})


def config_version(corpus: Corpus) -> str:
    """Return the hash of the configuration of a corpus."""
    return (
        corpus.store.sha256(corpus.key("corpus.json")) if corpus.has("corpus.json") else "built in"
    )


def source_version(corpus: Corpus) -> str:
    """Return the version of the source runs: the configuration, and the files that landed last."""
    landed = read_versions(corpus)
    if not landed:
        return config_version(corpus)
    return sha256_bytes(canonical_json([config_version(corpus), landed[-1].version]))


def sample_version(corpus: Corpus) -> str:
    """Return the hash of the score tables of every judge's audit sample; "" where there is none."""
    files, folder = corpus.store.folder, f"monitoring/{corpus.name}"
    found = {
        f"{judge}/{name}": sha256_bytes(files.read(f"{folder}/{judge}/{name}"))
        for judge in files.names(folder)
        for name in files.names(f"{folder}/{judge}")
    }
    return sha256_bytes(canonical_json(found)) if found else ""
