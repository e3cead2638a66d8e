"""Supervised fine-tuning of the judge: LoRA through TRL, loss on the verdict alone."""


# On a CPU in float32 the same rows, settings and versions give the same adapter bytes, also where
# the training was stopped and resumed. Settings: the paper's appendix "Training details"; Hu et al.
# (2021), "LoRA".

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.adapters import (
    ADAPTER_SCHEMA,
    attach_lora,
    head_logits,
    inner_model,
    linear_targets,
    native_inputs,
    quiet,
    save_adapter,
    trainable_parameters,
)
from certify_assets.judges.lm.contract import Encoded, Hardware, LanguageModel, VerdictTokens
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.lm.trainer import QuietTrainer, latest_checkpoint, own_random_state
from certify_assets.work import Advance, Report, silent

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from certify_assets.judges.lm.judge import CausalJudge


IGNORED = -100


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Hyperparameters; the defaults are the paper's (appendix "Training details")."""

    # of LoRA. The paper gives 32.5 M trainable parameters and no rank: 16 gives 32.46 M at the
    # shape of Qwen3.5-4B, its base model (33.03 M at that of Qwen3-4B)
    rank: int = 16
    # of LoRA; the paper gives neither: scale 2, and no dropout
    alpha: int = 32
    dropout: float = 0.0
    # the paper's; the learning rate falls as a cosine
    epochs: float = 1.0
    learning_rate: float = 2e-5
    batch_size: int = 2
    accumulation: int = 4
    seed: int = 42
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as documents have them."""
        return asdict(self)

    @property
    def sha256(self) -> str:
        """Hash of the settings."""
        return sha256_bytes(canonical_json(self.to_dict()))


@dataclass(frozen=True, slots=True)
class SftRow:
    """A prompt and the outcome that its verdict must name."""

    prompt: Encoded
    outcome: int
    # where the outcome is from: "sft", or "harvest" (pseudo-labels of an unlabelled pool)
    source: str = "sft"


class TrainingRow(TypedDict):
    """A row as the trainer takes it."""

    input_ids: list[int]
    labels: list[int]


def training_rows(rows: Sequence[SftRow], verdicts: VerdictTokens) -> list[TrainingRow]:
    """Return token ids, and labels on the verdict's tokens alone."""
    built: list[TrainingRow] = []
    for row in rows:
        verdict = verdicts.success if row.outcome else verdicts.fail
        prompt = row.prompt.ids
        built.append(
            {
                "input_ids": [*prompt, *verdict],
                "labels": [IGNORED] * len(prompt) + list(verdict),
            }
        )
    return built


class _TrainingBatch(TypedDict):
    """Rows as tensors, padded on the right."""

    input_ids: Tensor
    labels: Tensor
    attention_mask: Tensor


def collate(rows: Sequence[TrainingRow]) -> _TrainingBatch:
    """Pad rows on the right; every row keeps its labels."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)

    def padded(tokens: Iterable[list[int]], value: int) -> Tensor:
        return torch.tensor([row + [value] * (width - len(row)) for row in tokens])

    return {
        "input_ids": padded((row["input_ids"] for row in rows), 0),
        "attention_mask": padded(([1] * len(row["input_ids"]) for row in rows), 0),
        "labels": padded((row["labels"] for row in rows), IGNORED),
    }


def verdict_loss(model: Any, inputs: _TrainingBatch, tokens: Any = None) -> Any:
    """Return the cross-entropy of the labels, in float32."""
    # only the places before a label go through the head, which of a large vocabulary costs as much
    # as some layers
    import torch

    hidden, (row, place) = _hidden(model, inputs)
    logits = head_logits(model, hidden[row, place - 1])
    losses = torch.nn.functional.cross_entropy(
        logits, inputs["labels"][row, place], reduction="none"
    )
    return losses.sum() / (len(place) if tokens is None else tokens)


def _hidden(model: Any, inputs: _TrainingBatch) -> tuple[Any, tuple[Any, Any]]:
    """Return the last hidden states, and the rows and places of the labels."""
    with Hardware.of(model).autocast():
        hidden = model.get_decoder()(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
        ).last_hidden_state
    row, place = (inputs["labels"] != IGNORED).nonzero(as_tuple=True)
    return hidden, (row, place)


def sft_arguments(
    config: SftConfig, folder: Path, *, device: str, dtype: str, checkpoint_steps: int
) -> Any:
    """Return TRL's configuration; defaults that could change a score are written out."""
    from trl.trainer.sft_config import SFTConfig

    with quiet():
        return SFTConfig(
            output_dir=str(folder),
            bf16=Hardware(device, dtype).half,
            use_cpu=device == "cpu",
            dataloader_pin_memory=Hardware(device).accelerated,
            save_steps=checkpoint_steps,
            num_train_epochs=config.epochs,
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            # the paper gives no warmup and no decay: those of the trainer
            warmup_steps=0,
            weight_decay=0.0,
            max_grad_norm=config.max_grad_norm,
            per_device_train_batch_size=config.batch_size,
            gradient_accumulation_steps=config.accumulation,
            gradient_checkpointing=config.gradient_checkpointing,
            seed=config.seed,
            data_seed=config.seed,
            optim="adamw_torch_fused" if Hardware(device).accelerated else "adamw_torch",
            # the rows are ready: TRL would cut at 1,024 tokens and lose the label, and train in
            # bfloat16 even on a CPU
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            packing=False,
            remove_unused_columns=False,
            fp16=False,
            dataloader_num_workers=0,
            save_strategy="steps",
            save_total_limit=2,
            logging_strategy="steps",
            logging_steps=1,
            # a loss that is not a number must be seen, not averaged away
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            report_to="none",
            push_to_hub=False,
        )


