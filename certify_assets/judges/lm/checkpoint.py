"""The checkpoint of a training: weights, moments and steps in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

CHECKPOINT = "checkpoint.safetensors"
_SCHEMA = "certify-assets/exact-grpo/1"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def trainable_weights(model: Any) -> dict[str, Parameter]:
    """Return the parameters that training changes, by name."""
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not named:
        raise InputError(
            "the model has no trainable weight; load the adapter with is_trainable=True, or add "
            "one."
        )
    return named


def save_checkpoint(
    folder: Path,
    model: Any,
    optimizer: Any,
    *,
    run: str,
    history: Sequence[Mapping[str, float]],
) -> None:
    """Write the state after a step, in the place of the last one."""
    from safetensors.torch import save

    tensors = {}
    for name, weight in trainable_weights(model).items():
        tensors[f"weight/{name}"] = weight.detach().contiguous()
        state = optimizer.state.get(weight, {})
        tensors |= {
            f"{moment}/{name}": state[moment].contiguous() for moment in _MOMENTS if moment in state
        }
    document = json.dumps({"step": len(history), "history": history}, allow_nan=False)
    metadata = {"schema": _SCHEMA, "run": run, "document": document}
    write_atomic(
        folder / CHECKPOINT,
        save({name: tensor.cpu() for name, tensor in tensors.items()}, metadata),
    )


def checkpoint_run(folder: Path) -> str | None:
    """Return the run whose checkpoint a folder holds; None where it holds none."""
    path = folder / CHECKPOINT
    return _read(path)[0].get("run") if path.is_file() else None


def load_checkpoint(folder: Path, model: Any, optimizer: Any, *, run: str) -> list[dict[str, Any]]:
    """Put weights and optimizer back where a checkpoint left them; return its steps."""
    import torch

    path = folder / CHECKPOINT
    metadata, tensors = _read(path)
    if (metadata.get("schema"), metadata.get("run")) != (_SCHEMA, run):
        raise InputError(
            f"{path} is of a run with other rows, settings or judge; give another folder, or "
            "delete it to start again."
        )
    weights = trainable_weights(model)
    if {name.partition("/")[2] for name in tensors if name.startswith("weight/")} != set(weights):
        raise InputError(
            f"{path} has other weights than the model; load the adapter with which the run began."
        )
    document = json.loads(metadata["document"])
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[f"weight/{name}"])
            moments = {
                moment: tensors[f"{moment}/{name}"].to(weight.device)
                for moment in _MOMENTS
                if f"{moment}/{name}" in tensors
            }
            if moments:
                optimizer.state[weight] = {"step": torch.tensor(float(document["step"])), **moments}
    history: list[dict[str, Any]] = document["history"]
    return history


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, tensors
    except SafetensorError as error:
        raise IntegrityError(
            f"{path} is no whole safetensors file ({error}); delete it to start again."
        ) from None
