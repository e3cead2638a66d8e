"""``certify run``, ``certify demo``, ``certify ledger`` and ``certify ui``."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from certify_assets.cli.gate import (
    MIN_COVERAGE,
    Case,
    Gate,
    GateResult,
    coverage_case,
    gate_options,
    min_coverage_option,
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
from certify_assets.errors import MissingToolError
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.evaluation.audit import AuditedCell, CorpusOverview, JudgeOverview
    from certify_assets.evaluation.ledger import LedgerStatus

_LANGUAGE = ("base", "sft")
_READS = ("first", "reused", "replay", "changed", "unregistered", "pool", "results", "last")


@click.command()
@click.argument("corpus")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    help="Also the chain of this judge; repeat for more. `certify judge list` names them.",
)
@corpus_option
@min_coverage_option
@json_option
@gate_options
@click.pass_context
def run(
    ctx: click.Context,
    corpus: Corpus,
    judges: tuple[str, ...],
    min_coverage: float | None,
    as_json: bool,
    gate: Gate,
) -> None:
    """Run the pipeline of one corpus: import, split, check, train, score, certify, audit, page.

    What is finished is kept: after a failure, call it again. Exit 3 where nothing is certified, no
    judge decides the share of --min-coverage, or a check stopped the pipeline; 1 where a step
    failed. With --judge, those judges alone open the gate of --min-coverage.
    """
    found = _run(corpus.store, [corpus.name], judges, as_json=as_json)
    result = _gate_result(found[0], judges, min_coverage)
    gate.report(result)
    for case in result.failed:
        if case.name == MIN_COVERAGE:
            complain(case.message)
    ctx.exit(NOTHING if result.failed else 0)


def _gate_result(
    corpus: CorpusOverview, judges: tuple[str, ...], minimum: float | None
) -> GateResult:
    opened = _certifies([corpus])
    cases = [
        Case(
            judge["judge"],
            "passed" if _certified(judge) else "skipped" if opened else "failed",
            " ".join([judge["summary"], *judge["why_nothing"]]),
        )
        for judge in corpus["judges"]
    ]
    asked = [judge for judge in corpus["judges"] if not judges or judge["judge"] in judges]
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
    return GateResult(corpus["corpus"], sentence, tuple(cases), warnings=tuple(warnings))


def _certified(judge: JudgeOverview) -> bool:
    return any(cell["certified"] for cell in judge["certificates"])


def _certifies(corpora: Sequence[CorpusOverview]) -> bool:
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

    Materializes every asset of the two corpora that come with the package in a Dagster instance of
    the data root, then prints what share each judge may decide alone and where the pages are. Exit
    3 where nothing is certified on any of them, 1 where a step failed.
    """
    corpora = _run(store, EMBEDDED, _LANGUAGE if language else (), as_json=as_json)
    ctx.exit(0 if _certifies(corpora) else NOTHING)


def _run(
    store: Store, names: Sequence[str], judges: Sequence[str], *, as_json: bool
) -> list[CorpusOverview]:
    from certify_assets.cli.launching import run_corpus
    from certify_assets.evaluation.audit import overview
    from certify_assets.judges.specs import judge_spec

    for judge in judges:
        judge_spec(judge, store.root)
    started = time.monotonic()
    for name in names:
        say(f"{name}: import, split, check, train, score, certify, audit, draw")
        run_corpus(Corpus(store, name), quiet=as_json)
        if judges:
            say(f"{name}: {' and '.join(judges)}, trained, scored, certified, audited, drawn")
            run_corpus(Corpus(store, name), quiet=as_json, judges=judges)
    seconds = round(time.monotonic() - started, 1)
    corpora = [overview(Corpus(store, name)) for name in names]
    if as_json:
        emit_json({"seconds": seconds, "corpora": corpora, "root": store.root})
    else:
        _show(store, corpora, seconds)
    return corpora


def _show(store: Store, corpora: Sequence[CorpusOverview], seconds: float) -> None:
    rows = []
    for corpus in corpora:
        for judge in corpus["judges"]:
            for side in ("reject", "release"):
                cells = [cell for cell in judge["certificates"] if cell["side"] == side]
                if side == "reject" or any(cell["certified"] for cell in cells):
                    rows.append(
                        [corpus["corpus"], judge["judge"], side, *[_cell(cell) for cell in cells]]
                    )
    budgets = [
        f"error ≤ {cell['alpha']:g}"
        for cell in corpora[0]["judges"][0]["certificates"]
        if cell["side"] == "reject"
    ]
    show_table(
        "Share of the reviewing that the judge may take over (and error on TEST)",
        ["corpus", "judge", "side", *budgets],
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
        "and MLflow runs: make dev, then http://127.0.0.1:3000"
    )


def _cell(cell: AuditedCell) -> str:
    return (
        f"{percent(cell['coverage'])} ({cell['test_error']:.3f}, {cell['audit']})"
        if cell["certified"]
        else "nothing"
    )


@click.group()
def ledger() -> None:
    """Show who read TEST, and under which registration."""


