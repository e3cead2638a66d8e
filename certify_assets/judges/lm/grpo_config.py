"""The asymmetric reward of the paper on verdicts, its arms, and the settings of a GRPO run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError, require_whole
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.contract import Encoded, LanguageModel, VerdictTokens


@dataclass(frozen=True, slots=True)
class Arm:
    """A reward on verdicts: r(v, y) = 1[v = y] − λ·1[v = S, y = 0] − μ·1[v = F, y = 1]."""

    # A completion that is no verdict earns −max(λ, μ), the least that any verdict earns. At 0 it
    # would be the best answer of a judge that is not sure (docs/reward.md).

    name: str
    lam: float  # λ: cost of calling a failure a success, the error of the release side
    mu: float  # μ: cost of calling a success a failure, the error of the reject side

    def __post_init__(self) -> None:
        for sign, value in (("lambda", self.lam), ("mu", self.mu)):
            if not (math.isfinite(value) and value >= 0):
                raise InputError(
                    f"{sign} of the arm {self.name!r} is {value!r}; give a finite number that is "
                    "not negative."
                )

    @property
    def unparsed(self) -> float:
        """Reward of a completion that is no verdict."""
        return -max(self.lam, self.mu)

    def reward(self, verdict: int | None, outcome: int) -> float:
        """Return the reward of one verdict."""
        if verdict is None:
            return self.unparsed
        if verdict == outcome:
            return 1.0
        return -self.lam if verdict else -self.mu

    def rewards(self, outcome: int) -> tuple[float, float, float]:
        """Rewards of the verdicts success and failure and of no verdict, at one outcome."""
        return self.reward(1, outcome), self.reward(0, outcome), self.unparsed


ARMS = {
    arm.name: arm
    for arm in (
        Arm("accuracy", 1.0, 1.0),
        Arm("reject_3", 1.0, 3.0),
        Arm("reject_5", 1.0, 5.0),
        Arm("release_5", 5.0, 1.0),
    )
}


def arm_named(name: str, arms: Iterable[Arm] = ARMS.values()) -> Arm:
    """Return one of some arms, by default the paper's."""
    known = {arm.name: arm for arm in arms}
    if name not in known:
        raise InputError(f"there is no arm {name!r}; name one of {', '.join(known)}.")
    return known[name]


def arm_of(lam: float, mu: float) -> Arm:
    """Return the arm of a reward: the paper's where it has it, else one named after it."""
    same = (arm for arm in ARMS.values() if (arm.lam, arm.mu) == (lam, mu))
    return next(same, None) or Arm(f"lambda_{lam:g}_mu_{mu:g}", float(lam), float(mu))


def completion_reward(
    arm: Arm, completion: Sequence[int], outcome: int, *, success: int, fail: int
) -> float:
    """Return the reward of a sampled completion, whose first token is a verdict or none."""
    # the judge is read at the marker, so a verdict further on is none
    first = completion[0] if len(completion) else None
    return arm.reward({success: 1, fail: 0}.get(first) if first is not None else None, outcome)


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
