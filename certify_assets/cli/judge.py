"""``certify judge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import corpus_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    PATH,
    answer,
    answers,
    complain,
    figure,
    figures,
    read_alike,
    say,
    section_blocks,
    table,
    write_tables,
    write_text,
)
from certify_assets.cli.progress import progress
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import judge_problems, judges
from certify_assets.words import number_of

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Bill
    from certify_assets.storage.store import Store

_SHOWN = (
    "judge",
    "corpus",
    "adapter_sha256",
    "candidates",
    "selection_rule",
    "sft_trajectories",
    "sft_tasks",
)
_SCORED = ("judge", "corpus", "rows", "unscored", "auroc", "dropped", "out")
_TABLES = (".csv", ".parquet", ".jsonl")

judge_option = click.option(
    "--judge",
    "name",
    default="lexical",
    help="Name of the judge; `certify judge list` shows all, also those of judges.yaml.",
)


@click.group()
def judge() -> None:
    """Train, score and compare judges."""


@judge.command("list")
@store_option
@answers
def list_(store: Store) -> None:
    """List and describe the judges: those of the platform, then those of judges.yaml.

    judges.yaml is read from the data root, or from the path in CERTIFY_JUDGES. Exit 2 where a part
    of it cannot be used.
    """
    place = store.root
    known, problems = judges(place), judge_problems(place)
    rows = [
        {"judge": name, "family": spec.kind, "model": spec.model, "summary": spec.summary}
        for name, spec in known.items()
    ]
    for problem in problems:
        complain(problem)
    document = {"judges": rows, "problems": list(problems)}
    answer(document, table("Judges", rows), code=2 if problems else 0)


@judge.command("train")
@corpus_option
@judge_option
@answers
def train(corpus: Corpus, name: str) -> None:
    """Train a judge on the SFT split of a corpus, which must be split already.

    Judges of words and structure train in seconds, language models in minutes on two cores. A
    killed training of a language model is resumed. An endpoint judge is registered, not trained:
    the server is asked which model it serves, and settings, prompt and answer are stored.
    """
    from certify_assets.cli.launching import report_stored

    with corpus.writing():
        judge = JudgedCorpus(corpus, name)
        with progress() as report:
            record = judge.train(report=report)
    report_stored(corpus, "judge train", f"judges/{name}/model")
    document = record.to_dict()
    blocks = figures(f"{name} on {corpus}", document, most=_SHOWN)
    blocks.append(judge.family.describe(record))
    if document["selection"]:
        title = "Candidates on CAL; δ is divided by their number"
        blocks.append(table(title, document["selection"], ("name", "alpha", "coverage")))
    answer(document, *blocks)


@judge.command("score")
@corpus_option
@click.argument("paths", nargs=-1, type=PATH)
@judge_option
@click.option("--format", "format_name", default="auto", help="Source format of PATHS.")
@click.option("--out", type=OUT, help="Write the score table here: .csv, .parquet or .jsonl.")
@answers
def score(
    corpus: Corpus,
    paths: tuple[Path, ...],
    name: str,
    format_name: str,
    out: Path | None,
) -> None:
    """Score runs with the judge that was trained on CORPUS.

    Without PATHS, the RL, CAL and TEST splits of the corpus are scored and stored; TEST rows carry
    no outcome. PATHS are files, folders or archives of new runs. Their scores go to --out, for
    `certify decide`, `audit` or `monitor`, with the outcomes that the runs have. An endpoint judge
    asks its server, resumes where it was stopped, and prints what it cost.
    """
    from certify_assets.cli.launching import report_stored

    if paths and out is None:
        raise InputError("scores of new runs need a file. Name one with --out.")
    if out is not None and out.suffix.lower() not in _TABLES:
        raise InputError(
            f"{out} has an unknown ending. Give --out a name that ends in {', '.join(_TABLES)}."
        )
    judged = JudgedCorpus(corpus, name)
    if paths:
        table, dropped, bill = _new_runs(judged, paths, format_name)
    else:
        with corpus.writing():
            table, dropped, bill = _splits(judged)
        report_stored(corpus, "judge score", f"judges/{name}/scores")
    if out is not None:
        write_tables((out, table))
    document = {
        "judge": name,
        "corpus": corpus.name,
        "rows": len(table),
        "unscored": int(table["score"].isna().sum()),
        "auroc": judge_auroc(table),
        "dropped": dropped,
        "out": None if out is None else str(out),
        **({} if bill is None else {"bill": bill}),
    }
    blocks = figures(f"Scores of {name}", document, most=_SCORED)
    answer(document, *blocks, *([] if bill is None else figures("Cost", bill)))


def _splits(judge: JudgedCorpus) -> tuple[pd.DataFrame, dict[str, int], Bill | None]:
    with progress() as report:
        return (judge.score(report=report), {}, judge.bill)


def _new_runs(
    judge: JudgedCorpus, paths: tuple[Path, ...], format_name: str
) -> tuple[pd.DataFrame, dict[str, int], Bill | None]:
    from certify_assets.corpora.formats import gather_corpus
    from certify_assets.corpora.schema import to_frame

    # runs take longer to read
    judge.require_trained()
    unlabelled = {"keep_unlabelled": True}
    name = judge.corpus.name
    with gather_corpus(paths, format=format_name, name=name, options=unlabelled) as (runs, found):
        frame = to_frame(runs.trajectories())
    left_out = figure("dropped", found.dropped)
    say(f"{number_of(len(frame), 'run')} read as {found.format}; left out: {left_out}.")
    for sentence in read_alike(found.read_as):
        say(sentence)
    with progress() as report:
        table, bill = judge.score_runs(frame, report=report)
    return table, found.dropped, bill


@judge.command()
@click.argument("corpora", nargs=-1)
@click.option("--html", type=OUT, help="Write the page here.")
@store_option
@answers
def compare(corpora: tuple[str, ...], html: Path | None, store: Store) -> None:
    """Compare the judges of corpora: ranking, certified coverage, audit, cost.

    CORPORA are names. Without them, every corpus of the data root that a judge has scored is
    compared. Prints the best judge for each measure, and judges that add nothing. TEST figures come
    from the audits: TEST is not read again. Exit 3 where no corpus has scores.
    """
    from certify_assets.corpora.config import load_config
    from certify_assets.operations.comparison import compare_corpora
    from certify_assets.reports.comparison_page import comparison_sections, render_comparison

    for name in corpora:
        load_config(store, name)
    document = compare_corpora(store, corpora or None)
    if html is not None:
        write_text(html, render_comparison(document["corpora"], document["left_out"]))
    sections = comparison_sections(document["corpora"], document["left_out"])
    code = 0 if document["corpora"] else NOTHING
    answer(document, *section_blocks(sections), code=code)
