"""Supervised fine-tuning of the language-model judge: LoRA through TRL, loss on the verdict alone.

On a CPU in float32 the same rows, settings and versions give the same adapter bytes, also where the
training was stopped and taken up again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.adapters import (
    attach_lora,
    linear_targets,
    native_inputs,
    quiet,
    save_adapter,
    trainable_parameters,
)
from certify_assets.judges.lm.contract import Hardware, LanguageModel
from certify_assets.judges.lm.sft_config import SftConfig, SftRow, latest_checkpoint, training_rows
from certify_assets.judges.lm.sft_trainer import (
    collate,
    collate_packed,
    sft_arguments,
    sft_trainer_class,
    watcher,
)
from certify_assets.judges.lm.varlen import packable, packed_attention

# what the trainer aligns with the tokenizer, or switches off
_ALIGNED = ("bos_token_id", "eos_token_id", "pad_token_id", "use_cache")


@dataclass(frozen=True)
class TrainedAdapter:
    """A trained adapter on disk.

    Parameters
    ----------
    folder : Path
        adapter_model.safetensors, adapter_config.json and provenance.json.
    document : dict
        The provenance: hashes of adapter, settings and rows, base model, trainable parameters, loss
        of every step.
    """

    folder: Path
    document: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Hash of the adapter."""
        return str(self.document["adapter_sha256"])


def train_sft(
    base: LanguageModel,
    rows: Sequence[SftRow],
    folder: Path,
    *,
    config: SftConfig | None = None,
    checkpoint_steps: int = 50,
    stop_after: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    packed: bool | None = None,
) -> TrainedAdapter | None:
    """Train an adapter; a folder with checkpoints of the same run is taken up where it stopped.

    References
    ----------
    Appendix "Training details" of the paper; Hu et al. (2021), "LoRA".
    """
    config = config or SftConfig()
    if hasattr(base.model, "peft_config"):
        raise InputError(
            f"{base.source} already carries an adapter; load the base model again and train on "
            "that."
        )
    built = training_rows(rows, base.verdicts, config)
    hardware = Hardware.of(base.model)
    packed = (
        hardware.accelerated and not hardware.distributed and packable(base.model)
        if packed is None
        else packed
    )
    document = _document(base, rows, built, config) | ({"packed": True} if packed else {})
    run_sha256 = sha256_bytes(canonical_json(document))
    checkpoints = folder / "checkpoints"
    resume = latest_checkpoint(checkpoints, run_sha256)
    attention = packed_attention(base.model) if packed else nullcontext()
    with (
        _own_random_state(),
        quiet(),
        _lora(base, config) as model,
        native_inputs(model),
        attention,
    ):
        document["trainable_parameters"] = trainable_parameters(model)
        trainer = _trainer(base, model, built, config, (checkpoints, checkpoint_steps, run_sha256))
        if packed:
            trainer.data_collator = collate_packed
        trainer.add_callback(watcher(progress, stop_after))
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        if trainer.state.global_step < trainer.state.max_steps:
            return None
        document |= {
            "steps": trainer.state.global_step,
            "loss_curve": _curve(trainer.state.log_history),
        }
        return TrainedAdapter(folder, save_adapter(model, folder, document, source=base.source))


def _trainer(
    base: LanguageModel,
    model: Any,
    built: list[dict[str, Any]],
    config: SftConfig,
    saving: tuple[Path, int, str],
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    checkpoints, steps, run_sha256 = saving
    parameter = next(base.model.parameters())
    dtype = str(parameter.dtype).removeprefix("torch.")
    weighted = len({row["weight"] for row in built}) > 1
    trainer = sft_trainer_class(run_sha256, weighted=weighted)(
        model=model,
        args=sft_arguments(
            config, checkpoints, device=parameter.device.type, dtype=dtype, checkpoint_steps=steps
        ),
        train_dataset=Dataset.from_list(built),
        data_collator=collate,
        processing_class=base.tokenizer,
    )
    # it prints every step to standard output, where commands write their documents
    trainer.remove_callback(PrinterCallback)
    return trainer


def _document(
    base: LanguageModel, rows: Sequence[SftRow], built: list[dict[str, Any]], config: SftConfig
) -> dict[str, Any]:
    """Provenance as far as it is known before training: all that the adapter depends on."""
    import peft
    import torch
    import transformers
    import trl

    return {
        "training": "sft",
        "base": base.source,
        "base_revision": base.revision,
        "dtype": str(next(base.model.parameters()).dtype).removeprefix("torch."),
        "config": asdict(config),
        "config_sha256": config.sha256,
        "targets": list(linear_targets(base.model)),
        "data_sha256": sha256_bytes(canonical_json(built)),
        "rows": len(rows),
        "successes": sum(row.outcome for row in rows),
        "sources": dict(sorted(Counter(row.source for row in rows).items())),
        "versions": {
            module.__name__: str(module.__version__) for module in (peft, torch, transformers, trl)
        },
    }


@contextmanager
def _lora(base: LanguageModel, config: SftConfig) -> Iterator[Any]:
    """Lend the base model a fresh adapter, and give it back as it was."""
    trained = {name for name, value in base.model.named_parameters() if value.requires_grad}
    configs = [base.model.config, base.model.generation_config]
    training, kept = (
        base.model.training,
        [{name: getattr(config, name, None) for name in _ALIGNED} for config in configs],
    )
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


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Keep the seeds that the trainer sets from the caller."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _curve(history: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    names = ("step", "loss", "learning_rate", "grad_norm")
    return [
        {name: float(entry[name]) for name in names if name in entry}
        for entry in history
        if "loss" in entry
    ]
