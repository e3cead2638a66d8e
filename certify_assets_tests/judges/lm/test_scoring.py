"""Scores of a language model.

The same numbers in any batch, on any thread, after a crash and with little memory.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.language_model import Encoded, LanguageModel
from certify_assets.judges.lm.score import ScoringConfig, score_prompts
from certify_assets_tests.judges.lm import models

pytestmark = pytest.mark.usefixtures("one_thread")

ALONE = ScoringConfig(rows=1)


@pytest.fixture(scope="module")
def qwen3() -> LanguageModel:
    return models.judge(models.tiny_qwen3())


@pytest.fixture(scope="module")
def hybrid() -> LanguageModel:
    return models.judge(models.tiny_qwen3_5())


def _rows_read(judge: LanguageModel, prompts: list[Encoded], **keywords: Any) -> int:
    """Score prompts, and count those that the model read."""
    seen: list[int] = []

    def count(_module: object, _args: object, given: dict[str, Any]) -> None:
        seen.append(len(given["input_ids"]))

    handle = judge.model.model.register_forward_pre_hook(count, with_kwargs=True)
    score_prompts(judge, prompts, **keywords)
    handle.remove()
    return sum(seen)


def _by_hand(judge: LanguageModel, prompt: Encoded) -> list[float]:
    """Eq. 4 from the model's own full logits, without cache, batch or padding."""
    import torch

    found = []
    for verdict in (judge.verdicts.success, judge.verdicts.fail):
        with torch.no_grad():
            logits = judge.model(input_ids=torch.tensor([prompt.ids + verdict])).logits[0].double()
        steps = torch.log_softmax(logits, dim=-1)[len(prompt.ids) - 1 :]
        found.append(sum(float(steps[place, token]) for place, token in enumerate(verdict)))
    return found


@pytest.mark.parametrize("model", ["qwen3", "hybrid"])
def test_no_score_depends_on_its_batch(model: str, request: pytest.FixtureRequest) -> None:
    judge, prompts = request.getfixturevalue(model), models.prompts(23)
    alone = score_prompts(judge, prompts, config=ALONE).score
    for budget in (64, 200, 10_000):
        batched = score_prompts(judge, prompts, config=ScoringConfig(token_budget=budget))
        np.testing.assert_allclose(batched.score, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", [ALONE, ScoringConfig(token_budget=300)])
def test_threads_workers_and_order_change_no_bit(
    qwen3: LanguageModel, config: ScoringConfig
) -> None:
    import torch

    prompts = models.prompts(17)
    first = score_prompts(qwen3, prompts, config=config)
    torch.set_num_threads(2)
    many = ScoringConfig(
        token_budget=config.token_budget, rows=config.rows, workers=3, shard_rows=4
    )
    again = score_prompts(qwen3, prompts[::-1], config=many)
    assert np.array_equal(first.score, again.score[::-1])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("success", "fail"), [((3,), (4,)), ((7, 8, 9), (7, 10)), ((3,), (7, 8)), ((5, 6), (4,))]
)
@pytest.mark.parametrize("model", ["qwen3", "hybrid"])
def test_scores_are_equation_2(
    model: str, success: tuple[int, ...], fail: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    judge = models.judge(request.getfixturevalue(model).model, success=success, fail=fail)
    prompts = models.prompts(7)
    expected = np.array([_by_hand(judge, prompt) for prompt in prompts])
    for config in (ALONE, ScoringConfig()):
        scores = score_prompts(judge, prompts, config=config)
        found = np.stack([scores.log_p_success, scores.log_p_fail], axis=1)
        tolerance = 1e-3 if model == "hybrid" else 2e-5
        np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)
        assert scores.score.dtype == np.float64 and len(set(scores.score.tolist())) == 7


class _Stop(Exception):
    pass


