"""The stored synthetic study."""

from __future__ import annotations

from collections.abc import Callable

from certify_assets.research.designs import EXCESSES, FAILURES, GROUPS, study_designs
from certify_assets.research.populations import Design
from certify_assets.research.simulation import STUDY_PROCEDURES, Cell, Simulation, simulate
from certify_assets.storage.store import Store

SIMULATION_KEY = "study/simulation.json"


def kept_designs() -> list[Design]:
    """Return the designs of the study, and those designed to fail."""
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
