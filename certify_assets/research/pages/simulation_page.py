"""The page of the synthetic study with its maps of violations and coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from certify_assets.certificates.procedures import DEFAULT, clopper_pearson_upper
from certify_assets.reports import svg
from certify_assets.reports.wording import counted, home_of, percent, rate, render, store_page
from certify_assets.research.designs import DESIGNS
from certify_assets.research.simulation import PAPER_PROCEDURES
from certify_assets.research.simulation_study import (
    EXCEPTION,
    PAGE,
    SIMULATION_KEY,
    TOLERANCE,
    beyond_delta,
    ends_of,
    is_exception,
    load_study,
)

if TYPE_CHECKING:
    from certify_assets.research.designs import TruthCheck
    from certify_assets.research.simulation import Cell, Rates, Simulation
    from certify_assets.storage.store import Store

#: columns of one map
COLUMNS = 16
_WITHIN, _ABOVE, _COVERED = (
    ((250, 251, 252), (219, 228, 242)),
    ((253, 228, 221), (190, 60, 50)),
    ((250, 251, 252), (122, 160, 222)),
)
_GROUPS = {
    "low_base_rate": "(i)",
    "size_outcome": "(ii)",
    "heavy_tails": "(iii)",
    "fooled": "whole tasks",
    "fooled_partly": "error ICC .7",
    "fooled_scattered": "error ICC .3",
    "fooled_larger": "wrong tasks 3×",
    "fooled_largest": "wrong tasks 5×",
}
_Colours = tuple[tuple[int, int, int], tuple[int, int, int]]


def short_rate(value: float | None, digits: int = 3) -> str:
    """Write a rate without the zero before its point."""
    return (
        rate(value, digits).removeprefix("0") if value is None or value < 1 else rate(value, digits)
    )


def group_of(cell: Cell) -> str:
    """Name the columns that stand together."""
    return (
        f"paper, {cell.tasks} tasks"
        if cell.design == "paper"
        else _GROUPS.get(cell.design, cell.design)
    )


@dataclass(frozen=True)
class HeatCell:
    """A coloured cell: what it shows, what pointing at it says, and a mark before its number."""

    text: str
    about: str
    fill: tuple[int, int, int]
    mark: str = ""

    @property
    def ink(self) -> str:
        """White on what is darker than a fifth of full luminance, for contrast."""
        red, green, blue = (float(part / 255) ** 2.2 for part in self.fill)
        return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.2 else svg.INK


@dataclass(frozen=True)
class HeatMap:
    """Designs as columns, named groups of them with their widths, and a row a procedure."""

    caption: str
    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[tuple[str, list[HeatCell | None]]]


def violation_map(cells: Sequence[Cell], procedures: Sequence[str], delta: float) -> HeatMap:
    """Show the share of all trials that certified wrongly."""

    def shown(cell: Cell, found: Rates) -> HeatCell:
        above = found.violation > delta
        return HeatCell(
            short_rate(found.violation),
            f"{found.procedure}, {cell.title}: {found.violations} of {cell.trials} trials, "
            f"{short_rate(found.violation)} ± {short_rate(found.violation_se)}",
            _colour(_ABOVE, found.violation)
            if above
            else _colour(_WITHIN, found.violation / delta),
            # above beyond Monte-Carlo error, or as seen
            ("▲" if found.violation_lower > delta else "△") if above else "",
        )

    above = sum(one.violation > delta for name in procedures for one in _of(cells, name))
    caption = (
        f"Violations of {counted(len(procedures), 'procedure')} in "
        f"{counted(len(cells), 'design')}; {above} of the values exceed {delta:g}."
    )
    return _heat_map(caption, cells, procedures, shown)


def coverage_map(cells: Sequence[Cell], procedures: Sequence[str]) -> HeatMap:
    """Show the mean certified share."""

    def shown(cell: Cell, found: Rates) -> HeatCell:
        return HeatCell(
            short_rate(found.coverage),
            f"{found.procedure}, {cell.title}: coverage {short_rate(found.coverage)} ± "
            f"{short_rate(found.coverage_se)}",
            _colour(_COVERED, found.coverage / 0.8),
        )

    caption = (
        f"Mean coverage of {counted(len(procedures), 'procedure')} in "
        f"{counted(len(cells), 'design')}."
    )
    return _heat_map(caption, cells, procedures, shown)


def _heat_map(
    caption: str,
    cells: Sequence[Cell],
    procedures: Sequence[str],
    shown: Callable[[Cell, Rates], HeatCell],
) -> HeatMap:
    return HeatMap(
        caption,
        [(group, len(list(members))) for group, members in groupby(cells, key=group_of)],
        [
            f"ρ {short_rate(cell.rho, 1)}" if cell.design == "paper" else f"{cell.tasks} tasks"
            for cell in cells
        ],
        [
            (name, [shown(cell, found) if (found := cell.of(name)) else None for cell in cells])
            for name in procedures
        ],
    )


def _colour(ends: _Colours, share: float) -> tuple[int, int, int]:
    part = min(max(share, 0.0), 1.0)
    red, green, blue = (round(low + part * (high - low)) for low, high in zip(*ends, strict=True))
    return red, green, blue


_LEAD, _GUARDED, _BARE = DEFAULT, "guarded_taskboot", "taskboot"
_DOUBT = 0.05
_WORDS = {
    "naive": "Clopper–Pearson on trajectories",
    "deff": "the same with n/DEFF",
    "one_per_task": "one trajectory a task",
    "task_hoeffding": "Hoeffding on task means",
    "taskboot": "the task bootstrap without a guard",
    "pseudo_task": "the Bayesian task bootstrap with one more task that is wrong, the default",
    "guarded_taskboot": "the task bootstrap with the adaptive floor",
    "betting": "betting with a pilot, error by task (proved)",
}


def render_simulation(
    simulation: Simulation, truth: Sequence[TruthCheck], *, home: str = ""
) -> str:
    """Render the page of a study."""
    plain = [cell for cell in simulation.cells if not cell.fooled]
    procedures = [rates.procedure for rates in simulation.cells[0].procedures]
    compared, distance = ends_of(truth)
    return render(
        "simulation.html",
        home=home,
        title="Synthetic validity study",
        about=_about(simulation),
        verdict=_verdict(simulation, plain),
        facts=_facts(simulation, plain, distance),
        delta=percent(simulation.delta),
        alpha=percent(simulation.alpha),
        trials=simulation.trials,
        side=simulation.side,
        words=[(name, _WORDS[name]) for name in procedures if name in _WORDS],
        designs=[
            (name, DESIGNS[name][0])
            for name in dict.fromkeys(cell.design for cell in simulation.cells)
            if name in DESIGNS
        ],
        violations=[violation_map(part, procedures, simulation.delta) for part in _columns(plain)],
        coverages=[coverage_map(part, procedures) for part in _columns(plain)],
        paper_names=[name for name in PAPER_PROCEDURES if name in procedures],
        paper=_next_to_the_paper(plain),
        tolerance=short_rate(TOLERANCE, 2),
        exception=f"{EXCEPTION[3]} at {EXCEPTION[1]} tasks and ρ = {EXCEPTION[2]:g}",
        failures=_failures(simulation, procedures),
        error=_largest_error(simulation),
        compared=compared,
        distance=f"{distance:.1f}",
        by_task=", ".join(
            rates.procedure for rates in simulation.cells[0].procedures if rates.estimand == "task"
        ),
    )


def write_simulation_page(store: Store) -> str:
    """Draw the stored study; return where the page is."""
    return store_page(store, PAGE, render_simulation(*load_study(store), home=home_of(PAGE)))


def study_markdown(simulation: Simulation, truth: Sequence[TruthCheck]) -> str:
    """Return the study in under 1,000 characters of Markdown, for the asset's page."""
    plain = [cell for cell in simulation.cells if not cell.fooled]
    lines = [
        _verdict(simulation, plain).sentence,
        "",
        "| procedure | worst violation | fooled | mean coverage |",
        "|---|---|---|---|",
    ]
    for name in [rates.procedure for rates in simulation.cells[0].procedures][:9]:
        usual, fooled = (
            _of(plain, name),
            _of([cell for cell in simulation.cells if cell.fooled], name),
        )
        coverage = short_rate(sum(one.coverage for one in usual) / len(usual)) if usual else "–"
        lines.append(
            f"| {name} | {short_rate(_worst(usual))} | {short_rate(_worst(fooled))} | {coverage} |"
        )
    compared, distance = ends_of(truth)
    return "\n".join(
        [
            *lines,
            "",
            f"Truth: {compared} comparisons with large draws, largest difference {distance:.1f} "
            f"standard errors. {SIMULATION_KEY}",
        ]
    )


