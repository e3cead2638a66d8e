"""What only a CUDA device can show: run with `pytest -m gpu`.

Without a device each test says so and skips.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from certify_assets.judges.lm.judge import load_base
from certify_assets.judges.lm.language_model import Encoded, LanguageModel
from certify_assets.judges.lm.score import ScoringConfig, score_prompts
from certify_assets_tests.judges.lm import models

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.(is_)?gradient_checkpointing. is deprecated:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: what the GPU does is not measured here")
    yield
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def compact() -> LanguageModel:
    return load_base("compact")[0]


def _on_cuda(judge: LanguageModel, dtype: str = "bfloat16") -> LanguageModel:
    import torch

    return replace(judge, model=copy.deepcopy(judge.model).to("cuda", getattr(torch, dtype)))


def _prompts(count: int, longest: int = 400) -> list[Encoded]:
    generator = np.random.default_rng(0)
    return [
        Encoded(tuple(generator.integers(5, 1000, length).tolist()))
        for length in generator.integers(20, longest, count)
    ]


def test_bfloat16_rows_agree_with_float32_on_a_cpu(compact: LanguageModel) -> None:
    prompts = _prompts(64)
    reference = score_prompts(compact, prompts)
    same = score_prompts(_on_cuda(compact, "float32"), prompts)
    np.testing.assert_allclose(same.score, reference.score, atol=1e-3)
    half = score_prompts(_on_cuda(compact), prompts)
    assert len(set(half.score.tolist())) == 64
    np.testing.assert_allclose(half.score, reference.score, atol=0.25)


def test_padded_rows_agree_with_rows_alone_and_with_themselves(compact: LanguageModel) -> None:
    judge, prompts = _on_cuda(compact), _prompts(64)
    alone = score_prompts(judge, prompts, config=ScoringConfig(rows=1)).score
    padded = score_prompts(judge, prompts).score
    np.testing.assert_allclose(padded, alone, atol=0.5)
    assert np.array_equal(score_prompts(judge, prompts).score, padded)


def test_no_full_logits_and_no_mask_in_memory() -> None:
    """Full logits of this batch would take 4 GB, a mask over all pairs of tokens 1 GB."""
    import torch

    judge = _on_cuda(models.judge(models.tiny_qwen3()))
    wide = torch.nn.Embedding(32_000, 64, device="cuda", dtype=torch.bfloat16)
    judge.model.set_input_embeddings(wide)
    judge.model.lm_head.weight = wide.weight
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    score_prompts(
        judge,
        models.prompts(1000, longest=64),
        config=ScoringConfig(token_budget=32_768),
    )
    assert torch.cuda.max_memory_allocated() - before < 2**29
