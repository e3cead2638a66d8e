"""What MLflow and Dagster record of a language model's adapter, and its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certify_assets.judges.record import JudgeRecord

_FILES = ("adapter_model.safetensors", "adapter_config.json", "judge.json", "provenance.json")


def adapter_tags(record: JudgeRecord) -> dict[str, str]:
    """Return the tags of an adapter's record: its hash, its start and the base model."""
    base = record.details["provenance"]["settings"]
    tags = {
        "adapter_sha256": record.adapter_sha256,
        "certify.base_model": base["model"],
        "certify.base_revision": base["revision"],
        "certify.manifest_sha256": record.manifest_sha256,
    }
    start = next(iter(record.starts.values()), None)
    return tags | ({"certify.start_sha256": start} if start else {})


def adapter_params(record: JudgeRecord) -> dict[str, Any]:
    """Return rows, seed and settings of a training."""
    names = ("candidates", "chosen", "sft_trajectories", "sft_tasks")
    training, document = record.detail("training"), record.to_dict()
    return {
        **training.get("config", {}),
        **{name: document[name] for name in names if name in document},
        **{
            name: training[name]
            for name in ("optimiser", "rl_trajectories", "trainable_parameters", "steps")
            if name in training
        },
        "seed": record.seed,
    }


def adapter_curves(record: JudgeRecord) -> dict[str, list[tuple[int, float]]]:
    """Return the loss of every step: of the one training, or of every arm by its name."""
    training = record.detail("training")
    named = {f"loss_{arm}": points for arm, points in training.get("loss_curves", {}).items()} | {
        "loss": training.get("loss_curve", [])
    }
    return {
        name: [(int(point["step"]), float(point["loss"])) for point in points]
        for name, points in named.items()
        if points
    }


def adapter_files(folder: Path) -> dict[Path, str]:
    """Return the files of a stored adapter that are logged: safetensors and JSON."""
    return {folder / name: "adapter" for name in _FILES if (folder / name).is_file()}
