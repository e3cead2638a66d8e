"""The stored synthetic study: its document and its findings."""

from __future__ import annotations

from collections.abc import Callable

from certify_assets.judges.specs import PROCEDURES
from certify_assets.research.designs import EXCESSES, FAILURES, GROUPS, study_designs
from certify_assets.research.populations import Design
from certify_assets.research.simulation import STUDY_PROCEDURES, Cell, Rates, Simulation, simulate
from certify_assets.storage.store import Store

SIMULATION_KEY = "study/simulation.json"
#: how far a cell of 300 trials may lie from the paper's
TOLERANCE = 0.03
#: over 4,000 trials this cell covers .199 (standard error .004) and the paper prints .23; 300
#: trials scatter by .016
EXCEPTION = ("paper", 100, 0.8, "deff")


def kept_designs() -> list[Design]:
    """Return the study's designs and those of failure."""
    plain = study_designs(("paper", *GROUPS["adversarial"]))
    return [*plain, *study_designs(FAILURES, excess=EXCESSES)]


def run_study(
    store: Store,
    *,
    trials: int = 300,
    seed: int = 42,
    workers: int = 1,
    progress: Callable[[Cell, int, int], None] = lambda *_: None,
) -> Simulation:
    """Run the study and store the document."""
    simulation = simulate(
        kept_designs(),
        procedures=(*STUDY_PROCEDURES, "betting"),
        trials=trials,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    store.write_json(SIMULATION_KEY, simulation.to_dict())
    return simulation


def load_study(store: Store) -> Simulation:
    """Return the stored study."""
    return Simulation.from_dict(store.read_json(SIMULATION_KEY))


def beyond_delta(simulation: Simulation, *, proved: bool = True) -> list[tuple[Cell, Rates]]:
    """Return the cells, fooled ones aside, in which the default violates more than δ."""
    pairs = [(cell, cell.of(PROCEDURES[0])) for cell in simulation.cells if not cell.fooled]
    return [
        (cell, rates)
        for cell, rates in pairs
        if rates is not None
        and (rates.violation_lower if proved else rates.violation) > simulation.delta
    ]


def far_from_the_paper(simulation: Simulation) -> list[tuple[Cell, Rates, str]]:
    """Return the printed figures that differ from the study's by more than ``TOLERANCE``."""
    found = []
    for cell in simulation.cells:
        for rates in cell.procedures:
            printed = rates.paper or {}
            coverage, violation = printed.get("coverage"), printed.get("violation_conditional")
            if coverage is not None and abs(rates.coverage - coverage) > TOLERANCE:
                found.append(
                    (cell, rates, f"coverage {rates.coverage:.3f}, printed {coverage:.2f}")
                )
            if violation is not None and abs(rates.violation - violation) > TOLERANCE:
                found.append(
                    (cell, rates, f"violation {rates.violation:.3f}, printed {violation:.3f}")
                )
    return found


def is_exception(cell: Cell, rates: Rates) -> bool:
    """Whether this is the one cell known to lie at the edge of the tolerance."""
    return (cell.design, cell.tasks, cell.rho, rates.procedure) == EXCEPTION


def study_metrics(simulation: Simulation) -> dict[str, float | None]:
    """Return the numbers that the asset's history shows."""
    plain = [cell for cell in simulation.cells if not cell.fooled]
    metrics: dict[str, float | None] = {"trials": float(simulation.trials)}
    for procedure in ("taskboot", "guarded_taskboot", PROCEDURES[0]):
        for group, cells in (
            ("", plain),
            ("_fooled", [cell for cell in simulation.cells if cell.fooled]),
        ):
            rates = [found for cell in cells if (found := cell.of(procedure)) is not None]
            if rates:
                metrics[f"worst_violation{group}_{procedure}"] = max(
                    found.violation for found in rates
                )
                metrics[f"cells_over_delta{group}_{procedure}"] = float(
                    sum(found.violation_lower > simulation.delta for found in rates)
                )
                metrics[f"mean_coverage{group}_{procedure}"] = sum(
                    found.coverage for found in rates
                ) / len(rates)
    return metrics
