"""GRPO on one verdict token: the expected policy gradient, or TRL's sampled one as in the paper."""

# A group draws n verdicts v₁…v_n from the policy π(· | x) at the verdict's position. Their rewards
# r_i depend on verdict and outcome alone; with the advantages A_i = r_i − r̄, not divided by a
# standard deviation, the gradient is g = 1/n · Σ_i A_i ∇log π(v_i). r̄ contains r_i/n and the
# rewards of the other draws; those are independent of v_i, and E[∇log π(v)] = ∇ Σ_v π(v) = 0, so
# they drop out: E[g] = (1 − 1/n) E[r(v) ∇log π(v)] = (n−1)/n · ∇ Σ_v π(v) r(v).
#
# All tokens that are no verdict earn the same u, so three probabilities suffice: p_S, p_F and p_O =
# 1 − p_S − p_F, and E[g] = (n−1)/n · ∇(p_S r_S + p_F r_F + p_O u). With m = p_S + p_F, p = p_S/m
# the judge's score (Eq. 4 of the paper), z = logit p and D = r_S − r_F this is (n−1)/n · (m p(1−p)
# D ∇z + (p r_S + (1−p) r_F − u) ∇m): with all mass on the verdicts only p(1−p)·D·(n−1)/n·∇z is
# left, and the second term raises m, as u is at most either verdict's reward.
#
# That is the gradient of −(n−1)/n · E[r], which autograd takes in one forward and one backward pass
# a prompt: no sampling, no variance over draws. As in the paper, nothing holds the judge to the one
# at the start (β = 0).

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.adapters import adapter_weights, head_logits, inner_model
from certify_assets.judges.lm.language_model import (
    Encoded,
    Hardware,
    LanguageModel,
    VerdictTokens,
    uncompiled,
)
from certify_assets.judges.lm.reward import Arm, completion_reward
from certify_assets.judges.lm.training import Progress, ResumableTrainer, arguments, run, session


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Settings of GRPO; the defaults are the paper's at 4B, or else TRL's."""

    # draw verdicts as TRL does, or take their expectation
    sampled: bool = False
    learning_rate: float = 2e-6
    steps: int = 150
    # the global batch is their product in completions: 48, the paper's 8 a device on 6 devices.
    # Exact GRPO draws no sample and takes their number as the factor (n − 1)/n
    prompts_per_step: int = 6
    samples: int = 8
    seed: int = 42
    max_grad_norm: float = 1.0
    # numbers of steps after which the caller is asked to keep the adapter
    evaluate_at: tuple[int, ...] = ()
    save_every: int = 50  # steps between checkpoints; 0 keeps none
    # tokens that are trained on at once, padding included
    micro_tokens: int = 16_384
    max_completion_tokens: int = 40

    def order(self, rows: int) -> list[int]:
        """Return the rows of all steps: epochs of seeded permutations, one after the other."""
        needed = self.steps * self.prompts_per_step
        epochs = [
            np.random.default_rng([self.seed, epoch]).permutation(rows)
            for epoch in range(math.ceil(needed / rows))
        ]
        return [int(row) for row in np.concatenate(epochs)[:needed]]


@dataclass(frozen=True, eq=False)
class GrpoRun:
    """A training of a model's adapter, in place, on prompts and their outcomes."""

    language: LanguageModel
    prompts: Sequence[Encoded]
    outcomes: Sequence[int]
    arm: Arm
    config: GrpoConfig

    def train(
        self,
        folder: Path,
        *,
        evaluate: Callable[[int], None] | None = None,
        progress: Progress | None = None,
    ) -> list[dict[str, float]]:
        """Train, resuming from checkpoints of the same run in the folder.

        Returns
        -------
        list of dict
            TRL's log, a row a step.

        Raises
        ------
        InputError
            If a verdict has several tokens, the folder has checkpoints of another run, or a loss is
            not a number.
        """
        make = sampled_trainer if self.config.sampled else exact_trainer
        at = self.config.evaluate_at
        sha256, model = self.sha256, self.language.model
        # with samples texts grow by a token at a time: no two calls of a layer are alike
        with session(model), uncompiled() if self.config.sampled else nullcontext():
            trainer = make(self, folder)
            log = run(trainer, sha256, progress=progress, evaluate_at=at, evaluate=evaluate)
        model.eval()
        return log

    @property
    def sha256(self) -> str:
        """Hash of everything that decides the run, including the adapter at the start."""
        language = self.language
        verdicts = [list(language.verdicts.success), list(language.verdicts.fail)]
        decides = {
            "judge": [language.source, language.revision, verdicts],
            "start": sha256_bytes(adapter_weights(language.model)),
            "arm": self.arm.costs(),
            # when something is kept changes no weight
            "config": {**asdict(self.config), "evaluate_at": (), "save_every": 0},
            "rows": [
                [list(prompt.ids), int(outcome)]
                for prompt, outcome in zip(self.prompts, self.outcomes, strict=True)
            ],
        }
        return sha256_bytes(canonical_json(decides))

    def at_once(self, count: int, more: int = 0) -> int:
        """Return the largest divisor of a number of rows within the token budget, or 1."""
        longest = max(len(prompt.ids) for prompt in self.prompts) + more
        sizes = [size for size in range(1, count + 1) if count % size == 0]
        return max(
            (size for size in sizes if size * longest <= self.config.micro_tokens), default=1
        )

    def arguments(self, kind: Any, folder: Path, **settings: Any) -> Any:
        """Return the configuration of a trainer, with the settings that both share."""
        config = self.config
        return arguments(
            kind,
            folder,
            Hardware.of(self.language.model),
            seed=config.seed,
            save_every=config.save_every,
            learning_rate=config.learning_rate,
            lr_scheduler_type="linear",
            max_steps=config.steps,
            max_grad_norm=config.max_grad_norm,
            **settings,
        )


