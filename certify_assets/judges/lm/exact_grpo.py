"""GRPO without sampling: the expected policy gradient of one verdict token in closed form."""

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError
from certify_assets.judges.lm.adapters import head_logits, inner_model, native_inputs
from certify_assets.judges.lm.checkpoint import (
    checkpoint_run,
    load_checkpoint,
    save_checkpoint,
    trainable_weights,
)
from certify_assets.judges.lm.contract import Encoded, Hardware, LanguageModel
from certify_assets.judges.lm.grpo_config import Arm, GrpoConfig, run_sha256, single_tokens


@dataclass(frozen=True, slots=True)
class GrpoStep:
    """One optimizer step."""

    step: int
    # the loss, and the mean expected reward of the prompts before the step
    loss: float
    reward: float
    unparsed: float
    grad_norm: float
    learning_rate: float


@dataclass(frozen=True)
class GrpoRun:
    """Hash of all that decided a run, and its steps."""

    sha256: str
    history: tuple[GrpoStep, ...]


def verdict_log_probs(language: LanguageModel, prompts: Sequence[Encoded]) -> Any:
    """Log-probabilities of success, failure and anything else after the marker, with gradients."""
    # only the last position goes through the head, in float32
    import torch

    success, fail = single_tokens(language.verdicts)
    inner = inner_model(language.model)
    device = inner.device
    with Hardware.of(inner).autocast():
        hidden = _padded_hidden(inner, prompts, device)
    logits = head_logits(inner, hidden)
    verdicts = logits[:, [success, fail]]
    # 1 − p_S − p_F would lose every digit of a small rest
    others = logits.index_fill(
        1, torch.tensor([success, fail], device=device), -math.inf
    ).logsumexp(1, keepdim=True)
    return torch.log_softmax(torch.cat([verdicts, others], dim=1), dim=1)


def _padded_hidden(inner: Any, prompts: Sequence[Encoded], device: Any) -> Any:
    import torch

    width = max(len(prompt.ids) for prompt in prompts)
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt.ids) :] = torch.tensor(prompt.ids)
        mask[row, width - len(prompt.ids) :] = 1
    places = (mask.cumsum(1) - 1).clamp(min=0)
    return inner.base_model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=places.to(device),
        use_cache=False,
    ).last_hidden_state[:, -1]


def expected_reward(log_probs: Any, outcomes: Sequence[int], arm: Arm) -> Any:
    """Return p_S·r_S + p_F·r_F + p_O·u of each prompt, a torch.Tensor of shape (prompts,)."""
    rewards = log_probs.new_tensor([arm.rewards(outcome) for outcome in outcomes])
    return (log_probs.exp() * rewards).sum(1)


def exact_loss(log_probs: Any, outcomes: Sequence[int], arm: Arm, config: GrpoConfig) -> Any:
    """Return each prompt's loss: minus the expected reward."""
    return -(config.samples - 1) / config.samples * expected_reward(log_probs, outcomes, arm)


def train_exact(
    language: LanguageModel,
    prompts: Sequence[Encoded],
    outcomes: Sequence[int],
    *,
    arm: Arm,
    config: GrpoConfig,
    folder: Path | None = None,
    evaluate: Callable[[int], None] | None = None,
    progress: Callable[[GrpoStep], None] | None = None,
) -> GrpoRun:
    """Train the model's trainable weights in place by exact GRPO."""
    trainer = _Trainer(language, prompts, outcomes, arm=arm, config=config)
    history = trainer.resume(folder)
    for step in range(len(history), config.steps):
        history.append(trainer.step(step))
        done = step + 1
        due = evaluate is not None and done in config.evaluate_at
        if evaluate is not None and due:
            evaluate(done)
        if folder is not None and (
            due or done == config.steps or (config.save_every and done % config.save_every == 0)
        ):
            trainer.save(folder, history)
        if progress is not None:
            progress(history[-1])
    language.model.eval()
    return GrpoRun(trainer.sha256, tuple(history))


# Not TRL's trainer, which samples completions: a verdict is one token, so that the expectation
# over verdicts is exact and costs one pass. A checkpoint is of the hash of all that decides the
# run, and is read without pickle.
class _Trainer:
    """A run in progress."""

    def __init__(
        self,
        language: LanguageModel,
        prompts: Sequence[Encoded],
        outcomes: Sequence[int],
        *,
        arm: Arm,
        config: GrpoConfig,
    ) -> None:
        from torch.optim import AdamW

        single_tokens(language.verdicts)
        self.language, self.prompts, self.outcomes = language, prompts, outcomes
        self.arm, self.config = arm, config
        self.sha256 = run_sha256(language, prompts, outcomes, arm=arm, config=config)
        self.weights = list(trainable_weights(language.model).values())
        fused = Hardware.of(language.model).fused
        self.optimizer = AdamW(self.weights, lr=config.learning_rate, weight_decay=0.0, fused=fused)

    def resume(self, folder: Path | None) -> list[GrpoStep]:
        """Resume from a checkpoint where there is one."""
        if folder is None or checkpoint_run(folder) is None:
            return []
        history = load_checkpoint(folder, self.language.model, self.optimizer, run=self.sha256)
        return [GrpoStep(**step) for step in history]

    def save(self, folder: Path, history: Sequence[GrpoStep]) -> None:
        """Keep the state after a step."""
        save_checkpoint(
            folder,
            self.language.model,
            self.optimizer,
            run=self.sha256,
            history=[asdict(step) for step in history],
        )

    def step(self, step: int) -> GrpoStep:
        """Take one optimizer step."""
        import torch

        # dropout stays off, so that nothing is drawn
        self.language.model.eval()
        rows = self.config.batch(len(self.prompts), step)
        model = self.language.model
        with native_inputs(model):
            parts = _micro_batches(self.prompts, rows, self.config.micro_tokens)
            sums = [self._backward(part, len(rows)) for part in parts]
        loss, reward, unparsed = (sum(values) / len(rows) for values in zip(*sums, strict=True))
        norm = torch.nn.utils.clip_grad_norm_(self.weights, self.config.max_grad_norm or math.inf)
        if not (math.isfinite(loss) and math.isfinite(float(norm))):
            raise InputError(
                f"the loss or its gradient is not finite at step {step + 1}; lower the learning "
                "rate."
            )
        rate = self.config.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return GrpoStep(step + 1, loss, reward, unparsed, float(norm), rate)

    def _backward(self, rows: Sequence[int], batch: int) -> tuple[float, float, float]:
        outcomes = [int(self.outcomes[row]) for row in rows]
        log_probs = verdict_log_probs(self.language, [self.prompts[row] for row in rows])
        losses = exact_loss(log_probs, outcomes, self.arm, self.config)
        (losses.sum() / batch).backward()
        seen = log_probs.detach()
        rewards = expected_reward(seen, outcomes, self.arm)
        return float(losses.detach().sum()), float(rewards.sum()), float(seen[:, 2].exp().sum())


def _micro_batches(
    prompts: Sequence[Encoded], rows: Sequence[int], budget: int
) -> Iterator[list[int]]:
    """Cut rows into batches of similar length within the token budget."""
    part: list[int] = []
    for row in sorted(rows, key=lambda row: (-len(prompts[row].ids), row)):
        lengths = [len(prompts[one].ids) for one in (*part, row)]
        if part and lengths[0] * len(lengths) > budget:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
