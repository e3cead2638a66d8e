"""What draws of one labelled run of every task or several are expected to give, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from certify_assets.certificates.planning import Planner
from certify_assets.certificates.procedures import CONFIDENT, DEFAULT, PROMISED
from certify_assets.certificates.settings import Settings
from certify_assets.cli.output import TextTable
from certify_assets.words import percent

#: mean error of a predicted coverage and its standard error: docs/evidence/few_labels.md
_MISSED: Final = {"one_run": (0.07, 0.02), "average": (0.04, 0.02), DEFAULT: (0.09, 0.03)}
_COLUMNS: Final = ("labelled runs a task", "labels read", "decided", "chance", "promise")


def missed(procedure: str) -> tuple[float, float]:
    """Return the mean error of predicted coverages in the trial, and its standard error."""
    return _MISSED.get(procedure, _MISSED[DEFAULT])


def plan_draws(
    planner: Planner, asked: Settings, *, tasks: int | None = None, attempts: int | None = None
) -> list[dict[str, Any]]:
    """Plan one labelled run of every task by a procedure, and several by the default one.

    Parameters
    ----------
    planner : Planner
    asked : Settings
        Of `one_run` or `average`.
    tasks : int, optional
        By default those of the table.
    attempts : int, optional
        The one number of several runs a task to plan; by default two, four and all.

    Returns
    -------
    list of dict
        What each draw gives, as documents have it.
    """
    several = asked.replace(procedure=PROMISED[CONFIDENT], looks=1, look=1)
    numbers = planner.designs if attempts is None else (attempts,) * (attempts > 1)
    rows = []
    for settings, number in ((asked, 1), *((several, number) for number in numbers)):
        plan = planner.plan(settings, tasks=tasks, attempts=number)
        rows.append(
            {
                "attempts": number,
                "promise": settings.method.promise,
                "labels": plan.labels,
                "predicted_coverage": plan.coverage,
                "uncertainty": missed(settings.procedure)[0],
                "chance": plan.chance,
            }
        )
    return rows


def draws_table(rows: Sequence[dict[str, Any]]) -> TextTable:
    """Return what each draw gives, for people."""
    cells = [
        [
            f"{row['attempts']}",
            f"{row['labels']:,.0f}",
            f"{percent(row['predicted_coverage'])} ± {100 * row['uncertainty']:.0f}"
            if row["chance"]
            else "nothing",
            percent(row["chance"]),
            row["promise"],
        ]
        for row in rows
    ]
    return TextTable("What a draw is expected to give", list(_COLUMNS), cells)
