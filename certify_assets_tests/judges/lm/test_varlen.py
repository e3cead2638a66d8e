"""Packed rows: the numbers of padded ones, and no token of a row seen by another."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.judges.lm import varlen
from certify_assets.judges.lm.contract import Encoded, LanguageModel
from certify_assets.judges.lm.exact_grpo import train_exact, verdict_log_probs
from certify_assets.judges.lm.grpo_config import ARMS, GrpoConfig
from certify_assets.judges.lm.scoring import ScoringConfig, score_prompts
from certify_assets.judges.lm.sft import (
    IGNORED,
    SftConfig,
    SftRow,
    collate_packed,
    train_sft,
    training_rows,
)
from certify_assets.judges.lm.varlen import ATTENTION, pack, packable, packed_attention
from certify_assets_tests.judges.lm import models
from certify_assets_tests.judges.lm.tiny import random_rows, tiny_judge, with_adapter

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning"),
]

PACKED = ScoringConfig(token_budget=300, padding="packed")


@pytest.fixture(scope="module")
def qwen3() -> LanguageModel:
    return models.judge(models.tiny_qwen3())


def _score(
    judge: LanguageModel, prompts: list[Encoded], config: ScoringConfig | None = None
) -> Any:
    return score_prompts(judge, prompts, config=config).scores.score


def test_rows_lie_one_after_the_other() -> None:
    packed = pack([(7, 8, 9), (5,), (6, 7)])
    assert packed.ids.tolist() == [[7, 8, 9, 5, 6, 7]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert packed.bounds.tolist() == [0, 3, 4, 6]
    assert packed.last.tolist() == [2, 3, 5]
    assert packed.longest == 3
    assert str(packed.bounds.dtype) == "torch.int32"


@pytest.mark.parametrize("budget", [1, 64, 300, 10_000])
def test_packed_scores_are_those_of_rows_alone(qwen3: LanguageModel, budget: int) -> None:
    prompts = models.prompts(23)
    packed = score_prompts(qwen3, prompts, config=replace(PACKED, token_budget=budget))
    np.testing.assert_allclose(packed.scores.score, _score(qwen3, prompts), atol=1e-5, rtol=0)
    assert packed.padded_tokens == packed.tokens
    assert packed.fingerprint.attention == ATTENTION
    assert packed.fingerprint.engine.endswith("cpu, packed")
    assert qwen3.model.config._attn_implementation == "sdpa"


def test_sliding_windows_stay_within_rows() -> None:
    model = models.tiny_qwen3()
    model.config.layer_types = ["sliding_attention", "full_attention"]
    model.config.sliding_window = 9
    model.model.has_sliding_layers = True
    model.model.layers[0].self_attn.sliding_window = 9
    judge, prompts = models.judge(model), models.prompts(11)
    alone = _score(judge, prompts)
    assert np.abs(alone - _score(models.judge(models.tiny_qwen3()), prompts)).max() > 1e-2
    np.testing.assert_allclose(_score(judge, prompts, PACKED), alone, atol=1e-5, rtol=0)


def test_no_row_sees_another(qwen3: LanguageModel) -> None:
    """Other tokens in one row leave every bit of the other row's scores."""
    rows = models.prompts(2, longest=40)
    others = [Encoded(tuple(100 - token for token in row.ids)) for row in rows]
    config = ScoringConfig(token_budget=1000, padding="packed")
    plain = {row.ids: score for row, score in zip(rows, _score(qwen3, rows, config), strict=True)}
    for kept, changed in ((0, 1), (1, 0)):
        found = _score(qwen3, [rows[kept], others[changed]], config)
        assert found[0] == plain[rows[kept].ids] and found[1] != plain[rows[changed].ids]


def test_layers_that_carry_a_state_are_read_in_padded_batches() -> None:
    hybrid = models.judge(models.tiny_qwen3_5())
    assert packable(models.tiny_qwen3()) and not packable(hybrid.model)
    assert ScoringConfig.suited(hybrid) == ScoringConfig(rows=1)


