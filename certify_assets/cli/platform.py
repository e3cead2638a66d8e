"""``certify run`` and ``certify demo``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.gate import min_coverage_option, report_gate, too_little
from certify_assets.cli.options import corpus_option, store_option
from certify_assets.cli.output import NOTHING, TextTable, answer, answers, complain, say, wants_json
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.documents import JsonObject
from certify_assets.storage.store import Store
from certify_assets.words import WORDS, at_most, percent

if TYPE_CHECKING:
    from certify_assets.operations.audit import Overview

_WARN = (
    "WARN: the audit cannot tell. Too few held-out tasks are decided, or the error is above the "
    "budget within chance."
)


@click.command()
@corpus_option
@click.option(
    "--judge",
    "judges",
    multiple=True,
    help="Only this judge; repeat for more. [default: those that need seconds]",
)
@min_coverage_option
@answers
def run(corpus: Corpus, judges: tuple[str, ...], min_coverage: float | None) -> None:
    """Run the pipeline of one corpus: import, split, check, train, score, certify, audit, page.

    What is finished is kept: after a failure, call it again. Exit 3 where nothing is certified, no
    judge decides the share of --min-coverage, or a check stopped the pipeline; 1 where a step
    failed. With --judge, those judges alone decide the exit code, and no answer of one that can be
    read is exit 3.
    """
    document = _run(corpus.store, [corpus.name], judges)
    (found,) = document["corpora"]
    shown = _of_judges(found, judges)
    closed = list(_closed(shown, judges))
    decided = max((judge["decided"] for judge in shown["judges"]), default=0.0)
    missing = set(judges) - {judge["judge"] for judge in shown["judges"]}
    failed = [*closed, *too_little(decided, min_coverage, " by the best judge")]
    for name in sorted(missing):
        failed.append(f"{name}: {shown['stale'].get(name, 'It has no certificate.')}")
    best = max(shown["judges"], key=lambda judge: judge["decided"], default=None)
    report_gate(
        corpus.name,
        ["Nothing is certified." if best is None else f"{best['judge']}: {best['summary']}"],
        failed,
        list(_sentences(shown)),
    )
    # people read below the table why nothing is certified, unless no answer could be read
    unread = [judge["unread"] for judge in shown["judges"] if judge["unread"]]
    for reason in failed:
        known = reason in closed and not any(said in reason for said in unread)
        if wants_json() or not known:
            complain(reason)
    blocks = _blocks(corpus.store, [shown], document["seconds"])
    answer(document, *blocks, code=NOTHING if failed else 0)


def _closed(corpus: Overview, named: Sequence[str]) -> Iterator[str]:
    """Say why nothing is certified, by all judges or by a named one that cannot be read."""
    asked = corpus["judges"]
    opened = any(map(_certified, asked))
    for judge in asked:
        unreadable = judge["unread"] in judge["why_nothing"]
        if not _certified(judge) and (not opened or (judge["judge"] in named and unreadable)):
            yield " ".join([f"{judge['judge']}:", judge["summary"], *judge["why_nothing"]])


def _certified(judge: Overview) -> bool:
    return any(cell["certified"] for cell in judge["certificates"])


@click.command()
@store_option
@answers
def demo(store: Store) -> None:
    """Run the pipeline of the embedded corpora, from runs to pages.

    Materializes every asset of the two corpora that come with the package, in a Dagster instance of
    the data root. Then prints the share that each judge may decide alone, and the pages. Exit 3
    where nothing is certified on any of them, 1 where a step failed.
    """
    document = _run(store, EMBEDDED, ())
    corpora = document["corpora"]
    certified = any(_certified(judge) for corpus in corpora for judge in corpus["judges"])
    blocks = _blocks(store, corpora, document["seconds"])
    answer(document, *blocks, code=0 if certified else NOTHING)


def _run(store: Store, names: Sequence[str], judges: Sequence[str]) -> JsonObject:
    from certify_assets.cli.launching import run_corpus
    from certify_assets.judges.specs import judge_spec
    from certify_assets.operations.audit import overview

    for judge in judges:
        judge_spec(judge, store.root)
    started = time.monotonic()
    for name in names:
        whose = f" {' and '.join(judges)}" if judges else ""
        say(f"{name}: import, split, check, train, score, certify, audit, draw{whose}")
        run_corpus(Corpus(store, name), quiet=wants_json(), judges=judges)
    seconds = round(time.monotonic() - started, 1)
    # the run has written since this command read the data root
    corpora = [overview(Corpus(Store(store.root), name)) for name in names]
    return {"seconds": seconds, "corpora": corpora, "root": store.root}


def _of_judges(corpus: Overview, names: Sequence[str]) -> Overview:
    """Return what concerns the named judges, or all where none is named."""
    if not names:
        return corpus
    judges = [judge for judge in corpus["judges"] if judge["judge"] in names]
    stale = {name: reason for name, reason in corpus["stale"].items() if name in names}
    return {**corpus, "judges": judges, "stale": stale}


def _blocks(store: Store, corpora: Sequence[Overview], seconds: float) -> list[Any]:
    """Return a table of what each judge may decide, what to know of it, and where the pages are."""
    judged = [(corpus, judge) for corpus in corpora for judge in corpus["judges"]]
    rows = [
        [corpus["corpus"], _name(judge, side), *map(_cell, cells)]
        for corpus, judge in judged
        for side in ("reject", "release")
        if (cells := [cell for cell in judge["certificates"] if cell["side"] == side])
        and (side == "reject" or any(cell["certified"] for cell in cells))
    ]
    first = judged[0][1]["certificates"] if judged else ()
    budgets = [at_most(cell["alpha"]) for cell in first if cell["side"] == "reject"]
    title = "Auto-fail: share of runs that the judge decides alone (error on held-out tasks)"
    unclear = any(cell["audit"] == "WARN" for _, judge in judged for cell in judge["certificates"])
    return [
        TextTable(title, ["corpus", "judge", *budgets], rows),
        _WARN if unclear else None,
        *(f"{corpus['corpus']}, {said}" for corpus in corpora for said in _sentences(corpus)),
        f"\nDone in {seconds:g} s. Open {store.locate('index.html')}",
        "The same as a graph, with MLflow: certify ui",
    ]


def _sentences(corpus: Overview) -> Iterator[str]:
    """Say what a reader should know of the judges of a corpus."""
    for judge in corpus["judges"]:
        said = [judge["summary"]]
        if judge["pseudo_labels"]:
            said.append(f"Certified on half B of CAL alone; {judge['pseudo_labels']}.")
        said += [judge["unread"], *judge["why_nothing"]]
        said += [finding["message"] for finding in judge["findings"]]
        yield from (f"{judge['judge']}: {sentence}" for sentence in dict.fromkeys(said) if sentence)
    for name, reason in corpus["stale"].items():
        yield f"{name} is not shown: {reason}"


def _name(judge: Overview, side: str) -> str:
    return str(judge["judge"]) if side == "reject" else f"{judge['judge']}, {WORDS[side]}"


def _cell(cell: Overview) -> str:
    if not cell["certified"]:
        return "nothing"
    return f"{percent(cell['coverage'])} ({percent(cell['test_error'])}, {cell['audit']})"
