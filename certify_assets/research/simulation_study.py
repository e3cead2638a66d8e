"""The stored synthetic study: its journal of finished cells, its document, its findings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from certify_assets.judges.specs import PROCEDURES
from certify_assets.research.designs import (
    GROUPS,
    TruthCheck,
    check_truth,
    failure_designs,
    study_designs,
)
from certify_assets.research.simulation import Cell, Rates, Simulation, cell_from_dict, simulate
from certify_assets.storage.journal import kept_lines
from certify_assets.storage.store import Store

SIMULATION_KEY, PAGE, _JOURNAL = (
    "study/simulation.json",
    "study/simulation.html",
    "study/simulation.partial.jsonl",
)
#: what the kept study runs
KEPT_PROCEDURES = (
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "taskboot",
    "guarded_taskboot",
    PROCEDURES[0],
    "betting",
)
#: how far a cell of 300 trials may lie from the paper's
TOLERANCE = 0.03
#: over 4,000 trials this cell covers .199 (standard error .004) and the paper prints .23; 300
#: trials scatter by .016
EXCEPTION = ("paper", 100, 0.8, "deff")


@dataclass(frozen=True)
class SimulationPlan:
    """What the kept study asks: see the asset's configuration."""

    trials: int = 300
    seed: int = 42
    workers: int = 1
    tasks: tuple[int, ...] = ()
    rhos: tuple[float, ...] = ()
    procedures: tuple[str, ...] = KEPT_PROCEDURES


@dataclass(frozen=True)
class CellJournal:
    """Finished cells, one a line, so that an interrupted study resumes."""

    read: Callable[[], bytes]
    append: Callable[[str], None]
    remove: Callable[[], None]

    @classmethod
    def of_store(cls, store: Store, key: str) -> CellJournal:
        """Return the journal under a key of the data root."""
        return cls(
            lambda: store.read_bytes(key) if store.exists(key) else b"",
            lambda line: store.append_line(key, lambda _: line),
            lambda: store.delete(key),
        )

    @classmethod
    def of_file(cls, path: Path) -> CellJournal:
        """Return the journal in a file anywhere."""
        return cls(
            lambda: path.read_bytes() if path.exists() else b"",
            lambda line: _append(path, line),
            lambda: path.unlink(missing_ok=True),
        )

    def known(self) -> dict[str, Cell]:
        """Return the cells by their keys; torn and foreign lines are passed over."""
        found: dict[str, Cell] = {}
        for entry in kept_lines(self.read()):
            with suppress(KeyError, TypeError):
                found[str(entry["key"])] = cell_from_dict(entry["cell"])
        return found

    def keep(self, key: str, cell: Cell) -> None:
        """Append a cell."""
        self.append(
            json.dumps({"key": key, "cell": asdict(cell)}, ensure_ascii=False, allow_nan=False)
        )


def _append(path: Path, line: str) -> None:
    with path.open("a+b") as stream:
        stream.seek(0)
        # the trace of a kill in the middle of a write must not swallow this line
        torn = stream.read()[-1:] not in (b"", b"\n")
        stream.write((b"\n" if torn else b"") + line.encode("utf-8") + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def run_study(
    store: Store, plan: SimulationPlan, progress: Callable[[Cell, int, int], None]
) -> tuple[Simulation, list[TruthCheck]]:
    """Run the study and its designs of failure, check the truth, and store the document."""
    designs = [
        *study_designs(("paper", *GROUPS["adversarial"]), tasks=plan.tasks, rhos=plan.rhos),
        *failure_designs(tasks=plan.tasks),
    ]
    journal = CellJournal.of_store(store, _JOURNAL)
    simulation = simulate(
        designs,
        procedures=plan.procedures,
        trials=plan.trials,
        seed=plan.seed,
        workers=plan.workers,
        known=journal.known(),
        keep=journal.keep,
        progress=progress,
    )
    truth = check_truth(designs)
    store.write_json(
        SIMULATION_KEY, {**simulation.to_dict(), "truth": [asdict(found) for found in truth]}
    )
    journal.remove()
    return simulation, truth


def load_study(store: Store) -> tuple[Simulation, list[TruthCheck]]:
    """Return the stored study."""
    document = store.read_json(SIMULATION_KEY)
    return Simulation.from_dict(document), [TruthCheck(**found) for found in document["truth"]]


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


def ends_of(truth: Sequence[TruthCheck]) -> tuple[int, float]:
    """Number of comparisons of quadrature and draw, and the largest distance in standard errors."""
    return len(truth), max((found.distance for found in truth), default=0.0)


def study_metrics(simulation: Simulation, truth: Sequence[TruthCheck]) -> dict[str, float | None]:
    """Return the numbers that the asset's history shows."""
    plain = [cell for cell in simulation.cells if not cell.fooled]
    metrics: dict[str, float | None] = {
        "trials": float(simulation.trials),
        "largest_truth_distance": ends_of(truth)[1],
    }
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
