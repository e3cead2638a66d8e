"""``certify run`` and ``certify demo``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from certify_assets.cli.gate import (
    MIN_COVERAGE,
    Case,
    CiResult,
    coverage_case,
    gated,
    min_coverage_option,
    report,
)
from certify_assets.cli.options import corpus_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    complain,
    emit_json,
    json_option,
    percent,
    say,
    show_line,
    show_table,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.cli.gate import State
    from certify_assets.operations.audit import Overview

_QUICK, _LANGUAGE = ("lexical", "combined"), ("base", "sft")


@click.command()
@click.argument("corpus")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    help="Only this judge; repeat for more. `certify judge list` names them. [default: those that "
    "need seconds]",
)
@corpus_option
@min_coverage_option
@json_option
@click.pass_context
@gated
def run(
    ctx: click.Context,
    corpus: Corpus,
    judges: tuple[str, ...],
    min_coverage: float | None,
    as_json: bool,
) -> None:
    """Run the pipeline of one corpus: import, split, check, train, score, certify, audit, page.

    What is finished is kept: after a failure, call it again. Exit 3 where nothing is certified, no
    judge decides the share of --min-coverage, or a check stopped the pipeline; 1 where a step
    failed. With --judge, those judges alone decide the exit code, and no answer of one that can be
    read is exit 3.
    """
    found = _run(corpus.store, [corpus.name], judges, as_json=as_json, shown=judges)
    result = _gate_result(found[0], judges, min_coverage)
    report(result)
    for case in result.failed:
        if case.name == MIN_COVERAGE or case.name in judges:
            complain(case.message if case.name == MIN_COVERAGE else f"{case.name}: {case.message}")
    ctx.exit(NOTHING if result.failed else 0)


def _gate_result(corpus: Overview, judges: tuple[str, ...], minimum: float | None) -> CiResult:
    asked = [judge for judge in corpus["judges"] if not judges or judge["judge"] in judges]
    opened = any(map(_certified, asked))
    cases = [
        Case(
            judge["judge"],
            _state(judge, opened=opened, named=judge["judge"] in judges),
            " ".join([judge["summary"], *judge["why_nothing"]]),
        )
        for judge in asked
    ]
    shown = {judge["judge"] for judge in asked}
    cases += [
        Case(name, "failed", corpus["stale"].get(name, "It has no certificate."))
        for name in judges
        if name not in shown
    ]
    best = max(asked, key=lambda judge: judge["decided"], default=None)
    cases += (
        coverage_case(0.0, minimum)
        if best is None
        else coverage_case(best["decided"], minimum, f" by {best['judge']}")
    )
    warnings = [
        f"{judge['judge']}: {finding['message']}"
        for judge in corpus["judges"]
        for finding in judge["findings"]
    ]
    warnings += [f"{name} is not shown: {reason}" for name, reason in corpus["stale"].items()]
    sentence = "Nothing is certified." if best is None else f"{best['judge']}: {best['summary']}"
    return CiResult(corpus["corpus"], sentence, tuple(cases), warnings=tuple(warnings))


def _state(judge: Overview, *, opened: bool, named: bool) -> State:
    """Return what a judge is to the gate; one that was named has to be readable."""
    if _certified(judge):
        return "passed"
    unreadable = judge["unread"] in judge["why_nothing"]
    return "failed" if not opened or (named and unreadable) else "skipped"


def _certified(judge: Overview) -> bool:
    return any(cell["certified"] for cell in judge["certificates"])


def _certifies(corpora: Sequence[Overview]) -> bool:
    return any(_certified(judge) for corpus in corpora for judge in corpus["judges"])


@click.command()
@click.option(
    "--language",
    is_flag=True,
    help=f"Also the language-model judges {' and '.join(_LANGUAGE)}: minutes more on two cores.",
)
@store_option
@json_option
@click.pass_context
def demo(ctx: click.Context, language: bool, store: Store, as_json: bool) -> None:
    """Run the pipeline of the embedded corpora, from runs to pages.

    Materializes every asset of the two corpora that come with the package, in a Dagster instance of
    the data root. Then prints the share that each judge may decide alone, and the pages. Exit 3
    where nothing is certified on any of them, 1 where a step failed.
    """
    corpora = _run(store, EMBEDDED, (*_QUICK, *_LANGUAGE) if language else (), as_json=as_json)
    ctx.exit(0 if _certifies(corpora) else NOTHING)


def _run(
    store: Store,
    names: Sequence[str],
    judges: Sequence[str],
    *,
    as_json: bool,
    shown: Sequence[str] = (),
) -> list[Overview]:
    from certify_assets.cli.launching import run_corpus
    from certify_assets.judges.specs import judge_spec
    from certify_assets.operations.audit import overview

    for judge in judges:
        judge_spec(judge, store.root)
    started = time.monotonic()
    for name in names:
        whose = f" {' and '.join(judges)}" if judges else ""
        say(f"{name}: import, split, check, train, score, certify, audit, draw{whose}")
        run_corpus(Corpus(store, name), quiet=as_json, judges=judges)
    seconds = round(time.monotonic() - started, 1)
    # the run has written since this command read the data root
    corpora = [overview(Corpus(Store(store.root), name)) for name in names]
    if as_json:
        emit_json({"seconds": seconds, "corpora": corpora, "root": store.root})
    else:
        _show(store, [_of_judges(corpus, shown) for corpus in corpora], seconds)
    return corpora


def _of_judges(corpus: Overview, names: Sequence[str]) -> Overview:
    """Return what concerns the named judges, or all where none is named."""
    if not names:
        return corpus
    judges = [judge for judge in corpus["judges"] if judge["judge"] in names]
    stale = {name: reason for name, reason in corpus["stale"].items() if name in names}
    return {**corpus, "judges": judges, "stale": stale}


def _show(store: Store, corpora: Sequence[Overview], seconds: float) -> None:
    rows = []
    for corpus in corpora:
        for judge in corpus["judges"]:
            for side in ("reject", "release"):
                cells = [cell for cell in judge["certificates"] if cell["side"] == side]
                if side == "reject" or any(cell["certified"] for cell in cells):
                    name = judge["judge"] if side == "reject" else f"{judge['judge']}, {side}"
                    rows.append([corpus["corpus"], name, *[_cell(cell) for cell in cells]])
    budgets = [
        f"error ≤ {cell['alpha']:g}"
        for judge in corpora[0]["judges"][:1]
        for cell in judge["certificates"]
        if cell["side"] == "reject"
    ]
    show_table(
        "Share of runs that the judge may reject alone (and error on held-out tasks)",
        ["corpus", "judge", *budgets],
        rows,
    )
    for corpus in corpora:
        for judge in corpus["judges"]:
            if judge["pseudo_labels"]:
                show_line(
                    f"{corpus['corpus']}, {judge['judge']}: certified on half B of CAL alone; "
                    f"{judge['pseudo_labels']}."
                )
            show_line(f"{corpus['corpus']}, {judge['judge']}: {judge['summary']}")
            if judge["unread"] and judge["unread"] not in judge["why_nothing"]:
                show_line(f"{corpus['corpus']}, {judge['judge']}: {judge['unread']}")
            for sentence in judge["why_nothing"]:
                show_line(f"{corpus['corpus']}, {judge['judge']}: {sentence}")
            for finding in judge["findings"]:
                show_line(f"{corpus['corpus']}, {judge['judge']}: {finding['message']}")
        for name, reason in corpus["stale"].items():
            show_line(f"{corpus['corpus']}, {name} is not shown: {reason}")
    show_line(f"\nDone in {seconds:g} s. Open the pages:")
    show_line(f"  {store.locate('index.html')}")
    for corpus in corpora:
        for judge in corpus["judges"]:
            show_line(f"  {judge['page']}")
    show_line(
        "Pseudo-task, 95 % confidence each; sides not shown certify nothing. Assets, lineage "
        "and MLflow runs: certify ui"
    )


def _cell(cell: Overview) -> str:
    return (
        f"{percent(cell['coverage'])} ({cell['test_error']:.3f}, {cell['audit']})"
        if cell["certified"]
        else "nothing"
    )
