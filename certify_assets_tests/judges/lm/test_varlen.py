"""Packed rows: the numbers of padded ones, and no token of a row seen by another."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from certify_assets.judges.lm.contract import Encoded, LanguageModel
from certify_assets.judges.lm.exact_grpo import train_exact
from certify_assets.judges.lm.grpo_config import ARMS, GrpoConfig
from certify_assets.judges.lm.scoring import ScoringConfig, score_prompts
from certify_assets.judges.lm.varlen import ATTENTION, packable
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


@pytest.mark.parametrize("budget", [1, 64, 300, 10_000])
def test_packed_scores_are_those_of_rows_alone(qwen3: LanguageModel, budget: int) -> None:
    prompts = models.prompts(23)
    packed = score_prompts(qwen3, prompts, config=replace(PACKED, token_budget=budget))
    np.testing.assert_allclose(packed.scores.score, _score(qwen3, prompts), atol=1e-5, rtol=0)
    assert packed.padded_tokens == packed.tokens
    assert packed.fingerprint.attention == ATTENTION
    assert packed.fingerprint.engine.endswith("cpu, packed")
    assert qwen3.model.config._attn_implementation == "sdpa"


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
