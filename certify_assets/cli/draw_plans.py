"""What draws of one labelled run of every task or several are expected to give, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from certify_assets.certificates.attempt_planning import designs, fewest_that_pay, plan_attempts
from certify_assets.certificates.diagnosis import FEW_TASKS
from certify_assets.certificates.procedures import CONFIDENT, PROMISED, find_procedure
from certify_assets.certificates.row_planning import MISSED, RowModel, RowPlan
from certify_assets.certificates.settings import Settings
from certify_assets.cli.output import TextTable
from certify_assets.tables.score_table import ScoreTable
from certify_assets.words import percent

#: coverage by which another plan of limits has to be better
_WORTH_SAYING = 0.02


@dataclass(frozen=True)
class DrawPlans:
    """What one labelled run of every task is expected to give, and what more of them are."""

    procedure: str
    one: RowPlan
    # one run a task, with limits planned for all drawn runs
    whole: RowPlan
    # by attempts a task, by the default procedure
    more: Mapping[int, RowPlan]

    @property
    def missed(self) -> float:
        """Mean error of the coverage of one run a task, in the trial."""
        return MISSED[self.procedure][0]

    @property
    def pays(self) -> int | None:
        """The fewest attempts a task that pay; None where nothing is expected to be decided."""
        return fewest_that_pay([(1, self.one), *self.more.items()])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What each draw gives, for a document."""
        plans = [(1, self.procedure, self.one)]
        plans += [(attempts, PROMISED[CONFIDENT], plan) for attempts, plan in self.more.items()]
        return [
            {
                "attempts": attempts,
                "promise": find_procedure(procedure).promise,
                "labels": plan.labels,
                "predicted_coverage": plan.coverage,
                "uncertainty": MISSED[procedure][0],
                "chance": plan.chance,
            }
            for attempts, procedure, plan in plans
        ]

    @property
    def blocks(self) -> list[Any]:
        """What each draw gives, for people, and how far such plans are off."""
        rows = [
            [
                f"{row['attempts']}",
                f"{row['labels']:,.0f}",
                f"{percent(row['predicted_coverage'])} ± {100 * row['uncertainty']:.0f}"
                if row["chance"]
                else "nothing",
                percent(row["chance"]),
                row["promise"],
            ]
            for row in self.rows
        ]
        columns = ["labelled runs a task", "labels read", "decided", "chance", "promise"]
        found: list[Any] = [TextTable("What a draw is expected to give", columns, rows)]
        if self.pays is not None and self.more:
            runs = "run a task is" if self.pays == 1 else "runs a task are"
            found.append(
                f"{self.pays} labelled {runs} the fewest that decide four fifths of what any of "
                "these draws does."
            )
        if self.one.tasks < FEW_TASKS and self.more:
            found.append(f"The confidence is not validated for fewer than {FEW_TASKS} tasks.")
        if self.whole.coverage > self.one.coverage + _WORTH_SAYING:
            found.append(
                f"With --set planned_share=1 one run a task is expected to decide "
                f"{percent(self.whole.coverage)}. Fix it before the draw."
            )
        found.append(
            f"In a trial on six corpora such predictions missed the coverage by {self.missed:.2f} "
            f"± {MISSED[self.procedure][1]:.2f} on average."
        )
        return found


def plan_draws(
    model: RowModel,
    table: ScoreTable,
    asked: Settings,
    *,
    tasks: int | None = None,
    attempts: int | None = None,
) -> DrawPlans:
    """Plan one labelled run of every task by a procedure, and several by the default one."""
    sizes = np.unique(table.tasks, return_counts=True)[1]
    planned = designs(sizes) if attempts is None else (attempts,) * (attempts > 1)
    return DrawPlans(
        asked.procedure,
        model.plan(tasks or sizes.size, asked),
        model.plan(tasks or sizes.size, asked.replace(planned_share=1.0)),
        {
            number: plan_attempts(
                model, table.scores, table.tasks, asked, attempts=number, number=tasks
            )
            for number in planned
        },
    )
