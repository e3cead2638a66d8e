"""Judges of the family grpo: their settings, and the candidates that each is chosen among."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from certify_assets.errors import InputError
from certify_assets.judges.configured import Entry, NamedEntry, Seed
from certify_assets.judges.lm.reward import ARMS, Arm, GrpoConfig, arm_of
from certify_assets.judges.specs import CausalSpec, JudgeSpec

#: name of the judge that every arm starts from, which is a candidate itself
START = "start"
OPTIMISERS = ("exact", "trl")
_LARGEST_COST, _MOST_STEPS, _MOST_PER_STEP = 1e6, 10**6, 10**4
_CHOSEN = ("rewards", "samples", "prompts_per_step", "learning_rate")


class RewardEntry(Entry):
    """What an error costs in the reward of GRPO, where a right verdict earns 1."""

    lam: float = Field(
        default=1.0, alias="lambda", le=_LARGEST_COST, description="calling a failure a success"
    )
    mu: float = Field(default=1.0, le=_LARGEST_COST, description="calling a success a failure")


class GrpoEntry(NamedEntry):
    """A judge of the family sft that GRPO trains on; it reads what that judge reads."""

    family: Literal["grpo"]
    start: str = Field(default="sft", description="judge of the family sft that it starts from")
    optimiser: str = Field(
        default="exact", description="exact (the expected gradient) or trl (TRL's, with samples)"
    )
    rewards: list[RewardEntry] | None = Field(
        default=None, description="candidates; by default accuracy, mu 3, mu 5 and lambda 5"
    )
    steps: list[Annotated[int, Field(le=_MOST_STEPS)]] | None = Field(
        default=None, description="numbers of steps that are candidates; the last ends the training"
    )
    samples: int = Field(default=8, le=_MOST_PER_STEP, description="completions of a prompt")
    prompts_per_step: int = Field(default=6, le=_MOST_PER_STEP)
    learning_rate: float | None = Field(default=None, le=1)
    seed: Seed = 42

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        given = self.model_dump(exclude={"rewards"}, exclude_none=True)
        if self.rewards is None:
            return given
        return {**given, "rewards": [arm_of(reward.lam, reward.mu) for reward in self.rewards]}


class GrpoSpec(CausalSpec):
    """A judge reinforced on RL from another one."""

    training_splits = ("sft", "rl")

    family: Literal["grpo"] = "grpo"
    # the expected gradient, or TRL's sampled one
    optimiser: str = "exact"
    # the candidates, the last being the end of the training; empty for those that suit the model
    steps: tuple[int, ...] = ()
    rewards: tuple[Arm, ...] = tuple(ARMS.values())
    # completions of a prompt; the exact optimiser draws none and takes the factor (n − 1)/n of them
    samples: int = 8
    prompts_per_step: int = 6
    # None for the one that suits the model
    learning_rate: float | None = None

    def model_post_init(self, context: object, /) -> None:
        """Refuse another optimiser, and steps out of order."""
        if self.optimiser not in OPTIMISERS:
            raise InputError(
                f"the optimiser of {self.name} is {self.optimiser!r}; "
                f"give one of {', '.join(OPTIMISERS)}."
            )
        if list(self.steps) != sorted({step for step in self.steps if step > 0}):
            raise InputError(
                f"the steps of {self.name} are {self.steps}; "
                "give whole numbers from 1, each once and in order."
            )
        if not self.rewards or len(set(self.arms)) < len(self.rewards):
            raise InputError(
                f"the rewards of {self.name} are {', '.join(self.arms) or 'none'}; give at least "
                "one, and each pair of lambda and mu once."
            )

    @property
    def candidates(self) -> int:
        """The start, and every arm after each number of steps."""
        return len(candidates(self))

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the rewards."""
        return tuple(arm.name for arm in self.rewards)

    def registration(self) -> object:
        """Return the model, the start and how it is optimised."""
        names = ("family", "model", "revision", "start", "optimiser")
        chosen = {
            name: value
            for name, value in self.model_dump(mode="json", include=set(_CHOSEN)).items()
            if getattr(self, name) != type(self).model_fields[name].default
        }
        return {
            **{name: getattr(self, name) for name in names},
            "steps": list(self.steps),
            **chosen,
        }

    def resolved(self, known: Mapping[str, JudgeSpec]) -> GrpoSpec:
        """Take the model and what it reads from the judge that it starts from."""
        before = known.get(self.start)
        if before is None or before.family != "sft":
            tuned = [name for name, spec in known.items() if spec.family == "sft"]
            raise InputError(
                f"start is {self.start!r}, and GRPO starts from a judge of the family sft; name "
                f"one of {', '.join(tuned)}, or write it above."
            )
        taken = {name: getattr(before, name) for name in ("model", "revision", "reading")}
        return self.model_copy(update=taken)

    @property
    def settings(self) -> dict[str, object]:
        """What its arms are trained with, as its record has it."""
        return {
            "optimiser": self.optimiser,
            "config": grpo_config(self).to_dict(),
            "arms": {arm.name: reward_of(arm) for arm in self.rewards},
        }


def optimised_by(training: Mapping[str, Any]) -> str:
    """Return the optimiser of a record's training in words, with its samples."""
    samples = training["config"]["samples"]
    if training["optimiser"] == "trl":
        return f"GRPO of TRL, {samples} samples a prompt"
    return f"exact GRPO, the expectation over {samples} samples a prompt"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm after a number of steps; the start has taken none."""

    arm: str
    step: int = 0

    @property
    def name(self) -> str:
        """Name in selections and certificates."""
        return f"{self.arm}_{self.step}" if self.step else self.arm


def candidates(spec: GrpoSpec) -> tuple[Candidate, ...]:
    """What the deployed judge is chosen among: the start, and every arm after some steps."""
    return (
        Candidate(START),
        *(Candidate(arm, step) for arm in spec.arms for step in grpo_config(spec).evaluate_at),
    )


def grpo_config(spec: GrpoSpec) -> GrpoConfig:
    """Return the paper's settings, with rate and steps that suit the model."""
    recipe = spec.training
    steps, usual = spec.steps or recipe.grpo_steps, recipe.grpo_learning_rate
    # a sampled step takes twenty times as long as an exact one
    often = 5 if spec.optimiser == "trl" else recipe.checkpoint_steps
    return GrpoConfig(
        learning_rate=usual if spec.learning_rate is None else spec.learning_rate,
        steps=steps[-1],
        evaluate_at=steps,
        prompts_per_step=spec.prompts_per_step,
        samples=spec.samples,
        save_every=min(often, steps[-1]),
        seed=spec.seed,
    )


def reward_of(arm: Arm) -> dict[str, float]:
    """Return the costs of an arm's reward, as records have them."""
    return {"lam": arm.lam, "mu": arm.mu}
