"""The synthetic validity study: how often procedures certify a threshold whose true error exceeds the budget, and what they cover.

A trial draws a calibration set of a design, puts it to every procedure, and reads the true error of the threshold that each chose. A trial's
numbers depend on the seed, the design and the trial's number only, so neither their order nor the number of processes changes a result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets._version import __version__
from certify_assets.certificates.evaluation import Settings, evaluate
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.populations import Design, pilot_of
from certify_assets.errors import InputError, quoted
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.research.published import PAPER_PROCEDURES
from certify_assets.research.study import (
    SIMULATION_SCHEMA,
    Cell,
    Simulation,
    Variant,
    make_variants,
    summarise,
)
from certify_assets.storage.workers import in_processes

__all__ = ["PILOT_TASKS", "STUDY_PROCEDURES", "cell_key", "simulate"]

STUDY_PROCEDURES = (*PAPER_PROCEDURES, "guarded_taskboot")
PILOT_TASKS = 200
_CHUNK, _MOST_TRIALS, _MOST_WORKERS, _MOST_PILOT = 50, 1_000_000, 256, 100_000
#: settings that a study may change; the others are drawn, or follow from the design
_CHANGES = ("side", "grid", "guard", "error_icc_cap", "size_ratio", "multiplicity", "estimand")


@dataclass(frozen=True)
class _Job:
    """Some trials of one cell; small enough to travel to another process."""

    cell: int
    design: Design
    start: int
    stop: int
    variants: tuple[Variant, ...]
    seed: int
    pilot_tasks: int


_Spread = Callable[
    [Callable[[_Job], NDArray[np.float64]], Sequence[_Job]],
    Iterable[tuple[int, NDArray[np.float64]]],
]


def simulate(
    designs: Sequence[Design],
    *,
    procedures: Sequence[str] = STUDY_PROCEDURES,
    trials: int = 300,
    alpha: float = 0.1,
    delta: float = 0.05,
    seed: int = 42,
    workers: int = 1,
    pilot_tasks: int = PILOT_TASKS,
    known: Mapping[str, Cell] | None = None,
    progress: Callable[[Cell, int, int], None] | None = None,
    keep: Callable[[str, Cell], None] | None = None,
    spread: _Spread | None = None,
    **changes: Any,
) -> Simulation:
    """Run a synthetic validity study.

    Parameters
    ----------
    designs : sequence of Design
        Such as :func:`certify_assets.research.designs.study_designs` returns.
    procedures : sequence of str
        As :func:`certify_assets.research.study.make_variants` reads them.
    trials : int
        Calibration sets a design.
    alpha, delta : float
    seed : int
    workers : int
        Processes; with more than one, a script that calls this needs the usual ``if __name__ == "__main__"``.
    pilot_tasks : int
        Tasks of the same population that betting reads in each trial beside the calibration set.
    known : mapping of str to Cell, optional
        Cells that an earlier call finished, by :func:`cell_key`; they are not run again.
    progress : callable, optional
        Called with each finished cell, how many are finished and how many there are.
    keep : callable, optional
        Called with the key and each cell that was run.
    spread : callable, optional
        Runs the pieces of work instead of `workers`: gets a function and what to call it with, and returns the pairs of place and answer as they come
        in; such as :func:`certify_assets.storage.shards.run_shards`.
    **changes
        side, grid, guard, error_icc_cap, size_ratio, multiplicity and estimand, as for :class:`Settings`.

    Returns
    -------
    Simulation
        The same for any number of workers; a cell is the same whatever other cells are asked for.

    Raises
    ------
    InputError
        If there is nothing to run, or a setting is out of its range.
    """
    _whole("trials", trials, _MOST_TRIALS)
    _whole("workers", workers, _MOST_WORKERS)
    _whole("pilot_tasks", pilot_tasks, _MOST_PILOT)
    unknown = sorted(set(changes) - set(_CHANGES))
    if unknown:
        raise InputError(
            f"A simulation has no setting {quoted(unknown[0])}; give some of {', '.join(_CHANGES)}."
        )
    if not designs or not procedures:
        raise InputError("A simulation needs at least one design and one procedure; give both.")
    variants = make_variants(procedures, {"alpha": alpha, "delta": delta, "seed": seed, **changes})
    keys = [
        cell_key(design, variants, trials=trials, seed=seed, pilot_tasks=pilot_tasks)
        for design in designs
    ]
    cells = {place: known[key] for place, key in enumerate(keys) if known and key in known}
    jobs = [
        _Job(cell, design, start, min(start + _CHUNK, trials), variants, seed, pilot_tasks)
        for cell, design in enumerate(designs)
        for start in range(0, trials, _CHUNK)
        if cell not in cells
    ]
    if progress is not None:
        for done, cell in enumerate(cells.values(), 1):
            progress(cell, done, len(designs))
    for place, cell in _finished(jobs, _answers(jobs, workers, spread), math.ceil(trials / _CHUNK)):
        cells[place] = cell
        if keep is not None:
            keep(keys[place], cell)
        if progress is not None:
            progress(cell, len(cells), len(designs))
    settings = _stated(changes) | (
        {"pilot_tasks": pilot_tasks} if any(one.settings.method.pilot for one in variants) else {}
    )
    ordered = tuple(cells[place] for place in range(len(designs)))
    return Simulation(float(alpha), float(delta), int(trials), int(seed), ordered, settings)


def cell_key(
    design: Design, variants: Sequence[Variant], *, trials: int, seed: int, pilot_tasks: int
) -> str:
    """Return the hash of everything a cell depends on: design, procedures, settings, trials, seed and the software's version."""
    pilot = pilot_tasks if any(one.settings.method.pilot for one in variants) else None
    return sha256_bytes(
        canonical_json(
            {
                "schema": SIMULATION_SCHEMA,
                "version": __version__,
                "design": [f"{design!r}", getattr(design, "side", None)],
                "variants": [[one.label, asdict(one.settings)] for one in variants],
                "trials": int(trials),
                "seed": int(seed),
                "pilot_tasks": pilot,
            }
        )
    )


