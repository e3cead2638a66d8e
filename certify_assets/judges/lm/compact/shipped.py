"""The compact model that comes with the package: verify its files, find shared tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import plan_splits, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.errors import IntegrityError
from certify_assets.files import read_json, sha256_file
from certify_assets.storage.store import Store

_PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class Shipped:
    """What the folder of the compact model holds."""

    folder: Path
    # how it was made, and the hash of every other file
    provenance: Mapping[str, Any]
    # hash of all files, the one that scores and adapters carry
    revision: str


def require_shipped(folder: Path | None = None) -> Shipped:
    """Return the compact model's description, refusing one that is not as its provenance says."""
    from certify_assets.judges.lm.compact import compact_model_path
    from certify_assets.judges.lm.language_model import weights_sha256

    place = folder or compact_model_path()
    provenance = read_json(place / _PROVENANCE)
    files = {
        path.name: sha256_file(path)
        for path in place.iterdir()
        if path.is_file() and path.name != _PROVENANCE and path.name[0] != "."
    }
    recorded = provenance["files"]
    for name in sorted({*recorded, *files}):
        if recorded.get(name) != files.get(name):
            raise IntegrityError(
                f"{name} of the compact model is not the file that its provenance names; install "
                "the package again."
            )
    return Shipped(place, provenance, weights_sha256(place))


def tasks_in_common(store: Store) -> dict[str, tuple[str, ...]]:
    """Return the tasks outside SFT that the compact model was pretrained on, by corpus."""
    # an embedded corpus that was not split in the data root has the splits it would get
    found = {}
    for corpus in (Corpus(store, name) for name in registered_corpora(store)):
        if corpus.has("splits/manifest.json"):
            manifest = corpus.stored_manifest
        elif corpus.name in EMBEDDED:
            manifest = plan_splits(corpus.config, load_embedded(corpus.name)["task_id"].unique())
        else:
            continue
        common = set(PRETRAINING_TASKS) & manifest.assignment.keys() - {*manifest.tasks["sft"]}
        if common:
            found[corpus.name] = tuple(sorted(common))
    return found
