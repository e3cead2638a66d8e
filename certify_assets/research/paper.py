"""The paper's printed figures, from ``data/paper.json``: tables, numbers and the law's points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from certify_assets.files import read_json
from certify_assets.research.law import LawPoint

#: procedures of the simulation's table, in the order of its columns
SIMULATED = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
_DATA = Path(__file__).parent / "data" / "paper.json"


@dataclass(frozen=True)
class PaperCorpus:
    """One row of the corpus table, and the law's point of it."""

    # in the figure of the law
    law_name: str
    # of TEST, as the next five
    rows: int
    tasks: int
    success_rate: float
    rho: float
    deff: float
    n_eff: int
    # A₀, of the base judge
    auroc: float
    # (1 − π)(2A₀ − 1), as printed
    index: float
    # certified coverage at α = .1
    best: float
    note: str


@cache
def table(name: str) -> tuple[tuple[Any, ...], ...]:
    """Return the rows of a table; ``about`` in the file describes them."""
    return _tables()[name]


@cache
def corpora() -> dict[str, PaperCorpus]:
    """Return the corpus table by name."""
    return {name: PaperCorpus(*row) for name, *row in table("corpora")}


@cache
def law_points() -> tuple[LawPoint, ...]:
    """Return the seven points of the law's figure."""
    return tuple(
        LawPoint(
            corpus=item.law_name,
            success_rate=item.success_rate,
            auroc=item.auroc,
            coverage=item.best,
            # the figure divides; the printed n_eff is rounded
            n_eff=item.rows / item.deff,
            tasks=item.tasks,
            index=item.index,
            note=item.note,
        )
        for item in corpora().values()
    )


@cache
def law_forms() -> dict[str, dict[str, float]]:
    """Return in-sample R², LOOCV R² and LOOCV MAE by form of the law."""
    names = ("r2", "loocv_r2", "mae")
    return {form: dict(zip(names, row, strict=True)) for form, *row in table("law_forms")}


def law_facts() -> tuple[str, ...]:
    """Return the results of recomputing the paper's numbers of the law."""
    return tuple(fact for (fact,) in table("law_facts"))


@cache
def simulation_rates() -> dict[tuple[str, int, float, str], tuple[float, float | None]]:
    """Return violation among certifying trials and mean coverage by design, tasks, ρ, procedure."""
    return {
        (design, tasks, rho, procedure): rates
        for design, tasks, rho, *found in table("simulation")
        for procedure, rates in zip(SIMULATED, found, strict=True)
        if rates is not None
    }


@cache
def _tables() -> dict[str, tuple[tuple[Any, ...], ...]]:
    return {name: _frozen(part["rows"]) for name, part in read_json(_DATA).items()}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
