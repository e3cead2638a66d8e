"""The synthetic study: how often procedures certify a true error above the budget."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from certify_assets._version import __version__
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.procedures import DEFAULT, clopper_pearson_upper
from certify_assets.certificates.settings import Settings
from certify_assets.documents import Document
from certify_assets.errors import InputError, quoted
from certify_assets.research import paper
from certify_assets.research.populations import Design, Fooled, pilot_of

PAPER_PROCEDURES = paper.SIMULATED
STUDY_PROCEDURES = (*PAPER_PROCEDURES, "guarded_taskboot", DEFAULT)
#: other tasks a trial that betting reads
PILOT_TASKS = 200
_CHUNK, _MOST_TRIALS, _MOST_WORKERS = 50, 1_000_000, 256


@dataclass(frozen=True)
class Rates:
    """The results of one procedure over the trials of one cell."""

    procedure: str
    certified: int
    # trials whose certified threshold has a true error over trajectories above α
    violations: int
    # among the trials that certified, as in the paper's table
    violation_conditional: float | None
    violation_conditional_se: float | None
    # among all trials, which δ bounds
    violation: float
    violation_se: float
    # one-sided 95 % Clopper–Pearson: not 0 where no violation was seen
    violation_upper: float
    # mean certified share, 0 in trials that certify nothing
    coverage: float
    coverage_se: float
    # mean of the certified thresholds
    true_error: float | None
    # violation_conditional and coverage, where the paper prints them
    paper: dict[str, float | None] | None = None
    # of a procedure that promises the error over tasks, by that; None of the others
    own_violation: float | None = None


@dataclass(frozen=True)
class Cell:
    """One design with its procedures."""

    design: str
    tasks: int
    # nominal label ICC
    rho: float | None
    trials: int
    procedures: tuple[Rates, ...]
    # of fooled tasks
    true_error: float | None = None

    @property
    def title(self) -> str:
        """Name with tasks, and label ICC or true error."""
        about = "" if self.rho is None else f" ρ={self.rho:g}"
        return f"{self.design} G={self.tasks}{about}" + (
            "" if self.true_error is None else f" err={self.true_error:.3g}"
        )


class Simulation(Document):
    """The study: its settings, and a cell for every design."""

    TITLE = "simulation"
    SCHEMA = "certify_assets/simulation/2"

    alpha: float
    delta: float
    trials: int
    seed: int
    cells: tuple[Cell, ...]
    settings: dict[str, str | float] = Field(default_factory=dict)
    software: dict[str, str] = Field(default_factory=lambda: {"version": __version__})

    @property
    def side(self) -> str:
        """Which decision is certified."""
        return str(self.settings.get("side", "reject"))


def summarise(design: Design, found: NDArray[np.float64], procedures: Sequence[Settings]) -> Cell:
    """Compute rates from trials."""
    rates = tuple(_rates(design, found[:, place], one) for place, one in enumerate(procedures))
    error = design.share if isinstance(design, Fooled) else None
    return Cell(design.name, design.tasks, design.rho, len(found), rates, error)


def _rates(design: Design, found: NDArray[np.float64], settings: Settings) -> Rates:
    trials, certified = len(found), np.isfinite(found[:, 0])
    count, wrong = int(certified.sum()), int((found[certified, 1] > settings.alpha).sum())
    coverage = np.where(certified, found[:, 0], 0.0)
    # Hoeffding's bound is on task means too, and the paper holds it to the error over trajectories
    by_task = settings.procedure == "betting"
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
        paper=_printed(design, settings),
        own_violation=int((found[certified, 2] > settings.alpha).sum()) / trials
        if by_task
        else None,
    )


def _printed(design: Design, settings: Settings) -> dict[str, float | None] | None:
    """The paper's printed figures for the same settings, if there are any."""
    if (settings.alpha, settings.delta, settings.side) != (0.1, 0.05, "reject"):
        return None
    place = (design.name, design.tasks, design.rho or 0.0, settings.procedure)
    printed = paper.simulation_rates().get(place)
    return (
        None if printed is None else {"violation_conditional": printed[0], "coverage": printed[1]}
    )


