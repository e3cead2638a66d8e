"""What TRL's trainers share here: checkpoints without pickle, and nothing for a hub."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, write_atomic
from certify_assets.judges.lm.adapters import write_weights

if TYPE_CHECKING:
    from torch import Tensor

_OPTIMIZER = "optimizer.safetensors"
_SETTINGS = "optimizer.json"
_RANDOM = "random.safetensors"
_PYTHON = "random.json"
_COMPLETE = "complete.json"


def save_optimizer(folder: Path, optimizer: Any, scheduler: Any) -> None:
    """Write an optimizer's tensors and settings, and the place of its schedule."""
    import safetensors.torch
    import torch

    state = optimizer.state_dict()
    tensors = {
        f"{place}.{name}": torch.as_tensor(value).detach().cpu().contiguous()
        for place, values in state["state"].items()
        for name, value in values.items()
    }
    schedule = {
        name: value for name, value in scheduler.state_dict().items() if name != "lr_lambdas"
    }
    write_atomic(folder / _OPTIMIZER, safetensors.torch.save(tensors))
    write_atomic(
        folder / _SETTINGS, canonical_json({"groups": state["param_groups"], "schedule": schedule})
    )


def load_optimizer(folder: Path, optimizer: Any, scheduler: Any) -> None:
    """Put back what `save_optimizer` wrote."""
    import safetensors.torch

    settings = read_json(folder / _SETTINGS)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in safetensors.torch.load((folder / _OPTIMIZER).read_bytes()).items():
        place, _, name = key.partition(".")
        state.setdefault(int(place), {})[name] = value
    groups = [
        {**group, "betas": tuple(group["betas"])} if "betas" in group else group
        for group in settings["groups"]
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    # the schedule itself is code and is built again; only its place is restored
    scheduler.load_state_dict(
        {**settings["schedule"], "lr_lambdas": scheduler.state_dict()["lr_lambdas"]}
    )


def save_random_state(folder: Path) -> None:
    """Write the states of the random number generators of Python, NumPy and torch."""
    import safetensors.torch
    import torch

    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    tensors = {
        "cpu": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys, dtype=np.uint32).view(np.int32).copy()),
    }
    if torch.cuda.is_available():
        tensors |= {
            f"cuda{place}": value for place, value in enumerate(torch.cuda.get_rng_state_all())
        }
    version, internal, following = random.getstate()
    write_atomic(folder / _RANDOM, safetensors.torch.save(tensors))
    numbers = {
        "python": [version, list(internal), following],
        "numpy": [int(position), int(has_gauss), float(gauss)],
    }
    write_atomic(folder / _PYTHON, canonical_json(numbers))


def load_random_state(folder: Path) -> None:
    """Put back what `save_random_state` wrote."""
    import safetensors.torch
    import torch

    tensors, numbers = (
        safetensors.torch.load((folder / _RANDOM).read_bytes()),
        read_json(folder / _PYTHON),
    )
    version, internal, following = numbers["python"]
    random.setstate((version, tuple(internal), following))
    position, has_gauss, gauss = numbers["numpy"]
    np.random.set_state(
        ("MT19937", tensors["numpy"].numpy().view(np.uint32), position, has_gauss, gauss)
    )
    torch.set_rng_state(tensors["cpu"])
    devices = sorted(
        (name for name in tensors if name.startswith("cuda")), key=lambda name: int(name[4:])
    )
    if devices and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([tensors[name] for name in devices])


def mark_complete(folder: Path, run_sha256: str, step: int) -> None:
    """Write the last file of a checkpoint: a folder without it was cut short."""
    write_atomic(folder / _COMPLETE, canonical_json({"run_sha256": run_sha256, "step": step}))


def latest_checkpoint(folder: Path, run_sha256: str) -> Path | None:
    """Find the last complete checkpoint of a run; None where there is none."""
    steps = {
        int(match[1]): path
        for path in folder.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    }
    for step in sorted(steps, reverse=True):
        mark = steps[step] / _COMPLETE
        if not mark.is_file():
            continue
        if read_json(mark).get("run_sha256") != run_sha256:
            raise InputError(
                f"{steps[step]} is a checkpoint of another model, other settings or rows; give "
                "another folder or delete it."
            )
        return steps[step]
    return None


@contextmanager
def own_random_state() -> Iterator[None]:
    """Keep the seeds that the trainer sets from the caller."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


class QuietTrainer:
    """What goes before a trainer of TRL: own checkpoints, no card, no telemetry."""

    model: Any
    args: Any
    state: Any
    optimizer: Any
    lr_scheduler: Any
    #: of all that decides the run: a checkpoint of another is refused
    run_sha256: str = ""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        # PEFT's own way asks a hub for the base model by name, that of the compact one too
        write_weights(self.model, Path(output_dir or self.args.output_dir))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        save_optimizer(Path(output_dir), self.optimizer, self.lr_scheduler)

    def _save_rng_state(self, output_dir: str) -> None:
        save_random_state(Path(output_dir))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_optimizer(Path(checkpoint), self.optimizer, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            load_random_state(Path(checkpoint))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        step = self.state.global_step
        mark_complete(Path(self.args.output_dir) / f"checkpoint-{step}", self.run_sha256, step)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none: the provenance of the adapter says what a card would."""

    def _send_telemetry(self) -> None:
        """Send nothing."""