def single_tokens(verdicts: VerdictTokens) -> tuple[int, int]:
    """Return the tokens of success and failure."""
    if not verdicts.single:
        raise InputError(
            f"the verdicts are the tokens {verdicts.success} and {verdicts.fail}; GRPO reads one "
            "token each, so choose words that are one."
        )
    return verdicts.success[0], verdicts.fail[0]


def exact_trainer(grpo_run: GrpoRun, folder: Path) -> Any:
    """Return TRL's trainer of prompts with the expected reward as loss, not yet run."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    config, arm, verdicts = grpo_run.config, grpo_run.arm, single_tokens(grpo_run.language.verdicts)

    class ExactTrainer(ResumableTrainer, SFTTrainer):
        """The trainer with another loss."""

        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            # float32 adapters multiply in the type of the weights
            with self.accelerator.autocast():
                log_probs = verdict_log_probs(inner_model(self.model), inputs, verdicts)
            return exact_loss(log_probs, inputs["outcomes"].tolist(), arm, config.samples).mean()

    at_once = grpo_run.at_once(config.prompts_per_step)
    rows = [
        {"ids": list(grpo_run.prompts[row].ids), "outcome": int(grpo_run.outcomes[row])}
        for row in config.order(len(grpo_run.prompts))
    ]
    return ExactTrainer(
        model=grpo_run.language.model,
        args=grpo_run.arguments(
            SFTConfig,
            folder,
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=config.prompts_per_step // at_once,
            train_sampling_strategy="sequential",
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            packing=False,
        ),
        train_dataset=Dataset.from_list(rows),
        data_collator=_padded,
        processing_class=grpo_run.language.tokenizer,
    )


def verdict_log_probs(model: Any, inputs: Any, verdicts: tuple[int, int]) -> Any:
    """Log-probabilities of success, failure and anything else after the marker, with gradients.

    Returns a torch.Tensor of shape (prompts, 3). Only the last position of each prompt goes through
    the head, in float32.
    """
    import torch

    # what pads a prompt comes after its end, where causal attention does not look
    hidden = model.get_decoder()(input_ids=inputs["input_ids"], use_cache=False).last_hidden_state
    ends = inputs["ends"]
    logits = head_logits(model, hidden[torch.arange(len(ends), device=ends.device), ends])
    tokens = torch.tensor(verdicts, device=logits.device)
    # 1 − p_S − p_F would lose every digit of a small rest
    others = logits.index_fill(1, tokens, -math.inf).logsumexp(1, keepdim=True)
    return torch.log_softmax(torch.cat([logits[:, tokens], others], dim=1), dim=1)


def exact_loss(log_probs: Any, outcomes: Sequence[int], arm: Arm, samples: int) -> Any:
    """Return −(n−1)/n · (p_S·r_S + p_F·r_F + p_O·u) of each prompt, of shape (prompts,)."""
    rewards = log_probs.new_tensor([arm.rewards(outcome) for outcome in outcomes])
    return -(samples - 1) / samples * (log_probs.exp() * rewards).sum(1)


def _padded(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    import torch

    width = max(len(row["ids"]) for row in rows)
    return {
        "input_ids": torch.tensor([row["ids"] + [0] * (width - len(row["ids"])) for row in rows]),
        "ends": torch.tensor([len(row["ids"]) - 1 for row in rows]),
        "outcomes": torch.tensor([row["outcome"] for row in rows]),
    }


# What differs from TRL's defaults in sampled GRPO, and why:
# * A group has two rewards: dividing by their standard deviation (scale_rewards) would remove the
#   distance between them, so λ and μ.
# * The verdict tokens end a completion. TRL's loss, DAPO, averages over the tokens of all
#   completions: what follows a verdict would share in its advantage, and a batch with long
#   completions would weigh each verdict less.
# * A completion that does not begin with a verdict earns −max(λ, μ).
# * Prompts come as token ids: TRL would tokenise text again, and no longer cuts long prompts.
# * All steps are one epoch, its rows in the order of the exact optimiser: TRL draws each epoch's
#   order from a generator that a resumed run begins again, drops what fills no step, and takes a
#   step too many where it is resumed after the last one in the middle of an epoch.
# * The adapter comes with the model, trainable: with a peft_config TRL would add a second one.
def sampled_trainer(grpo_run: GrpoRun, folder: Path) -> Any:
    """Return TRL's GRPOTrainer on encoded prompts, as the paper ran it, not yet run."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    language, prompts, config = grpo_run.language, grpo_run.prompts, grpo_run.config
    success, fail = single_tokens(language.verdicts)

    class SampledTrainer(ResumableTrainer, GRPOTrainer):
        """The trainer on numbered rows, whose token ids it uses unchanged."""

        def _tokenize_prompts(
            self, prompts_: list[str]
        ) -> tuple[list[list[int]], None, dict[str, list[Any]]]:
            return [list(prompts[int(row)].ids) for row in prompts_], None, {}

    def verdict_reward(
        completion_ids: list[list[int]], outcome: list[int], **_: Any
    ) -> list[float | None]:
        pairs = zip(completion_ids, outcome, strict=True)
        return [
            completion_reward(grpo_run.arm, completion, given, success=success, fail=fail)
            for completion, given in pairs
        ]

    at_once = grpo_run.at_once(config.samples, config.max_completion_tokens)
    order = config.order(len(prompts))
    outcomes = [int(grpo_run.outcomes[row]) for row in order]
    rows = {"prompt": [str(row) for row in order], "outcome": outcomes}
    with _stopping_at(language.model, (success, fail)):
        return SampledTrainer(
            model=language.model,
            reward_funcs=verdict_reward,
            args=grpo_run.arguments(
                GRPOConfig,
                folder,
                per_device_train_batch_size=at_once,
                gradient_accumulation_steps=config.prompts_per_step * config.samples // at_once,
                num_generations=config.samples,
                max_completion_length=config.max_completion_tokens,
                scale_rewards="none",
                loss_type="dapo",
                beta=0.0,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                shuffle_dataset=False,
                disable_dropout=True,
            ),
            train_dataset=Dataset.from_dict(rows),
            processing_class=language.tokenizer,
        )


@contextmanager
def _stopping_at(model: Any, verdicts: tuple[int, int]) -> Iterator[None]:
    """Name the verdicts among the model's ends of text while TRL reads them."""
    settings = model.generation_config
    before = settings.eos_token_id
    ends = [] if before is None else [before] if isinstance(before, int) else list(before)
    settings.eos_token_id = [*ends, *verdicts]
    try:
        yield
    finally:
        settings.eos_token_id = before
