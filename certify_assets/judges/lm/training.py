"""The common part of trainings: TRL's trainers with checkpoints without pickle, and their log.

A run that was stopped and resumed ends in the same bytes on a CPU. The seed decides the order of
rows, and each step has its own seed, so no random state has to be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, write_atomic
from certify_assets.judges.lm.adapters import quiet, write_weights
from certify_assets.judges.lm.language_model import Hardware

if TYPE_CHECKING:
    from torch import Tensor

#: called with the number of a finished step, the number of all steps and the loss
Progress = Callable[[int, int, float], None]

_OPTIMIZER = "optimizer.safetensors"
# written last: a checkpoint without it was cut short
_COMPLETE = "complete.json"


class ResumableTrainer:
    """Mixin for a trainer of TRL: checkpoints of safetensors and JSON, and nothing for a hub."""

    model: Any
    args: Any
    state: Any
    optimizer: Any
    lr_scheduler: Any
    #: hash of all that decides the run: a checkpoint of another run is refused
    run_sha256: str = ""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # PEFT's own way asks a hub for the base model by name, that of the compact one too
        write_weights(self.model, Path(output_dir or self.args.output_dir))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        import safetensors.torch

        tensors = {
            f"{place}.{name}": value.detach().cpu().contiguous()
            for place, moments in self.optimizer.state_dict()["state"].items()
            for name, value in moments.items()
        }
        write_atomic(Path(output_dir) / _OPTIMIZER, safetensors.torch.save(tensors))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        import safetensors.torch

        if checkpoint is None:
            return
        folder = Path(checkpoint)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in safetensors.torch.load((folder / _OPTIMIZER).read_bytes()).items():
            place, _, name = key.partition(".")
            state.setdefault(int(place), {})[name] = value
        done = read_json(folder / _COMPLETE)["step"]
        # the schedule is a function of the step, which sets the rate of the optimizer
        self.lr_scheduler.last_epoch, self.lr_scheduler._step_count = done - 1, done
        self.lr_scheduler.step()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def _save_rng_state(self, output_dir: str) -> None:
        """Store nothing, as every step has a seed."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Restore nothing, as every step has a seed."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        step = self.state.global_step
        mark = canonical_json({"run_sha256": self.run_sha256, "step": step})
        write_atomic(Path(self.args.output_dir) / f"checkpoint-{step}" / _COMPLETE, mark)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no card: the provenance of the adapter replaces it."""

    def _send_telemetry(self) -> None:
        """Send nothing."""


def arguments(
    kind: Any, folder: Path, on: Hardware, *, seed: int, save_every: int, **settings: Any
) -> Any:
    """Return the configuration of a trainer; defaults that could change a score are written out.

    Parameters
    ----------
    kind
        TRL's class of the configuration.
    save_every
        Steps between checkpoints; 0 for none.
    settings
        The settings of this training.
    """
    with quiet():
        made = kind(
            output_dir=str(folder),
            seed=seed,
            data_seed=seed,
            # TRL turns bfloat16 on by itself, on a CPU as well
            bf16=on.half,
            fp16=False,
            use_cpu=not on.accelerated,
            optim="adamw_torch_fused" if on.accelerated else "adamw_torch",
            dataloader_pin_memory=on.accelerated,
            dataloader_num_workers=0,
            # TRL turns it on by itself, which on a small model costs time
            gradient_checkpointing=False,
            remove_unused_columns=False,
            warmup_steps=0,
            weight_decay=0.0,
            save_strategy="steps" if save_every else "no",
            save_steps=save_every or 500,
            save_total_limit=2,
            logging_strategy="steps",
            logging_steps=1,
            # a loss that is not a number must be seen, not averaged away
            logging_nan_inf_filter=False,
            disable_tqdm=True,
            report_to="none",
            push_to_hub=False,
            log_level="error",
            **settings,
        )
    # one process trains on one device: batches are of the same rows on every machine
    made._n_gpu = min(made.n_gpu, 1)
    return made


def run(
    trainer: Any,
    sha256: str,
    *,
    progress: Progress | None = None,
    evaluate_at: tuple[int, ...] = (),
    evaluate: Callable[[int], None] | None = None,
) -> list[dict[str, float]]:
    """Train, from the last checkpoint of the same run if any; return a row for each step."""
    from transformers import PrinterCallback, TrainerCallback, set_seed

    class Watcher(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            set_seed(args.seed + state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if evaluate is not None and state.global_step in evaluate_at:
                evaluate(state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in (logs or {}):
                return
            if not (math.isfinite(logs["loss"]) and math.isfinite(logs["grad_norm"])):
                raise InputError(
                    f"the loss of step {state.global_step} or its gradient is not a number; lower "
                    "the learning rate."
                )
            if progress is not None:
                progress(state.global_step, state.max_steps, logs["loss"])

    trainer.run_sha256 = sha256
    # it prints every step to standard output, where commands write their documents
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Watcher())
    last = latest_checkpoint(Path(trainer.args.output_dir), sha256)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    # names are in order, as in a log that was read from a checkpoint
    return [
        {name: value for name, value in sorted(entry.items()) if name != "step_time"}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]


def latest_checkpoint(folder: Path, run_sha256: str) -> Path | None:
    """Find the last complete checkpoint of a run, or None."""
    marks = folder.glob(f"checkpoint-*/{_COMPLETE}")
    last = max(marks, key=lambda mark: int(mark.parent.name.rpartition("-")[2]), default=None)
    if last is None:
        return None
    if read_json(last).get("run_sha256") != run_sha256:
        raise InputError(
            f"{last.parent} is a checkpoint of another model, other settings or rows; give another "
            "folder or delete it."
        )
    return last.parent


@contextmanager
def session(model: Any) -> Iterator[None]:
    """Restore the caller's seed of torch at the end, and let autocast choose the adapter's type."""
    import torch
    from peft.helpers import disable_input_dtype_casting

    # a float32 copy of every layer's input would be kept otherwise
    native = disable_input_dtype_casting(model, active=Hardware.of(model).half)
    with torch.random.fork_rng(), quiet(), native:
        yield
