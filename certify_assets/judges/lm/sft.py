"""Supervised fine-tuning of the judge: LoRA through TRL, loss on the verdict alone."""

# On a CPU in float32 the same rows, settings and versions give the same adapter bytes, also where
# the training was stopped and resumed. Settings: the paper's appendix "Training details"; Hu et al.
# (2021), "LoRA".

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.adapters import (
    ADAPTER_SCHEMA,
    attach_lora,
    linear_targets,
    native_inputs,
    quiet,
    save_adapter,
    trainable_parameters,
)
from certify_assets.judges.lm.contract import Hardware, LanguageModel
from certify_assets.judges.lm.grpo_config import single_tokens
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.lm.sft_config import (
    SftConfig,
    SftRow,
    TrainingRow,
    in_pairs,
    training_rows,
)
from certify_assets.judges.lm.sft_trainer import (
    collate,
    collate_packed,
    sft_arguments,
    sft_trainer_class,
    watcher,
)
from certify_assets.judges.lm.trainer import latest_checkpoint, own_random_state
from certify_assets.judges.lm.varlen import packable, packed_attention
from certify_assets.judges.record import save_files, workplace
from certify_assets.judges.specs import platform_judges
from certify_assets.storage.progress import Advance, Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.lm.judge import CausalJudge

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
    packed: bool

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
    packed: bool = False,
) -> TrainedAdapter:
    """Train an adapter; a folder with checkpoints of the same run is resumed."""
    built = training_rows(rows, base.verdicts)
    if config.by_pairs:
        built = in_pairs(built, [row.outcome for row in rows], config)
    inputs = _inputs(base, rows, built, config, packed)
    run_sha256 = sha256_bytes(canonical_json(inputs.to_dict()))
    checkpoints = folder / "checkpoints"
    resume = latest_checkpoint(checkpoints, run_sha256)
    attention = packed_attention(base.model) if packed else nullcontext()
    with (
        own_random_state(),
        quiet(),
        _lora(base, config) as model,
        native_inputs(model),
        attention,
    ):
        trainer = _trainer(base, model, built, config, (checkpoints, checkpoint_steps, run_sha256))
        if packed:
            trainer.data_collator = collate_packed
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
        objective=recipe.objective,
        seed=seed,
    )
    trained = train_sft(
        judge.language,
        rows,
        folder,
        config=config,
        checkpoint_steps=recipe.checkpoint_steps,
        packed=not known.exact and _packs(judge.language),
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


def train_on_rows(
    judged: JudgedCorpus,
    labelled: pd.DataFrame,
    *,
    run: str,
    recipe: Recipe,
    report: Report = silent,
) -> tuple[CausalJudge, TrainedAdapter]:
    """Fine-tune a judge on given rows, with a run's own checkpoints, and store its adapter."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base

    spec = judged.spec
    base, encoder = load_base(spec.model, spec.revision, spec.reading)
    with workplace(judged.store, judged.key("training")) as folder:
        start = CausalJudge(spec.name, base, encoder)
        judge, trained = fine_tuned(
            start,
            labelled,
            folder / run,
            model=spec.model,
            seed=spec.seed,
            report=report,
            recipe=recipe,
        )
        save_files(judged.store, judged.key("adapter"), judge)
    return judge, trained


def training_run(judge: JudgedCorpus, name: str) -> str:
    """Name the folder of a training: checkpoints of other settings do not stand in its way."""
    spec = judge.spec
    if spec == platform_judges().get(judge.name):
        return name
    about = {"judge": spec.registration(), "reading": spec.reading.to_dict(), "seed": spec.seed}
    return f"{name}_{sha256_bytes(canonical_json(about))[:12]}"


def _packs(base: LanguageModel) -> bool:
    """Whether rows of a training are packed, on a CPU too: only verdicts go through the head."""
    # of a large vocabulary, where the head costs as much as some layers
    return not Hardware.of(base.model).distributed and packable(base.model)


def _trainer(
    base: LanguageModel,
    model: Any,
    built: list[TrainingRow],
    config: SftConfig,
    saving: tuple[Path, int, str],
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    checkpoints, steps, run_sha256 = saving
    on = Hardware.of(base.model)
    pairs = single_tokens(base.verdicts) if config.by_pairs else None
    trainer = sft_trainer_class(pairs)(
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
    packed: bool,
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
        packed=packed,
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
