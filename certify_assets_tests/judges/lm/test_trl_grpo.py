"""TRL's trainer next to the exact one: what it samples, its gradient, and where that converges."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.grpo import GrpoConfig, GrpoRun, sampled_trainer
from certify_assets.judges.lm.language_model import Encoded, LanguageModel
from certify_assets.judges.lm.reward import ARMS, Arm
from certify_assets_tests.judges.lm.tiny import random_rows, tiny_judge, with_adapter

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.(is_)?gradient_checkpointing. is deprecated:FutureWarning"),
]

ARM = ARMS["reject_3"]


def _watched(
    judge: LanguageModel,
    folder: Path,
    rows: tuple[list[Encoded], list[int]],
    config: GrpoConfig,
    arm: Arm = ARM,
) -> Any:
    """Run TRL; return its trainer, with the gradients of every step and the batches behind them."""
    import torch
    from transformers import TrainerCallback

    trainer = sampled_trainer(GrpoRun(judge, *rows, arm, config), folder)
    trainer.seen = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            parts = [
                weight.grad.flatten() for weight in judge.model.parameters() if weight.requires_grad
            ]
            batch = {
                name: [part[name] for part in trainer._buffered_inputs]
                for name in ("completion_ids", "advantages", "prompt_ids")
            }
            trainer.seen.append((torch.cat(parts).clone(), batch))

    trainer.add_callback(Watch())
    trainer.train()
    judge.model.eval()
    return trainer


def _flat_gradient(judge: LanguageModel, loss: Any) -> Any:
    import torch

    weights = [weight for weight in judge.model.parameters() if weight.requires_grad]
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, weights)])


@pytest.mark.slow
def test_the_first_gradient_of_trl_is_that_of_the_sampled_formula(tmp_path: Path) -> None:
    import torch

    judge = with_adapter(tiny_judge(taught=12))
    config = GrpoConfig(
        sampled=True,
        steps=1,
        prompts_per_step=6,
        max_grad_norm=0.0,
        save_every=0,
        max_completion_tokens=1,
    )
    rows = random_rows(6)
    # the adapter as it is before the step; the rate of 2e-6 moves it by less than the tolerance
    trainer = _watched(judge, tmp_path, rows, config)
    found, batch = trainer.seen[0]
    tokens, advantages = torch.cat(batch["completion_ids"])[:, 0], torch.cat(batch["advantages"])
    prompts = [
        Encoded(tuple(ids[ids != 0].tolist())) for part in batch["prompt_ids"] for ids in part
    ]
    outcomes = {prompt.ids: outcome for prompt, outcome in zip(*rows, strict=True)}
    rewards = [
        ARM.reward({2: 1, 3: 0}.get(token), outcomes[prompt.ids])
        for prompt, token in zip(prompts, tokens.tolist(), strict=True)
    ]
    drawn = pd.DataFrame({"prompt": [prompt.ids for prompt in prompts], "reward": rewards})
    groups = drawn.groupby("prompt")["reward"]
    assert set(groups.size()) == {8}
    # advantages are rewards less the mean of their group, not divided by anything
    expected = drawn["reward"] - groups.transform("mean")
    np.testing.assert_allclose(advantages, expected, atol=1e-5)
    assert advantages.abs().max() > 0
    # log π of the sampled token over the whole vocabulary
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(prompt.ids[::-1]) for prompt in prompts], batch_first=True
    ).flip(1)
    logits = judge.model(input_ids=ids, attention_mask=(ids != 0).long()).logits[:, -1]
    chosen = torch.log_softmax(logits.float(), 1).gather(1, tokens[:, None])[:, 0]
    formula = _flat_gradient(judge, -(advantages * chosen).mean())
    assert float((found - formula).norm() / formula.norm()) < 1e-3


@pytest.mark.slow
def test_a_run_stops_at_verdicts_and_resumes_with_the_same_bits(tmp_path: Path) -> None:
    rows = random_rows(7)
    config = GrpoConfig(
        sampled=True,
        # seven runs, three a step: it is resumed in the second pass, and ends in the middle of one
        steps=6,
        prompts_per_step=3,
        learning_rate=1e-3,
        save_every=2,
        max_completion_tokens=6,
    )
    whole = with_adapter(tiny_judge(taught=12))
    # a name that no hub has: a checkpoint must ask none for it
    whole.model.peft_config["default"].base_model_name_or_path = "compact"
    ends = whole.model.generation_config.eos_token_id
    run = GrpoRun(whole, *rows, ARM, config).train(tmp_path / "whole")
    assert whole.model.generation_config.eos_token_id == ends
    assert not whole.model.training
    steps = [line for line in run if "completions/mean_length" in line]
    assert len(steps) == 6
    # unparsable ones continue, verdicts are one token
    assert steps[0]["completions/min_length"] == 1
    # as optimiser and random states are kept, nothing of it is a pickle
    assert {path.suffix for path in (tmp_path / "whole/checkpoint-6").iterdir()} == {
        ".json",
        ".safetensors",
    }
    folder = tmp_path / "cut"
    folder.mkdir()
    (tmp_path / "whole" / "checkpoint-4").rename(folder / "checkpoint-4")
    (folder / "checkpoint-5").mkdir()
    # first from the middle, with a checkpoint that was cut short; then from the end
    for taken in ([5, 6], []):
        again, seen = with_adapter(tiny_judge(taught=12)), list[int]()
        resumed = GrpoRun(again, *rows, ARM, config).train(
            folder, progress=lambda step, *_, seen=seen: seen.append(step)
        )
        assert seen == taken and resumed == run
        for (name, one), (_, other) in zip(
            whole.model.named_parameters(), again.model.named_parameters(), strict=True
        ):
            assert bool((one == other).all()), name
    with pytest.raises(InputError, match="another model, other settings or rows"):
        GrpoRun(with_adapter(tiny_judge(taught=12)), *rows, ARMS["accuracy"], config).train(folder)
