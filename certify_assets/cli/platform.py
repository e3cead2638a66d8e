"""``certify demo`` and ``certify ui``."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import (
    NOTHING,
    console,
    emit_json,
    json_option,
    percent,
    say,
    show_table,
)
from certify_assets.corpora.config import EMBEDDED
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import MissingToolError
from certify_assets.storage.store import Store

__all__ = ["demo", "ui"]

_LANGUAGE = ("base", "sft")


@click.command()
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    help=f"Corpus to run; repeat for more. [default: {', '.join(EMBEDDED)}]",
)
@click.option(
    "--language",
    is_flag=True,
    help=f"Also the language-model judges {' and '.join(_LANGUAGE)}: minutes more on two cores.",
)
@root_option
@json_option
@click.pass_context
def demo(
    ctx: click.Context, /, corpora: tuple[str, ...], language: bool, root: str | None, as_json: bool
) -> None:
    """Certificates for the embedded corpora, from runs to pages.

    Materializes every asset of the two corpora that come with the package in a Dagster instance of the data root, then says what share of the reviewing
    each judge may take over and where the pages are. Exit 3 where no judge certifies anything on any of the corpora.
    """
    from certify_assets.cli.launching import open_store, run_corpus
    from certify_assets.corpora.config import load_config
    from certify_assets.evaluation.overview import overview

    store = open_store(root)
    names = list(corpora or EMBEDDED)
    for name in names:
        load_config(store, name)
    started = time.monotonic()
    for name in names:
        say(f"{name}: import, split, check, train, score, certify, audit, draw")
        run_corpus(Corpus(store, name), quiet=as_json)
        if language:
            say(f"{name}: {' and '.join(_LANGUAGE)}, trained, scored, certified, audited, drawn")
            run_corpus(Corpus(store, name), quiet=as_json, judges=_LANGUAGE)
    document: dict[str, Any] = {
        "seconds": round(time.monotonic() - started, 1),
        "corpora": [overview(Corpus(store, name)) for name in names],
        "root": store.root,
    }
    if as_json:
        emit_json(document)
    else:
        _show(store, document)
    certified = any(
        cell["certified"]
        for corpus in document["corpora"]
        for judge in corpus["judges"]
        for cell in judge["certificates"]
    )
    ctx.exit(0 if certified else NOTHING)


def _show(store: Store, document: dict[str, Any]) -> None:
    rows = []
    for corpus in document["corpora"]:
        for judge in corpus["judges"]:
            for side in ("reject", "release"):
                cells = [cell for cell in judge["certificates"] if cell["side"] == side]
                if side == "reject" or any(cell["certified"] for cell in cells):
                    rows.append(
                        [corpus["corpus"], judge["judge"], side, *[_cell(cell) for cell in cells]]
                    )
    budgets = [
        f"error ≤ {cell['alpha']:g}"
        for cell in document["corpora"][0]["judges"][0]["certificates"]
        if cell["side"] == "reject"
    ]
    show_table(
        "Share of the reviewing that the judge may take over (and error on TEST)",
        ["corpus", "judge", "side", *budgets],
        rows,
    )
    out = console()
    for corpus in document["corpora"]:
        for judge in corpus["judges"]:
            if judge["pseudo_labels"]:
                told = f"{corpus['corpus']}, {judge['judge']}: certified on half B of CAL alone; {judge['pseudo_labels']}."
                out.print(told, markup=False)
            for sentence in judge["why_nothing"]:
                out.print(f"{corpus['corpus']}, {judge['judge']}: {sentence}", markup=False)
        for judge, sentence in corpus["stale"].items():
            out.print(f"{corpus['corpus']}, {judge} is not shown: {sentence}", markup=False)
    out.print(f"\nDone in {document['seconds']:g} s. Open the pages:", markup=False)
    out.print(f"  {store.locate('index.html')}", markup=False)
    for corpus in document["corpora"]:
        for judge in corpus["judges"]:
            out.print(f"  {judge['page']}", markup=False)
    out.print(
        "Guarded TaskBoot, 95 % confidence; sides not shown certify nothing. Assets, lineage and MLflow runs: make dev, then http://127.0.0.1:3000",
        markup=False,
    )


def _cell(cell: dict[str, Any]) -> str:
    return (
        f"{percent(cell['coverage'])} ({cell['test_error']:.3f}, {cell['audit']})"
        if cell["certified"]
        else "nothing"
    )


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=3000,
    show_default=True,
    help="Port of the Dagster UI.",
)
@click.option(
    "--mlflow-port",
    type=click.IntRange(1, 65535),
    default=5000,
    show_default=True,
    help="Port of the MLflow UI.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; neither UI asks for a password.",
)
@root_option
def ui(port: int, mlflow_port: int, host: str, root: str | None) -> None:
    """Start the Dagster UI, and MLflow beside it; stop both with Ctrl-C."""
    from certify_assets.cli.launching import dagster_environment, find_program, open_store
    from certify_assets.storage.tracking import tracking_uri

    store = open_store(root)
    dagster, mlflow = find_program("dagster"), find_program("mlflow")
    if dagster is None:
        raise MissingToolError(
            "the program dagster is not installed beside this Python; install dagster-webserver."
        )
    environment = {
        **dagster_environment(store),
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
    _run_together(commands, environment)


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
    # dagster dev leaves its code servers behind when it alone is told to stop: the whole group is
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