@ledger.command("status")
@click.argument("corpus", required=False)
@store_option
@json_option
@click.pass_context
def ledger_status(ctx: click.Context, corpus: str | None, store: Store, as_json: bool) -> None:
    """Show registrations and reads of TEST, of CORPUS or of every corpus.

    first: read under a registration for the first time; reused: the registration of another
    version, some of whose runs were read before; replay: again with the same hashes; changed: with
    others after a result was seen; unregistered: asked for without a registration, and refused;
    pool: scores and task sizes of TEST, and no outcome, went into certificates, which is no read;
    results: reads whose result was stored. --json lists every read with its version. Exit 3 where a
    rule of the current registration was broken or the journal was altered.
    """
    from certify_assets.evaluation.ledger import ledger_states

    states = ledger_states(store, () if corpus is None else (corpus,))
    if as_json:
        found = [asdict(state) for state in states]
        emit_json({"corpora": found} if corpus is None else found[0])
    else:
        for state in states:
            _show_ledger(state)
        if not states:
            say("no corpus is registered; import one first.")
    ctx.exit(NOTHING if any(state.violations or state.fault for state in states) else 0)


def _show_ledger(state: LedgerStatus) -> None:
    if state.fault:
        say(f"{state.corpus}: {state.fault}")
        return
    show_table(
        f"TEST of {state.corpus}: {len(state.registrations)} registrations",
        ["reader", *_READS],
        [
            [str(reader["judge"]), *(str(reader[name]) for name in _READS)]
            for reader in state.readers
        ],
    )
    for broken in state.violations:
        say(f"  {broken['judge']}: the read of {broken['time']} is {broken['kind']}.")


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, help="Port of the Dagster UI.")
@click.option(
    "--mlflow-port", type=click.IntRange(1, 65535), default=5000, help="Port of the MLflow UI."
)
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on; neither UI asks for a password."
)
@click.option(
    "--all", "everything", is_flag=True, help="Show the assets of every judge and of the study."
)
@store_option
def ui(port: int, mlflow_port: int, host: str, everything: bool, store: Store) -> None:
    """Start the Dagster UI, and MLflow next to it; stop both with Ctrl-C.

    It shows the judges that every corpus gets, those of judges.yaml, and others once the data root
    has something of them; the study where one was made. CERTIFY_SHOWN names others, with commas.
    """
    from certify_assets.cli.launching import dagster_environment, find_program
    from certify_assets.judges.specs import SHOWN_VARIABLE
    from certify_assets.storage.tracking import tracking_uri

    dagster, mlflow = find_program("dagster"), find_program("mlflow")
    if dagster is None:
        raise MissingToolError(
            "the program dagster is not installed next to this Python; install dagster-webserver."
        )
    environment = {
        **shown_judges(store),
        **dagster_environment(store),
        **({SHOWN_VARIABLE: ""} if everything else {}),
        "MLFLOW_UI_URL": f"http://{host}:{mlflow_port}",
        # only its pages are wanted here; its job runner keeps seven processes awake
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    commands = [[dagster, "dev", "-m", "certify_assets.definitions", "-h", host, "-p", str(port)]]
    uri = tracking_uri(store)
    if mlflow is not None and uri.startswith("sqlite:"):
        store.local_path("mlflow").mkdir(parents=True, exist_ok=True)
        commands.append(
            [
                mlflow,
                "server",
                "--backend-store-uri",
                uri,
                "--host",
                host,
                "--port",
                str(mlflow_port),
                "--workers",
                "1",
            ]
        )
        say(f"MLflow: http://{host}:{mlflow_port}")
    say(f"Dagster: http://{host}:{port}  (data root {store.root})")
    say(f"A first look, from runs to a certificate: {first_look(f'http://{host}:{port}')}")
    _run_together(commands, environment)


def first_look(address: str) -> str:
    """Return the page of the Dagster UI with 12 assets: a corpus and its splits, and one judge."""
    names = ("judges/combined/*", "corpora/trajectories", "corpora/split_manifest")
    wanted = " or ".join(f'key:"{name}"' for name in (*names, "corpora/*_split"))
    opened = quote("global@global:judges_combined", safe="")
    return f"{address}/asset-groups~{quote(wanted, safe='')}/?expanded={opened}"


def shown_judges(store: Store) -> dict[str, str]:
    """Return the setting that limits the assets of a UI to what a data root has a use for."""
    from certify_assets.judges.specs import JUDGES, QUICK_JUDGES, SHOWN_VARIABLE

    if any(store.names(folder) for folder in ("seeds", "study", "harvests", "real_scores")):
        return {}
    used = {name for name in JUDGES if store.names(f"judges/{name}")}
    shown = [name for name in JUDGES if name in used.union(QUICK_JUDGES)]
    return {SHOWN_VARIABLE: ",".join(shown)}


def _run_together(commands: list[list[str]], environment: dict[str, str]) -> None:
    """Run servers until one ends or the user interrupts; then end all, with their children."""
    processes = [
        subprocess.Popen(command, env=environment, start_new_session=True) for command in commands
    ]
    previous = signal.signal(signal.SIGTERM, _stop)
    try:
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
    except KeyboardInterrupt:
        say("stopping")
    finally:
        signal.signal(signal.SIGTERM, previous)
        for process in processes:
            _end(process)


def _stop(*_: object) -> None:
    # not by way of SIGINT: a shell's background process ignores that one
    raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    # dagster dev leaves its code servers behind when it alone is stopped: the whole group is
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