def _about(simulation: Simulation) -> str:
    cells = counted(len(simulation.cells), "design")
    other = "".join(
        f", {name.replace('_', ' ')} {value}"
        for name, value in simulation.settings.items()
        if name != "side"
    )
    trials = counted(simulation.trials, "trial")
    return (
        f"{cells}, {trials} each, {simulation.side} side, α = {simulation.alpha:g}, δ = "
        f"{simulation.delta:g}{other}, seed {simulation.seed}"
    )


@dataclass(frozen=True)
class _Verdict:
    """The banner: its look, heading and sentence."""

    kind: str
    status: str
    sentence: str


def _verdict(simulation: Simulation, plain: Sequence[Cell]) -> _Verdict:
    rates = _of(plain, _LEAD)
    if not rates:
        words = f"{_LEAD} was not run on designs whose errors the score can see."
        return _Verdict("nothing", "No verdict", words)
    over, seen = beyond_delta(simulation), beyond_delta(simulation, proved=False)
    worst = max(rates, key=lambda one: one.violation)
    figure = (
        f"the largest share is {percent(worst.violation)} (standard error "
        f"{percent(worst.violation_se)})"
    )
    if not worst.violations:
        figure = (
            f"no trial did, so that each share is below {percent(worst.violation_upper)} "
            f"with 95 % confidence"
        )
    if over:
        names = ", ".join(cell.title for cell, _ in over)
        return _Verdict(
            "failed",
            "Not within δ",
            f"{_LEAD} certifies wrongly more often than δ = {percent(simulation.delta)} in "
            f"{names}; {figure}.",
        )
    words = (
        f"In none of {counted(len(rates), 'design')} does {_LEAD} certify wrongly more often than "
        f"δ = {percent(simulation.delta)} beyond "
        f"Monte-Carlo error; {figure}."
    )
    if clopper_pearson_upper(0, simulation.trials, _DOUBT) > simulation.delta:
        # not even trials without a violation would show it
        return _Verdict("nothing", "Too few trials to say", words)
    return _Verdict("warn" if seen else "certified", "Within δ", words)


