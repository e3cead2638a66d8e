"""``certify review``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import PATH, root_option
from certify_assets.cli.output import console, emit_json, json_option, percent, say, show_table
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.operations.queue import Queue

__all__ = ["review"]

_EXPORT_HELP = (
    "Write the queue here (CSV, JSON Lines or Parquet) with empty columns outcome, reviewer and comment. A CSV is refused where a name begins "
    "like a formula, which a spreadsheet would run."
)
_IMPORT_HELP = (
    "Read labels from here: a table with trajectory_id and outcome (0, 1, failure, success), or the JSON export of Label Studio. All of the "
    "file or nothing; the same file a second time adds nothing."
)


@click.command()
@click.argument("corpus")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Rows of the queue to print.",
)
@click.option(
    "--minutes-per-run",
    type=click.FloatRange(min=0, min_open=True),
    default=4.0,
    show_default=True,
    help="What a label takes: assumed.",
)
@click.option(
    "--double",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of runs, drawn, that two people are asked about.",
)
@click.option("--export", "table", type=PATH, default=None, help=_EXPORT_HELP)
@click.option(
    "--with-judge",
    is_flag=True,
    help="With --export: also agent, score and decision, which sway whoever labels.",
)
@click.option(
    "--label-studio",
    "studio",
    type=PATH,
    default=None,
    help="Write the queue here as tasks of Label Studio (.json), with the runs' texts.",
)
@click.option("--import", "labels", type=PATH, default=None, help=_IMPORT_HELP)
@click.option(
    "--reviewer",
    default=None,
    help="With --import: whose labels these are, where the file does not say.",
)
@click.option(
    "--serve", is_flag=True, help="Serve the page on which runs are labelled, until Ctrl-C."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="With --serve: port, 0 for any that is free.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="With --serve: address to listen on."
)
@click.option(
    "--exposed",
    is_flag=True,
    help="With --serve: allow an address that other machines reach; nothing is encrypted.",
)
@root_option
@json_option
def review(
    corpus: str,
    limit: int,
    table: Path | None,
    with_judge: bool,
    studio: Path | None,
    labels: Path | None,
    reviewer: str | None,
    serve: bool,
    port: int,
    host: str,
    exposed: bool,
    root: str | None,
    as_json: bool,
    **costs: float,
) -> None:
    """Show, export or serve the runs that people are asked about, and read their labels.

    The queue of CORPUS holds decided runs that lack a label: the audit sample first, then spot checks, then what the judge left undecided. A run that
    reviewers are tied on asks for one more. Labels go into a journal that is never rewritten.
    """
    from certify_assets.cli.launching import open_store
    from certify_assets.operations.layout import batch_names

    if sum(map(bool, (labels, serve, table or studio))) > 1:
        raise InputError(
            "--import, --serve and the exports are different things; give one of them."
        )
    store = open_store(root)
    if not batch_names(Corpus(store, corpus)):
        raise InputError(
            f"no batch of {corpus} was decided below {store.root}; decide incoming runs first (`certify incoming {corpus}`)."
        )
    if labels is not None:
        _import(Corpus(store, corpus), labels, reviewer, as_json)
    elif serve:
        _require_reachable(host, exposed)
        _serve(Corpus(store, corpus), host, port, as_json, costs)
    else:
        _queue(
            Corpus(store, corpus),
            {"table": table, "studio": studio},
            with_judge,
            limit,
            as_json,
            costs,
        )


def _queue(
    corpus: Corpus,
    paths: dict[str, Path | None],
    with_judge: bool,
    limit: int,
    as_json: bool,
    costs: dict[str, float],
) -> None:
    from certify_assets.cli.output import refuse_overwrite
    from certify_assets.operations.label_files import export_queue, export_studio
    from certify_assets.operations.queue import load_queue

    refuse_overwrite({"--export": paths["table"], "--label-studio": paths["studio"]}, {})
    queue = load_queue(corpus, **costs)
    if paths["table"] is not None:
        export_queue(paths["table"], queue, with_judge=with_judge)
    if paths["studio"] is not None:
        export_studio(paths["studio"], corpus.store, corpus.name, queue)
    if as_json:
        from certify_assets.operations.queue import BLIND_COLUMNS

        rows = queue.frame[list(BLIND_COLUMNS)].head(limit).to_dict("records")
        emit_json(
            {
                "corpus": corpus.name,
                "budget": queue.budget.to_dict(),
                "waiting": len(queue.frame),
                "queue": rows,
            }
        )
    else:
        _show(corpus.name, queue, limit)
        for path in filter(None, paths.values()):
            say(f"{path}: {len(queue.frame)} runs to label")


def _show(corpus: str, queue: Queue, limit: int) -> None:
    from certify_assets.reports.review_page import KIND_WORDS, duration

    budget, out = queue.budget, console()
    rows = [
        [
            KIND_WORDS[kind.kind][0],
            str(kind.labels),
            str(kind.runs),
            str(kind.tasks),
            str(kind.disputed),
            duration(kind.labels * budget.minutes_per_run),
        ]
        for kind in budget.kinds
    ]
    show_table(
        f"Labels that {corpus} asks for",
        ["asked for", "labels", "runs", "tasks", "tied", "time"],
        rows,
    )
    share = percent(budget.saved / budget.decided)
    out.print(
        f"{duration(budget.minutes)} in all, at {budget.minutes_per_run:g} min a run, which is assumed. The certificate decided {budget.saved} of "
        f"{budget.decided} runs that nobody is asked about ({share}): {duration(budget.saved_minutes)} saved.",
        markup=False,
    )
    if not limit or queue.frame.empty:
        return
    short = {"audit_sample": "audit", "spot_check": "spot", "undecided": "undecided"}
    lines = [
        [row["trajectory_id"], row["task_id"], short[row["kind"]], row["why"], str(row["reviews"])]
        for row in queue.frame.head(limit).to_dict("records")
    ]
    show_table(
        f"The first {len(lines)} of {len(queue.frame)}",
        ["run", "task", "for", "why here", "votes"],
        lines,
    )


def _import(corpus: Corpus, path: Path, reviewer: str | None, as_json: bool) -> None:
    from certify_assets.operations.label_files import import_labels

    done = import_labels(corpus, path, reviewer=reviewer)
    if as_json:
        emit_json(
            {
                "corpus": corpus.name,
                "added": done.added,
                "stood_already": done.stood,
                "without_outcome": done.empty,
                "reviewers": list(done.reviewers),
            }
        )
        return
    whose = f" of {', '.join(done.reviewers)}" if done.reviewers else ""
    console().print(
        f"{done.added} labels{whose} added to the journal of {corpus}; {done.stood} stood already, {done.empty} rows have no outcome.",
        markup=False,
    )


def _require_reachable(host: str, exposed: bool) -> None:
    from certify_assets.cli.review_server import is_loopback

    if host in {"", "0.0.0.0", "::"}:
        raise InputError(
            f"--host {host!r} is every address of this machine; give the one that reviewers will type."
        )
    if is_loopback(host):
        return
    if not exposed:
        raise InputError(
            f"other machines reach {host}, and neither link nor labels are encrypted; use 127.0.0.1 and a tunnel (ssh -L), or add --exposed."
        )
    say(f"warning: whoever can read the traffic to {host} can label in any reviewer's name")


def _serve(corpus: Corpus, host: str, port: int, as_json: bool, costs: dict[str, float]) -> None:
    from certify_assets.cli.review_server import ReviewServer
    from certify_assets.operations.reviewing import ReviewSession

    session = ReviewSession(corpus.store, corpus.name, **costs)
    waiting = len(session.queue().frame)
    server = ReviewServer(session, host=host, port=port)
    before = signal.signal(signal.SIGTERM, _stop)
    if as_json:
        emit_json(
            {
                "corpus": corpus.name,
                "url": server.url,
                "port": server.server_port,
                "waiting": waiting,
            }
        )
    else:
        console().print(
            f"{waiting} runs wait. Open this link, which lets whoever has it label:\n  {server.url}",
            markup=False,
        )
    sys.stdout.flush()
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say(
            f"stopped; every confirmed label is in {corpus.store.locate(f'operations/{corpus}/labels.jsonl')}"
        )
    finally:
        signal.signal(signal.SIGTERM, before)
        server.server_close()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt
