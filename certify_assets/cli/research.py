"""``certify research``: study, law, simulation, harvests, and runs of a model on MiniWoB++."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    SHARE,
    SIDE,
    Finite,
    corpus_option,
    out_option,
    store_option,
)
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    PATH,
    TextTable,
    answer,
    answers,
    say,
    table,
    write_document,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.words import WORDS, number_of

if TYPE_CHECKING:
    from certify_assets.research.law import Law
    from certify_assets.storage.store import Store

_FAILED = 1
_SHOWN_TABLES = ("main", "audits")


@click.group()
def research() -> None:
    """Run the study, the certifiability law, the simulation and harvests."""


@research.command()
@click.argument("corpora", nargs=-1)
@click.option(
    "--profile",
    type=click.Choice(("quick", "full")),
    default="quick",
    help="quick: minutes, without language models; full: hours, with them.",
)
@store_option
@answers
def study(corpora: tuple[str, ...], profile: str, store: Store) -> None:
    """Reproduce the tables of the paper next to ours, as one page and CSV files.

    Runs on CORPORA, or on every corpus of the data root: splits, judges, transfer, procedures on
    real scores, comparison, the law, the simulation. Steps that are up to date are skipped, so a
    killed study resumes. The full profile adds language models (on the named corpora, else on the
    embedded ones) and more trials. Exit 1 where a step failed; the other steps still run.
    """
    from certify_assets.cli.launching import run_study
    from certify_assets.research.tables import OURS, STUDY_PAGE, study_tables, table_key

    outcomes = run_study(store, corpora, profile)
    counts = dict(sorted(Counter(outcome.status for outcome in outcomes).items()))
    page, tables = store.locate(STUDY_PAGE), [item.table for item in study_tables(store)]
    document = {
        "profile": profile,
        "root": store.root,
        "page": page,
        "tables": [store.locate(table_key(table.name)) for table in tables],
        "counts": counts,
        "assets": [asdict(outcome) for outcome in outcomes],
    }
    shown = [
        TextTable(item.title, item.columns[1:], [row[1:] for row in item.rows if row[0] == OURS])
        for item in tables
        if item.name in _SHOWN_TABLES
    ]
    counted = ", ".join(f"{number:,} {status}" for status, number in counts.items())
    code = _FAILED if "failed" in counts else 0
    answer(document, *shown, f"Assets: {counted}. Open {page}", code=code)


@research.command()
@click.argument("points", type=PATH, required=False)
@click.option("--paper", is_flag=True, help="Use the paper's seven points, and print its table.")
@click.option("--success-rate", type=SHARE, help="Success rate of the new corpus.")
@click.option("--auroc", type=SHARE, help="AUROC of the base judge on the new corpus.")
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Budget of the coverages.")
@out_option
@store_option
@answers
def law(
    points: Path | None, paper: bool, out: Path | None, store: Store, alpha: float, **new: Any
) -> None:
    """Fit the certifiability law: coverage from success rate and base AUROC.

    POINTS is a table (CSV, Parquet, JSON Lines, or JSON) with the columns corpus, success_rate,
    auroc and coverage, and optionally n_eff and tasks. Without POINTS, the corpora of the data root
    are measured on CAL. Their AUROC is that of the judge base, which was trained on no verdict.
    Every form is fitted leave-one-corpus-out. With --success-rate and --auroc, the coverage of a
    new corpus is predicted, with a 95 % interval and its evidence. Exit 3 where the data root has
    too few corpora for a fit.
    """
    from certify_assets.research.law import predict_coverage

    asked = any(value is not None for value in new.values())
    for name in ("success_rate", "auroc"):
        if asked and new[name] is None:
            raise InputError(
                f"A prediction needs --{name.replace('_', '-')}. Give success rate and base AUROC "
                "of the new corpus."
            )
    if paper and points is not None:
        raise InputError("POINTS and --paper exclude each other. Give one of them.")
    fitted, document = _fit(points, store, paper=paper)
    said = [
        f"Left out: {item['corpus']}: {item['reason']}" for item in document.get("left_out", ())
    ]
    if asked and fitted is None:
        raise InputError(
            f"Nothing can be predicted: {document['reason'].removesuffix('.')}. Certify more "
            "corpora, or predict from the paper's points with --paper."
        )
    if asked and fitted is not None:
        prediction = predict_coverage(fitted, alpha=alpha, **new)
        document["prediction"] = {**new, "alpha": alpha, **prediction.to_dict()}
        said += prediction.sentences
    if out is not None:
        write_document(out, document)
    said += [item["message"] for item in document["findings"]]
    said += document.get("facts", ())
    code = 0 if fitted is not None else NOTHING
    answer(document, *_tables(document), *dict.fromkeys(said), code=code)


def _fit(points: Path | None, store: Store, *, paper: bool) -> tuple[Law | None, JsonObject]:
    from certify_assets.files import rounded
    from certify_assets.research.certifiability import fit_measured, gather_points
    from certify_assets.research.law import fit_law, law_findings, read_points
    from certify_assets.research.paper import law_facts, law_forms, law_points

    if points is None and not paper:
        found = fit_measured(*gather_points(store))
        return found.law, found.to_dict()
    fitted = fit_law(law_points() if points is None else read_points(points))
    law_document = rounded(fitted.to_dict())
    document = {
        "points": law_document["points"],
        "law": law_document,
        "findings": [{"code": code, "message": message} for code, message in law_findings(fitted)],
    }
    if paper:
        document |= {"published": law_forms(), "facts": list(law_facts())}
    return fitted, document


def _tables(document: JsonObject) -> Iterator[TextTable]:
    """Return the corpora, what each does to the law, and every form that was fitted."""
    known = ("corpus", "success_rate", "auroc", "n_eff", "index", "coverage")
    yield table("Corpora; index = (1−π)(2A₀−1)", document["points"], known)
    if (fitted := document.get("law")) is None:
        return
    without = ("corpus", "left_out", "leverage", "loocv_r2_without")
    yield table("Influence of each corpus on the fit", fitted["influence"], without)
    forms = ("words", "slope", "intercept", "r2", "loocv_r2", "mae", "reason")
    title = "coverage = slope · form + intercept; s(K) = 1−exp(−n_eff/K)"
    yield table(title, fitted["forms"], forms)
    if printed := document.get("published"):
        yield table("As the paper prints it", [{"form": name, **printed[name]} for name in printed])


_LEGEND = (
    "violation: share of trials whose true error exceeds α, of all trials (which δ bounds) and of "
    "those that certified anything; by task: every task weighs the same. ± standard error. paper: "
    "violation if certified, coverage."
)


@research.command()
@click.option(
    "--tasks",
    multiple=True,
    type=click.IntRange(2, 1_000_000),
    help="Tasks in a calibration set; repeat for more.",
)
@click.option(
    "--rho", multiple=True, type=Finite(0, 0.9), help="Nominal label ICCs; repeat for more."
)
@click.option(
    "--design",
    multiple=True,
    help="paper, adversarial, fooled, failure, all, or designs by name; repeat for more.",
)
@click.option("--side", type=SIDE, default="reject", help="Which decision to certify.")
@click.option("--trials", type=COUNT, default=300, help="Calibration sets a design.")
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Error budget α.")
@click.option("--delta", type=OPEN_SHARE, default=0.05, help="1 − confidence.")
@click.option(
    "--procedure",
    multiple=True,
    help="Procedures; repeat for more. [default: the paper's five, guarded_taskboot and "
    "pseudo_task]",
)
@click.option("--seed", type=NATURAL, default=42, help="Seed of all draws.")
@click.option("--workers", type=COUNT, default=1, help="Processes; results do not depend on it.")
@out_option
@answers
def simulate(
    tasks: tuple[int, ...],
    rho: tuple[float, ...],
    design: tuple[str, ...],
    procedure: tuple[str, ...],
    out: Path | None,
    **settings: Any,
) -> None:
    """Measure how often each procedure certifies wrongly on simulated data.

    In every trial, each procedure certifies a threshold on one simulated calibration set. Its true
    error over trajectories is known. The violation is the share of trials whose true error exceeds
    α. It is given among all trials, which δ bounds, and among those that certified anything, as in
    the paper. Coverage is 0 where nothing was certified.

    \b
    Designs:
      paper             the clustered process of the paper
      low_base_rate     (i) near-perfect judge, few successes
      size_outcome      (ii) larger tasks fail more
      heavy_tails       (iii) heavy-tailed task sizes
      fooled            a few tasks fool the judge throughout (1.5 α)
      fooled_partly     the same with errors of ICC .7
      fooled_larger     the same with wrong tasks three times larger
      fooled_scattered  the same with errors of ICC .3 (in failure only)
      fooled_largest    the same, five times larger (in failure only)

    The paper's process has 20, 50, 100, 500 tasks and ICC .1, .5, .8. Without --design, all but the
    last two are run. With --tasks or --rho it is the paper's process alone. The design failure is
    the five of fooled tasks, with true errors of 1.02 α and 1.5 α.
    """  # noqa: D301
    from certify_assets.research.designs import EXCESSES, GROUPS, study_designs
    from certify_assets.research.simulation import STUDY_PROCEDURES
    from certify_assets.research.simulation import simulate as run

    chosen = design or (("paper",) if tasks or rho else ("all",))
    cells = study_designs(
        [name for item in chosen for name in GROUPS.get(item, (item,))],
        tasks=tasks,
        rhos=rho,
        alpha=settings["alpha"],
        side=settings["side"],
        excess=EXCESSES if "failure" in chosen else EXCESSES[-1:],
    )
    found = run(
        cells,
        procedures=procedure or STUDY_PROCEDURES,
        progress=lambda cell, done, total: say(f"{done:,} of {total:,}: {cell.title}"),
        **settings,
    )
    document = found.to_dict()
    if out is not None:
        write_document(out, document)
    rows = [
        {
            "design": cell.title,
            "procedure": of.procedure,
            "violation": _rate(of.violation, of.violation_se),
            "if certified": _rate(of.violation_conditional, of.violation_conditional_se),
            "by task": of.own_violation,
            "coverage": _rate(of.coverage, of.coverage_se),
            "paper": list((of.paper or {}).values()),
        }
        for cell in found.cells
        for of in cell.procedures
    ]
    title = f"Synthetic validity, {WORDS[found.side]}, {found.trials:,} trials of each design"
    answer(document, table(title, rows), _LEGEND)


def _rate(value: float | None, error: float | None) -> str | None:
    return None if value is None or error is None else f"{value:.3f} ± {error:.3f}"


_LEARNERS = tuple(
    f"{name}{start}"
    for start in ("", "_transfer")
    for name in ("lexical", "combined", "sft", "smollm2")
)
_HARVESTED = ("harvest", "wrong", "half B", "TEST own", "TEST deployed", "TEST error")


@research.command()
@corpus_option
@click.option(
    "--learner",
    type=click.Choice(_LEARNERS),
    default="lexical",
    help="The judge that learns; those named _transfer learn from other corpora only.",
)
@click.option(
    "--alpha",
    "alphas",
    type=OPEN_SHARE,
    multiple=True,
    help="Budget of wrong pseudo-labels; repeat for more loops.  [default: 0.1 and 0.2]",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    help="Procedure that certifies half A.  [default: pseudo_task, taskboot]",
)
@click.option("--side", "sides", type=SIDE, multiple=True, help="[default: both]")
@click.option(
    "--profile", "profiles", multiple=True, help="Split profile.  [default: certify and paper]"
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 5),
    default=2,
    help="Rounds, a number that is fixed beforehand.",
)
@answers
def harvest(corpus: Corpus, learner: str, rounds: int, **loops: tuple[Any, ...]) -> None:
    """Self-train a judge on the runs that its certificate decides, and compare with controls.

    CORPUS must be imported and split. Half A of its CAL tasks sets the thresholds. Pool runs below
    the auto-fail threshold become failures, those above the auto-pass threshold successes. The
    judge is trained again from its base, certified on half B, and audited on TEST. Labels of the
    pool are used only to count wrong pseudo-labels. A training takes seconds, or minutes for a
    language model. Exit 3 if every gate stayed closed.
    """
    from certify_assets.research.harvest_learners import learner_maker
    from certify_assets.research.harvest_study import HarvestPlan, harvest_rows, run_harvests
    from certify_assets.work import ProgressLines

    if learner.endswith("_transfer"):
        # runs of other corpora are kept apart from the tasks of the corpus's own split
        loops["profiles"] = loops["profiles"] or ("",)
    given = {name: values for name, values in loops.items() if values}
    plan = HarvestPlan(learner=learner, rounds=rounds, **given)
    with (
        corpus.writing(),
        learner_maker(corpus, learner, report=ProgressLines(say)) as make,
    ):
        document = run_harvests(corpus, plan, make, say=say)
    said = (
        f"{number_of(document['harvests'], 'harvest')}: {document['within_budget']:,} within "
        f"budget, {document['beyond_chance']:,} above it by more than chance; "
        f"{document['gates_closed']:,} gates closed. The promise is about the population that a "
        "threshold decides, not about the finite pool."
    )
    tables = _harvests(corpus.name, harvest_rows(document))
    answer(document, *tables, said, code=0 if document["harvests"] else NOTHING)


def _harvests(corpus: str, rows: list[dict[str, str]]) -> Iterator[TextTable]:
    """Return one table a profile, side and budget: rounds and controls."""
    loops: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        title = f"{corpus}, {row['profile']} split, {WORDS[row['side']]} at {row['alpha']}"
        loops.setdefault(title, []).append(row)
    for title, found in loops.items():
        cells = [[row["name"], *(row[name] for name in _HARVESTED)] for row in found]
        yield TextTable(title, ["gate and round", *_HARVESTED], cells)


@research.command("generate-miniwob")
@click.option("--out", type=OUT, required=True, help="JSON Lines file; missing runs are added.")
@click.option("--task", "tasks", multiple=True, help="Only this task; repeatable.")
@click.option("--attempts", type=click.IntRange(1, 1000), default=4, help="Attempts a task.")
@click.option("--seed", type=int, default=42, help="Seed of the tasks' instances.")
@answers
def generate(out: Path, **asked: Any) -> None:
    """Let a model act on MiniWoB++ pages, in a real Chromium.

    CERTIFY_MODEL_URL (an OpenAI-compatible base URL) and CERTIFY_MODEL_NAME name the model,
    CERTIFY_MODEL_KEY holds its key. A killed generation continues when it is called again, and
    `certify corpus import` reads the file. Needs Chromium and the extra 'miniwob'.
    """
    from certify_assets.research.miniwob import ModelAgent
    from certify_assets.research.miniwob import generate as run

    added = run(out, ModelAgent.from_environment(), say=say, **asked)
    answer({"added": added, "file": str(out)}, f"{number_of(added, 'run')} added to {out}")