def sft_trainer_class(*, verdicts_alone: bool = False) -> Any:
    """Return the trainer's class, whose loss is TRL's or, with `verdicts_alone`, `verdict_loss`."""
    from trl.trainer.sft_trainer import SFTTrainer

    trainer: Any = SFTTrainer

    class VerdictTrainer(QuietTrainer, trainer):  # type: ignore[misc]
        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            if verdicts_alone:
                return verdict_loss(
                    inner_model(self.accelerator.unwrap_model(model)), inputs, num_items_in_batch
                )
            return super().compute_loss(
                model,
                inputs,
                return_outputs=return_outputs,
                num_items_in_batch=num_items_in_batch,
            )

    return VerdictTrainer


def watcher(progress: Callable[[int, int, float], None] | None) -> Any:
    """Return a callback that reports every step, and ends where a loss is not a number."""
    from transformers import TrainerCallback

    class SftWatcher(TrainerCallback):
        def on_log(
            self,
            args: Any,
            state: Any,
            control: Any,
            logs: dict[str, float] | None = None,
            **_: Any,
        ) -> None:
            loss = (logs or {}).get("loss")
            if loss is None:
                return
            if loss != loss:
                raise InputError(
                    f"the loss of step {state.global_step} is not a number; lower the learning "
                    "rate."
                )
            if progress is not None:
                progress(state.global_step, state.max_steps, loss)

    return SftWatcher()


# what the trainer aligns with the tokenizer, or switches off
_ALIGNED = ("bos_token_id", "eos_token_id", "pad_token_id", "use_cache")


@dataclass(frozen=True, kw_only=True)
class SftInputs:
    """All that an adapter depends on: known before its training begins."""

    base: str
    base_revision: str
    dtype: str
    config: SftConfig
    targets: list[str]
    data_sha256: str
    rows: int
    successes: int
    sources: dict[str, int]
    versions: dict[str, str]
    verdicts_alone: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the inputs as the provenance stores them."""
        return {
            **asdict(self),
            "config": self.config.to_dict(),
            "training": "sft",
            "config_sha256": self.config.sha256,
        }


@dataclass(frozen=True)
class TrainedAdapter:
    """A trained adapter on disk."""

    folder: Path
    inputs: SftInputs
    trainable_parameters: int
    steps: int
    loss_curve: list[dict[str, float]]  # step, loss, learning rate and norm of the gradient
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the provenance as it is stored."""
        return {
            **self.inputs.to_dict(),
            "schema": ADAPTER_SCHEMA,
            "trainable_parameters": self.trainable_parameters,
            "steps": self.steps,
            "loss_curve": self.loss_curve,
            "adapter_sha256": self.sha256,
        }


def train_sft(
    base: LanguageModel,
    rows: Sequence[SftRow],
    folder: Path,
    *,
    config: SftConfig,
    checkpoint_steps: int = 50,
    progress: Callable[[int, int, float], None] | None = None,
    verdicts_alone: bool = False,
) -> TrainedAdapter:
    """Train an adapter; a folder with checkpoints of the same run is resumed."""
    built = training_rows(rows, base.verdicts)
    inputs = _inputs(base, rows, built, config, verdicts_alone)
    run_sha256 = sha256_bytes(canonical_json(inputs.to_dict()))
    checkpoints = folder / "checkpoints"
    resume = latest_checkpoint(checkpoints, run_sha256)
    with own_random_state(), quiet(), _lora(base, config) as model, native_inputs(model):
        trainer = _trainer(base, model, built, inputs, (checkpoints, checkpoint_steps, run_sha256))
        trainer.add_callback(watcher(progress))
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        trained = TrainedAdapter(
            folder,
            inputs,
            trainable_parameters(model),
            trainer.state.global_step,
            _curve(trainer.state.log_history),
        )
        sha256 = save_adapter(model, folder, trained.to_dict(), source=base.source)
        return replace(trained, sha256=sha256)


