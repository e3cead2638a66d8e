"""``certify doctor``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.procedures import AVERAGE, CONFIDENT, PROMISED
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import weaker_words
from certify_assets.cli.options import SOURCE, as_given, given_command
from certify_assets.cli.output import NOTHING, OUT, PATH, answer, answers, write_tables, write_text
from certify_assets.cli.plan import plan_words
from certify_assets.cli.reading import column_options, reading_words, remedies
from certify_assets.corpora.formats.files import is_scan
from certify_assets.corpora.judged import read_runs
from certify_assets.doctor import BUDGETS, GUESS, DoctorReport, JudgeAnswer, diagnose
from certify_assets.errors import InputError
from certify_assets.reports.label_page import RunToLabel, label_page, studio_tasks
from certify_assets.reports.review_run import whole_text
from certify_assets.tables.drawn import draw_of, drawn_rows, filled, require_first_sample, sheet
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions
from certify_assets.tables.writing import check_table_file, harmless
from certify_assets.words import WORDS, at_most, number_of, percent

_CERTIFICATE = "certificate.json"
_MOST_NAMES = 5
_MOST_JUDGES = 5
_MOST_NOTES = 4
#: endings of files on which runs are labelled elsewhere
_PAGES = (".html", ".json")
#: the runs to label as Scout View takes them
_VALIDATION = Path("validation.csv")


@click.command()
@click.argument("paths", type=SOURCE, nargs=-1, required=True, metavar="PATH…")
@click.option("--labels", type=PATH, help="Labels by trajectory_id, in place of outcomes.")
@click.option(
    "--judge",
    metavar="NAME",
    help="The column, scorer, feedback or assessment that is the score. [default: all are "
    "compared]",
)
@click.option("--truth", metavar="NAME", help="The same for the outcome.")
@click.option(
    "--out",
    type=OUT,
    default=Path("to_label.csv"),
    help="Where runs to label are written: a table, a page (.html) or Label Studio tasks (.json).",
)
@column_options
@answers
def doctor(
    paths: tuple[Path, ...],
    labels: Path | None,
    judge: str | None,
    truth: str | None,
    out: Path,
    reading: ReadingOptions,
) -> None:
    """Say what scores or logs hold, and the strongest answer that they allow.

    PATH is a score table, or logs of one format: Inspect AI, Scout, promptfoo, DeepEval, lm-eval,
    Langfuse, LangSmith, MLflow, OpenTelemetry, or the runs of a benchmark. Needs no corpus and no
    data root.

    The answer is the share of runs that need no review, at most 10 % or 20 % of them wrong. Where
    labels are missing, it is the runs to label and what they would buy (exit 3).
    """
    check_table_file(_sheet(out), {})
    with remedies():
        found = diagnose(paths, labels=labels, judge=judge, truth=truth, reading=reading)
    drawn, seed = _draw(found, paths, out)
    asked = replace(reading, columns={**found.columns, **reading.columns})
    steps = list(_steps(found, paths, labels, asked, out))
    document = {
        **found.to_dict(),
        "to_label": {"runs": drawn, "file": str(out)} if drawn else None,
        "next": steps,
    }
    answer(
        document,
        *_there(found, labels),
        *_compared(found.judges),
        found.obstacle or None,
        *_certified(found.best),
        *_offered(found),
        *_wrote(found, out, drawn, paths, seed),
        *(f"next: {step}" for step in steps),
        code=0 if found.answer == "certificate" else NOTHING,
    )


def _there(found: DoctorReport, labels: Path | None) -> Iterator[str]:
    """Say what is there."""
    counts = found.found
    least, median, most = counts["attempts"].values()
    each = f"{least:,} to {most:,}, mostly {median:,}" if least < most else f"{most:,}"
    runs, tasks = number_of(counts["runs"], "run"), number_of(counts["tasks"], "task")
    agents = f", {len(counts['agents'])} agents" if len(counts["agents"]) > 1 else ""
    yield f"{found.title}: {runs} of {tasks} ({each} of each task){agents}"
    truths = _listed(counts["truths"]) if labels is None else labels.name
    labelled = f"labelled: {counts['labelled']:,} of {runs}"
    yield f"judges: {_listed(counts['judges'])} · truths: {truths} · {labelled}"
    if labels is None and not counts["truths"]:
        yield "No outcomes were found. Name their column with --truth, or give --labels FILE."
    yield from found.notes[:_MOST_NOTES]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none") + more


def _compared(judges: Sequence[JudgeAnswer]) -> Iterator[str]:
    """Say what each of several judges decides, and what the comparison costs."""
    if len(judges) < 2 or not judges[0].issued:
        return
    for one in judges[:_MOST_JUDGES]:
        shares = ", ".join(
            f"{percent(share)} decided with {at_most(alpha)}"
            for alpha, share in zip(BUDGETS, one.decided, strict=False)
        )
        area = "" if one.auroc is None else f" (AUROC {one.auroc:.2f})"
        yield f"  {one.name}{area}: {shares or 'nothing certified'}"
    yield (
        f"{len(judges)} judges are compared, so each has δ = 0.05 / {len(judges)}. The best of "
        "them keeps 95 % confidence. If you chose one beforehand, --judge NAME gives it all of δ."
    )


def _certified(best: JudgeAnswer | None) -> Iterator[str]:
    """Say what is certified at each budget, or why nothing is at the widest."""
    if best is None or not best.issued:
        return
    holding = [found for found in best.issued if found.sides.decided]
    if not holding:
        yield best.issued[-1].sides.sentence
        if best.rung:
            # findings of each side would give other numbers of tasks
            yield f"At {100 * BUDGETS[-1]:g} % wrong: {best.rung.sentence}"
            return
    elif len(holding) > 1 and holding[1].sides.decided <= holding[0].sides.decided:
        # a wider budget whose sides overlap decides less
        del holding[1]
    if holding and holding[0] is not best.issued[0]:
        yield f"With {at_most(BUDGETS[0])}, nothing is certified."
    for place, found in enumerate(holding):
        yield from weaker_words(found.certificates[0])
        yield found.sides.sentence
        if place == 0:
            yield found.promise
    shown = best.issued[0] if holding else best.issued[-1]
    # why a side decides nothing matters where no side decides anything
    said = [
        f"{WORDS[item.side]}: {finding['code']}: {finding['message']}"
        for item in shown.certificates
        for finding in item.findings
        if finding["code"] != "nothing_passes" or not holding
    ]
    yield from said[:1]


def _offered(found: DoctorReport) -> Iterator[str]:
    """Say what labels would buy."""
    if not found.plans:
        return
    rate, area = found.guess
    if found.plan is None:
        tasks = number_of(found.found["tasks"], "task")
        yield f"With {tasks}, nothing can be promised if the judge's AUROC is {area:.2f}."
        return
    known = "A guess: half of the runs succeed, AUROC"
    if found.guess != GUESS:
        known = f"Taken from the labels: {percent(rate)} of the runs succeed, AUROC"
    yield f"What labels would buy. {known} {area:.2f}."
    for plan in found.plans:
        budgets = zip(BUDGETS, plan.decided, plan.chance, strict=True)
        parts = [
            f"{percent(share)} decided with {_wrong(alpha, plan.promise)} "
            f"(chance {100 * chance:.0f} %)"
            for alpha, share, chance in budgets
            if chance
        ]
        each = f"{number_of(plan.attempts, 'run')} of each of {number_of(plan.tasks, 'task')}"
        promised = f"{number_of(plan.labels, 'label')}, {each}, promise {plan.promise}"
        yield f"  {promised}: {' · '.join(parts) or 'nothing'}"


def _wrong(alpha: float, promise: str) -> str:
    if promise == AVERAGE:
        return f"{100 * alpha:g} % wrong on average and {at_most(2 * alpha)}"
    return at_most(alpha)


def _wrote(
    found: DoctorReport, out: Path, drawn: int, paths: Sequence[Path], seed: Path | None
) -> Iterator[str]:
    """Say where the runs to label are, and how they are labelled."""
    if not drawn:
        return
    how = (
        "Fill in outcome with 1 for success and 0 for failure, or ask for a page with --out "
        f"{out.with_suffix('.html')} or Label Studio tasks with --out {out.with_suffix('.json')}."
    )
    if out.suffix.lower() == ".html":
        how = f"Open it in a browser, label, and download {_sheet(out).name}."
    elif out.suffix.lower() == ".json":
        how = f"Import it into Label Studio, and export the labels as CSV to {_sheet(out)}."
    yield f"wrote {out}: {number_of(drawn, 'run')} to label, without their scores. {how}"
    if found.plan is not None and found.plan.attempts == 1:
        yield "Label batch after batch: the next command says when to stop."
    if seed is not None and as_given(paths[0]) == str(paths[0]):
        yield f"The seed of the draw is kept in {seed}."
    if _is_scan(paths):
        yield f"wrote {_VALIDATION}: label these runs in Scout View."


def _sheet(out: Path) -> Path:
    """Return the table in which labels come back: those of a page are downloaded as a CSV."""
    return out.with_suffix(".csv") if out.suffix.lower() in _PAGES else out


def _draw(found: DoctorReport, paths: Sequence[Path], out: Path) -> tuple[int, Path | None]:
    """Write the runs to label; return their number, if any, and the file that keeps the seed."""
    plan, best = found.plan, found.best
    if found.answer != "label" or plan is None or best is None or best.table.trajectories is None:
        return 0, None
    _refuse_labelled(out, DRAWN_BY, COLUMNS["outcome"])
    if _is_scan(paths):
        _refuse_labelled(_VALIDATION, "id", "target")
    draw, seed = draw_of(best.table, count=plan.labels, attempts=plan.attempts), None
    # a table that is only to be read stays without its seed, which is always the same here
    if len(paths) == 1 and os.access(paths[0].absolute().parent, os.W_OK):
        seed = require_first_sample(paths[0], draw)
    drawn, settings = drawn_rows(best.table, draw), Settings(alpha=_budget(found))
    columns = sheet(
        drawn, draw, settings, sides=SIDES, outcome=COLUMNS["outcome"], hidden=found.hidden
    )
    kept, runs = harmless(_sheet(out), columns, drawn.naming_columns), columns[COLUMNS["id"]]
    if _is_scan(paths):
        from certify_assets.corpora.formats.scout import write_validation

        write_validation(_VALIDATION, runs)
    if _sheet(out) == out:
        write_tables((out, kept))
        return len(drawn), seed
    # the labels are downloaded as a CSV with these
    check_table_file(_sheet(out), {COLUMNS["id"]: runs})
    texts = {}
    if found.has_runs:
        texts = {
            run.trajectory_id: whole_text(run) for run in read_runs(paths, set(map(str, runs)))
        }
    waiting = RunToLabel.of(columns, texts)
    title = f"{number_of(len(drawn), 'run')} of {found.title}"
    page = label_page(waiting, title=title, file=_sheet(out).name)
    write_text(out, page if out.suffix.lower() == ".html" else studio_tasks(waiting))
    return len(drawn), seed


def _refuse_labelled(path: Path, mark: str, outcome: str) -> None:
    """Refuse to write over labels, or over a file that is not ours."""
    if path.suffix.lower() in _PAGES or not path.exists():
        return
    ours = {mark, outcome} <= read_table(path, {mark, outcome}).columns.keys()
    if not ours or filled(path, outcome):
        raise InputError(
            f"{path} exists and holds labels or something else. Give labels of these runs with "
            "--labels, or name another file with --out."
        )


def _is_scan(paths: Sequence[Path]) -> bool:
    """Whether what is read are results of Inspect Scout, whose runs Scout View labels."""
    return len(paths) == 1 and is_scan(paths[0])


def _budget(found: DoctorReport) -> float:
    """Return the stricter budget that is certified, or that the plan has a fair chance of."""
    if found.answer == "certificate" and found.best is not None:
        return next(a for a, share in zip(BUDGETS, found.best.decided, strict=True) if share)
    plan = found.plan
    return BUDGETS[1] if plan is None or plan.chance[0] < plan.chance[1] / 2 else BUDGETS[0]


def _steps(
    found: DoctorReport,
    paths: Sequence[Path],
    labels: Path | None,
    reading: ReadingOptions,
    out: Path,
) -> Iterator[str]:
    """Return the next commands."""
    best, given = found.best, [as_given(path) for path in paths]
    called = {**COLUMNS, **reading.columns}
    if best is None:
        if found.found["judges"]:
            if found.truth is None and len(found.found["truths"]) > 1:
                yield given_command("--truth", found.found["truths"][0])
        elif found.has_runs:
            yield shlex.join(["certify", "corpus", "import", *given, "--name", "NAME"])
            yield "certify run NAME"
        return
    if found.answer == "nothing":
        issued = [item for one in best.issued for item in one.certificates]
        if any(of["code"] == "scores_look_reversed" for item in issued for of in item.findings):
            if not reading.lower_is_better:
                yield given_command("--set", "lower_is_better=true")
            return
        # a plan reads outcomes from the table itself, and of every run
        guess = []
        if found.plans or labels is not None or best.labelled < len(best.table):
            rate, area = (f"{value:.3g}" for value in found.guess)
            guess = ["--success-rate", rate, "--auroc", area]
        elif found.truth not in (None, called["outcome"]):
            guess = ["--truth", str(found.truth)]
        named = ["--judge", best.name] if best.name != called["score"] else []
        # what was said of the tasks that are needed is of the widest budget
        alpha = ["--alpha", f"{BUDGETS[-1]:g}"]
        words = ["certify", "plan", *given[:1], *named, *alpha]
        if best.rung is not None:
            words += plan_words(best.rung.side, PROMISED[best.rung.promise], best.rung.tasks)
        words += guess
        yield shlex.join([*words, *reading_words(reading)])
        return
    words = ["certify", "certificate", *(given if len(given) == 1 else ["FOLDER"])]
    words += ["--judge", best.name] if best.name != called["score"] else []
    budget = _budget(found)
    alpha = ["--alpha", f"{budget:g}"] if budget != BUDGETS[0] else []
    if found.answer == "label":
        if best.table.trajectories is None:
            yield "Add a column trajectory_id that names every run, and ask again."
            return
        words += ["--sample", str(_sheet(out))]
        words += ["--labels", str(_VALIDATION)] if _is_scan(paths) else []
        promise = ["--promise", CONFIDENT] if found.plan and found.plan.attempts > 1 else []
        yield shlex.join([*words, *alpha, *promise, *reading_words(reading)])
        return
    drawn = best.issued[0].certificates[0].inputs.get("sample")
    words += ["--sample" if drawn else "--labels", str(labels)] if labels else []
    if found.truth not in (None, called["outcome"]):
        words += ["--truth", str(found.truth)]
    if len(found.judges) > 1:
        words += ["--set", f"candidates={len(found.judges)}"]
    if not labels and best.labelled < len(best.table):
        words += ["--set", "unlabelled=drop"]
    yield shlex.join([*words, *alpha, *reading_words(reading), "--out", _CERTIFICATE])
    new = "NEW_RUNS" if found.has_runs else "NEW_SCORES"
    yield shlex.join(["certify", "decide", _CERTIFICATE, new])
