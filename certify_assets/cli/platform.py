"""``certify run`` and ``certify demo``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.gate import min_coverage_option, report_gate, too_little
from certify_assets.cli.options import corpus_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    complain,
    show_line,
    wants_json,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.storage.store import Store
from certify_assets.words import WORDS, at_most, number_of, percent

if TYPE_CHECKING:
    from certify_assets.operations.audit import Overview

#: how an audit ended, in words, and what a reader should know of one that cannot tell
_VERDICTS = {"PASS": "ok", "WARN": "unclear", "ERROR": "failed"}
_UNCLEAR = (
    "unclear: too few held-out tasks are decided, or the excess over the budget may be chance."
)

_NOTHING_PASSED = "No run is auto-passed: no judge has a certificate for it. The pages say why."

verbose_option = click.option(
    "--verbose", is_flag=True, help="Print each step and its messages on stderr."
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
@verbose_option
@answers
def run(corpus: Corpus, judges: tuple[str, ...], min_coverage: float | None, verbose: bool) -> None:
    """Run the pipeline of one corpus: import, split, check, train, score, certify, audit, page.

    Finished steps are kept: after a failure, call it again. Exit 3 where nothing is certified, no
    judge decides the share of --min-coverage, or a check stopped the pipeline. Exit 1 where a step
    failed. With --judge, only those judges set the exit code; it is 3 where no answer of one can be
    read.
    """
    document = _run(corpus.store, [corpus.name], judges, "lines" if verbose else "warnings")
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
    blocks = _blocks(corpus.store, [shown])
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
@verbose_option
@answers
def demo(store: Store, verbose: bool) -> None:
    """Run the pipeline of the embedded corpora, from runs to pages.

    Runs `certify run` on the two corpora that come with the package, with the judges that need
    seconds. Then prints the share that each judge may decide alone, and where the pages are. Exit 3
    where nothing is certified on any of them, 1 where a step failed.
    """
    document = _run(store, EMBEDDED, (), "lines" if verbose else "bar")
    corpora = document["corpora"]
    certified = any(_certified(judge) for corpus in corpora for judge in corpus["judges"])
    blocks = _blocks(store, corpora)
    answer(document, *blocks, code=0 if certified else NOTHING)


def _run(store: Store, names: Sequence[str], judges: Sequence[str], shown: str) -> JsonObject:
    """Run the pipeline of corpora; print a line for each."""
    from certify_assets.cli.launching import run_corpus
    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.judges.specs import judge_spec
    from certify_assets.operations.audit import overview

    for judge in judges:
        start = judge_spec(judge, store.root).start
        for name in names if start and start not in judges else ():
            if not JudgedCorpus(Corpus(store, name), start).is_trained:
                raise InputError(
                    f"{judge} starts from {start}, which is not trained on {name}. Run `certify "
                    f"run {name} --judge {start}` first."
                )
    started, corpora = time.monotonic(), list[JsonObject]()
    for name in names:
        began = time.monotonic()
        run_corpus(Corpus(store, name), shown=shown, judges=judges)
        # the run has written since this command read the data root
        found = overview(Corpus(Store(store.root), name))
        corpora.append(found)
        if not wants_json():
            runs, tasks = number_of(found["trajectories"], "run"), number_of(found["tasks"], "task")
            show_line(f"{name}: {runs}, {tasks}, {time.monotonic() - began:.0f} s")
    seconds = round(time.monotonic() - started, 1)
    return {"seconds": seconds, "corpora": corpora, "root": store.root}


def _of_judges(corpus: Overview, names: Sequence[str]) -> Overview:
    """Return what concerns the named judges, or all where none is named."""
    if not names:
        return corpus
    judges = [judge for judge in corpus["judges"] if judge["judge"] in names]
    stale = {name: reason for name, reason in corpus["stale"].items() if name in names}
    return {**corpus, "judges": judges, "stale": stale}


def _blocks(store: Store, corpora: Sequence[Overview]) -> list[Any]:
    """Return a table of what each judge may decide, what to know of it, and where the pages are."""
    judged = [(corpus, judge) for corpus in corpora for judge in corpus["judges"]]
    cells = [cell for _, judge in judged for cell in judge["certificates"]]
    rows = [
        [corpus["corpus"], _name(judge, side), *map(_share, mine), _held_out(mine)]
        for corpus, judge in judged
        for side in ("reject", "release")
        if (mine := [cell for cell in judge["certificates"] if cell["side"] == side])
        and (side == "reject" or any(cell["certified"] for cell in mine))
    ]
    first = judged[0][1]["certificates"] if judged else ()
    budgets = [at_most(cell["alpha"]) for cell in first if cell["side"] == "reject"]
    columns = ["corpus", "judge", *budgets, "on held-out tasks"]
    unclear = any(cell["audit"] == "WARN" for cell in cells)
    released = [cell["certified"] for cell in cells if cell["side"] == "release"]
    return [
        TextTable("Auto-fail: share of the runs that the judge may decide alone", columns, rows),
        _UNCLEAR if unclear else None,
        _NOTHING_PASSED if released and not any(released) else None,
        *(f"{corpus['corpus']}, {said}" for corpus in corpora for said in _sentences(corpus)),
        f"Open  {store.locate('index.html')}",
        "Then  certify ui    the same as a graph, with MLflow",
    ]


def _sentences(corpus: Overview) -> Iterator[str]:
    """Say what a reader should know of the judges of a corpus; pages say the rest."""
    for judge in corpus["judges"]:
        said = [judge["unread"]]
        if judge["pseudo_labels"]:
            said.append(f"Certified on half B of CAL alone; {judge['pseudo_labels']}.")
        said.append(_why_nothing(judge))
        said += [finding["message"] for finding in judge["findings"]]
        yield from (f"{judge['judge']}: {sentence}" for sentence in dict.fromkeys(said) if sentence)
    for name, reason in corpus["stale"].items():
        yield f"{name} is not shown: {reason}"


def _why_nothing(judge: Overview) -> str:
    """Return why the first side is not certified, at the widest such budget; else empty."""
    cells = judge["certificates"]
    side = cells[0]["side"]
    # one reason for all where no answer of the judge could be read
    lacking = [cell for cell in cells if not cell["certified"]]
    pairs = zip(lacking, judge["why_nothing"], strict=False)
    reasons = [reason for cell, reason in pairs if cell["side"] == side]
    return reasons[-1] if reasons else ""


def _name(judge: Overview, side: str) -> str:
    return str(judge["judge"]) if side == "reject" else f"{judge['judge']}, {WORDS[side]}"


def _share(cell: Overview) -> str:
    return percent(cell["coverage"]) if cell["certified"] else "nothing yet"


def _held_out(cells: Sequence[Overview]) -> str:
    """Say how the audits of a side ended, one a budget."""
    return " · ".join(_VERDICTS.get(cell["audit"], "–") for cell in cells)
