"""The page of a synthetic validity study: maps, the paper's table beside it, designs in which TaskBoot fails, and how sure it all is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.certificates.procedures import clopper_pearson_upper
from certify_assets.reports.templating import environment
from certify_assets.reports.wording import counted, percent
from certify_assets.research.designs import DESIGNS
from certify_assets.research.pages.simulation_map import (
    COLUMNS,
    coverage_map,
    short_rate,
    violation_map,
)
from certify_assets.research.published import PAPER_PROCEDURES
from certify_assets.research.simulation_study import (
    DOCUMENT,
    EXCEPTION,
    PAGE,
    TOLERANCE,
    beyond_delta,
    ends_of,
    is_exception,
    load_study,
)

if TYPE_CHECKING:
    from certify_assets.research.study import Cell, Rates, Simulation
    from certify_assets.research.truth import TruthCheck
    from certify_assets.storage.store import Store

__all__ = ["render_simulation", "study_markdown", "write_simulation_page"]

_LEAD, _BARE = "guarded_taskboot", "taskboot"
_DOUBT = 0.05
_WORDS = {
    "naive": "Clopper–Pearson on trajectories",
    "deff": "the same with n/DEFF",
    "one_per_task": "one trajectory a task",
    "task_hoeffding": "Hoeffding on task means",
    "taskboot": "the task bootstrap without a guard",
    "guarded_taskboot": "the task bootstrap with the adaptive floor, the default",
    "guarded_taskboot:kish": "the task bootstrap with Kish's guard",
    "betting": "betting with a pilot, error by task (proved)",
    "gaffke": "Gaffke's test, error by task (conjectured)",
    "gaffke:fixed": "Gaffke's test tested upward from the 30 % quantile",
    "korn_graubard": "Korn–Graubard",
}


def render_simulation(simulation: Simulation, truth: Sequence[TruthCheck]) -> str:
    """Render the page of a study.

    Parameters
    ----------
    simulation : Simulation
    truth : sequence of TruthCheck
        Of the same designs.

    Returns
    -------
    str
        HTML; one file that loads nothing and runs nothing, the same for the same inputs.
    """
    plain = [cell for cell in simulation.cells if not cell.fooled]
    procedures = [rates.procedure for rates in simulation.cells[0].procedures]
    compared, distance = ends_of(truth)
    return environment().get_template("simulation.html").render(
        version=__version__,
        title="Synthetic validity study",
        about=_about(simulation),
        verdict=_verdict(simulation, plain),
        facts=_facts(simulation, plain, distance),
        delta=percent(simulation.delta),
        alpha=percent(simulation.alpha),
        trials=simulation.trials,
        side=simulation.side,
        words=[(name, _WORDS[name]) for name in procedures if name in _WORDS],
        designs=[(name, DESIGNS[name][0]) for name in dict.fromkeys(cell.design for cell in simulation.cells) if name in DESIGNS],
        violations=[violation_map(part, procedures, simulation.delta) for part in _columns(plain)],
        coverages=[coverage_map(part, procedures) for part in _columns(plain)],
        paper_names=[name for name in PAPER_PROCEDURES if name in procedures],
        paper=_beside_the_paper(plain),
        tolerance=short_rate(TOLERANCE, 2),
        exception=f"{EXCEPTION[3]} at {EXCEPTION[1]} tasks and ρ = {EXCEPTION[2]:g}",
        failures=_failures(simulation, procedures),
        error=_largest_error(simulation),
        compared=compared,
        distance=f"{distance:.1f}",
        by_task=", ".join(rates.procedure for rates in simulation.cells[0].procedures if rates.estimand == "task"),
    )  # fmt: skip


def write_simulation_page(store: Store) -> str:
    """Draw the stored study; return where the page is."""
    store.write_bytes(PAGE, render_simulation(*load_study(store)).encode("utf-8"))
    return store.locate(PAGE)


def study_markdown(simulation: Simulation, truth: Sequence[TruthCheck]) -> str:
    """Return the study in under 1,000 characters of Markdown, for the asset's page."""
    plain = [cell for cell in simulation.cells if not cell.fooled]
    lines = [
        _verdict(simulation, plain)["sentence"],
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
            f"Truth: {compared} comparisons with large draws, largest difference {distance:.1f} standard errors. {DOCUMENT}",
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
    return f"{cells}, {trials} each, {simulation.side} side, α = {simulation.alpha:g}, δ = {simulation.delta:g}{other}, seed {simulation.seed}"


def _verdict(simulation: Simulation, plain: Sequence[Cell]) -> dict[str, Any]:
    rates = _of(plain, _LEAD)
    if not rates:
        return {
            "kind": "nothing",
            "status": "No verdict",
            "sentence": f"{_LEAD} was not run on designs whose errors the score can see.",
        }
    over, seen = beyond_delta(simulation), beyond_delta(simulation, proved=False)
    worst = max(rates, key=lambda one: one.violation)
    figure = f"the largest share is {percent(worst.violation)} (standard error {percent(worst.violation_se)})"
    if not worst.violations:
        figure = f"no trial did, so that each share is below {percent(worst.violation_upper)} with 95 % confidence"
    if over:
        names = ", ".join(cell.title for cell, _ in over)
        return {
            "kind": "failed",
            "status": "Not within δ",
            "sentence": f"{_LEAD} certifies wrongly more often than δ = {percent(simulation.delta)} in {names}; {figure}.",
        }
    words = (
        f"In none of {counted(len(rates), 'design')} does {_LEAD} certify wrongly more often than δ = {percent(simulation.delta)} beyond "
        f"Monte-Carlo error; {figure}."
    )
    if clopper_pearson_upper(0, simulation.trials, _DOUBT) > simulation.delta:
        # not even trials without a violation would show it
        return {"kind": "nothing", "status": "Too few trials to say", "sentence": words}
    return {"kind": "warn" if seen else "certified", "status": "Within δ", "sentence": words}


def _facts(simulation: Simulation, plain: Sequence[Cell], distance: float) -> list[tuple[str, str]]:
    fooled = [cell for cell in simulation.cells if cell.fooled]
    found = []
    for name, words in ((_BARE, "TaskBoot without a guard"), (_LEAD, "with the floor")):
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


def _beside_the_paper(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A row a design that the paper prints, a column a procedure."""
    rows = []
    for cell in cells:
        entries = [
            _entry(cell, rates) for name in PAPER_PROCEDURES if (rates := cell.of(name)) is not None
        ]
        if any(entry["printed"] for entry in entries):
            rows.append({"title": cell.title, "entries": entries})
    return rows


def _entry(cell: Cell, rates: Rates) -> dict[str, Any]:
    printed = rates.paper or {}
    coverage, violation = printed.get("coverage"), printed.get("violation_conditional")
    far = coverage is not None and abs(rates.coverage - coverage) > TOLERANCE
    return {
        "printed": bool(printed),
        "coverage": short_rate(rates.coverage),
        "coverage_paper": short_rate(coverage, 2),
        "violation": short_rate(rates.violation_conditional),
        "violation_paper": short_rate(violation, 3 if violation == 0.003 else 2),
        "far": far,
        "known": far and is_exception(cell, rates),
    }


def _failures(simulation: Simulation, procedures: Sequence[str]) -> list[dict[str, Any]]:
    """A map for every ratio of true error and α."""
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
            {
                "title": f"True error {ratio:g} α",
                "map": violation_map(part, named, simulation.delta),
            }
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
