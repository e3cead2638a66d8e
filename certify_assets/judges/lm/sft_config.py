"""Settings, rows and checkpoints of fine-tuning."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from certify_assets.errors import InputError, LeakError, require_positive, require_whole
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.lm.contract import Encoded, VerdictTokens

if TYPE_CHECKING:
    from torch import Tensor

IGNORED = -100

SFT_SOURCES: tuple[str, ...] = ("sft", "rl", "harvest")


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
    max_tokens: int = 5120
    seed: int = 42
    # the paper gives none: those of the trainer
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    # weight of a row with outcome 1 against one with outcome 0; the weights of all rows average 1
    success_weight: float = 1.0
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        words = "the {name} of fine-tuning"
        require_whole(self, words, rank=1, alpha=1, batch_size=1, accumulation=1, max_tokens=1)
        names = ("epochs", "learning_rate", "max_grad_norm", "success_weight")
        require_positive(self, words, *names)
        if not 0 <= self.dropout < 1:
            raise InputError(
                f"the dropout of fine-tuning is {self.dropout!r}; give a number from 0 to below 1."
            )

    @classmethod
    def compact(cls, *, epochs: float = 4.0, max_tokens: int = 1024) -> SftConfig:
        """Return settings for the compact model."""
        # the paper's learning rate is for four billion parameters and would not move this model
        return cls(epochs=epochs, learning_rate=2e-3, max_tokens=max_tokens)

    @property
    def sha256(self) -> str:
        """Hash of the settings."""
        return sha256_bytes(canonical_json(asdict(self)))


@dataclass(frozen=True, slots=True)
class SftRow:
    """A prompt and the outcome that its verdict must name."""

    prompt: Encoded
    outcome: int
    # where the outcome is from: "sft" or "rl" (verified labels of these splits), or "harvest"
    # (pseudo-labels of an unlabeled pool)
    source: str = "sft"


class TrainingRow(TypedDict):
    """A row as the trainer takes it."""

    input_ids: list[int]
    labels: list[int]
    weight: float


def training_rows(
    rows: Sequence[SftRow], verdicts: VerdictTokens, config: SftConfig
) -> list[TrainingRow]:
    """Return token ids, labels on the verdict's tokens alone, and weights that average 1."""
    if not rows:
        raise InputError(
            "there are no rows to fine-tune on; give labelled trajectories of the SFT split."
        )
    for place, row in enumerate(rows):
        _check(place, row, verdicts, config)
    weights = [config.success_weight if row.outcome else 1.0 for row in rows]
    mean = sum(weights) / len(weights)
    built: list[TrainingRow] = []
    for row, weight in zip(rows, weights, strict=True):
        verdict = verdicts.success if row.outcome else verdicts.fail
        prompt = row.prompt.ids
        built.append(
            {
                "input_ids": [*prompt, *verdict],
                "labels": [IGNORED] * len(prompt) + list(verdict),
                "weight": weight / mean,
            }
        )
    return built


def _check(place: int, row: SftRow, verdicts: VerdictTokens, config: SftConfig) -> None:
    if row.source not in SFT_SOURCES:
        raise LeakError(
            f"row {place} for fine-tuning is from {row.source!r}; labels and pseudo-labels of CAL "
            f"and TEST never train a judge, give rows from {', '.join(SFT_SOURCES)}."
        )
    if row.outcome not in (0, 1):
        raise InputError(
            f"row {place} for fine-tuning has outcome {row.outcome!r}; give 0 or 1, and leave "
            "unlabelled rows out."
        )
    longest = max(len(verdicts.success), len(verdicts.fail))
    if len(row.prompt.ids) + longest > config.max_tokens:
        raise InputError(
            f"row {place} for fine-tuning has {len(row.prompt.ids)} tokens and its verdict "
            f"{longest}, above max_tokens {config.max_tokens}; "
            f"encode prompts with at most {config.max_tokens - longest} tokens, for the encoder "
            "cuts the body and keeps the verdict."
        )


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
