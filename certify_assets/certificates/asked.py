"""The test that a procedure applies to every threshold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from certify_assets.arrays import Floats, Integers
from certify_assets.certificates.pseudo_task import PseudoTask


@dataclass(frozen=True)
class Test:
    """Budget α, level, engine of the bootstrap tail, and figures from a pilot or task sizes."""

    __test__ = False

    budget: Fraction
    level: float
    engine: str
    draws: int
    seed: int
    planned_share: float
    bets: Floats | None = field(default=None, compare=False)  # of a pilot
    pseudo: PseudoTask | None = field(default=None, compare=False)  # how large it is

    def part(self, part: slice | Integers) -> Test:
        """Return the test of some of the thresholds."""
        bets = None if self.bets is None else self.bets[part]
        pseudo = None if self.pseudo is None else self.pseudo.part(part)
        return replace(self, bets=bets, pseudo=pseudo)

    @property
    def alpha(self) -> float:
        """α as a float."""
        return float(self.budget)
