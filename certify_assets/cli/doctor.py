"""``certify doctor``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import click

from certify_assets.certificates.procedures import AVERAGE, CONFIDENT
from certify_assets.certificates.sampling import Draw
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet
from certify_assets.cli.drawn import DrawnFile, filled, names_of
from certify_assets.cli.options import PATH, SOURCE, as_given
from certify_assets.cli.output import (
    NOTHING,
    answer,
    answers,
    refuse_overwrite,
    write_tables,
    write_text,
)
from certify_assets.cli.reading import column_options, reading_words, remedies
from certify_assets.cli.sample import require_first_sample, rows_to_label
from certify_assets.corpora.formats.scout import is_scan, write_validation
from certify_assets.corpora.judged import read_runs
from certify_assets.doctor import (
    BUDGETS,
    GUESS,
    DoctorReport,
    JudgeAnswer,
    RowsOfDraw,
    diagnose,
    sides_of,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.reports.label_page import RunToLabel, label_page, studio_tasks
from certify_assets.reports.review_run import whole_text
from certify_assets.tables.reading import read_table
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions
from certify_assets.tables.writing import check_table_file, harmless
from certify_assets.words import WORDS, at_most, percent

_CERTIFICATE = "certificate.json"
_SHEET = Path("to_label.csv")
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
    type=PATH,
    help="Where the runs to label are written, if labels are missing: a table, .html for a page "
    "that opens from disk, or .json for Label Studio. [default: to_label.csv]",
)
@column_options
@answers
def doctor(
    paths: tuple[Path, ...],
    labels: Path | None,
    judge: str | None,
    truth: str | None,
    out: Path | None,
    reading: ReadingOptions,
) -> None:
    """Say what scores or logs hold, and the strongest answer that they allow.

    PATH is a score table, or logs of one format: Inspect AI, Scout, promptfoo, DeepEval, lm-eval,
    Langfuse, LangSmith, MLflow, OpenTelemetry, or the runs of a benchmark. Needs no corpus and no
    data root.

    The answer is the share of runs that need no review, at most 10 % or 20 % of them wrong. Where
    labels are missing, it is the runs to label and what they would buy (exit 3).
    """
    if out is None:
        out = _free([*paths, *([labels] if labels else [])])
    inputs = {f"PATH {path}": path for path in paths}
    refuse_overwrite({"--out": out}, {**inputs, "--labels": labels})
    _refuse_labelled(out, paths)
    sample = labels if labels is not None and _is_draw(labels) else None
    with remedies():
        found = diagnose(
            paths,
            labels=labels,
            judge=judge,
            truth=truth,
            reading=reading,
            rows_of_draw=None if sample is None else _rows_of_draw(sample, reading),
        )
    drawn = _draw(found, paths, out)
    asked = replace(reading, columns={**found.columns, **reading.columns})
    # labels given on the page are downloaded as a CSV, as those of Label Studio are
    sheet = out.with_suffix(".csv") if out.suffix.lower() in _PAGES else out
    given = ["--sample", str(sample)] if sample else ["--labels", str(labels)] if labels else []
    steps = list(_steps(found, paths, given, asked, sheet if drawn else None))
    best = found.best
    certified = [] if best is None else list(best.certified)
    decided = next((share for share in (best.decided if best else ()) if share), 0.0)
    document = {
        "found": found.found,
        "answer": found.answer,
        "decided": decided,
        "certificates": [item.to_dict() for one in certified for item in one.certificates],
        "to_label": {"runs": drawn, "file": str(out)} if drawn else None,
        "next": steps,
        "judges": [_judge(one) for one in found.judges],
        "plans": [vars(plan) for plan in found.plans],
        "notes": [*found.notes],
        **({"obstacle": found.obstacle} if found.obstacle else {}),
    }
    answer(
        document,
        *_there(found, labels),
        *_said(found),
        *_offered(found, drawn, out),
        f"wrote {_VALIDATION}: label these runs in Scout View."
        if drawn and _is_scan(paths)
        else None,
        f"{_SHEET} holds labels already. If they are of these runs, give it with --labels."
        if drawn and not labels and out != _SHEET and out.name.startswith(f"{_SHEET.stem}_")
        else None,
        *(f"next: {step}" for step in steps),
        code=0 if found.answer == "certificate" else NOTHING,
    )


def _judge(one: JudgeAnswer) -> JsonObject:
    decided = {f"{alpha:g}": share for alpha, share in zip(BUDGETS, one.decided, strict=False)}
    return {"name": one.name, "auroc": one.auroc, "labelled": one.labelled, "decided": decided}


def _there(found: DoctorReport, labels: Path | None) -> Iterator[str]:
    """Say what is there."""
    counts = found.found
    least, median, most = counts["attempts"].values()
    each = f"{least} to {most}, mostly {median}" if least < most else f"{most}"
    runs = f"{counts['runs']:,} run{'s' * (counts['runs'] != 1)}"
    tasks = f"{counts['tasks']:,} task{'s' * (counts['tasks'] != 1)}"
    agents = f", {len(counts['agents'])} agents" if len(counts["agents"]) > 1 else ""
    yield f"{found.title}: {runs} of {tasks} ({each} of each task){agents}"
    truths = _listed(counts["truths"]) if labels is None else labels.name
    labelled = f"labelled: {counts['labelled']:,} of {runs}"
    yield f"judges: {_listed(counts['judges'])} · truths: {truths} · {labelled}"
    yield from found.notes[:_MOST_NOTES]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none") + more


def _said(found: DoctorReport) -> Iterator[str]:
    """Say what is certified, or why nothing is."""
    if found.obstacle:
        yield found.obstacle
        return
    if len(found.judges) > 1 and found.best is not None and found.best.certified:
        for one in found.judges[:_MOST_JUDGES]:
            shares = ", ".join(
                f"{percent(share)} decided with {at_most(alpha)}"
                for alpha, share in zip(BUDGETS, one.decided, strict=False)
            )
            area = "" if one.auroc is None else f" (AUROC {one.auroc:.2f})"
            yield f"  {one.name}{area}: {shares or 'nothing certified'}"
        yield (
            f"{len(found.judges)} judges are compared, so each has δ = 0.05 / {len(found.judges)}: "
            "the best of them keeps 95 % confidence. --judge NAME tests one, chosen beforehand, at "
            "the whole δ."
        )
    best = found.best
    if best is None or not best.certified:
        return
    widest = 0.0
    for item in best.certified:
        sides = sides_of(item)
        # wider budgets whose sides overlap decide less
        if sides.decided > widest:
            yield sides.sentence
            if not widest:
                yield _promise(item)
            widest = sides.decided
    if not widest:
        yield sides_of(best.certified[-1]).sentence
        if best.rung:
            yield best.rung
    # why a side decides nothing matters where no side decides anything
    for certificate in best.certified[0].certificates:
        for finding in certificate.findings:
            if finding["code"] != "nothing_passes" or not widest:
                yield f"{WORDS[certificate.side]}: {finding['code']}: {finding['message']}"
                return


def _promise(found: CertificateSet) -> str:
    return found.statement or found.certificates[0].statement


def _offered(found: DoctorReport, drawn: int, out: Path) -> Iterator[str]:
    """Say what labels would buy, and where the runs to label are."""
    if not found.plans:
        return
    rate, area = found.guess
    if found.plan is None:
        enough = f"More labels alone will not help a judge of AUROC {area:.2f}."
        if found.needed is not None:
            enough = (
                f"About {found.needed:,} tasks with one labelled run each have a fair chance, if "
                f"the judge's AUROC is {area:.2f}."
            )
        tasks = found.found["tasks"]
        yield f"{tasks:,} task{'s' * (tasks != 1)} can promise nothing. {enough}"
        return
    known = "A guess: half of the runs succeed, AUROC"
    if found.guess != GUESS:
        known = f"Taken from the labels: {percent(rate)} of the runs succeed, AUROC"
    yield f"What labels would buy. {known} {area:.2f}."
    for plan in found.plans:
        average = plan.promise == AVERAGE
        parts = [
            f"{percent(share)} decided with {_on_average(alpha) if average else at_most(alpha)} "
            f"(chance {100 * chance:.0f} %)"
            for alpha, share, chance in zip(BUDGETS, plan.decided, plan.chance, strict=True)
            if chance
        ]
        run = f"{plan.attempts} run{'s' * (plan.attempts > 1)} of each of {plan.tasks:,} tasks"
        promised = f"{plan.labels:,} labels, {run}, promise {plan.promise}"
        yield f"  {promised}: {' · '.join(parts) or 'nothing'}"
    if drawn:
        yield f"wrote {out}: {drawn:,} runs to label, without their scores. {_how(out)}"


def _on_average(alpha: float) -> str:
    return f"{100 * alpha:g} % wrong on average and {at_most(2 * alpha)}"


def _how(out: Path) -> str:
    """Say how the runs of a file are labelled."""
    sheet = out.with_suffix(".csv")
    if out.suffix.lower() == ".html":
        return f"Open it in a browser, label, and download {sheet.name}."
    if out.suffix.lower() == ".json":
        return f"Import it into Label Studio, and export the labels as CSV to {sheet}."
    return (
        "Fill in outcome with 1 for success and 0 for failure, or ask for a page with --out "
        f"{out.with_suffix('.html')} or Label Studio tasks with --out {out.with_suffix('.json')}."
    )


def _draw(found: DoctorReport, paths: Sequence[Path], out: Path) -> int:
    """Write the runs to label; return their number, 0 where there is nothing to write."""
    plan, best = found.plan, found.best
    if found.answer != "label" or plan is None or best is None or best.table.trajectories is None:
        return 0
    page = out.suffix.lower() in _PAGES
    tasks, runs = names_of(best.table)
    draw = Draw.of(tasks, runs, best.table.scores, count=plan.labels, attempts=plan.attempts)
    # a table that is only to be read stays without its seed, which is always the same here
    if len(paths) == 1 and os.access(paths[0].absolute().parent, os.W_OK):
        require_first_sample(paths[0], draw)
    drawn, columns = rows_to_label(best.table, draw, _settings(found), hidden=found.hidden)
    kept = harmless(out.with_suffix(".csv"), columns, drawn.naming_columns)
    if page:
        # the labels are downloaded as a CSV with these
        check_table_file(out.with_suffix(".csv"), {COLUMNS["id"]: columns[COLUMNS["id"]]})
    if _is_scan(paths):
        write_validation(_VALIDATION, columns[COLUMNS["id"]])
    if not page:
        write_tables((out, kept))
        return len(drawn)
    texts = {}
    if found.title != "score table":
        names = set(map(str, columns[COLUMNS["id"]]))
        texts = {run.trajectory_id: whole_text(run) for run in read_runs(paths, names)}
    waiting = RunToLabel.of(columns, texts)
    if out.suffix.lower() == ".json":
        write_text(out, studio_tasks(waiting))
    else:
        title, file = f"{len(waiting):,} runs of {found.title}", out.with_suffix(".csv").name
        write_text(out, label_page(waiting, title=title, file=file))
    return len(drawn)


def _free(taken: Sequence[Path]) -> Path:
    """Return the usual file of runs to label, or one with a number where that holds labels."""
    names = (_SHEET.with_stem(f"{_SHEET.stem}_{number}") for number in count(2))
    return next(
        path
        for path in chain([_SHEET], names)
        if path.resolve() not in {one.resolve() for one in taken} and _may_write(path)
    )


def _may_write(path: Path) -> bool:
    return not path.exists() or _is_blank(path, DRAWN_BY, COLUMNS["outcome"])


def _refuse_labelled(out: Path, paths: Sequence[Path]) -> None:
    """Refuse to write over labels, before anything is computed."""
    if out.suffix.lower() not in _PAGES and not _may_write(out):
        raise InputError(
            f"{out} exists and holds labels or something else. Name another file with --out."
        )
    if _is_scan(paths) and _VALIDATION.exists() and not _is_blank(_VALIDATION, "id", "target"):
        raise InputError(
            f"{_VALIDATION} exists and holds labels or something else. Move it to another folder."
        )


def _is_draw(labels: Path) -> bool:
    return bool(read_table(labels, {DRAWN_BY}).columns)


def _rows_of_draw(sample: Path, reading: ReadingOptions) -> RowsOfDraw:
    """Return the drawn rows of a table, whose labels are in the file of the draw."""
    if not filled(sample, {**COLUMNS, **reading.columns}["outcome"]):
        raise InputError(f"{sample} holds no label yet. Fill in its column outcome.")
    drawn = DrawnFile.read(sample, reading)
    return lambda table: (drawn.rows_of(table), drawn.draw.inputs)


def _is_blank(path: Path, mark: str, outcome: str) -> bool:
    """Whether a file has the columns of a file of ours, and no outcome yet."""
    there = read_table(path, {mark, outcome}).columns.keys()
    return {mark, outcome} <= there and not filled(path, outcome)


def _is_scan(paths: Sequence[Path]) -> bool:
    """Whether what is read are results of Inspect Scout, whose runs Scout View labels."""
    return len(paths) == 1 and is_scan(paths[0])


def _settings(found: DoctorReport) -> Settings:
    return Settings(alpha=_budget(found))


def _budget(found: DoctorReport) -> float:
    """Return the stricter budget that is certified, or that the plan has a fair chance of."""
    if found.answer == "certificate" and found.best is not None:
        return next(a for a, share in zip(BUDGETS, found.best.decided, strict=True) if share)
    plan = found.plan
    return BUDGETS[1] if plan is None or plan.chance[0] < plan.chance[1] / 2 else BUDGETS[0]


def _steps(
    found: DoctorReport,
    paths: Sequence[Path],
    labelling: Sequence[str],
    reading: ReadingOptions,
    sheet: Path | None,
) -> Iterator[str]:
    """Return the next commands."""
    best, given = found.best, [as_given(path) for path in paths]
    if found.obstacle:
        judged = bool(found.found["judges"])
        if judged and len(found.found["truths"]) > 1:
            yield shlex.join(["certify", "doctor", *given, "--truth", found.found["truths"][0]])
        elif not judged and found.title != "score table":
            yield shlex.join(["certify", "corpus", "import", *given, "--name", "NAME"])
            yield "certify run NAME"
        return
    if best is None:
        return
    words = ["certify", "certificate", *(given if len(given) == 1 else ["FOLDER"])]
    if best.name != {**COLUMNS, **reading.columns}["score"]:
        words += ["--judge", best.name]
    alpha = _budget(found)
    budget = ["--alpha", f"{alpha:g}"] if alpha != BUDGETS[0] else []
    if found.answer == "label":
        if best.table.trajectories is None:
            yield "Add a column trajectory_id that names every run, and ask again."
            return
        assert found.plan is not None
        promise = ["--promise", CONFIDENT] if found.plan.attempts > 1 else []
        drawn = ["--sample", str(sheet)]
        drawn += ["--labels", str(_VALIDATION)] if _is_scan(paths) else []
        yield shlex.join([*words, *drawn, *budget, *promise, *reading_words(reading)])
        return
    if found.answer == "nothing":
        rate, area = (f"{value:.3g}" for value in found.guess)
        guess = ["--success-rate", rate, "--auroc", area] if found.plans else []
        score = replace(reading, columns={**reading.columns, "score": best.name})
        yield shlex.join(["certify", "plan", *given[:1], *guess, *reading_words(score)])
        return
    words += labelling
    if found.truth is not None and found.truth != {**COLUMNS, **reading.columns}["outcome"]:
        words += ["--truth", found.truth]
    if len(found.judges) > 1:
        words += ["--set", f"candidates={len(found.judges)}"]
    if not labelling and best.labelled < len(best.table):
        words += ["--set", "unlabelled=drop"]
    yield shlex.join([*words, *budget, *reading_words(reading), "--out", _CERTIFICATE])
    new = "NEW_RUNS" if found.title != "score table" else "NEW_SCORES"
    yield shlex.join(["certify", "decide", _CERTIFICATE, new])
