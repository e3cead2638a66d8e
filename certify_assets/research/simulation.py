"""The synthetic study: how often procedures certify a true error above the budget."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets._version import __version__
from certify_assets.certificates.evaluation import Settings, evaluate
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.pool import observe_pool
from certify_assets.certificates.procedures import DEFAULT, clopper_pearson_upper
from certify_assets.certificates.sides import procedure_settings
from certify_assets.errors import InputError, quoted
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.processes import in_processes
from certify_assets.research import paper
from certify_assets.research.populations import Clustered, Design, Fooled, pilot_of

SIMULATION_SCHEMA = "certify_assets/simulation/1"
PAPER_PROCEDURES = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
#: word after a procedure's name → the setting that it changes
_WORDS = {
    **dict.fromkeys(("floor", "none"), "guard"),
}


#: … and one that gives pseudo_task the scores and sizes of other tasks
_POOL = "pool"


@dataclass(frozen=True)
class Variant:
    """A procedure as it was asked for, ``guarded_taskboot:none``, and its settings."""

    label: str
    settings: Settings
    pool: bool = False


@dataclass(frozen=True)
class Rates:
    """What one procedure did over the trials of one cell."""

    # with what was changed for it, guarded_taskboot:none
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
    # one-sided 95 % Clopper–Pearson; the upper one is not 0 where no violation was seen
    violation_lower: float
    violation_upper: float
    # mean certified share, 0 in trials that certify nothing
    coverage: float
    coverage_se: float
    # mean of the certified thresholds
    true_error: float | None
    # violation_conditional and coverage, where the paper prints them
    paper: dict[str, float | None] | None = None
    # what the procedure promises: the error over trajectories, or over tasks
    estimand: str = "trajectory"
    # by the procedure's own task-weighted estimand; None where violation is it
    own_violation: float | None = None


@dataclass(frozen=True)
class Cell:
    """One design with its procedures."""

    design: str
    tasks: int
    # nominal label ICC
    rho: float | None
    # of the outcomes, where the design has a task effect
    population_icc: float | None
    trials: int
    procedures: tuple[Rates, ...]
    # of fooled tasks, as the next two
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
    """The study: its settings, and a cell for every design."""

    alpha: float
    delta: float
    trials: int
    seed: int
    cells: tuple[Cell, ...]
    settings: dict[str, str | float] = field(default_factory=dict)

    @property
    def side(self) -> str:
        """Which decision is certified."""
        return str(self.settings.get("side", "reject"))

    def to_dict(self) -> dict[str, Any]:
        """Return the study as a JSON object."""
        return {"schema": SIMULATION_SCHEMA, **asdict(self), "software": {"version": __version__}}

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
    """Read procedures with their changes, such as ``guarded_taskboot:none``."""
    found = []
    for label in dict.fromkeys(procedures):
        name, *words = str(label).split(":")
        unknown = next((word for word in words if word not in (*_WORDS, _POOL)), None)
        if unknown is not None:
            raise InputError(
                f"procedure {quoted(label)} says {quoted(unknown)} after a colon; give one of "
                f"{', '.join((*_WORDS, _POOL))}."
            )
        settings = procedure_settings([name], keywords, several=len(procedures) > 1)[0]
        if _POOL in words and not settings.method.calibrated:
            raise InputError(f"{name} takes no pool; give one to pseudo_task.")
        own = {_WORDS[word]: word for word in words if word != _POOL}
        settings = replace(settings, guard=own.get("guard", settings.guard))
        found.append(Variant(label, settings, pool=_POOL in words))
    return tuple(found)


def summarise(design: Design, found: NDArray[np.float64], variants: Sequence[Variant]) -> Cell:
    """Turn trials into rates."""
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
        estimand=settings.method.estimand,
        own_violation=int((found[certified, 2] > settings.alpha).sum()) / trials
        if settings.method.pilot
        else None,
    )


def _printed(design: Design, variant: Variant) -> dict[str, float | None] | None:
    """What the paper prints, where its settings are these."""
    one = variant.settings
    if (one.alpha, one.delta, one.side, one.applied_grid, one.multiplicity) != (
        0.1,
        0.05,
        "reject",
        40,
        "bonferroni",
    ):
        return None
    printed = paper.simulation_rates().get(
        (design.name, design.tasks, design.rho or 0.0, variant.label)
    )
    return (
        None if printed is None else {"violation_conditional": printed[0], "coverage": printed[1]}
    )


def _rate_se(hits: int, trials: int) -> float:
    return math.sqrt(hits * (trials - hits) / trials) / trials


STUDY_PROCEDURES = (*PAPER_PROCEDURES, "guarded_taskboot", DEFAULT)
PILOT_TASKS = 200
_CHUNK, _MOST_TRIALS, _MOST_WORKERS, _MOST_PILOT = 50, 1_000_000, 256, 100_000
#: settings that a study may change; the others are drawn, or follow from the design
_CHANGES = ("side", "grid", "guard", "size_ratio")


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
    # cells that an earlier call finished, by cell_key; they are not run again
    known: Mapping[str, Cell] | None = None,
    progress: Callable[[Cell, int, int], None] | None = None,
    keep: Callable[[str, Cell], None] | None = None,
    **changes: Any,
) -> Simulation:
    """Run a synthetic validity study; a cell is the same whatever else is run, by any workers."""
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
    for place, cell in _finished(jobs, _answers(jobs, workers), math.ceil(trials / _CHUNK)):
        cells[place] = cell
        if keep is not None:
            keep(keys[place], cell)
        if progress is not None:
            progress(cell, len(cells), len(designs))
    settings = _stated(changes) | (
        {"pilot_tasks": pilot_tasks} if any(map(_reads_others, variants)) else {}
    )
    ordered = tuple(cells[place] for place in range(len(designs)))
    return Simulation(float(alpha), float(delta), int(trials), int(seed), ordered, settings)


def cell_key(
    design: Design, variants: Sequence[Variant], *, trials: int, seed: int, pilot_tasks: int
) -> str:
    """Return the hash of everything that a cell depends on, the software's version included."""
    pilot = pilot_tasks if any(map(_reads_others, variants)) else None
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