class _OnCuda:
    """A model that says of its weights that they lie on CUDA."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def parameters(self) -> Iterator[Any]:
        import torch

        class Weight:
            device = torch.device("cuda")
            dtype = torch.bfloat16

        return iter([Weight()])


def test_the_engine_follows_from_device_layers_and_verdicts(qwen3: LanguageModel) -> None:
    model = models.tiny_qwen3()
    assert ScoringConfig.suited(qwen3).is_reference
    for judge, padding in (
        (models.judge(model), "packed"),
        (models.judge(models.tiny_qwen3_5()), "right"),
        (models.judge(model, success=(7, 8)), "right"),
    ):
        found = ScoringConfig.suited(replace(judge, model=_OnCuda(judge.model)))
        assert found.padding == padding and found.token_budget == 65_536 and not found.is_reference


def test_the_gradient_of_packed_rows() -> None:
    import torch

    judge = with_adapter(tiny_judge())
    prompts, _ = random_rows(6)
    weights = [weight for weight in judge.model.parameters() if weight.requires_grad]
    found = []
    for packed in (False, True):
        with packed_attention(judge.model.get_base_model()):
            if not packed:
                judge.model.get_base_model().set_attn_implementation("sdpa")
            log_probs = verdict_log_probs(judge, prompts, packed=packed)
            found.append((log_probs.detach(), torch.autograd.grad(log_probs[:, 0].sum(), weights)))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5, rtol=0)
    for padded, joined in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(padded, joined, atol=1e-5, rtol=1e-4)


def test_exact_grpo_on_packed_rows() -> None:
    prompts, outcomes = random_rows(12)
    config = GrpoConfig(steps=2, learning_rate=1e-3, micro_tokens=40)
    runs = [
        train_exact(
            with_adapter(tiny_judge()),
            prompts,
            outcomes,
            arm=ARMS["reject_3"],
            config=config,
            packed=packed,
        )
        for packed in (False, True)
    ]
    for padded, joined in zip(*(run.history for run in runs), strict=True):
        assert joined.loss == pytest.approx(padded.loss, abs=1e-5)
        assert joined.grad_norm == pytest.approx(padded.grad_norm, rel=1e-3)


def test_labels_of_packed_rows() -> None:
    rows = [SftRow(prompt, place % 2) for place, prompt in enumerate(models.prompts(3))]
    built = training_rows(rows, models.judge(None).verdicts)
    batch = collate_packed(built)
    ends = np.cumsum([len(row["input_ids"]) for row in built]) - 1
    assert np.flatnonzero(batch["labels"][0].numpy() != IGNORED).tolist() == ends.tolist()
    assert batch["bounds"].tolist() == [0, *(ends + 1).tolist()]


@pytest.mark.slow
@pytest.mark.parametrize("recomputed", [False, True])
def test_fine_tuning_on_packed_rows(tmp_path: Path, recomputed: bool) -> None:
    rows = [SftRow(prompt, place % 2) for place, prompt in enumerate(models.prompts(6, longest=30))]
    config = SftConfig(rank=4, alpha=8, learning_rate=5e-3, batch_size=2, accumulation=2)
    config = replace(config, gradient_checkpointing=recomputed)
    curves = []
    for packed in (False, True):
        base = models.judge(models.tiny_qwen3())
        trained = train_sft(base, rows, tmp_path / str(packed), config=config, packed=packed)
        assert trained is not None and trained.inputs.packed is packed
        assert base.model.config._attn_implementation == "sdpa"
        curves.append([(step["loss"], step["grad_norm"]) for step in trained.loss_curve])
    assert len(curves[0]) == 2
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-3)


def test_torchs_kernel_takes_these_shapes_forward_and_backward() -> None:
    """On the meta device, which computes no numbers.

    Arguments, shapes and types of the kernel's own operator.
    """
    import torch

    whole = [
        torch.empty((1, heads, 40, 64), dtype=torch.bfloat16, device="meta", requires_grad=True)
        for heads in (4, 2, 2)
    ]
    bounds = torch.empty(4, dtype=torch.int32, device="meta")
    for kernel in (
        varlen._varlen_kernel(num_splits=1),
        partial(varlen._repeated, kernel=varlen._varlen_kernel()),
    ):
        found = varlen._flash(whole, bounds, 22, window=None, scale=0.2, kernel=kernel)
        assert found.shape == (1, 40, 4, 64) and found.dtype == torch.bfloat16
        grads = torch.autograd.grad(found.sum(), whole)
        assert [grad.shape for grad in grads] == [part.shape for part in whole]