def test_a_killed_run_keeps_its_finished_shards(qwen3: LanguageModel, tmp_path: Path) -> None:
    prompts, config = models.prompts(20), ScoringConfig(token_budget=120, shard_rows=5)
    whole = score_prompts(qwen3, prompts, config=config)
    passes = 0

    def stop(*_: object) -> None:
        nonlocal passes
        passes += 1
        if passes == 5:
            raise _Stop

    handle = qwen3.model.model.register_forward_pre_hook(stop)
    with pytest.raises(_Stop):
        score_prompts(
            qwen3,
            prompts,
            config=ScoringConfig(token_budget=120, shard_rows=5, workers=1),
            shards=tmp_path,
        )
    handle.remove()
    assert list(tmp_path.iterdir())
    seen: list[tuple[int, int]] = []
    resumed = score_prompts(
        qwen3,
        prompts,
        config=config,
        shards=tmp_path,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert np.array_equal(resumed.score, whole.score)
    assert (
        seen[0][0] >= 5
        and seen[-1] == (20, 20)
        and [done for done, _ in seen] == sorted(done for done, _ in seen)
    )
    assert _rows_read(qwen3, prompts, config=config, shards=tmp_path) == 0


def test_shards_serve_no_other_judge_or_prompts(qwen3: LanguageModel, tmp_path: Path) -> None:
    prompts = models.prompts(6)
    score_prompts(qwen3, prompts, shards=tmp_path)
    assert _rows_read(qwen3, prompts, shards=tmp_path) == 0
    assert _rows_read(qwen3, prompts, shards=tmp_path, identity="another") == 6
    assert _rows_read(qwen3, prompts[:5], shards=tmp_path) == 5


def _little_memory(judge: LanguageModel, tokens: int) -> Any:
    import torch

    def refuse(_module: object, _args: object, keywords: dict[str, Any]) -> None:
        if keywords["input_ids"].numel() > tokens:
            raise torch.cuda.OutOfMemoryError("out of memory")

    return judge.model.model.register_forward_pre_hook(refuse, with_kwargs=True)


def test_a_batch_too_large_for_memory_is_read_in_halves(qwen3: LanguageModel) -> None:
    prompts = models.prompts(20)
    config = ScoringConfig(token_budget=800, workers=1)
    whole = score_prompts(qwen3, prompts, config=config)
    handle = _little_memory(qwen3, 130)
    small = score_prompts(qwen3, prompts, config=config)
    handle.remove()
    np.testing.assert_allclose(small.score, whole.score, atol=1e-5)


def test_a_prompt_too_long_for_memory_is_named(qwen3: LanguageModel) -> None:
    handle = _little_memory(qwen3, 10)
    with pytest.raises(InputError, match="tokens alone does not fit"):
        score_prompts(qwen3, models.prompts(4))
    handle.remove()


def test_logits_that_are_not_finite_leave_a_prompt_unscored(qwen3: LanguageModel) -> None:
    import torch

    model = models.tiny_qwen3()
    with torch.no_grad():
        model.model.embed_tokens.weight[90] = float("nan")
    # the head shares the embedding, so it must not: a NaN there would reach every prompt
    model.lm_head.weight = torch.nn.Parameter(qwen3.model.lm_head.weight.detach().clone())
    plain = [Encoded(tuple(token % 80 + 5 for token in prompt.ids)) for prompt in models.prompts(6)]
    bad = Encoded((*plain[0].ids, 90, 7))
    for config in (ALONE, ScoringConfig()):
        run = score_prompts(models.judge(model), [*plain, bad], config=config)
        assert np.isnan(run.score).tolist() == [False] * 6 + [True]


def test_a_model_that_changes_its_logits_is_refused(qwen3: LanguageModel) -> None:
    model = models.tiny_qwen3()
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(InputError, match="final_logit_softcapping"):
        score_prompts(models.judge(model), models.prompts(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("cores", [2, 0])
def test_actors_of_ray_read_the_same_numbers(
    qwen3: LanguageModel, tmp_path: Path, cores: int
) -> None:
    ray = pytest.importorskip("ray")
    prompts, config = models.prompts(20), ScoringConfig(rows=1, shard_rows=5)
    alone = score_prompts(qwen3, prompts, config=config).score
    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False)
    try:
        by_ray = replace(config, ray=True)
        score_prompts(qwen3, prompts[:8], config=by_ray, shards=tmp_path, identity="a")
        there = set(tmp_path.iterdir())
        found = score_prompts(qwen3, prompts, config=by_ray, shards=tmp_path, identity="a").score
    finally:
        ray.shutdown()
    assert there and there <= set(tmp_path.iterdir())
    np.testing.assert_array_equal(found, alone)
