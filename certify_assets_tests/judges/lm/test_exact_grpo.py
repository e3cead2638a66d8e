"""Exact GRPO: the closed form against enumeration and finite differences, training, checkpoints."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError, IntegrityError
from certify_assets.judges.lm.checkpoint import CHECKPOINT
from certify_assets.judges.lm.language_model import Encoded, LanguageModel, VerdictTokens
from certify_assets.judges.lm.grpo import exact_loss, train_exact
from certify_assets.judges.lm.reward import ARMS, Arm, GrpoConfig
from certify_assets_tests.judges.lm.tiny import random_rows, tiny_judge, with_adapter

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.(is_)?gradient_checkpointing. is deprecated:FutureWarning"),
]

ARM = Arm("uneven", 1.5, 3.0)
SMALL: dict[str, Any] = {
    "steps": 6,
    "learning_rate": 5e-3,
    "prompts_per_step": 4,
    "save_every": 2,
}


def _weights(judge: LanguageModel) -> dict[str, np.ndarray]:
    return {
        name: weight.detach().numpy().copy()
        for name, weight in judge.model.named_parameters()
        if weight.requires_grad
    }


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("outcome", [0, 1])
@pytest.mark.parametrize("samples", [2, 3, 5])
def test_the_loss_has_the_gradient_of_all_groups_enumerated(samples: int, outcome: int) -> None:
    import torch

    # five tokens: two verdicts and three others, so that no verdict is more than one outcome
    logits = torch.tensor([0.3, -0.4, 0.1, -1.2, 0.6], dtype=torch.float64, requires_grad=True)
    rewards = [ARM.reward(1, outcome), ARM.reward(0, outcome), *[ARM.unparsed] * 3]
    log_probs = torch.log_softmax(logits, 0)
    known = log_probs.tolist()
    expected = torch.zeros(5, dtype=torch.float64)
    for group in itertools.product(range(5), repeat=samples):
        chance = math.exp(sum(known[token] for token in group))
        mean = sum(rewards[token] for token in group) / samples
        surrogate = sum((rewards[token] - mean) * log_probs[token] for token in group) / samples
        expected += chance * torch.autograd.grad(surrogate, logits, retain_graph=True)[0]
    three = torch.stack([log_probs[0], log_probs[1], log_probs[2:].logsumexp(0)])[None]
    loss = exact_loss(three, [outcome], ARM, GrpoConfig(samples=samples)).sum()
    torch.testing.assert_close(
        -torch.autograd.grad(loss, logits)[0], expected, rtol=1e-12, atol=1e-14
    )


def test_training_raises_the_reward_and_asks_for_evaluation_when_due() -> None:
    judge = with_adapter(tiny_judge(taught=10), started=False)
    asked: list[int] = []
    config = GrpoConfig(steps=30, learning_rate=2e-2, prompts_per_step=16, evaluate_at=(10, 30))
    rows = random_rows(32, noise=0.0)
    run = train_exact(judge, *rows, arm=ARMS["reject_3"], config=config, evaluate=asked.append)
    assert asked == [10, 30] and len(run.history) == 30
    assert run.history[-1].reward > run.history[0].reward + 0.5
    assert run.history[0].learning_rate == 2e-2
    assert run.history[-1].learning_rate == pytest.approx(2e-2 / 30)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    prompts, outcomes = random_rows(10)
    config = GrpoConfig(**SMALL)
    whole = with_adapter(tiny_judge())
    through = train_exact(whole, prompts, outcomes, arm=ARM, config=config)

    def stop(step: Any) -> None:
        if step.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_exact(
            with_adapter(tiny_judge()),
            prompts,
            outcomes,
            arm=ARM,
            config=config,
            folder=tmp_path,
            progress=stop,
        )
    again = with_adapter(tiny_judge())
    seen: list[int] = []
    resumed = train_exact(
        again,
        prompts,
        outcomes,
        arm=ARM,
        config=config,
        folder=tmp_path,
        progress=lambda step: seen.append(step.step),
    )
    assert seen == [5, 6]
    assert resumed.history == through.history
    assert resumed.sha256 == through.sha256
    assert _same(_weights(again), _weights(whole))
    # a finished run is found finished
    train_exact(
        with_adapter(tiny_judge()),
        prompts,
        outcomes,
        arm=ARM,
        config=config,
        folder=tmp_path,
        progress=lambda step: seen.append(step.step),
    )
    assert seen == [5, 6]


def test_another_run_and_a_damaged_checkpoint_are_refused(tmp_path: Path) -> None:
    prompts, outcomes = random_rows(6)
    config = GrpoConfig(**{**SMALL, "steps": 2})
    train_exact(
        with_adapter(tiny_judge()), prompts, outcomes, arm=ARM, config=config, folder=tmp_path
    )
    with pytest.raises(InputError, match="other rows, settings or judge"):
        train_exact(
            with_adapter(tiny_judge()),
            prompts,
            outcomes,
            arm=ARMS["accuracy"],
            config=config,
            folder=tmp_path,
        )
    with pytest.raises(InputError, match="other rows, settings or judge"):
        train_exact(
            with_adapter(tiny_judge(), seed=2),
            prompts,
            outcomes,
            arm=ARM,
            config=config,
            folder=tmp_path,
        )
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(IntegrityError, match="no whole safetensors file"):
        train_exact(
            with_adapter(tiny_judge()), prompts, outcomes, arm=ARM, config=config, folder=tmp_path
        )


def test_small_batches_add_up_to_the_large_one() -> None:
    whole, *parts = (
        train_exact(
            with_adapter(tiny_judge()),
            *random_rows(8),
            arm=ARM,
            config=GrpoConfig(**{**SMALL, "steps": 1}, micro_tokens=tokens),
        ).history[0]
        for tokens in (10_000, 45, 1)
    )
    for part in parts:
        assert part.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)
        assert part.reward == pytest.approx(whole.reward, rel=1e-5)


def test_the_order_visits_every_row_once_an_epoch() -> None:
    config = GrpoConfig(prompts_per_step=4)
    rows = [row for step in range(6) for row in config.batch(12, step)]
    assert sorted(rows[:12]) == sorted(rows[12:]) == list(range(12)) and rows[:12] != rows[12:]
    assert config.batch(12, 0) != GrpoConfig(prompts_per_step=4, seed=1).batch(12, 0)


def test_what_cannot_be_trained_is_refused() -> None:
    judge = with_adapter(tiny_judge())
    prompts, outcomes = random_rows(3)
    config = GrpoConfig(steps=1)
    several = LanguageModel(judge.model, judge.tokenizer, VerdictTokens((2, 5), (3,)), "x", "y")
    with pytest.raises(InputError, match="choose words that are one"):
        train_exact(several, prompts, outcomes, arm=ARM, config=config)
    judge.model.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable weight"):
        train_exact(judge, prompts, outcomes, arm=ARM, config=config)
    broken = tiny_judge()
    broken.model.lm_head.weight.data[2] = float("nan")
    with pytest.raises(InputError, match="not finite at step 1"):
        train_exact(broken, [Encoded((5, 6))], [1], arm=ARM, config=config)
