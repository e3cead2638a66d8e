"""Settings and rows of fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import numpy as np

from certify_assets.errors import InputError, LeakError, require_positive, require_whole
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.contract import Encoded, VerdictTokens
from certify_assets.judges.lm.recipe import OBJECTIVES, require_objective

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
    max_grad_norm: float = 1.0
    gradient_checkpointing: bool = False
    objective: str = OBJECTIVES[0]

    def __post_init__(self) -> None:
        words = "the {name} of fine-tuning"
        require_whole(self, words, rank=1, alpha=1, batch_size=1, accumulation=1, max_tokens=1)
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
    # where the outcome is from: "sft" or "rl" (verified labels of these splits), or "harvest"
    # (pseudo-labels of an unlabeled pool)
    source: str = "sft"


class TrainingRow(TypedDict):
    """A row as the trainer takes it."""

    input_ids: list[int]
    labels: list[int]


def training_rows(
    rows: Sequence[SftRow], verdicts: VerdictTokens, config: SftConfig
) -> list[TrainingRow]:
    """Return token ids, and labels on the verdict's tokens alone."""
    if not rows:
        raise InputError(
            "there are no rows to fine-tune on; give labelled trajectories of the SFT split."
        )
    for place, row in enumerate(rows):
        _check(place, row, verdicts, config)
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
    if not half:
        raise InputError("a step of pairs has 1 row; give batch_size or accumulation above 1.")
    columns = []
    for label in (1, 0):
        places = np.flatnonzero(np.asarray(outcomes) == label)
        if not places.size:
            missing = "success" if label else "failure"
            raise InputError(
                f"there is no {missing} among the {len(built)} runs of the training, so there are "
                "no pairs; give runs of both outcomes, or the objective verdicts."
            )
        draw = np.random.default_rng([config.seed, label])
        rounds = math.ceil(steps * half / places.size)
        drawn = np.concatenate([draw.permutation(places) for _ in range(rounds)])
        columns.append(drawn[: steps * half].reshape(steps, half))
    return [built[place] for place in np.concatenate(columns, axis=1).ravel().tolist()]


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
