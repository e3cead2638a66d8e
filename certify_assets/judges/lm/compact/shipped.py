"""The compact model that comes with the package: verify its files, find shared tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import plan_splits, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import read_json, sha256_file
from certify_assets.storage.store import Store

_PROVENANCE = "provenance.json"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Shipped:
    """What the folder of the compact model holds."""

    folder: Path
    # how it was made, and the hash of every other file
    provenance: Mapping[str, Any]
    revision: str  # hash of all files, the one that scores and adapters carry
    files: dict[str, str]  # SHA-256 of every file but the provenance
    parameters: int

    @property
    def faults(self) -> tuple[str, ...]:
        """What is not as its provenance says, one sentence each."""
        recorded = self.provenance["files"]
        names = sorted(
            name for name in {*recorded, *self.files} if recorded.get(name) != self.files.get(name)
        )
        found = [
            f"{name} of the compact model is not the file that its provenance names; install the "
            "package again."
            for name in names
        ]
        if self.parameters != self.provenance["parameters"]:
            found.append(
                f"the compact model has {self.parameters:,} parameters, its provenance says "
                f"{self.provenance['parameters']:,}."
            )
        return tuple(found)


def shipped(folder: Path | None = None) -> Shipped:
    """Read the compact model's folder: hashes and a count, no weights are loaded."""
    from certify_assets.judges.lm.compact import compact_model_path
    from certify_assets.judges.lm.language_model import weights_sha256

    place = folder or compact_model_path()
    if not (place / _WEIGHTS).is_file():
        raise InputError(f"{place} has no {_WEIGHTS}; install the package again.")
    provenance = read_json(place / _PROVENANCE)
    files = {
        path.name: sha256_file(path)
        for path in sorted(place.iterdir())
        if path.is_file() and path.name != _PROVENANCE and path.name[0] != "."
    }
    return Shipped(place, provenance, weights_sha256(place), files, _count(place / _WEIGHTS))


def require_shipped(folder: Path | None = None) -> Shipped:
    """Return the compact model's description, refusing one that is not as its provenance says."""
    found = shipped(folder)
    if found.faults:
        raise IntegrityError(found.faults[0])
    return found


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


def _count(path: Path) -> int:
    """Count the numbers in a safetensors file by its header alone."""
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    return sum(map(math.prod, shapes))