def _reads_others(variant: Variant) -> bool:
    """Whether other tasks are drawn for a procedure: a pilot or a pool."""
    return variant.settings.method.pilot or variant.pool


def _stated(changes: Mapping[str, Any]) -> dict[str, str | float]:
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


def _answers(jobs: Sequence[_Job], workers: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    if workers == 1:
        return enumerate(map(_run, jobs))
    return in_processes(_run, jobs, workers=workers)


def _run(job: _Job) -> NDArray[np.float64]:
    """Coverage and both true errors, shape (trials, procedures, 3); NaN for no certificate."""
    # a trial's numbers depend on the seed, the design and its own number, so that neither order nor
    # workers change a result
    found = np.full((job.stop - job.start, len(job.variants), 3), np.nan)
    name = f"{job.design!r}".encode()
    cell = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    asked = [one.settings for one in job.variants]
    for trial in range(job.start, job.stop):
        rng = np.random.default_rng([job.seed, cell, trial])
        observations = observe(*job.design.draw(rng))
        # the draw of one trajectory a task must differ between trials
        pick = int(rng.integers(2**63))
        pilot = _pilot(job, cell, trial) if any(map(_reads_others, job.variants)) else None
        thresholds = np.full(len(asked), np.nan)
        for place, settings in enumerate(asked):
            pool = None
            if pilot is not None and job.variants[place].pool:
                pool = observe_pool(pilot.scores, [pilot.labels[task] for task in pilot.tasks])
            evaluation = evaluate(observations, replace(settings, seed=pick), pilot, pool)
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


def _pilot(job: _Job, cell: int, trial: int) -> Observations:
    # a stream of its own, so that asking for betting changes no other number
    return observe(
        *pilot_of(job.design, job.pilot_tasks, np.random.default_rng([job.seed, cell, trial, 1]))
    )


def _whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise InputError(f"{name} is {quoted(value)}; give a whole number from 1 to {most}.")
