"""The compact model on the platform.

What was altered is named, and no task of CAL or TEST was read.
"""

import shutil
from pathlib import Path

import pytest

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.embedded import PRETRAINING_TASKS
from certify_assets.corpora.splits import make_manifest
from certify_assets.errors import IntegrityError
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.compact.shipped import require_shipped, tasks_in_common
from certify_assets.judges.lm.judge import load_base
from certify_assets.storage.store import Store


def test_what_ships_is_what_its_provenance_says_and_what_judges_load() -> None:
    found = require_shipped()
    assert found.revision == load_base("compact")[0].revision


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_an_altered_file_is_named(tmp_path: Path, name: str) -> None:
    shutil.copytree(compact_model_path(), tmp_path / "m")
    path = tmp_path / "m" / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match=f"^{name} of the compact model is not"):
        require_shipped(tmp_path / "m")


def test_a_corpus_of_the_same_tasks_under_another_name_is_found(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    save_config(store, CorpusConfig("mine", paths=("x",)))
    manifest = make_manifest(
        [*PRETRAINING_TASKS, *(f"own-{number}" for number in range(30))], "mine"
    )
    store.write_json("corpora/mine/splits/manifest.json", manifest.to_dict())
    expected = sorted(set(PRETRAINING_TASKS) - {*manifest.tasks["sft"]})
    assert expected and tasks_in_common(store) == {"mine": tuple(expected)}
