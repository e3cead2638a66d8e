"""Supervised fine-tuning.

Loss on the verdict alone, the paper's settings, and a training that can be stopped at any step.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.adapters import load_adapter
from certify_assets.judges.lm.language_model import Encoded
from certify_assets.judges.lm.score import score_prompts
from certify_assets.judges.lm.sft import SftConfig, train_sft
from certify_assets_tests.judges.lm import models

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = SftConfig(rank=4, alpha=8, learning_rate=5e-3, batch_size=2, accumulation=2)


def _rows(count: int) -> tuple[list[Encoded], list[int]]:
    """Prompts that name their outcome by one of two tokens."""
    generator = np.random.default_rng(1)
    outcomes = [int(generator.random() < 0.5) for _ in range(count)]
    prompts = models.prompts(count, 1, longest=30)
    named = zip(prompts, outcomes, strict=True)
    return [Encoded((*prompt.ids, 20 + outcome)) for prompt, outcome in named], outcomes


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def test_the_loss_of_the_first_step_by_hand(tmp_path: Path) -> None:
    base, (prompts, outcomes) = models.judge(models.tiny_qwen3()), _rows(4)
    scores = score_prompts(base, prompts)
    right = np.where(outcomes, scores.log_p_success, scores.log_p_fail)
    trained = train_sft(base, prompts, outcomes, tmp_path, config=SMALL)
    assert trained["steps"] == 1
    assert trained["loss_curve"][0]["loss"] == pytest.approx(-float(right.mean()), rel=1e-4)


@pytest.mark.slow
@pytest.mark.smoke
def test_training_learns_and_leaves_the_base_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    settings = replace(SMALL, epochs=3.0)
    base, (prompts, outcomes) = models.judge(models.tiny_qwen3()), _rows(32)
    successes = np.array(outcomes) == 1

    def apart(scores: np.ndarray) -> float:
        return float(scores[successes].mean() - scores[~successes].mean())

    before = score_prompts(base, prompts).score
    state = torch.get_rng_state()
    seen: list[tuple[int, int]] = []
    document = train_sft(
        base,
        prompts,
        outcomes,
        tmp_path,
        config=settings,
        progress=lambda step, steps, _: seen.append((step, steps)),
    )
    assert seen == [(step, 24) for step in range(1, 25)] and capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), state) and "forward" not in base.model.__dict__
    assert not base.model.training
    assert np.array_equal(score_prompts(base, prompts).score, before)
    judge, sha256 = load_adapter(base, tmp_path)
    assert apart(score_prompts(judge, prompts).score) > apart(before) + 1
    assert sha256 == document["adapter_sha256"]
    assert json.loads((tmp_path / "provenance.json").read_text("utf-8")) == document
    assert document["config"] == asdict(settings)
    assert document["rows"] == 32 and len(document["loss_curve"]) == 24
    assert document["base_revision"] == base.revision
    # inputs and outputs of the seven matrices of a layer; rank 4 and two layers
    sides = 2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 96)
    assert document["trainable_parameters"] == 2 * 4 * sides


def _train(folder: Path, **keywords: Any) -> dict[str, Any]:
    return train_sft(
        models.judge(models.tiny_qwen3()),
        *_rows(24),
        folder,
        config=replace(SMALL, dropout=0.1),
        checkpoint_steps=1,
        **keywords,
    )


def _train_until_killed(folder: Path) -> None:
    """Leave a checkpoint after each of three steps, and a fourth step that is lost."""

    def kill(step: int, _steps: int, _loss: float) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _train(folder, progress=kill)


@pytest.mark.slow
def test_a_stopped_training_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """Six steps, against three, a fourth that is lost, and three more in another call.

    Dropout draws random numbers, so their state is restored too.
    """
    whole = _train(tmp_path / "whole")
    assert whole["steps"] == 6
    _train_until_killed(tmp_path / "halves")
    checkpoint = tmp_path / "halves" / "checkpoints" / "checkpoint-3"
    assert checkpoint.is_dir() and not (tmp_path / "halves" / "provenance.json").exists()
    kept = {path.suffix for path in checkpoint.iterdir()}
    assert kept == {".safetensors", ".json"}
    assert _train(tmp_path / "halves") == whole
    assert _files(tmp_path / "halves") == _files(tmp_path / "whole")
    # a third call finds the work done
    assert _train(tmp_path / "halves") == whole
    assert _files(tmp_path / "halves") == _files(tmp_path / "whole")


def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path: Path) -> None:
    import torch

    base, rows = models.judge(models.tiny_qwen3()), _rows(4)
    with torch.no_grad():
        base.model.model.embed_tokens.weight[20] = float("nan")
    with pytest.raises(
        InputError, match="loss of step 1 or its gradient is not a number; lower the learning rate"
    ):
        train_sft(base, *rows, tmp_path, config=SMALL)
    assert not (tmp_path / "provenance.json").exists() and not hasattr(base.model, "peft_config")
