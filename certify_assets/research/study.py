"""What a synthetic study found: rates of each procedure in each cell, with their Monte-Carlo errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets._version import __version__
from certify_assets.certificates.evaluation import Settings
from certify_assets.certificates.populations import Clustered, Design, Fooled
from certify_assets.certificates.procedures import clopper_pearson_upper
from certify_assets.errors import InputError, quoted
from certify_assets.research.published import PAPER

__all__ = [
    "SIMULATION_SCHEMA",
    "Cell",
    "Rates",
    "Simulation",
    "Variant",
    "cell_from_dict",
    "make_variants",
    "summarise",
]

SIMULATION_SCHEMA = "certify_assets/simulation/1"
#: word after a procedure's name → the setting that it changes
_WORDS = {
    **dict.fromkeys(("floor", "kish", "none"), "guard"),
    **dict.fromkeys(("task", "trajectory"), "estimand"),
    **dict.fromkeys(("bonferroni", "fixed", "fallback", "maxt"), "multiplicity"),
}


@dataclass(frozen=True)
class Variant:
    """A procedure as it was asked for, ``guarded_taskboot:kish``, and its settings."""

    label: str
    settings: Settings


@dataclass(frozen=True)
class Rates:
    """What one procedure did over the trials of one cell.

    Attributes
    ----------
    procedure : str
        With what was changed for it, ``guarded_taskboot:kish``.
    certified, violations : int
        Trials that certified a threshold, and those whose threshold has a true error over trajectories above α.
    violation_conditional, violation_conditional_se : float or None
        Among the trials that certified (the paper's table); None when none did.
    violation, violation_se, violation_lower, violation_upper : float
        Among all trials (what δ bounds), its standard error, and the one-sided 95 % Clopper–Pearson bounds; the upper one is not 0 when
        none was seen.
    coverage, coverage_se : float
        Mean certified share of the calibration trajectories, 0 in trials that certify nothing.
    true_error : float or None
        Mean true error of the certified thresholds.
    paper : dict or None
        ``violation_conditional`` and ``coverage`` in the paper, where it prints them.
    estimand : str
        What the procedure promises: the error over trajectories, or with every task weighing the same.
    own_violation : float or None
        Among all trials, thresholds whose error by the procedure's own task-weighted estimand is above α; None where ``violation`` is it.
    """

    procedure: str
    certified: int
    violations: int
    violation_conditional: float | None
    violation_conditional_se: float | None
    violation: float
    violation_se: float
    violation_lower: float
    violation_upper: float
    coverage: float
    coverage_se: float
    true_error: float | None
    paper: dict[str, float | None] | None = None
    estimand: str = "trajectory"
    own_violation: float | None = None


@dataclass(frozen=True)
class Cell:
    """One design with its procedures.

    Attributes
    ----------
    design : str
    tasks : int
    rho : float or None
        Nominal label ICC.
    population_icc : float or None
        That of the outcomes, where the design has a task effect.
    trials : int
    procedures : tuple of Rates
    true_error, error_icc, size_ratio : float or None
        Of fooled tasks.
    """

    design: str
    tasks: int
    rho: float | None
    population_icc: float | None
    trials: int
    procedures: tuple[Rates, ...]
    true_error: float | None = None
    error_icc: float | None = None
    size_ratio: float | None = None

    def of(self, procedure: str) -> Rates | None:
        """Return what a procedure did; None where it was not asked for."""
        return next((rates for rates in self.procedures if rates.procedure == procedure), None)

    @property
    def fooled(self) -> bool:
        """Whether the score cannot see the errors."""
        return self.true_error is not None

    @property
    def title(self) -> str:
        """Name with tasks, and label ICC or true error."""
        about = "" if self.rho is None else f" ρ={self.rho:g}"
        return f"{self.design} G={self.tasks}{about}" + (
            "" if self.true_error is None else f" err={self.true_error:.3g}"
        )


@dataclass(frozen=True)
class Simulation:
    """The study: its settings, and a cell for every design.

    Attributes
    ----------
    alpha, delta : float
    trials, seed : int
    cells : tuple of Cell
    settings : dict
        The others that differ from :class:`Settings`, and ``pilot_tasks`` where a procedure takes a pilot.
    """

    alpha: float
    delta: float
    trials: int
    seed: int
    cells: tuple[Cell, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def side(self) -> str:
        """Which decision is certified."""
        return str(self.settings.get("side", "reject"))

    def to_dict(self) -> dict[str, Any]:
        """Return the study as a JSON object."""
        software = {"version": __version__}
        return {
            "schema": SIMULATION_SCHEMA,
            **asdict(self),
            "cells": [asdict(cell) for cell in self.cells],
            "software": software,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Simulation:
        """Return the study that ``to_dict`` wrote."""
        kept = {name: document[name] for name in ("alpha", "delta", "trials", "seed", "settings")}
        return cls(**kept, cells=tuple(cell_from_dict(cell) for cell in document["cells"]))


def cell_from_dict(document: Mapping[str, Any]) -> Cell:
    """Return a cell from its JSON object."""
    return Cell(
        **{**document, "procedures": tuple(Rates(**rates) for rates in document["procedures"])}
    )


def make_variants(procedures: Sequence[str], keywords: Mapping[str, Any]) -> tuple[Variant, ...]:
    """Read procedures with what is changed for each, as in ``guarded_taskboot:kish`` or ``betting:trajectory``.

    Parameters
    ----------
    procedures : sequence of str
        Names; after each colon a guard, an estimand or a multiplicity.
    keywords : mapping
        Settings of all of them. An estimand reaches those procedures only that have a choice.

    Returns
    -------
    tuple of Variant

    Raises
    ------
    InputError
        If a procedure or a word is unknown, or a setting is out of its range.
    """
    found = []
    for label in dict.fromkeys(procedures):
        name, *words = str(label).split(":")
        unknown = next((word for word in words if word not in _WORDS), None)
        if unknown is not None:
            raise InputError(
                f"procedure {quoted(label)} says {quoted(unknown)} after a colon; give one of {', '.join(_WORDS)}."
            )
        given = {key: value for key, value in keywords.items() if key != "estimand"}
        settings = Settings(**given, procedure=name)
        if settings.method.weighted and keywords.get("estimand"):
            settings = replace(settings, estimand=keywords["estimand"])
        own: dict[str, Any] = {_WORDS[word]: word for word in words}
        found.append(Variant(label, replace(settings, **own)))
    return tuple(found)


def summarise(design: Design, found: NDArray[np.float64], variants: Sequence[Variant]) -> Cell:
    """Turn trials into rates.

    Parameters
    ----------
    design : Design
    found : float64 array, shape (trials, procedures, 3)
        Coverage, true error over trajectories and true error by the own estimand; NaN where nothing was certified.
    variants : sequence of Variant

    Returns
    -------
    Cell
    """
    rates = tuple(_rates(design, found[:, place], one) for place, one in enumerate(variants))
    icc = (
        design.population_icc() if isinstance(design, Clustered) and not design.size_slope else None
    )
    about = (
        (design.share, design.error_icc, float(design.size_ratio))
        if isinstance(design, Fooled)
        else ()
    )
    return Cell(design.name, design.tasks, design.rho, icc, len(found), rates, *about)


def _rates(design: Design, found: NDArray[np.float64], variant: Variant) -> Rates:
    settings = variant.settings
    trials, certified = len(found), np.isfinite(found[:, 0])
    count, wrong = int(certified.sum()), int((found[certified, 1] > settings.alpha).sum())
    coverage = np.where(certified, found[:, 0], 0.0)
    by_task = settings.method.weighted and settings.applied_estimand == "task"
    return Rates(
        procedure=variant.label,
        certified=count,
        violations=wrong,
        violation_conditional=wrong / count if count else None,
        violation_conditional_se=_rate_se(wrong, count) if count else None,
        violation=wrong / trials,
        violation_se=_rate_se(wrong, trials),
        violation_lower=1.0 - clopper_pearson_upper(trials - wrong, trials, 0.05) if wrong else 0.0,
        violation_upper=clopper_pearson_upper(wrong, trials, 0.05),
        coverage=float(coverage.mean()),
        coverage_se=float(coverage.std(ddof=1)) / math.sqrt(trials) if trials > 1 else 0.0,
        true_error=float(found[certified, 1].mean()) if count else None,
        paper=_printed(design, variant),
        estimand=settings.applied_estimand,
        own_violation=int((found[certified, 2] > settings.alpha).sum()) / trials
        if by_task
        else None,
    )


def _printed(design: Design, variant: Variant) -> dict[str, float | None] | None:
    """What the paper prints, where its settings are these."""
    one = variant.settings
    if (one.alpha, one.delta, one.side, one.grid, one.applied_multiplicity) != (
        0.1,
        0.05,
        "reject",
        40,
        "bonferroni",
    ):
        return None
    printed = PAPER.get((design.name, design.tasks, design.rho or 0.0, variant.label))
    return (
        None if printed is None else {"violation_conditional": printed[0], "coverage": printed[1]}
    )


def _rate_se(hits: int, trials: int) -> float:
    return math.sqrt(hits * (trials - hits) / trials) / trials
