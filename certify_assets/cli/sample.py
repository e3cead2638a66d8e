"""``certify sample``."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.one_run import fewest_rows
from certify_assets.certificates.path_limits import path_limits, planned_rows
from certify_assets.certificates.planning import Planner
from certify_assets.certificates.procedures import AVERAGE, CONFIDENT, PROMISED, PROVED
from certify_assets.certificates.sampling import (
    ESTIMANDS,
    RUNS,
    TASKS,
    Draw,
    reading_batches,
    shuffled,
)
from certify_assets.certificates.settings import Settings
from certify_assets.cli.batch_files import FirstDraw, require_first
from certify_assets.cli.draw_plans import draws_table, plan_draws
from certify_assets.cli.drawn import BATCH, drawn_by, filled, names_of
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    PATH,
    SHARE,
    as_given,
    scores_argument,
    setting_option,
)
from certify_assets.cli.output import answer, answers, refuse_overwrite, say, write_tables
from certify_assets.cli.reading import column_options, read_scores, reading_words
from certify_assets.errors import InputError
from certify_assets.tables.score_table import ScoreTable
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions
from certify_assets.tables.table import matched
from certify_assets.tables.writing import harmless

#: part of the drawn runs of a side in every batch after the first
_LATER = 0.05


@click.command()
@scores_argument
@click.option("--count", type=COUNT, required=True, help="Runs to draw, at most.")
@click.option(
    "--attempts",
    type=COUNT,
    help="Runs of one task, at most. [default: as many as --count needs; 1 for runs]",
)
@click.option(
    "--estimand",
    type=click.Choice(ESTIMANDS),
    default=TASKS,
    help="What the certificate counts: every task once, or every run once.",
)
@click.option(
    "--most",
    type=COUNT,
    metavar="C",
    help="For runs: as how many runs a task counts at most. Fix it without these labels.",
)
@click.option("--seed", type=NATURAL, default=42, help="Seed of the draw.")
@click.option(
    "--side",
    type=click.Choice([*SIDES, "both"]),
    default="both",
    help="From which ends of the scores to read.",
)
@setting_option("alpha")
@click.option("--success-rate", type=OPEN_SHARE, help="A guess, to plan what draws would decide.")
@click.option("--auroc", type=SHARE, help="A guess of the judge's AUROC, for the same plan.")
@click.option("--out", type=PATH, required=True, help="Write the runs to label here.")
@column_options
@answers
def sample(
    scores: Path,
    out: Path,
    side: str,
    alpha: float | None,
    success_rate: float | None,
    auroc: float | None,
    reading: ReadingOptions,
    **asked: Any,
) -> None:
    """Draw the runs to label, before any label.

    SCORES has task_id, trajectory_id and score (its rows with split=cal); outcomes are not read.
    The draw follows from the seed and the names of tasks and runs. --count below the number of
    tasks draws one run of as many tasks; above it, further attempts of all of them. The seed is
    kept in SCORES.sample.json, and a draw of the same table with another seed is refused.

    The file keeps the columns of SCORES but the scores, which a reviewer is not to see. Fill in its
    column outcome batch by batch: 0, 1, or unclear. Then give it to `certify certificate SCORES
    --sample FILE`, which names the batch to label next (exit code 3), if one is needed. Side and
    budget order the batches here; the certificate may take others, if they were fixed before
    anyone looked at the drawn scores. With --success-rate and --auroc the answer says what one
    labelled run of every drawn task is expected to decide, and what two, four and all of them are.
    """
    if (success_rate is None) != (auroc is None):
        raise click.UsageError("A plan needs --success-rate and --auroc. Give both or neither.")
    refuse_overwrite({"--out": out}, {"SCORES": scores})
    columns = {**COLUMNS, **reading.columns}
    outcome = columns["outcome"]
    if out.is_file() and filled(out, outcome):
        raise InputError(
            f"{out} has labels already, and a draw that follows labels proves nothing. Certify "
            "with it, or write the new draw to another file."
        )
    whole = read_scores(scores, reading, outcomes=False)
    table = whole.choose_split("cal")
    _require_unlabelled(whole, outcome)
    tasks, runs = names_of(table)
    draw = Draw.of(tasks, runs, table.scores, **asked)
    drawn = table.take(draw.rows(tasks, runs))
    if np.isnan(drawn.scores).all():
        raise InputError(
            f"No drawn run of {scores} has a score, so that labels could not certify anything. "
            "Score its runs first."
        )
    sides = SIDES if side == "both" else (side,)
    settings = Settings(**({} if alpha is None else {"alpha": alpha}))
    several = has_several(drawn)
    batches = _batches(drawn, sides, settings)
    found = sheet(drawn, draw, batches, outcome=outcome)
    require_first_sample(scores, draw)
    write_tables((out, harmless(out, found, drawn.naming_columns)))
    document = {
        "runs": len(table),
        "tasks": len(set(tasks)),
        "drawn": len(drawn),
        "drawn_tasks": len(set(names_of(drawn)[0])),
        **draw.inputs,
        "batches": np.bincount(batches)[1:].tolist(),
        "unscored": int(np.count_nonzero(batches == 0)),
    }
    counts = "every task counts once"
    if draw.estimand != TASKS:
        counts = f"every run counts once, but no task more than {draw.most} of them"
    labelling = (
        f"Label batch 1 of {out} first ({document['batches'][0]:,} runs), then "
        "one batch after the other. Stop as soon as the certificate asks for no more."
    )
    if several:
        labelling = f"Label all of {out}: with several runs of a task, reading cannot stop early."
    lines = [
        f"Drew {document['drawn']:,} runs of {document['drawn_tasks']:,} tasks from "
        f"{len(table):,} runs of {document['tasks']:,} tasks; {counts}.",
        labelling,
    ]
    if document["unscored"]:
        lines.append(
            f"{document['unscored']:,} drawn runs have no score and need no label: they are batch "
            "0, at the end of the file."
        )
    if len(drawn) < draw.count:
        lines.append(f"That is fewer than --count {draw.count}: no more can be drawn in this way.")
    lines += _too_few(document["drawn_tasks"], settings, several=several)
    plans: list[Any] = []
    if success_rate is not None and auroc is not None:
        planner = Planner.of(table.scores, table.tasks, success_rate=success_rate, auroc=auroc)
        for name in sides:
            document[f"{name}_draws"] = plan_draws(
                planner,
                settings.replace(side=name, procedure=PROMISED[PROVED]),
                tasks=document["drawn_tasks"],
                attempts=1 if draw.estimand == RUNS else None,
            )
            plans += [f"Planned for the {name} side:", draws_table(document[f"{name}_draws"])]
    plan = [] if side == "both" else ["--side", side]
    plan += [] if alpha is None else ["--alpha", f"{alpha:g}"]
    # the proof is for one run a task first: several decide more by the default
    plan += ["--promise", CONFIDENT] if several and draw.estimand == TASKS else []
    plan += reading_words(reading)
    step = shlex.join(["certify", "certificate", as_given(scores), "--sample", str(out), *plan])
    answer(document, *lines, *plans, f"next: {step}")


def require_first_sample(scores: Path, draw: Draw) -> None:
    """Keep the seed of a draw next to the table or log; refuse a draw with another seed."""
    require_first(
        scores,
        "sample",
        draw.sha256,
        FirstDraw.now(draw.seed, draw.sha256),
        "Where nobody saw the runs that it drew, remove {}.",
    )


def rows_to_label(
    table: ScoreTable, draw: Draw, settings: Settings, *, hidden: Collection[str]
) -> tuple[ScoreTable, dict[str, NDArray[Any]]]:
    """Return the drawn runs of a table, and the columns of the file in which they are labelled."""
    drawn = table.take(draw.rows(*names_of(table)))
    batches = _batches(drawn, SIDES, settings)
    return drawn, sheet(drawn, draw, batches, outcome=COLUMNS["outcome"], hidden=hidden)


def has_several(drawn: ScoreTable) -> bool:
    """Whether several runs of a task are drawn."""
    return len(set(names_of(drawn)[0])) < len(drawn)


def _too_few(tasks: int, settings: Settings, *, several: bool) -> list[str]:
    """Say how many tasks the promises need, where the drawn ones cannot reach the proof."""
    least = {
        promise: fewest_rows(PROMISED[promise], settings.alpha, settings.delta, several=several)
        for promise in (AVERAGE, PROVED)
    }
    if tasks >= least[PROVED]:
        return []
    return [
        f"warning: {tasks:,} drawn tasks are too few for a proof at alpha {settings.alpha:g}, "
        f"which needs {least[PROVED]:,}. The promise on average needs {least[AVERAGE]:,}."
    ]


def _require_unlabelled(table: ScoreTable, outcome: str) -> None:
    """Refuse a table of which some runs are labelled; say that outcomes of all are not read."""
    there = matched([name for name in table.table.names if name], {outcome})
    number = filled(table.source, outcome) if there else 0
    if 0 < number < len(table):
        raise InputError(
            f"{table.path} has labels of {number:,} of its {len(table):,} runs, and a draw that "
            "follows labels proves nothing. Draw from a table without them."
        )
    if number:
        say(f"{table.path.name}: its outcomes are not read")


def _batches(drawn: ScoreTable, sides: Sequence[str], settings: Settings) -> NDArray[np.int64]:
    """Return batches: the runs without which a side certifies nothing, then 5 % at a time."""
    scores, alpha, delta = drawn.scores, settings.alpha, settings.delta
    rows = scores.size
    planned = planned_rows(rows, alpha, delta, settings.planned_share)
    possible = np.flatnonzero(path_limits(planned, alpha, delta).most >= 0)
    first = int(possible[0]) if possible.size else fewest_rows("average", alpha, delta)
    batches = reading_batches(scores, sides, first=first, later=math.ceil(_LATER * rows))
    # every labelled run of a task is used, so that reading cannot stop early
    return np.minimum(batches, 1) if has_several(drawn) else batches


def sheet(
    drawn: ScoreTable,
    draw: Draw,
    batches: NDArray[np.int64],
    *,
    outcome: str,
    hidden: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """Return the columns of the file: those of the table, with the batch and an empty outcome.

    Scores and `hidden` columns are left out, since labels are to be given without a look at them.
    """
    own = drawn.file_columns()
    for column in matched(list(own), {*hidden, *drawn.judging_columns}).values():
        own.pop(column, None)
    order = shuffled(draw.seed, names_of(drawn)[1], batches)
    name = next(iter(matched(list(own), {outcome}).values()), outcome)
    size = len(drawn)
    labels = np.full(size, None, dtype=object)
    found = {
        BATCH: batches,
        **{key: labels if key == name else values for key, values in own.items()},
        name: labels,
        DRAWN_BY: np.full(size, drawn_by(draw), dtype=object),
    }
    return {key: values[order] for key, values in found.items()}
