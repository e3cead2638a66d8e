"""The compact model that comes with the package.

Small, pretrained on no CAL or TEST task and on no verdict or outcome.
"""

import json
from dataclasses import asdict
from functools import lru_cache

import pytest

from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.files import canonical_json, sha256_bytes, sha256_file
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets.judges.lm.compact.settings import RUNS_FILE, CompactSettings, pretraining_runs
from certify_assets.judges.lm.compact.shipped import pretraining_examples
from certify_assets.judges.lm.contract import LanguageModel
from certify_assets.judges.lm.models import load_model
from certify_assets.judges.lm.prompt import PromptEncoder

FOLDER = compact_model_path()
PROVENANCE = json.loads((FOLDER / "provenance.json").read_text("utf-8"))


@lru_cache(maxsize=1)
def compact() -> LanguageModel:
    return load_model("compact")


def test_it_is_small() -> None:
    parameters = sum(value.numel() for value in compact().model.parameters())
    assert parameters == PROVENANCE["parameters"] <= 3_000_000
    assert sum(path.stat().st_size for path in (*FOLDER.iterdir(), RUNS_FILE)) <= 12_000_000


def test_its_verdicts_are_one_token_each_and_its_shape_can_be_served() -> None:
    language_model = compact()
    assert language_model.verdicts.single and language_model.source == "compact"
    assert PromptEncoder(language_model.tokenizer).verdicts == language_model.verdicts
    config = language_model.model.config
    assert config.model_type == "qwen3"
    assert config.head_dim in (32, 64, 80, 96, 112, 128)
    assert config.tie_word_embeddings
    assert language_model.tokenizer.chat_template
    assert len(language_model.tokenizer) == config.vocab_size


def test_float32_holds_the_stored_numbers_exactly() -> None:
    import torch
    from safetensors.torch import load_file

    stored = load_file(FOLDER / "model.safetensors")
    loaded = compact().model.state_dict()
    assert {value.dtype for value in stored.values()} == {torch.bfloat16}
    assert set(loaded) - set(stored) == {"lm_head.weight"}
    assert all(torch.equal(loaded[name], value.float()) for name, value in stored.items())


def test_the_provenance_is_that_of_the_files() -> None:
    files = {
        path.name: sha256_file(path) for path in FOLDER.iterdir() if path.name != "provenance.json"
    }
    assert PROVENANCE["files"] == files
    frame = pretraining_runs()
    texts = [item.text for item in render_frame(frame)]
    assert PROVENANCE["runs_file_sha256"] == sha256_file(RUNS_FILE)
    assert PROVENANCE["runs"] == len(frame)
    assert PROVENANCE["texts_sha256"] == sha256_bytes(canonical_json(texts))
    assert PROVENANCE["renderer_sha256"] == Renderer().sha256


def test_no_run_that_it_has_read_is_of_a_task_that_certifies_or_audits() -> None:
    tasks = set(pretraining_runs()["task_id"])
    assert tasks == set(PRETRAINING_TASKS) == set(PROVENANCE["pretraining_tasks"])
    for name in EMBEDDED:
        every = load_embedded(name)["task_id"].unique()
        for seed in range(50):
            manifest = make_manifest(every, name, seed=seed)
            assert not tasks & manifest.assignment.keys() - {*manifest.tasks["sft"]}


@pytest.mark.slow
def test_no_verdict_and_no_outcome_was_in_its_pretraining() -> None:
    encoder = PromptEncoder(compact().tokenizer, budget_tokens=PROVENANCE["settings"]["context"])
    frame = pretraining_runs()
    examples = pretraining_examples(encoder, [item.text for item in render_frame(frame)])
    assert PROVENANCE["tokens"] == sum(len(example.ids) for example in examples)
    # a row ends where the auditor's question begins, so that the marker and what follows it, the
    # places of a verdict, are in none; the auditor's text before the run names no verdict either
    marker = encoder.prompt.marker
    for example in examples[::50]:
        assert marker not in compact().tokenizer.decode(example.ids)
        assert example.ids[: example.start] == encoder.prefix_ids
    assert PROVENANCE["settings"] == asdict(CompactSettings())
    relabelled = frame.assign(outcome=1 - frame["outcome"])
    assert examples == pretraining_examples(
        encoder, [item.text for item in render_frame(relabelled)]
    )
    assert {*PROVENANCE["loss_curve"][0]} == {"step", "loss"}
