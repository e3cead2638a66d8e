"""Supervised fine-tuning of the judge: LoRA through TRL, with the loss on the verdict only.

Settings: the paper's appendix "Training details"; Hu et al. (2021), "LoRA".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.adapters import (
    Provenance,
    attach_lora,
    head_logits,
    inner_model,
    save_adapter,
    trainable_parameters,
)
from certify_assets.judges.lm.language_model import Encoded, Hardware, LanguageModel, VerdictTokens
from certify_assets.judges.lm.training import Progress, ResumableTrainer, arguments, run, session

if TYPE_CHECKING:
    from torch import Tensor

_IGNORED = -100
# of TRL's log, what a record keeps of every step
_CURVE = ("step", "loss", "learning_rate", "grad_norm")


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


def train_sft(
    base: LanguageModel,
    prompts: Sequence[Encoded],
    outcomes: Sequence[int],
    folder: Path,
    *,
    config: SftConfig,
    checkpoint_steps: int = 50,
    progress: Progress | None = None,
) -> Provenance:
    """Train an adapter and write it into a folder, whose checkpoints of the same run are resumed.

    Returns
    -------
    Provenance
        The document stored with the adapter: model, settings, hash of the rows, versions, steps,
        loss of every step, hash of the adapter.

    Raises
    ------
    InputError
        If the folder has checkpoints of another run, or a loss is not a number.
    """
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    class VerdictTrainer(ResumableTrainer, SFTTrainer):
        """TRL's trainer with the verdict's loss."""

        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            # TRL's own loss takes every position through the head on a CPU: half as long again
            with self.accelerator.autocast():
                return verdict_loss(inner_model(self.model), inputs, num_items_in_batch)

    rows = training_rows(prompts, outcomes, base.verdicts)
    inputs = _inputs(base, rows, outcomes, config)
    with _lora(base, config) as model, session(model):
        trainer = VerdictTrainer(
            model=model,
            args=arguments(
                SFTConfig,
                folder / "checkpoints",
                Hardware.of(base.model),
                seed=config.seed,
                save_every=checkpoint_steps,
                num_train_epochs=config.epochs,
                learning_rate=config.learning_rate,
                lr_scheduler_type="cosine",
                max_grad_norm=config.max_grad_norm,
                per_device_train_batch_size=config.batch_size,
                gradient_accumulation_steps=config.accumulation,
                # the rows are ready: TRL would cut at 1,024 tokens and lose the label
                max_length=None,
                dataset_kwargs={"skip_prepare_dataset": True},
                packing=False,
            ),
            train_dataset=Dataset.from_list(rows),
            data_collator=collate,
            processing_class=base.tokenizer,
        )
        log = run(trainer, sha256_bytes(canonical_json(inputs)), progress=progress)
        trained = {
            **inputs,
            "trainable_parameters": trainable_parameters(model),
            "steps": trainer.state.global_step,
            "loss_curve": [{name: float(entry[name]) for name in _CURVE} for entry in log],
        }
        return save_adapter(model, folder, trained, source=base.source)


def training_rows(
    prompts: Sequence[Encoded], outcomes: Sequence[int], verdicts: VerdictTokens
) -> list[dict[str, list[int]]]:
    """Return token ids, and labels on the verdict's tokens only."""
    rows = []
    for prompt, outcome in zip(prompts, outcomes, strict=True):
        verdict = list(verdicts.success if outcome else verdicts.fail)
        labels = [_IGNORED] * len(prompt.ids) + verdict
        rows.append({"input_ids": [*prompt.ids, *verdict], "labels": labels})
    return rows


def collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Pad rows on the right; every row keeps its labels."""
    import torch

    width = max(len(row["input_ids"]) for row in rows)

    def padded(lists: list[list[int]], value: int) -> Tensor:
        return torch.tensor([row + [value] * (width - len(row)) for row in lists])

    return {
        "input_ids": padded([row["input_ids"] for row in rows], 0),
        "attention_mask": padded([[1] * len(row["input_ids"]) for row in rows], 0),
        "labels": padded([row["labels"] for row in rows], _IGNORED),
    }


def verdict_loss(model: Any, inputs: Any, tokens: Any = None) -> Any:
    """Return the cross-entropy of the labels, over their number or that of `tokens`."""
    import torch

    hidden = model.get_decoder()(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
    ).last_hidden_state
    row, place = (inputs["labels"] != _IGNORED).nonzero(as_tuple=True)
    logits = head_logits(model, hidden[row, place - 1])
    losses = torch.nn.functional.cross_entropy(
        logits, inputs["labels"][row, place], reduction="sum"
    )
    return losses / (len(place) if tokens is None else tokens)


def _inputs(
    base: LanguageModel,
    rows: list[dict[str, list[int]]],
    outcomes: Sequence[int],
    config: SftConfig,
) -> Provenance:
    """Return all facts that an adapter depends on, as the provenance stores them."""
    import peft
    import torch
    import transformers
    import trl

    return {
        "training": "sft",
        "base": base.source,
        "base_revision": base.revision,
        "dtype": Hardware.of(base.model).dtype,
        "config": asdict(config),
        "data_sha256": sha256_bytes(canonical_json(rows)),
        "rows": len(rows),
        "successes": sum(outcomes),
        "versions": {
            module.__name__: str(module.__version__) for module in (peft, torch, transformers, trl)
        },
    }


@contextmanager
def _lora(base: LanguageModel, config: SftConfig) -> Iterator[Any]:
    """Give the base model a new adapter within the block."""
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
        base.model.eval()


def require_both_outcomes(name: str, outcomes: Sequence[int]) -> None:
    """Refuse rows with one outcome, from which a judge would learn one verdict for all."""
    if len(set(outcomes)) < 2:
        raise InputError(
            f"the {len(outcomes)} runs that {name} is to be trained on have one outcome or none; "
            "give it successes and failures, or raise runs if that limit leaves too few."
        )
