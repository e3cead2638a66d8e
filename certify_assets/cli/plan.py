"""``certify plan`` and ``certify sample``: labels that are needed, and runs to label."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.one_run import fewest_rows
from certify_assets.certificates.planning import plan_labels
from certify_assets.certificates.procedures import (
    AVERAGE,
    CONFIDENT,
    DEFAULT,
    PROMISED,
    PROMISES,
    PROVED,
    find_procedure,
)
from certify_assets.certificates.sampling import ESTIMANDS, RUNS, TASKS
from certify_assets.certificates.settings import Settings
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    PLANNED,
    SHARE,
    SIDE,
    as_given,
    judge_option,
    scores_argument,
    setting_option,
    settings_help,
    truth_option,
)
from certify_assets.cli.output import NOTHING, OUT, TextTable, answer, answers, say, write_tables
from certify_assets.cli.reading import (
    column_options,
    labelled,
    read_scores,
    reading_options,
    reading_words,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.tables.drawn import (
    BATCH,
    draw_of,
    drawn_attempts,
    drawn_rows,
    filled,
    keep_labels,
    require_first_sample,
    sheet,
)
from certify_assets.tables.reading import matched
from certify_assets.tables.score_table import ScoreTable
from certify_assets.tables.settings import COLUMNS, ReadingOptions
from certify_assets.tables.writing import harmless
from certify_assets.words import WORDS, number_of, percent


@click.command()
@scores_argument
@judge_option
@truth_option
@setting_option("alpha")
@click.option(
    "--success-rate", type=OPEN_SHARE, help="A guess. [default: that of the labels in SCORES]"
)
@click.option(
    "--auroc",
    type=SHARE,
    help="A guess of the judge's AUROC. [default: that of the labels in SCORES]",
)
@click.option("--tasks", type=COUNT, help="Tasks to label. [default: those of SCORES]")
@click.option("--attempts", type=COUNT, help="Labelled runs a task. [default: all, and fewer]")
@click.option("--side", type=SIDE, default="reject", help="Which decision to certify.")
@setting_option("procedure", more="; not betting, which needs a pilot")
@click.option(
    "--promise",
    type=click.Choice(PROMISES),
    help="The promise to plan for, in place of its procedure. [default: proved where both figures "
    "are guessed, else confident]",
)
@reading_options(*PLANNED, about=settings_help(PLANNED))
@answers
def plan(
    scores: Path,
    judge: str | None,
    truth: str | None,
    reading: ReadingOptions,
    settings: Mapping[str, Any],
    alpha: float | None,
    success_rate: float | None,
    auroc: float | None,
    tasks: int | None,
    attempts: int | None,
    side: str,
    procedure: str | None,
    promise: str | None,
) -> None:
    """Plan labels: the share they would decide, and the tasks that a certificate needs.

    SCORES is a table as for certify certificate (its rows with split=cal). Its labels give success
    rate and AUROC. If you guess both with --success-rate and --auroc, outcomes are not read. The
    plan then compares labels of one run of every task with labels of two, four and all.

    The plan simulates labels from the scores and a model of the outcomes. tasks_needed is the
    number of tasks with which 80 % of the simulations certify something. Exit 3 where none of
    these labels does, or 1,500 tasks are not enough.

    With --json, the three gates of the paper come with the plan. They say whether training the
    judge is worth while.
    """
    from certify_assets.certificates import observe

    if promise is not None and procedure is not None:
        raise InputError("--promise names the procedure. Leave --procedure out.")
    guessed = success_rate is not None and auroc is not None
    chosen = {
        "alpha": alpha,
        "procedure": procedure or PROMISED[promise or (PROVED if guessed else CONFIDENT)],
    }
    asked = Settings(
        side=side, **settings, **{name: of for name, of in chosen.items() if of is not None}
    )
    if asked.method.pilot:
        raise InputError(f"{asked.procedure} cannot be planned. Name another --procedure.")
    table = read_scores(scores, reading, outcomes=not guessed, judge=judge, truth=truth)
    table, known = table.choose_split("cal"), None
    if not guessed:
        if table.outcomes is None:
            raise InputError(
                f"{scores} has no outcomes. Guess --success-rate and --auroc, or label some runs."
            )
        table = labelled(table)
        if np.isnan(table.scores).all():
            raise InputError(f"No run of {scores} has a score. Score the runs first.")
        known = observe(table.scores, table.labels, table.tasks)
    guess = {"success_rate": success_rate, "auroc": auroc}
    found = plan_labels(
        table.scores, table.tasks, asked, known=known, count=tasks, attempts=attempts, **guess
    )
    enough = found["chance"] and found["tasks_needed"] is not None
    answer(found, *_about_plan(found, asked, guessed=guessed), code=0 if enough else NOTHING)


def _about_plan(found: JsonObject, asked: Settings, *, guessed: bool) -> Iterator[str | TextTable]:
    """Say what the labels decide, what would be enough, and what the plan assumes."""
    from certify_assets.certificates.planning import MOST_TASKS, TARGET, missed

    tasks = number_of(found["tasks"], "task")
    if found["chance"]:
        yield (
            f"{found['labels']:,.0f} labels of {tasks} are expected to decide "
            f"{percent(found['predicted_coverage'])} of the runs, and certify something with a "
            f"chance of {percent(found['chance'])}."
        )
    else:
        yield f"With {tasks}, no simulation certifies anything at α = {asked.alpha:g}."
    if found["tasks_needed"] is None:
        yield f"{MOST_TASKS:,} tasks are not enough. A better judge or a larger α will help."
    elif found["tasks_needed"] != found["tasks"]:
        yield (
            f"With {number_of(found['tasks_needed'], 'task')} ({found['labels_needed']:,.0f} "
            f"labels) that chance is {100 * TARGET:.0f} %."
        )
    if not guessed:
        yield (
            "The chances are of new tables, simulated from a model. A certificate estimates the "
            "tasks for an even chance from its own labels, within a factor of two."
        )
    if "draws" in found:
        yield draws_table(found["draws"])
    error, spread = missed(asked.procedure)
    yield (
        f"In a trial on six corpora, such predictions of the share missed by {error:.2f} "
        f"± {spread:.2f} on average."
    )
    promise = asked.method.promise
    how = f"the promise {promise}" if PROMISED[promise] == asked.procedure else asked.procedure
    yield (
        f"Planned for success rate {found['success_rate']:.3f} and AUROC {found['auroc']:.3f}, at "
        f"α = {asked.alpha:g}, for {WORDS[asked.side]} by {how}."
    )


def draws_table(rows: Sequence[JsonObject], title: str = "") -> TextTable:
    """Return the table of what draws of one run a task, and of several, are expected to give."""
    return TextTable(
        title or "What a draw is expected to give",
        ("labelled runs a task", "labels read", "decided", "chance", "promise"),
        [_draw_cells(row) for row in rows],
    )


def _draw_cells(row: JsonObject) -> list[str]:
    share = f"{percent(row['predicted_coverage'])} ± {100 * row['uncertainty']:.0f}"
    return [
        f"{row['attempts']}",
        f"{row['labels']:,.0f}",
        share if row["chance"] else "nothing",
        percent(row["chance"]),
        row["promise"],
    ]


def plan_words(side: str, procedure: str, tasks: int | None = None) -> list[str]:
    """Return the options that plan a side by a procedure, or by its promise."""
    words = ["--side", side] if side == "release" else []
    # plan takes no pilot
    named = DEFAULT if find_procedure(procedure).pilot else procedure
    promised = [promise for promise in PROMISES if PROMISED[promise] == named]
    words += ["--promise", *promised] if promised else ["--procedure", named]
    return words if tasks is None else [*words, "--tasks", str(tasks)]


@click.command()
@scores_argument
@click.option("--count", type=COUNT, required=True, help="Most runs to draw.")
@click.option(
    "--attempts",
    type=COUNT,
    help="Most runs of one task. [default: as many as --count needs; 1 with --estimand runs]",
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
    help="With --estimand runs: a task counts as at most C runs. Choose C before labelling.",
)
@click.option("--seed", type=NATURAL, default=42, help="Seed of the draw.")
@click.option(
    "--side",
    type=click.Choice([*SIDES, "both"]),
    default="both",
    help="Which decisions to certify; sets the order of labelling.",
)
@setting_option("alpha")
@click.option(
    "--success-rate", type=OPEN_SHARE, help="A guess, to predict what the draw would decide."
)
@click.option("--auroc", type=SHARE, help="A guess of the judge's AUROC, for the same plan.")
@judge_option
@click.option("--out", type=OUT, required=True, help="Write the runs to label here.")
@column_options
@answers
def sample(
    scores: Path,
    out: Path,
    side: str,
    alpha: float | None,
    judge: str | None,
    success_rate: float | None,
    auroc: float | None,
    reading: ReadingOptions,
    **asked: Any,
) -> None:
    """Draw the runs to label, before any of them is labelled.

    SCORES has task_id, trajectory_id and score (its rows with split=cal); outcomes are not read.
    The draw depends only on the seed and the names of tasks and runs. A --count below the number of
    tasks draws one run of that many tasks; a larger one draws further attempts. The seed is kept in
    SCORES.sample.json, and a draw of the same table with another seed is refused.

    The file has the columns of SCORES without the scores, which would sway a reviewer. Fill in its
    column outcome batch by batch: 0, 1, or unclear. Then run `certify certificate SCORES --sample
    FILE`. If more labels are needed, it names the next batch (exit 3).

    Side and budget set the order of the batches. The certificate may use others, if they were fixed
    before anyone saw the drawn scores. With --success-rate and --auroc, the expected coverage is
    printed for one labelled run of every drawn task, and for two, four and all.
    """
    if (success_rate is None) != (auroc is None):
        raise click.UsageError("A plan needs --success-rate and --auroc. Give both or neither.")
    outcome = {**COLUMNS, **reading.columns}["outcome"]
    keep_labels(out, outcome)
    whole = read_scores(scores, reading, outcomes=False, judge=judge)
    _require_unlabelled(whole, outcome)
    table = whole.choose_split("cal")
    draw = draw_of(table, **asked)
    drawn = drawn_rows(table, draw)
    if not len(drawn):
        raise InputError(
            f"No run of {scores} is drawn: with --most {draw.most:,} a task is drawn with a chance "
            f"of its runs divided by {draw.most:,}. Give a smaller --most."
        )
    if np.isnan(drawn.scores).all():
        raise InputError(
            f"No drawn run of {scores} has a score, so labels cannot certify anything. Score the "
            "runs first."
        )
    settings = Settings(**({} if alpha is None else {"alpha": alpha}))
    sides = SIDES if side == "both" else (side,)
    columns = sheet(drawn, draw, settings, sides=sides, outcome=outcome)
    kept = require_first_sample(scores, draw)
    write_tables((out, harmless(out, columns, drawn.naming_columns)))
    batches = np.bincount(columns[BATCH], minlength=2).tolist()
    document = {
        "runs": len(table),
        "tasks": len(set(table.tasks)),
        "drawn": len(drawn),
        "drawn_tasks": len(set(drawn.tasks)),
        **draw.inputs,
        "batches": batches[1:],
        "unscored": batches[0],
    }
    words = ["certify", "certificate", as_given(scores), "--sample", str(out)]
    words += ["--judge", judge] if judge else []
    words += [] if side == "both" else ["--side", side]
    words += [] if alpha is None else ["--alpha", f"{alpha:g}"]
    # the proof is for one run a task first: several decide more by the default, if equally many
    least, most = drawn_attempts(drawn)
    equal = 1 < least == most and draw.estimand == TASKS
    words += ["--promise", CONFIDENT] if equal else []
    step = shlex.join([*words, *reading_words(reading)])
    said: list[str | TextTable] = [*_about_draw(document, out, settings, (least, most))]
    if as_given(scores) == str(scores):
        said.append(f"wrote {out}, and the seed of the draw into {kept}")
    for name in sides if success_rate is not None else ():
        planned = plan_labels(
            table.scores,
            table.tasks,
            settings.replace(side=name, procedure=PROMISED[PROVED]),
            success_rate=success_rate,
            auroc=auroc,
            count=document["drawn_tasks"],
            attempts=1 if draw.estimand == RUNS else None,
        )
        document[f"{name}_draws"] = planned["draws"]
        title = f"What the draw is expected to give: {WORDS[name]}"
        said.append(draws_table(planned["draws"], title))
    answer(document, *said, f"next: {step}")


def _about_draw(
    document: Mapping[str, Any], out: Path, settings: Settings, attempts: tuple[int, int]
) -> Iterator[str]:
    """Say what was drawn, and how it is labelled."""
    counts = "every task counts once"
    if document["estimand"] != TASKS:
        counts = (
            f"every run counts once, and a task as at most {number_of(document['most'], 'run')}"
        )
    drawn, tasks = document["drawn"], document["drawn_tasks"]
    yield (
        f"Drew {number_of(drawn, 'run')} of {number_of(tasks, 'task')} from "
        f"{number_of(document['runs'], 'run')} of {number_of(document['tasks'], 'task')}; {counts}."
    )
    least, most = attempts
    if least < most:
        yield (
            f"Tasks have {least} to {most} drawn runs, which only --promise proved can use. "
            f"--count {tasks} draws one of each."
        )
    elif most > 1:
        yield (
            f"--count is more than the {tasks:,} tasks, so each has {most} drawn runs. A proof "
            f"needs only one of each: --count {tasks}."
        )
    if most > 1:
        yield f"Label all of {out}: with several runs of a task, labelling cannot stop early."
    else:
        first = number_of(document["batches"][0], "run")
        yield (
            f"Label batch 1 of {out} first ({first}), then one batch after the other. Stop as soon "
            "as the certificate asks for no more."
        )
    if document["unscored"]:
        yield (
            f"Without a score: {number_of(document['unscored'], 'drawn run')} in batch 0, at the "
            "end of the file. They need no label."
        )
    if drawn < document["count"]:
        yield f"--count asks for {document['count']:,} runs; only {drawn:,} can be drawn."
    needed = {
        promise: fewest_rows(PROMISED[promise], settings.alpha, settings.delta, several=most > 1)
        for promise in (AVERAGE, PROVED)
    }
    if tasks < needed[PROVED]:
        yield (
            f"warning: too few tasks are drawn ({tasks:,}) for a proof at alpha "
            f"{settings.alpha:g}, which needs {needed[PROVED]:,}. The promise on average needs "
            f"{needed[AVERAGE]:,}."
        )


def _require_unlabelled(table: ScoreTable, outcome: str) -> None:
    """Refuse a table of which some runs are labelled; say that outcomes of all are not read."""
    there = matched([name for name in table.table.names if name], {outcome})
    number = filled(table.source, outcome) if there else 0
    if 0 < number < len(table):
        raise InputError(
            f"{table.path} has labels of {number:,} of its {len(table):,} runs. A draw is valid "
            "only before any label: draw from a table without them."
        )
    if number:
        say(f"{table.path.name}: its outcomes are not read")
