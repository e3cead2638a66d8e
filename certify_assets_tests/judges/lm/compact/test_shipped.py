"""The compact model that comes with the package.

Small, pretrained on no CAL or TEST task and on no verdict or outcome.
"""

import json
from functools import lru_cache

from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.corpora.splits import make_manifest
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.judge import load_base
from certify_assets.judges.lm.language_model import LanguageModel

FOLDER = compact_model_path()
PROVENANCE = json.loads((FOLDER / "provenance.json").read_text("utf-8"))


@lru_cache(maxsize=1)
def compact() -> LanguageModel:
    return load_base("compact")[0]


def test_it_is_small() -> None:
    parameters = sum(value.numel() for value in compact().model.parameters())
    assert parameters == PROVENANCE["parameters"] <= 3_000_000
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 12_000_000


def test_no_run_that_it_has_read_is_of_a_task_that_certifies_or_audits() -> None:
    tasks = set(PRETRAINING_TASKS)
    assert tasks == set(PROVENANCE["pretraining_tasks"])
    for name in EMBEDDED:
        every = load_embedded(name)["task_id"].unique()
        for seed in range(50):
            manifest = make_manifest(every, name, seed=seed)
            assert not tasks & manifest.assignment.keys() - {*manifest.tasks["sft"]}
