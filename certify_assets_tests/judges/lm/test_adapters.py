"""Adapters: layers, swaps that leave the base alone, and that a folder is what it says it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.lm.adapters import attach_lora, load_adapter, save_adapter
from certify_assets.judges.lm.language_model import LanguageModel
from certify_assets.judges.lm.score import score_prompts
from certify_assets_tests.judges.lm import models

pytestmark = pytest.mark.usefixtures("one_thread")


def _trained(folder: Path, seed: int, revision: str = "f" * 64) -> str:
    """An adapter with random numbers in both factors, as if it had been trained."""
    import torch

    model = attach_lora(models.tiny_qwen3(), rank=4, alpha=8, dropout=0.0, seed=seed)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for name, value in model.named_parameters():
            if "lora_B" in name:
                value.normal_(0, 0.05)
    document = {"base": "tiny", "base_revision": revision}
    return str(save_adapter(model, folder, document, source="tiny")["adapter_sha256"])


@pytest.mark.slow
def test_an_adapter_reaches_every_linear_layer_but_the_head() -> None:
    import torch

    for model in (models.tiny_qwen3(), models.tiny_qwen3_5()):
        linear = {
            name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)
        }
        wrapped = attach_lora(model, rank=2, alpha=4, dropout=0.0, seed=0)
        reached = {
            name.partition(".lora_A")[0].removeprefix("base_model.model.")
            for name, _ in wrapped.named_parameters()
            if "lora_A" in name
        }
        assert reached == linear - {"lm_head"}
        assert all(
            "lora_" in name for name, value in wrapped.named_parameters() if value.requires_grad
        )


def test_an_adapter_leaves_the_base_as_it_was(tmp_path: Path) -> None:
    prompts, base = models.prompts(9), models.judge(models.tiny_qwen3())
    plain = score_prompts(base, prompts).score
    hashed = _trained(tmp_path, 1)
    judge, sha256 = load_adapter(base, tmp_path)
    assert sha256 == hashed
    apart = score_prompts(judge, prompts).score
    with judge.model.disable_adapter():
        assert np.array_equal(score_prompts(judge, prompts).score, plain)
    assert np.abs(apart - plain).max() > 1e-2
    assert np.array_equal(score_prompts(judge, prompts).score, apart)


def test_an_adapter_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    assert _trained(tmp_path / "a", 3) == _trained(tmp_path / "b", 3) != _trained(tmp_path / "c", 4)
    names = ["adapter_config.json", "adapter_model.safetensors", "provenance.json"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    config = json.loads((tmp_path / "a" / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == "tiny"
    assert config["target_modules"] == sorted(config["target_modules"])


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    _trained(tmp_path, 0, revision="0" * 64)
    base: LanguageModel = models.judge(models.tiny_qwen3())
    with pytest.raises(
        StaleCertificateError, match="trained on tiny 000000000000, not on tiny ffffffffffff"
    ):
        load_adapter(base, tmp_path)
