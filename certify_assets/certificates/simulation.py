"""The synthetic validity study: how often procedures certify a threshold whose true error exceeds the budget, and what they cover.

A trial draws a calibration set of a design, puts it to every procedure, and reads the true error of the threshold that each chose. A trial's
numbers depend on the seed, the design and the trial's number only, so neither their order nor the number of processes changes a result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets._version import __version__
from certify_assets.certificates.baselines import clopper_pearson_upper
from certify_assets.certificates.designs import Clustered, Design
from certify_assets.certificates.evaluation import Settings, evaluate
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.shown import shown
from certify_assets.errors import CertifyError, InputError

__all__ = ["PAPER", "PAPER_PROCEDURES", "SIMULATION_SCHEMA", "STUDY_PROCEDURES", "Cell", "Rates", "Simulation", "simulate"]

SIMULATION_SCHEMA = "certify_assets/simulation/1"
PAPER_PROCEDURES = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
STUDY_PROCEDURES = (*PAPER_PROCEDURES, "guarded_taskboot")
_CHUNK, _MOST_TRIALS, _MOST_WORKERS = 50, 1_000_000, 256

_TABLE = {
    (20, 0.1): ((0.00, 0.65), (0.00, 0.16), (0.00, 0.00), (0.00, 0.00), (0.00, 0.68)),
    (20, 0.5): ((0.00, 0.53), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.01, 0.61)),
    (20, 0.8): ((0.00, 0.47), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.01, 0.56)),
    (50, 0.1): ((0.00, 0.69), (0.00, 0.67), (0.00, 0.00), (0.00, 0.00), (0.00, 0.69)),
    (50, 0.5): ((0.00, 0.61), (0.00, 0.03), (0.00, 0.00), (0.00, 0.00), (0.00, 0.62)),
    (50, 0.8): ((0.00, 0.57), (0.00, 0.00), (0.00, 0.00), (0.00, 0.00), (0.00, 0.57)),
    (100, 0.1): ((0.00, 0.70), (0.00, 0.69), (0.00, 0.29), (0.00, 0.00), (0.00, 0.70)),
    (100, 0.5): ((0.00, 0.62), (0.00, 0.58), (0.03, 0.06), (0.00, 0.00), (0.00, 0.63)),
    (100, 0.8): ((0.00, 0.58), (0.00, 0.23), (0.00, 0.00), (0.00, 0.00), (0.00, 0.58)),
    (500, 0.1): ((0.00, 0.71), (0.00, 0.71), (0.00, 0.69), (0.00, 0.66), (0.00, 0.71)),
    (500, 0.5): ((0.00, 0.64), (0.00, 0.63), (0.00, 0.62), (0.00, 0.56), (0.00, 0.64)),
    (500, 0.8): ((0.00, 0.60), (0.00, 0.58), (0.00, 0.58), (0.00, 0.00), (0.00, 0.59)),
}
#: (design, tasks, ρ, procedure) → violation among certifying trials and mean coverage that the paper prints (α = .1, δ = .05, 300 trials);
#: of its adversarial designs it prints violations only, and neither tasks nor ρ of (ii) and (iii)
PAPER: dict[tuple[str, int, float, str], tuple[float, float | None]] = {
    **{
        ("paper", *place, procedure): pair
        for place, pairs in _TABLE.items()
        for procedure, pair in zip(PAPER_PROCEDURES, pairs, strict=True)
    },
    ("low_base_rate", 32, 0.8, "naive"): (0.003, None),
    ("low_base_rate", 32, 0.8, "taskboot"): (0.0, None),
    ("size_outcome", 50, 0.5, "naive"): (0.0, None),
    ("size_outcome", 50, 0.5, "taskboot"): (0.0, None),
    ("heavy_tails", 50, 0.5, "naive"): (0.0, None),
    ("heavy_tails", 50, 0.5, "taskboot"): (0.0, None),
}


@dataclass(frozen=True)
class Rates:
    """What one procedure did over the trials of one cell.

    Attributes
    ----------
    procedure : str
    certified, violations : int
        Trials that certified a threshold, and those whose threshold has a true error above α.
    violation_conditional, violation_conditional_se : float or None
        Among the trials that certified (the paper's table); None when none did.
    violation, violation_se, violation_upper : float
        Among all trials (what δ bounds), its standard error, and the upper 95 % Clopper–Pearson bound, which is not 0 when none was seen.
    coverage, coverage_se : float
        Mean certified share of the calibration trajectories, 0 in trials that certify nothing.
    true_error : float or None
        Mean true error of the certified thresholds.
    paper : dict or None
        ``violation_conditional`` and ``coverage`` in the paper, where it prints them.
    """

    procedure: str
    certified: int
    violations: int
    violation_conditional: float | None
    violation_conditional_se: float | None
    violation: float
    violation_se: float
    violation_upper: float
    coverage: float
    coverage_se: float
    true_error: float | None
    paper: dict[str, float | None] | None = None


@dataclass(frozen=True)
class Cell:
    """One design with its procedures; ``population_icc`` is that of the outcomes where the design has a task effect."""

    design: str
    tasks: int
    rho: float | None
    population_icc: float | None
    trials: int
    procedures: tuple[Rates, ...]


@dataclass(frozen=True)
class Simulation:
    """The study: its settings, and a cell for every design."""

    alpha: float
    delta: float
    trials: int
    seed: int
    cells: tuple[Cell, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the study as a JSON object."""
        software = {"version": __version__}
        return {"schema": SIMULATION_SCHEMA, **asdict(self), "cells": [asdict(cell) for cell in self.cells], "software": software}


@dataclass(frozen=True)
class _Job:
    """Some trials of one cell; small enough to travel to another process."""

    cell: int
    design: Design
    start: int
    stop: int
    settings: tuple[Settings, ...]
    seed: int


def simulate(
    designs: Sequence[Design],
    *,
    procedures: Sequence[str] = STUDY_PROCEDURES,
    trials: int = 300,
    alpha: float = 0.1,
    delta: float = 0.05,
    seed: int = 42,
    workers: int = 1,
    progress: Callable[[Cell, int, int], None] | None = None,
) -> Simulation:
    """Run a synthetic validity study.

    Parameters
    ----------
    designs : sequence of Design
        Such as :func:`certify_assets.certificates.designs.study_designs` returns.
    procedures : sequence of str
    trials : int
        Calibration sets a design.
    alpha, delta : float
    seed : int
    workers : int
        Processes; with more than one, a script that calls this needs the usual ``if __name__ == "__main__"``.
    progress : callable, optional
        Called with each finished cell, how many are finished and how many there are.

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
    if not designs or not procedures:
        raise InputError("A simulation needs at least one design and one procedure; give both.")
    settings = tuple(Settings(procedure=name, alpha=alpha, delta=delta, seed=seed) for name in dict.fromkeys(procedures))
    jobs = [
        _Job(cell, design, start, min(start + _CHUNK, trials), settings, seed)
        for cell, design in enumerate(designs)
        for start in range(0, trials, _CHUNK)
    ]
    parts: dict[int, dict[int, NDArray[np.float64]]] = {cell: {} for cell in range(len(designs))}
    cells: dict[int, Cell] = {}
    needed = math.ceil(trials / _CHUNK)
    for job, found in _answers(jobs, workers):
        parts[job.cell][job.start] = found
        if len(parts[job.cell]) == needed:
            ordered = np.concatenate([part for _, part in sorted(parts.pop(job.cell).items())])
            cells[job.cell] = _summarise(job.design, ordered, settings)
            if progress is not None:
                progress(cells[job.cell], len(cells), len(designs))
    return Simulation(float(alpha), float(delta), int(trials), int(seed), tuple(cells[place] for place in range(len(designs))))


def _answers(jobs: Sequence[_Job], workers: int) -> Iterator[tuple[_Job, NDArray[np.float64]]]:
    if workers == 1:
        yield from ((job, _run(job)) for job in jobs)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # a fork would copy threads of libraries in whatever state they are
    pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"), initializer=_ignore_interrupts)
    try:
        waiting = {pool.submit(_run, job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise CertifyError("A worker process ended before it answered, perhaps for want of memory; use fewer workers.") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _ignore_interrupts() -> None:
    """Leave an interrupt from the keyboard, which reaches every process, to the one that waits for the answers."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run(job: _Job) -> NDArray[np.float64]:
    """Coverage and true error of each procedure in each trial, shape (trials, procedures, 2); NaN where nothing was certified."""
    found = np.full((job.stop - job.start, len(job.settings), 2), np.nan)
    name = f"{job.design!r}".encode()
    cell = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    for trial in range(job.start, job.stop):
        rng = np.random.default_rng([job.seed, cell, trial])
        observations = observe(*job.design.draw(rng))
        # the draw of one trajectory a task must differ between trials
        pick = int(rng.integers(2**63))
        thresholds = np.full(len(job.settings), np.nan)
        for place, settings in enumerate(job.settings):
            evaluation = evaluate(observations, replace(settings, seed=pick))
            chosen = evaluation.chosen
            if chosen is not None:
                thresholds[place] = evaluation.counts.thresholds[chosen]
                found[trial - job.start, place, 0] = evaluation.counts.coverage[chosen]
        certified = np.isfinite(thresholds)
        if certified.any():
            distinct, which = np.unique(thresholds[certified], return_inverse=True)
            found[trial - job.start, certified, 1] = job.design.true_error(distinct)[which]
    return found


def _summarise(design: Design, found: NDArray[np.float64], settings: Sequence[Settings]) -> Cell:
    rates = tuple(_rates(design, found[:, place], one) for place, one in enumerate(settings))
    icc = design.population_icc() if isinstance(design, Clustered) and not design.size_slope else None
    return Cell(design.name, design.tasks, design.rho, icc, len(found), rates)


def _rates(design: Design, found: NDArray[np.float64], settings: Settings) -> Rates:
    trials, certified = len(found), np.isfinite(found[:, 0])
    count, wrong = int(certified.sum()), int((found[certified, 1] > settings.alpha).sum())
    coverage = np.where(certified, found[:, 0], 0.0)
    key = (design.name, design.tasks, design.rho or 0.0, settings.procedure)
    printed = PAPER.get(key) if (settings.alpha, settings.delta) == (0.1, 0.05) else None
    return Rates(
        procedure=settings.procedure,
        certified=count,
        violations=wrong,
        violation_conditional=wrong / count if count else None,
        violation_conditional_se=_rate_se(wrong, count) if count else None,
        violation=wrong / trials,
        violation_se=_rate_se(wrong, trials),
        violation_upper=clopper_pearson_upper(wrong, trials, 0.05),
        coverage=float(coverage.mean()),
        coverage_se=float(coverage.std(ddof=1)) / math.sqrt(trials) if trials > 1 else 0.0,
        true_error=float(found[certified, 1].mean()) if count else None,
        paper=None if printed is None else {"violation_conditional": printed[0], "coverage": printed[1]},
    )


def _rate_se(hits: int, trials: int) -> float:
    return math.sqrt(hits * (trials - hits) / trials) / trials


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InputError(f"{name} is {shown(value)}; give a whole number from 1 to {most}.")
