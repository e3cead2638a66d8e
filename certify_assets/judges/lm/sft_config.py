"""Settings and rows of fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import numpy as np

from certify_assets.errors import InputError, require_positive, require_whole
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.contract import Encoded, VerdictTokens
from certify_assets.judges.lm.recipe import OBJECTIVES, require_objective

IGNORED = -100


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
    gradient_checkpointing: bool = False
    objective: str = OBJECTIVES[0]

    def __post_init__(self) -> None:
        words = "the {name} of fine-tuning"
        require_whole(self, words, rank=1, alpha=1, batch_size=1, accumulation=1)
        require_positive(self, words, "epochs", "learning_rate", "max_grad_norm")
        require_objective(self.objective)
        if not 0 <= self.dropout < 1:
            raise InputError(
                f"the dropout of fine-tuning is {self.dropout!r}; give a number from 0 to below 1."
            )

    @property
    def by_pairs(self) -> bool:
        """Whether it trains on pairs of a success and a failure."""
        return self.objective == "pairs"

    @property
    def step_rows(self) -> int:
        """Rows of an optimizer step."""
        return self.batch_size * self.accumulation

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as documents have them."""
        return asdict(self)

    @property
    def sha256(self) -> str:
        """Hash of the settings."""
        return sha256_bytes(canonical_json(self.to_dict()))


@dataclass(frozen=True, slots=True)
class SftRow:
    """A prompt and the outcome that its verdict must name."""

    prompt: Encoded
    outcome: int
    # where the outcome is from: "sft", or "harvest" (pseudo-labels of an unlabelled pool)
    source: str = "sft"


class TrainingRow(TypedDict):
    """A row as the trainer takes it."""

    input_ids: list[int]
    labels: list[int]


def training_rows(rows: Sequence[SftRow], verdicts: VerdictTokens) -> list[TrainingRow]:
    """Return token ids, and labels on the verdict's tokens alone."""
    built: list[TrainingRow] = []
    for row in rows:
        verdict = verdicts.success if row.outcome else verdicts.fail
        prompt = row.prompt.ids
        built.append(
            {
                "input_ids": [*prompt, *verdict],
                "labels": [IGNORED] * len(prompt) + list(verdict),
            }
        )
    return built


def in_pairs(
    built: Sequence[TrainingRow], outcomes: Sequence[int], config: SftConfig
) -> list[TrainingRow]:
    """Return the rows of all steps, each step half successes and half failures, in turn."""
    # every success is drawn once before any is drawn again, and so is every failure
    half, steps = config.step_rows // 2, math.ceil(config.epochs * len(built) / config.step_rows)
    columns = []
    for label in (1, 0):
        places = np.flatnonzero(np.asarray(outcomes) == label)
        draw = np.random.default_rng([config.seed, label])
        rounds = math.ceil(steps * half / places.size)
        drawn = np.concatenate([draw.permutation(places) for _ in range(rounds)])
        columns.append(drawn[: steps * half].reshape(steps, half))
    return [built[place] for place in np.concatenate(columns, axis=1).ravel().tolist()]