def _facts(simulation: Simulation, plain: Sequence[Cell], distance: float) -> list[tuple[str, str]]:
    fooled = [cell for cell in simulation.cells if cell.fooled]
    found = []
    for name, words in (
        (_BARE, "TaskBoot without a guard"),
        (_GUARDED, "with the floor"),
        (_LEAD, "pseudo_task"),
    ):
        usual, hard = _of(plain, name), _of(fooled, name)
        if usual:
            found.append(
                (
                    f"mean coverage, {words}",
                    short_rate(sum(one.coverage for one in usual) / len(usual)),
                )
            )
        if hard:
            found.append(
                (f"worst violation where the score is fooled, {words}", short_rate(_worst(hard)))
            )
    return [*found, ("largest difference of truth and draw, in standard errors", f"{distance:.1f}")]


def _columns(cells: Sequence[Cell]) -> list[Sequence[Cell]]:
    return [cells[start : start + COLUMNS] for start in range(0, len(cells), COLUMNS)]


@dataclass(frozen=True)
class _Entry:
    """A cell next to the paper's."""

    printed: bool
    coverage: str
    coverage_paper: str
    violation: str
    violation_paper: str
    far: bool
    known: bool


@dataclass(frozen=True)
class _DesignRow:
    """A design that the paper prints, an entry a procedure."""

    title: str
    entries: list[_Entry]


def _next_to_the_paper(cells: Sequence[Cell]) -> list[_DesignRow]:
    rows = []
    for cell in cells:
        entries = [
            _entry(cell, rates) for name in PAPER_PROCEDURES if (rates := cell.of(name)) is not None
        ]
        if any(entry.printed for entry in entries):
            rows.append(_DesignRow(cell.title, entries))
    return rows


def _entry(cell: Cell, rates: Rates) -> _Entry:
    printed = rates.paper or {}
    coverage, violation = printed.get("coverage"), printed.get("violation_conditional")
    far = coverage is not None and abs(rates.coverage - coverage) > TOLERANCE
    return _Entry(
        printed=bool(printed),
        coverage=short_rate(rates.coverage),
        coverage_paper=short_rate(coverage, 2),
        violation=short_rate(rates.violation_conditional),
        violation_paper=short_rate(violation, 3 if violation == 0.003 else 2),
        far=far,
        known=far and is_exception(cell, rates),
    )


@dataclass(frozen=True)
class _FailureMap:
    """The map of violations at one ratio of true error and α."""

    title: str
    map: HeatMap


def _failures(simulation: Simulation, procedures: Sequence[str]) -> list[_FailureMap]:
    fooled = [cell for cell in simulation.cells if cell.fooled]
    ratios = sorted({round((cell.true_error or 0.0) / simulation.alpha, 6) for cell in fooled})
    maps = []
    for ratio in ratios:
        cells = [
            cell
            for cell in fooled
            if round((cell.true_error or 0.0) / simulation.alpha, 6) == ratio
        ]
        named = [name for name in procedures if any(cell.of(name) for cell in cells)]
        maps += [
            _FailureMap(f"True error {ratio:g} α", violation_map(part, named, simulation.delta))
            for part in _columns(cells)
        ]
    return maps


def _largest_error(simulation: Simulation) -> dict[str, str]:
    """Standard errors: of a rate at δ, and the largest that occurred."""
    at_delta = (simulation.delta * (1 - simulation.delta) / simulation.trials) ** 0.5
    rates = [one for cell in simulation.cells for one in cell.procedures]
    return {
        "at_delta": short_rate(at_delta),
        "violation": short_rate(max(one.violation_se for one in rates)),
        "coverage": short_rate(max(one.coverage_se for one in rates)),
        "none": short_rate(1 - 0.05 ** (1 / simulation.trials)),
    }


def _of(cells: Sequence[Cell], procedure: str) -> list[Rates]:
    return [found for cell in cells if (found := cell.of(procedure)) is not None]


def _worst(rates: Sequence[Rates]) -> float | None:
    return max((one.violation for one in rates), default=None)
