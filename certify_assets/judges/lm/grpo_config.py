"""Settings of a GRPO run, shared by the exact and the sampled optimiser."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError, require_whole
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.contract import Encoded, LanguageModel, VerdictTokens
from certify_assets.judges.lm.rewards import Arm

#: optimizer steps of the paper
STEPS = 150
#: of the paper at 4B
LEARNING_RATE = 2e-6

_LEAST = {
    "steps": 1,
    "prompts_per_step": 1,
    "samples": 2,
    "seed": 0,
    "save_every": 0,
    "micro_tokens": 1,
    "max_completion_tokens": 1,
}


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Settings of GRPO; the defaults are the paper's at 4B, and what it leaves open is TRL's."""

    learning_rate: float = LEARNING_RATE
    steps: int = STEPS
    # the global batch is their product in completions, whatever the number of devices: 48, the
    # paper's 8 a device on 6 devices. Exact GRPO draws no sample and takes their number as the
    # factor (n − 1)/n
    prompts_per_step: int = 6
    samples: int = 8
    seed: int = 42
    max_grad_norm: float = 1.0
    # numbers of steps after which the caller is asked to score CAL
    evaluate_at: Sequence[int] = ()
    save_every: int = 50  # steps between checkpoints; 0 keeps those of evaluations alone
    micro_tokens: int = 16_384
    max_completion_tokens: int = 40

    def __post_init__(self) -> None:
        require_whole(self, "{name} of GRPO", **_LEAST)
        if not 0 < self.learning_rate < math.inf or not self.max_grad_norm >= 0:
            raise InputError(
                "learning_rate of GRPO must be above 0 and finite, max_grad_norm at least 0."
            )

    @property
    def global_batch(self) -> int:
        """Completions behind one optimizer step."""
        return self.prompts_per_step * self.samples

    def rate(self, step: int) -> float:
        """Learning rate of a step, the first being 0: it falls to 0 after the last step."""
        return self.learning_rate * (1 - step / self.steps)

    def batch(self, rows: int, step: int) -> list[int]:
        """Return the rows of a step: epochs of seeded permutations, one after the other."""
        # computed from the step alone, so that no state has to be kept
        places = range(step * self.prompts_per_step, (step + 1) * self.prompts_per_step)
        return [int(_permutation(self.seed, place // rows, rows)[place % rows]) for place in places]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values, with the global batch."""
        return {
            **asdict(self),
            "evaluate_at": [int(step) for step in self.evaluate_at],
            "global_batch": self.global_batch,
        }


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, rows: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(rows)


def single_tokens(verdicts: VerdictTokens) -> tuple[int, int]:
    """Return the tokens of success and failure."""
    if not verdicts.single:
        raise InputError(
            f"the verdicts are the tokens {verdicts.success} and {verdicts.fail}; GRPO reads one "
            "token each, so choose words that are one."
        )
    return verdicts.success[0], verdicts.fail[0]


def run_sha256(
    language: LanguageModel,
    prompts: Sequence[Encoded],
    outcomes: Sequence[int],
    *,
    arm: Arm,
    config: GrpoConfig,
) -> str:
    """Return the hash of all that decides a run, its trainable weights at the start included."""
    settings = config.to_dict()
    for name in ("evaluate_at", "save_every"):
        # neither changes a weight
        settings.pop(name)
    rows = [
        [list(prompt.ids), int(outcome)] for prompt, outcome in zip(prompts, outcomes, strict=True)
    ]
    judge = {
        "source": language.source,
        "revision": language.revision,
        "verdicts": [list(language.verdicts.success), list(language.verdicts.fail)],
        "start": _weights_sha256(language.model),
    }
    return sha256_bytes(
        canonical_json({"judge": judge, "arm": [arm.lam, arm.mu], "config": settings, "rows": rows})
    )


def _weights_sha256(model: Any) -> str:
    import torch

    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}\0".encode())
            digest.update(weight.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
