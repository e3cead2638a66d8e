"""Checkpoints of exact GRPO: trainable weights, moments of AdamW and the step in one safetensors file, written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import write_atomic

__all__ = ["CHECKPOINT", "load_checkpoint", "save_checkpoint", "trainable_weights"]

CHECKPOINT = "checkpoint.safetensors"
_SCHEMA = "certify-assets/exact-grpo/1"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def trainable_weights(model: Any) -> dict[str, Any]:
    """Return the parameters that training changes, by name.

    Raises
    ------
    InputError
        If there is none: an adapter that was loaded for inference is frozen.
    """
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not named:
        raise InputError(
            "the model has no trainable weight; load the adapter with is_trainable=True, or add one."
        )
    return named


def save_checkpoint(
    folder: Path,
    model: Any,
    optimizer: Any,
    *,
    run: str,
    document: dict[str, Any],
    reference: Any = None,
) -> Path:
    """Write the state after a step, in the place of the last one.

    Parameters
    ----------
    folder : Path
    model : torch.nn.Module
    optimizer : torch.optim.AdamW
    run : str
        Hash of what the run is.
    document : dict
        JSON values: the step and the history.
    reference : torch.Tensor, optional
        Log-probabilities of the judge at the start.
    """
    from safetensors.torch import save

    tensors = {}
    for name, weight in trainable_weights(model).items():
        tensors[f"weight/{name}"] = weight.detach().contiguous()
        state = optimizer.state.get(weight, {})
        tensors |= {
            f"{moment}/{name}": state[moment].contiguous() for moment in _MOMENTS if moment in state
        }
    if reference is not None:
        tensors["reference"] = reference.contiguous()
    metadata = {"schema": _SCHEMA, "run": run, "document": json.dumps(document, allow_nan=False)}
    path = folder / CHECKPOINT
    write_atomic(path, save({name: tensor.cpu() for name, tensor in tensors.items()}, metadata))
    return path


def load_checkpoint(
    folder: Path, model: Any, optimizer: Any, *, run: str
) -> tuple[dict[str, Any], Any] | None:
    """Put weights and optimizer back where a checkpoint left them.

    Returns
    -------
    (dict, torch.Tensor or None) or None
        Document and reference; None where the folder holds no checkpoint.

    Raises
    ------
    InputError
        If the checkpoint is of another run.
    IntegrityError
        If the file is damaged.
    """
    import torch

    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    metadata, tensors = _read(path)
    if metadata.get("run") != run:
        raise InputError(
            f"{path} is of a run with other rows, settings or judge; give another folder, or delete it to start anew."
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
    return document, tensors.get("reference")


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise IntegrityError(
            f"{path} is no whole safetensors file ({error}); delete it to start anew."
        ) from None
    if metadata.get("schema") != _SCHEMA:
        raise IntegrityError(f"{path} is no checkpoint of exact GRPO; give another folder.")
    return metadata, tensors