def fine_tuned(
    judge: CausalJudge,
    labelled: pd.DataFrame,
    folder: Path,
    *,
    model: str,
    seed: int,
    report: Report = silent,
    recipe: Recipe | None = None,
) -> tuple[CausalJudge, TrainedAdapter]:
    """Fine-tune a base model; a column `label_source` may name the source of the labels."""
    known = known_model(model)
    recipe = recipe or known.recipe
    labelled = recipe.drawn(labelled, seed)
    require_both_outcomes(judge.name, labelled)
    sources = (
        labelled["label_source"].map({"harvest": "harvest"}).fillna("sft")
        if "label_source" in labelled
        else ["sft"] * len(labelled)
    )
    prompts = judge.encoder.encode_frame(labelled)
    rows = [
        SftRow(prompt, int(outcome), str(source))
        for prompt, outcome, source in zip(prompts, labelled["outcome"], sources, strict=True)
    ]
    config = SftConfig(
        epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        seed=seed,
    )
    hardware = Hardware.of(judge.language.model)
    trained = train_sft(
        judge.language,
        rows,
        folder,
        config=config,
        checkpoint_steps=recipe.checkpoint_steps,
        # several processes train one model through its own forward pass
        verdicts_alone=not known.exact and not hardware.distributed,
        progress=lambda step, steps, loss: report(Advance("sft", step, steps, loss)),
    )
    return judge.with_adapter(trained.folder), trained


def require_both_outcomes(name: str, labelled: pd.DataFrame) -> None:
    """Refuse rows from which a judge would learn to give one verdict to all."""
    if labelled["outcome"].nunique() < 2:
        raise InputError(
            f"the {len(labelled)} runs that {name} is to be trained on have one outcome or none; "
            "give it successes and failures, or raise runs where that is what leaves too few."
        )


def _trainer(
    base: LanguageModel,
    model: Any,
    built: list[TrainingRow],
    inputs: SftInputs,
    saving: tuple[Path, int, str],
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    checkpoints, steps, run_sha256 = saving
    on, config = Hardware.of(base.model), inputs.config
    trainer = sft_trainer_class(verdicts_alone=inputs.verdicts_alone)(
        model=model,
        args=sft_arguments(
            config, checkpoints, device=on.device, dtype=on.dtype, checkpoint_steps=steps
        ),
        train_dataset=Dataset.from_list(built),
        data_collator=collate,
        processing_class=base.tokenizer,
    )
    trainer.run_sha256 = run_sha256
    # it prints every step to standard output, where commands write their documents
    trainer.remove_callback(PrinterCallback)
    return trainer


def _inputs(
    base: LanguageModel,
    rows: Sequence[SftRow],
    built: list[TrainingRow],
    config: SftConfig,
    verdicts_alone: bool,
) -> SftInputs:
    import peft
    import torch
    import transformers
    import trl

    return SftInputs(
        base=base.source,
        base_revision=base.revision,
        dtype=Hardware.of(base.model).dtype,
        config=config,
        targets=list(linear_targets(base.model)),
        data_sha256=sha256_bytes(canonical_json(built)),
        rows=len(rows),
        successes=sum(row.outcome for row in rows),
        sources=dict(sorted(Counter(row.source for row in rows).items())),
        versions={
            module.__name__: str(module.__version__) for module in (peft, torch, transformers, trl)
        },
        verdicts_alone=verdicts_alone,
    )


@contextmanager
def _lora(base: LanguageModel, config: SftConfig) -> Iterator[Any]:
    """Lend the base model a fresh adapter, and give it back as it was."""
    trained = {name for name, value in base.model.named_parameters() if value.requires_grad}
    configs = [base.model.config, base.model.generation_config]
    training = base.model.training
    kept = [{name: getattr(config, name, None) for name in _ALIGNED} for config in configs]
    model = attach_lora(
        base.model, rank=config.rank, alpha=config.alpha, dropout=config.dropout, seed=config.seed
    )
    try:
        yield model
    finally:
        model.unload()
        # TRL hangs its own forward on the model, and PEFT leaves its configuration there
        for name in ("forward", "peft_config", "_hf_peft_config_loaded"):
            base.model.__dict__.pop(name, None)
        for name, value in base.model.named_parameters():
            value.requires_grad_(name in trained)
        for changed, values in zip(configs, kept, strict=True):
            for name, value in values.items():
                setattr(changed, name, value)
        base.model.train(training)


def _curve(history: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    names = ("step", "loss", "learning_rate", "grad_norm")
    return [
        {name: float(entry[name]) for name in names if name in entry}
        for entry in history
        if "loss" in entry
    ]