def _stated(changes: Mapping[str, Any]) -> dict[str, Any]:
    plain = Settings()
    return {
        name: changes[name]
        for name in _CHANGES
        if name in changes and changes[name] != getattr(plain, name)
    }


def _finished(
    jobs: Sequence[_Job], answers: Iterable[tuple[int, NDArray[np.float64]]], needed: int
) -> Iterator[tuple[int, Cell]]:
    """Cells in the order in which their last trials come in."""
    parts: dict[int, dict[int, NDArray[np.float64]]] = {}
    for place, found in answers:
        job = jobs[place]
        parts.setdefault(job.cell, {})[job.start] = found
        if len(parts[job.cell]) == needed:
            ordered = np.concatenate([part for _, part in sorted(parts.pop(job.cell).items())])
            yield job.cell, summarise(job.design, ordered, job.variants)


def _answers(
    jobs: Sequence[_Job], workers: int, spread: _Spread | None
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    if spread is not None:
        return iter(spread(_run, jobs))
    if workers == 1:
        return enumerate(map(_run, jobs))
    return in_processes(_run, jobs, workers=workers)


def _run(job: _Job) -> NDArray[np.float64]:
    """Coverage and both true errors of each procedure in each trial, shape (trials, procedures, 3); NaN where nothing was certified."""
    found = np.full((job.stop - job.start, len(job.variants), 3), np.nan)
    name = f"{job.design!r}".encode()
    cell = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    asked = [_capped(one.settings, job.design) for one in job.variants]
    for trial in range(job.start, job.stop):
        rng = np.random.default_rng([job.seed, cell, trial])
        observations = observe(*job.design.draw(rng))
        # the draw of one trajectory a task must differ between trials
        pick = int(rng.integers(2**63))
        pilot = (
            _pilot(job, cell, trial) if any(settings.method.pilot for settings in asked) else None
        )
        thresholds = np.full(len(asked), np.nan)
        for place, settings in enumerate(asked):
            evaluation = evaluate(observations, replace(settings, seed=pick), pilot)
            chosen = evaluation.chosen
            if chosen is not None:
                thresholds[place] = evaluation.counts.thresholds[chosen]
                found[trial - job.start, place, 0] = evaluation.counts.coverage[chosen]
        certified = np.isfinite(thresholds)
        if certified.any():
            distinct, which = np.unique(thresholds[certified], return_inverse=True)
            for place, estimand in ((1, "trajectory"), (2, "task")):
                found[trial - job.start, certified, place] = job.design.true_error(
                    distinct, asked[0].side, estimand
                )[which]
    return found


def _capped(settings: Settings, design: Design) -> Settings:
    """Declare the design's largest task where the procedure cannot do without."""
    needed = settings.method.weighted and settings.applied_estimand == "trajectory"
    return replace(settings, max_task_size=design.cap) if needed else settings


def _pilot(job: _Job, cell: int, trial: int) -> Observations:
    # a stream of its own, so that asking for betting changes no other number
    return observe(
        *pilot_of(job.design, job.pilot_tasks, np.random.default_rng([job.seed, cell, trial, 1]))
    )


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InputError(f"{name} is {quoted(value)}; give a whole number from 1 to {most}.")