def _rate_se(hits: int, trials: int) -> float:
    return math.sqrt(hits * (trials - hits) / trials) / trials


@dataclass(frozen=True)
class _Job:
    """Some trials of one cell, small enough to send to another process."""

    cell: int
    design: Design
    trials: range
    procedures: tuple[Settings, ...]
    seed: int


def simulate(
    designs: Sequence[Design],
    *,
    procedures: Sequence[str] = STUDY_PROCEDURES,
    trials: int = 300,
    alpha: float = 0.1,
    delta: float = 0.05,
    side: str = "reject",
    seed: int = 42,
    workers: int = 1,
    progress: Callable[[Cell, int, int], None] = lambda *_: None,
) -> Simulation:
    """Run a synthetic validity study (Table 5).

    A cell depends neither on other cells nor on the number of workers.
    """
    from joblib import Parallel, delayed

    _whole("trials", trials, _MOST_TRIALS)
    _whole("workers", workers, _MOST_WORKERS)
    if not designs or not procedures:
        raise InputError("A simulation needs at least one design and one procedure; give both.")
    asked = tuple(
        Settings(procedure=name, alpha=alpha, delta=delta, side=side, seed=seed)
        for name in dict.fromkeys(procedures)
    )
    every = range(trials)
    jobs = [
        _Job(cell, design, every[start : start + _CHUNK], asked, seed)
        for cell, design in enumerate(designs)
        for start in range(0, trials, _CHUNK)
    ]
    cells: list[Cell] = []
    # jobs are in the order of the cells, and so are their answers
    parts: list[NDArray[np.float64]] = []
    answers = Parallel(n_jobs=workers, return_as="generator")(delayed(_run)(job) for job in jobs)
    for job, found in zip(jobs, answers, strict=True):
        parts.append(found)
        if job.trials.stop == trials:
            cells.append(summarise(job.design, np.concatenate(parts), asked))
            parts = []
            progress(cells[-1], len(cells), len(designs))
    settings: dict[str, str | float] = {} if side == "reject" else {"side": side}
    if any(one.method.pilot for one in asked):
        settings["pilot_tasks"] = PILOT_TASKS
    return Simulation(
        alpha=float(alpha),
        delta=float(delta),
        trials=trials,
        seed=seed,
        cells=tuple(cells),
        settings=settings,
    )


def _run(job: _Job) -> NDArray[np.float64]:
    """Coverage and both true errors, shape (trials, procedures, 3); NaN for no certificate."""
    # a trial's numbers depend on the seed, the design and its own number, so that neither order nor
    # workers change a result
    found = np.full((len(job.trials), len(job.procedures), 3), np.nan)
    name = f"{job.design!r}".encode()
    cell = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    for row, trial in enumerate(job.trials):
        rng = np.random.default_rng([job.seed, cell, trial])
        observations = observe(*job.design.draw(rng))
        # the draw of one trajectory a task must differ between trials
        pick = int(rng.integers(2**63))
        thresholds = np.full(len(job.procedures), np.nan)
        for place, settings in enumerate(job.procedures):
            pilot = _pilot(job, cell, trial) if settings.method.pilot else None
            evaluation = evaluate(observations, settings.replace(seed=pick), pilot)
            chosen = evaluation.chosen
            if chosen is not None:
                thresholds[place] = evaluation.counts.thresholds[chosen]
                found[row, place, 0] = evaluation.counts.coverage[chosen]
        certified = np.isfinite(thresholds)
        if certified.any():
            distinct, which = np.unique(thresholds[certified], return_inverse=True)
            for place, estimand in ((1, "trajectory"), (2, "task")):
                found[row, certified, place] = job.design.true_error(
                    distinct, job.procedures[0].side, estimand
                )[which]
    return found


def _pilot(job: _Job, cell: int, trial: int) -> Observations:
    # a stream of its own, so that asking for betting changes no other number
    rng = np.random.default_rng([job.seed, cell, trial, 1])
    return observe(*pilot_of(job.design, PILOT_TASKS, rng))


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InputError(f"{name} is {quoted(value)}; give a whole number from 1 to {most}.")
