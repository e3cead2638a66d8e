"""One question put to one table: the settings of a certificate, and every threshold's answer under them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import SIDES, TaskCounts, count_at, count_tasks
from certify_assets.certificates.guard import GUARDS, GuardTest, apply_guard
from certify_assets.certificates.inputs import Observations
from certify_assets.certificates.lattice import as_fraction
from certify_assets.certificates.montecarlo import draws_needed
from certify_assets.certificates.procedures import PROCEDURES, Procedure, Test, described_procedure
from certify_assets.certificates.shown import shown
from certify_assets.errors import InputError

__all__ = ["ENGINES", "Evaluation", "Settings", "evaluate"]

ENGINES = ("auto", "exact", "saddlepoint", "montecarlo")
_LATER_MULTIPLICITY = ("fixed", "fallback", "maxt")
_MOST_THRESHOLDS, _MOST_DRAWS = 1_000, 10_000_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a certificate depends on beside the table; validated at construction.

    Attributes are the keywords of :func:`certify_assets.certificates.certify`.
    """

    alpha: float = 0.1
    delta: float = 0.05
    side: str = "reject"
    procedure: str = "guarded_taskboot"
    guard: str = "floor"
    error_icc_cap: float | None = None
    size_ratio: float = 1.0
    max_task_size: int | None = None
    estimand: str | None = None
    multiplicity: str = "bonferroni"
    grid: int = 40
    engine: str = "auto"
    draws: int = 2000
    seed: int = 42
    candidates: int = 1

    def __post_init__(self) -> None:
        as_fraction(self.alpha)
        _between("delta", self.delta, 0.0, 1.0)
        _one_of("side", self.side, SIDES)
        _one_of("guard", self.guard, GUARDS)
        _one_of("engine", self.engine, ENGINES)
        if isinstance(self.multiplicity, str) and self.multiplicity in _LATER_MULTIPLICITY:
            raise InputError(f"multiplicity {self.multiplicity} comes with a later version; give bonferroni.")
        _one_of("multiplicity", self.multiplicity, ("bonferroni",))
        _check_estimand(self.estimand, self.method)
        for name, most in (("grid", _MOST_THRESHOLDS), ("draws", _MOST_DRAWS), ("candidates", 10**9)):
            _whole(name, getattr(self, name), 1, most)
        _whole("seed", self.seed, 0, 2**63 - 1)
        if self.error_icc_cap is not None:
            _between("error_icc_cap", self.error_icc_cap, 0.0, 1.0, closed=True)
        _between("size_ratio", self.size_ratio, 1.0, 1e6, closed=True)
        if self.max_task_size is not None:
            _whole("max_task_size", self.max_task_size, 1, 2**31 - 1)

    @property
    def applied_estimand(self) -> str:
        """The estimand of the procedure."""
        return self.method.estimand

    @property
    def budget(self) -> Fraction:
        """α as the exact decimal that was given."""
        return as_fraction(self.alpha)

    @property
    def level(self) -> float:
        """δ / (|Θ| · candidates)."""
        return self.delta / (self.grid * self.candidates)

    @property
    def applied_guard(self) -> str:
        """The guard in force: none on procedures that take none."""
        return self.guard if self.method.guarded else "none"

    @property
    def method(self) -> Procedure:
        """The procedure itself."""
        return described_procedure(self.procedure)

    @property
    def coarse_draws(self) -> bool:
        """Whether the bootstrap is drawn so few times that no threshold can pass."""
        drawn = self.engine == "montecarlo" and self.method.name.endswith("taskboot")
        return drawn and self.draws < draws_needed(self.level)

    @property
    def test(self) -> Test:
        """What the procedure is asked."""
        return Test(self.budget, self.level, self.engine, self.draws, self.seed)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Every threshold's answer.

    Attributes
    ----------
    counts : TaskCounts
    tested : TaskCounts
        What the procedure saw: the counts, or those of one trajectory a task.
    tails : float64 array, shape (thresholds,)
        Certified by the procedure where at most ``level``.
    level : float
    guard : GuardTest
    """

    counts: TaskCounts
    tested: TaskCounts
    tails: NDArray[np.float64]
    level: float
    guard: GuardTest

    @property
    def passed_test(self) -> NDArray[np.bool_]:
        """Thresholds that the procedure certifies before the guard."""
        return self.tails <= self.level

    @property
    def passed(self) -> NDArray[np.bool_]:
        """Thresholds that procedure and guard certify."""
        return self.passed_test & self.guard.passed

    @property
    def chosen(self) -> int | None:
        """The widest certified threshold, None when there is none."""
        places = np.flatnonzero(self.passed)
        return int(places[-1]) if places.size else None


def evaluate(observations: Observations, settings: Settings) -> Evaluation:
    """Count tasks on the grid and put every threshold to procedure and guard.

    Parameters
    ----------
    observations : Observations
    settings : Settings

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        If a task is larger than the declared ``max_task_size``.
    """
    counts = count_tasks(observations, settings.side, settings.grid)
    most = settings.max_task_size
    if most is not None and counts.sizes.size and int(counts.sizes.max()) > most:
        largest = int(counts.sizes.max())
        raise InputError(f"A task has {largest} scored trajectories, above max_task_size {most}; keep at most {most} attempts a task.")
    guard = apply_guard(
        counts,
        guard=settings.applied_guard,
        alpha=settings.alpha,
        delta=settings.delta / settings.candidates,
        error_icc_cap=settings.error_icc_cap,
        size_ratio=settings.size_ratio,
        max_task_size=most,
    )
    tested = count_at(observations.one_a_task(settings.seed), settings.side, counts.thresholds) if settings.method.one_draw else counts
    tails = settings.method.tails(tested, settings.test, tested.tasks) if counts.thresholds.size else np.empty(0)
    return Evaluation(counts, tested, tails, settings.level, guard)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} is {shown(value)}; give one of {', '.join(allowed)}.")


def _check_estimand(estimand: object, method: Procedure) -> None:
    if estimand is None:
        return
    _one_of("estimand", estimand, ("trajectory", "task"))
    if estimand != method.estimand:
        others = [item.name for item in PROCEDURES.values() if item.estimand == estimand]
        raise InputError(
            f"estimand is {estimand!r} and {method.name} certifies the error by {method.estimand}; leave it out, or give one of the "
            f"procedures {', '.join(others)}."
        )


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name} is {shown(value)}; give a whole number from {least} to {most}.")


def _between(name: str, value: object, low: float, high: float, *, closed: bool = False) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not (low <= number <= high if closed else low < number < high):
        words = f"from {low:g} to {high:g}" if closed else f"strictly between {low:g} and {high:g}"
        raise InputError(f"{name} is {shown(value)}; give a number {words}.")
