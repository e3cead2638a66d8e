"""Eq. 5 of the paper: the asymmetric reward on verdicts, and the paper's arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arm:
    """A reward on verdicts: r(v, y) = 1[v = y] − λ·1[v = S, y = 0] − μ·1[v = F, y = 1]."""

    # A completion that is no verdict earns −max(λ, μ), the least that any verdict earns. At 0 it
    # would be the best answer of a judge that is not sure (docs/reward.md).

    name: str
    lam: float  # λ: cost of calling a failure a success, the error of the release side
    mu: float  # μ: cost of calling a success a failure, the error of the reject side

    @property
    def unparsed(self) -> float:
        """Reward of a completion without a verdict."""
        return -max(self.lam, self.mu)

    def reward(self, verdict: int | None, outcome: int) -> float:
        """Return the reward of one verdict (Eq. 5)."""
        if verdict is None:
            return self.unparsed
        if verdict == outcome:
            return 1.0
        return -self.lam if verdict else -self.mu

    def rewards(self, outcome: int) -> tuple[float, float, float]:
        """Rewards of the verdicts success and failure and of no verdict, at one outcome."""
        return self.reward(1, outcome), self.reward(0, outcome), self.unparsed

    def costs(self) -> dict[str, float]:
        """Return λ and μ, as in records."""
        return {"lam": self.lam, "mu": self.mu}


ARMS = {
    arm.name: arm
    for arm in (
        Arm("accuracy", 1.0, 1.0),
        Arm("reject_3", 1.0, 3.0),
        Arm("reject_5", 1.0, 5.0),
        Arm("release_5", 5.0, 1.0),
    )
}


def arm_of(lam: float, mu: float) -> Arm:
    """Return the arm of a reward: the paper's, if there is one, or else one named after it."""
    same = (arm for arm in ARMS.values() if (arm.lam, arm.mu) == (lam, mu))
    return next(same, None) or Arm(f"lambda_{lam:g}_mu_{mu:g}", float(lam), float(mu))


def completion_reward(
    arm: Arm, completion: Sequence[int], outcome: int, *, success: int, fail: int
) -> float:
    """Return the reward of a sampled completion, by its first token."""
    # the judge is read at the marker, so a verdict further on is none
    first = completion[0] if len(completion) else -1
    return arm.reward({success: 1, fail: 0}.get(first), outcome)
