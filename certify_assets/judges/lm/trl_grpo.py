"""GRPO as the paper ran it: TRL's trainer, with sampled verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError
from certify_assets.judges.lm.contract import Encoded, Hardware, LanguageModel
from certify_assets.judges.lm.grpo_config import (
    Arm,
    GrpoConfig,
    completion_reward,
    run_sha256,
    single_tokens,
)
from certify_assets.judges.lm.trainer import QuietTrainer, latest_checkpoint, own_random_state

# What differs from TRL's defaults, and why:
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


@dataclass(frozen=True)
class TrlRun:
    """What a run was, and the log of TRL's trainer."""

    sha256: str
    # a row a step, without what differs between two runs of the same bytes
    history: list[dict[str, float]]


def train_trl(
    language: LanguageModel,
    prompts: Sequence[Encoded],
    outcomes: Sequence[int],
    *,
    arm: Arm,
    config: GrpoConfig,
    folder: Path,
    evaluate: Callable[[int], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> TrlRun:
    """Train the adapter in place with TRL; resume from the last checkpoint in the folder."""
    sha256 = run_sha256(language, prompts, outcomes, arm=arm, config=config)
    last = latest_checkpoint(folder, sha256)
    with own_random_state():
        trainer = make_trainer(language, prompts, outcomes, arm=arm, config=config, folder=folder)
        trainer.run_sha256 = sha256
        trainer.add_callback(_watcher(config.evaluate_at, evaluate, progress))
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    language.model.eval()
    # a log that was read from a checkpoint has its names in order
    history = [
        {name: value for name, value in sorted(entry.items()) if name != "step_time"}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]
    return TrlRun(sha256, history)


def make_trainer(
    language: LanguageModel,
    prompts: Sequence[Encoded],
    outcomes: Sequence[int],
    *,
    arm: Arm,
    config: GrpoConfig,
    folder: Path,
) -> Any:
    """Return TRL's GRPOTrainer on encoded prompts, not yet run; see :func:`train_trl`."""
    success, fail = single_tokens(language.verdicts)
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl.trainer.grpo_trainer import GRPOTrainer

    class EncodedTrainer(QuietTrainer, GRPOTrainer):
        """The trainer on rows by number, whose token ids it takes as they are."""

        def _tokenize_prompts(
            self, prompts_: list[str]
        ) -> tuple[list[list[int]], None, dict[str, list[Any]]]:
            return [list(prompts[int(row)].ids) for row in prompts_], None, {}

    def verdict_reward(
        completion_ids: list[list[int]], outcome: list[int], **_: Any
    ) -> list[float | None]:
        pairs = zip(completion_ids, outcome, strict=True)
        return [
            completion_reward(arm, completion, given, success=success, fail=fail)
            for completion, given in pairs
        ]

    order = [row for step in range(config.steps) for row in config.batch(len(prompts), step)]
    rows = Dataset.from_dict(
        {
            "prompt": [str(row) for row in order],
            "outcome": [int(outcomes[row]) for row in order],
        }
    )
    with _stopping_at(language.model, (success, fail)):
        trainer = EncodedTrainer(
            model=language.model,
            reward_funcs=verdict_reward,
            args=_arguments(language, config, folder, longest=max(map(_length, prompts))),
            train_dataset=rows,
            processing_class=language.tokenizer,
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _watcher(
    steps: Sequence[int],
    evaluate: Callable[[int], None] | None,
    progress: Callable[[int], None] | None,
) -> Any:
    from transformers import TrainerCallback

    class GrpoWatcher(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if evaluate is not None and state.global_step in steps:
                evaluate(state.global_step)
            if progress is not None:
                progress(state.global_step)

    return GrpoWatcher()


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


def _length(prompt: Encoded) -> int:
    return len(prompt.ids)


def _arguments(language: LanguageModel, config: GrpoConfig, folder: Path, *, longest: int) -> Any:
    import torch
    from trl.trainer.grpo_config import GRPOConfig

    hardware = Hardware.of(language.model)
    world = max(1, torch.cuda.device_count()) if hardware.accelerated else 1
    # completions of one prompt that are trained on at once: as many as the token budget holds
    tokens = longest + config.max_completion_tokens
    sizes = [size for size in range(1, config.samples + 1) if config.samples % size == 0]
    here = max((size for size in sizes if size * tokens <= config.micro_tokens), default=1)
    if config.global_batch % (here * world):
        raise InputError(
            f"the global batch of {config.global_batch} completions cannot be cut among {world} "
            f"devices of {here}."
        )
    return GRPOConfig(
        output_dir=str(folder),
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        max_steps=config.steps,
        per_device_train_batch_size=here,
        gradient_accumulation_steps=config.global_batch // (here * world),
        num_generations=config.samples,
        max_completion_length=config.max_completion_tokens,
        scale_rewards="none",
        loss_type="dapo",
        beta=0.0,
        max_grad_norm=config.max_grad_norm,
        weight_decay=0.0,
        seed=config.seed,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        shuffle_dataset=False,
        disable_dropout=True,
        # TRL turns it on by itself, which on a small model costs time
        gradient_checkpointing=False,
        # TRL turns bfloat16 on by itself, on a CPU as well
        bf16=hardware.dtype == "bfloat16",
        use_cpu=not hardware.accelerated,
        save_strategy="steps" if config.save_every else "no",
        save_steps=config.save_every or 500,
        save_total_limit=2,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
