"""TRL's SFT trainer with packed rows, no pickles, no model card and no telemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from certify_assets.errors import InputError
from certify_assets.judges.lm.adapters import inner_model, quiet
from certify_assets.judges.lm.contract import Hardware
from certify_assets.judges.lm.sft_config import IGNORED, SftConfig, TrainingRow
from certify_assets.judges.lm.trainer import QuietTrainer
from certify_assets.judges.lm.varlen import Packed, pack

if TYPE_CHECKING:
    from torch import Tensor


class _TrainingBatch(TypedDict):
    """Rows as tensors; packed rows have positions and bounds, padded ones a mask."""

    input_ids: Tensor
    labels: Tensor
    attention_mask: NotRequired[Tensor]
    position_ids: NotRequired[Tensor]
    bounds: NotRequired[Tensor]
    longest: NotRequired[int]


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


def collate_packed(rows: Sequence[TrainingRow]) -> _TrainingBatch:
    """Put rows into one sequence."""
    import torch

    packed = pack([row["input_ids"] for row in rows])
    return {
        "input_ids": packed.ids,
        "position_ids": packed.positions,
        "labels": torch.tensor([[label for row in rows for label in row["labels"]]]),
        "bounds": packed.bounds,
        "longest": packed.longest,
    }


def _packed(inputs: _TrainingBatch) -> Packed:
    return Packed(
        inputs["input_ids"],
        inputs["position_ids"],
        inputs["bounds"],
        last=None,
        longest=int(inputs["longest"]),
    )


def packed_loss(model: Any, inputs: _TrainingBatch, tokens: Any = None) -> Any:
    """Return the cross-entropy of the labels of packed rows, in float32."""
    # only the positions before a label go through the head
    import torch

    head = model.get_output_embeddings()
    with Hardware.of(model).autocast():
        hidden = _packed(inputs).states(model.get_decoder())
    # no row begins with a label, so the token before a label is of its row
    places = (inputs["labels"][0] != IGNORED).nonzero()[:, 0]
    with torch.autocast(device_type=head.weight.device.type, enabled=False):
        bias = None if head.bias is None else head.bias.float()
        logits = torch.nn.functional.linear(hidden[places - 1].float(), head.weight.float(), bias)
        losses = torch.nn.functional.cross_entropy(
            logits, inputs["labels"][0, places], reduction="none"
        )
    return losses.sum() / (len(places) if tokens is None else tokens)


def pair_loss(model: Any, inputs: _TrainingBatch, verdicts: tuple[int, int]) -> Any:
    """Return the mean over pairs of a success and a failure of their squared logistic loss.

    A step is one batch, half of it successes. The log-odds z of a run are those of the two verdicts
    at the place before its label, and a pair's loss is log²(1 + exp(z of the failure − z of the
    success)).
    """
    import torch

    head = model.get_output_embeddings()
    with Hardware.of(model).autocast():
        if "bounds" in inputs:
            hidden = _packed(inputs).states(model.get_decoder())[None]
        else:
            hidden = model.get_decoder()(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                use_cache=False,
            ).last_hidden_state
    row, place = (inputs["labels"] != IGNORED).nonzero(as_tuple=True)
    success = inputs["labels"][row, place] == verdicts[0]
    with torch.autocast(device_type=head.weight.device.type, enabled=False):
        weight = head.weight[list(verdicts)].float()
        bias = None if head.bias is None else head.bias[list(verdicts)].float()
        logits = torch.nn.functional.linear(hidden[row, place - 1].float(), weight, bias)
        odds = logits[:, 0] - logits[:, 1]
        apart = odds[success][:, None] - odds[~success][None, :]
        return torch.nn.functional.softplus(-apart).square().mean()


def sft_arguments(
    config: SftConfig, folder: Path, *, device: str, dtype: str, checkpoint_steps: int
) -> Any:
    """Return TRL's configuration; defaults that could change a score are written out."""
    from trl.trainer.sft_config import SFTConfig

    # the rows of pairs come in the order of their steps, and a pair's runs in one batch
    pairs = config.by_pairs

    with quiet():
        return SFTConfig(
            output_dir=str(folder),
            bf16=Hardware(device, dtype).half,
            use_cpu=device == "cpu",
            dataloader_pin_memory=Hardware(device).accelerated,
            save_steps=checkpoint_steps,
            num_train_epochs=1.0 if pairs else config.epochs,
            train_sampling_strategy="sequential" if pairs else "random",
            learning_rate=config.learning_rate,
            lr_scheduler_type="cosine",
            # the paper gives no warmup and no decay: those of the trainer
            warmup_steps=0,
            weight_decay=0.0,
            max_grad_norm=config.max_grad_norm,
            per_device_train_batch_size=config.step_rows if pairs else config.batch_size,
            gradient_accumulation_steps=1 if pairs else config.accumulation,
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


def sft_trainer_class(pairs: tuple[int, int] | None = None) -> Any:
    """Return the trainer's class; TRL is imported here. `pairs`: tokens of the two verdicts."""
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
            if pairs is not None:
                return pair_loss(inner_model(self.accelerator.unwrap_model(model)), inputs, pairs)
            if "bounds" in inputs:
                return packed_loss(
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
