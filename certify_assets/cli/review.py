"""``certify review``."""

from __future__ import annotations

import re
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import NATURAL, PATH, store_option
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    present,
    refuse_overwrite,
    say,
)
from certify_assets.cli.reading import remedies, say_read_as, set_option
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.cli.review_server import ReviewServer
    from certify_assets.operations.review_queue import Queue
    from certify_assets.operations.review_session import GoldSet
    from certify_assets.storage.store import Store
    from certify_assets.tables.agreement import Agreement
    from certify_assets.tables.settings import TableSettings


#: of `review serve`, so that its address stays
PORT = 8713
_double_option = click.option(
    "--double",
    type=click.FloatRange(0, 1),
    help="From now on two reviewers label this share of runs, drawn.",
)


@click.group()
def review() -> None:
    """Show, export, serve and import the review queue.

    The queue of a corpus holds runs that lack a label: draws of batches first, then the audit
    sample, and what the judge left undecided. A run whose reviewers are tied asks for one more. A
    label is never rewritten.
    """


def _open(store: Store, corpus: str) -> Corpus:
    """Return a corpus of which a batch was decided."""
    from certify_assets.corpora.config import load_config
    from certify_assets.operations.batches import batch_names

    opened = Corpus(store, corpus)
    if not batch_names(opened):
        load_config(store, corpus)
        raise InputError(
            f"no batch of {corpus} was decided below {store.root}; decide new runs first "
            f"(`certify ops ingest {corpus}`)."
        )
    return opened


@review.command("queue")
@click.argument("corpus")
@click.option("--limit", type=NATURAL, default=20, help="Rows of the queue to print.")
@store_option
@answers
def queue_(corpus: str, limit: int, store: Store) -> None:
    """Print the review queue of a corpus and what it costs.

    A provisional batch whose audit was edited is named, and nobody is asked about its draw
    (exit 3).
    """
    from certify_assets.operations.review_queue import load_queue

    opened = _open(store, corpus)
    queue = load_queue(opened)
    document, agreement = _document(opened, queue, limit)
    blocks = _blocks(corpus, queue, agreement, limit)
    answer(document, *blocks, code=NOTHING if queue.faults else 0)


@review.command("export")
@click.argument("corpus")
@click.argument("path", metavar="[FILE]", type=PATH, required=False)
@click.option(
    "--label-studio",
    "studio",
    type=PATH,
    help="Write the queue here as tasks of Label Studio (.json), with the runs' texts.",
)
@_double_option
@store_option
@answers
def export(
    corpus: str,
    path: Path | None,
    studio: Path | None,
    store: Store,
    double: float | None,
) -> None:
    """Write the review queue for labelling elsewhere.

    FILE (CSV, JSON Lines or Parquet) gets empty columns outcome, reviewer and comment. A CSV is
    refused where a text begins like a formula, which a spreadsheet would run.
    """
    from certify_assets.operations.label_files import export_queue, export_studio
    from certify_assets.operations.review_queue import ask_twice, load_queue

    if path is None and studio is None:
        raise InputError("there is no file to write; name FILE, or one with --label-studio.")
    refuse_overwrite({"FILE": path, "--label-studio": studio}, {})
    opened = _open(store, corpus)
    ask_twice(opened, double)
    queue = load_queue(opened)
    if path is not None:
        export_queue(path, queue)
    if studio is not None:
        export_studio(studio, opened, queue)
    written = [f"{file}: {len(queue.frame)} runs to label" for file in (path, studio) if file]
    answer(_document(opened, queue, 0)[0], *queue.faults, *written)


@review.command("import")
@click.argument("corpus")
@click.argument("path", metavar="FILE", type=PATH)
@click.option("--reviewer", help="Whose labels these are, where FILE does not say.")
@set_option
@store_option
@answers
def import_(
    corpus: str,
    path: Path,
    reviewer: str | None,
    settings: TableSettings,
    store: Store,
) -> None:
    """Add the labels of a file to a corpus.

    FILE is a table with trajectory_id and outcome (0, 1, failure, success), read as score tables
    are, or the JSON export of Label Studio. All of the file is taken or nothing; the same
    file a second time adds nothing.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.label_files import import_labels
    from certify_assets.operations.labels import reviewed_key, write_label_table

    opened = _open(store, corpus)
    with opened.writing(), remedies():
        done = import_labels(opened, path, reviewer=reviewer, settings=settings)
        # also where nothing is added: the call before this one may have been killed
        before = opened.store.current(reviewed_key(corpus))
        write_label_table(opened)
    if done.added or done.changed or opened.store.current(reviewed_key(corpus)) != before:
        report_stored(opened, "review import", "operations/reviewed_labels")
    say_read_as(path, done.read_as)
    about = asdict(done)
    del about["read_as"]
    whose = f" of {', '.join(done.reviewers)}" if done.reviewers else ""
    said = [
        f"{done.added} labels{whose} added to {corpus}, {done.changed} changed, "
        f"{done.stood_already} unchanged. {done.without_outcome} rows have no outcome."
    ]
    if done.overruled:
        said.append(
            f"{done.overruled} of the unchanged are overruled by what the same reviewer said "
            "later. Label these runs again where the file is right."
        )
    answer({"corpus": corpus, **about}, *said, *done.closed)


@review.command("serve")
@click.argument("corpus")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port, 0 for any that is free.",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--reviewer",
    "reviewers",
    multiple=True,
    required=True,
    help="A reviewer, who gets a link; for each of them.",
)
@click.option(
    "--criteria",
    type=PATH,
    help="Text that says what counts as a success, shown next to every run.",
)
@click.option(
    "--gold",
    type=PATH,
    help="Table of trajectory_id and known outcome: these runs are mixed in blind, one in twenty, "
    "to measure reviewers.",
)
@click.option(
    "--public-url",
    default="",
    metavar="URL",
    help="Address at which a proxy shows the page: https://review.example.org/judges.",
)
@click.option(
    "--exposed",
    is_flag=True,
    help="Allow an address that other machines reach without encryption.",
)
@_double_option
@store_option
@answers
def serve(
    corpus: str,
    port: int,
    host: str,
    reviewers: tuple[str, ...],
    criteria: Path | None,
    gold: Path | None,
    public_url: str,
    exposed: bool,
    store: Store,
    double: float | None,
) -> None:
    """Serve the page on which runs are labelled, until Ctrl-C or SIGTERM.

    Each --reviewer gets a link that labels in their name alone, the same after a restart.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.cli.review_server import ReviewServer
    from certify_assets.operations.labels import labels_head
    from certify_assets.operations.review_queue import ask_twice
    from certify_assets.operations.review_session import ReviewSession

    opened = _open(store, corpus)
    _require_reachable(host, exposed)
    if public_url and not re.fullmatch(
        r"https://[a-z0-9.\-]+(:[0-9]+)?(/[\w.~\-]+)*/?", public_url, re.ASCII
    ):
        raise InputError(
            f"--public-url {public_url!r} is no address of a proxy. Give one like "
            "https://review.example.org/judges."
        )
    text = "" if criteria is None else _text(criteria)
    known = _known_runs(opened, gold)
    ask_twice(opened, double)
    session = ReviewSession(store, corpus, criteria=text, gold=known)
    waiting = len(session.queue().frame)
    server = ReviewServer(
        session,
        reviewers=reviewers,
        host=host,
        port=port,
        public=public_url,
    )
    present(
        {
            "corpus": corpus,
            "links": server.links,
            "port": server.server_port,
            "waiting": waiting,
        },
        f"{waiting} runs wait. Give each reviewer their link, which lets anyone who has it label:",
        *(f"  {name}: {url}" for name, url in server.links.items()),
    )
    sys.stdout.flush()
    before = labels_head(opened)
    try:
        _serve(server, store.root)
    finally:
        opened.store.refresh()
        if labels_head(opened) != before:
            report_stored(opened, "review serve", "operations/reviewed_labels")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}). Give a text in UTF-8.") from None


def _known_runs(corpus: Corpus, path: Path | None) -> GoldSet | None:
    """Read the runs of known outcome, where there are some."""
    from certify_assets.operations.review_session import read_gold

    if path is None:
        return None
    with remedies():
        found, read_as = read_gold(corpus, path)
    say_read_as(path, read_as)
    return found


def _document(opened: Corpus, queue: Queue, limit: int) -> tuple[JsonObject, Agreement]:
    """Return the document of a queue, and how far its reviewers agree."""
    from certify_assets.operations.review_queue import queue_agreement

    agreement = queue_agreement(opened)
    return {
        "corpus": opened.name,
        "budget": queue.budget.to_dict(),
        "waiting": len(queue.frame),
        "faults": list(queue.faults),
        "agreement": asdict(agreement),
        "queue": queue.frame.head(limit).to_dict("records"),
    }, agreement


def _blocks(corpus: str, queue: Queue, agreement: Agreement, limit: int) -> list[Any]:
    """Return what the queue asks for, what the certificate saved, and the first runs."""
    from certify_assets.reports.review_page import (
        BUDGET_COLUMNS,
        KIND_WORDS,
        budget_rows,
        budget_sentence,
    )

    budget, frame = queue.budget, queue.frame
    asked = TextTable(f"Labels that {corpus} asks for", BUDGET_COLUMNS, budget_rows(budget))
    sentences = [
        budget_sentence(budget),
        *(draw.sentence() for draw in budget.draws),
        *queue.faults,
    ]
    if agreement.reviewers:
        sentences.append(agreement.sentence())
    sentences += filter(None, (one.gold_sentence() for one in agreement.reviewers))
    if not limit or frame.empty:
        return [asked, *sentences]
    lines = [
        [row["trajectory_id"], KIND_WORDS[row["kind"]][0], row["why"], str(row["reviews"])]
        for row in frame.head(limit).to_dict("records")
    ]
    title = f"The first {len(lines)} of {len(frame)}"
    return [asked, *sentences, TextTable(title, ["run", "for", "why here", "votes"], lines)]


def _require_reachable(host: str, exposed: bool) -> None:
    from certify_assets.operations.notifications import is_loopback

    if host in {"", "0.0.0.0", "::"}:
        raise InputError(
            f"--host {host!r} is every address of this machine; give the one that reviewers "
            "will type."
        )
    if is_loopback(host):
        return
    if not exposed:
        raise InputError(
            f"other machines reach {host}, and neither link nor labels are encrypted; use "
            "127.0.0.1 behind a proxy or a tunnel (ssh -L), or add --exposed."
        )
    say(f"warning: anyone who can read the traffic to {host} can label in any reviewer's name")


def _serve(server: ReviewServer, labels: object) -> None:
    """Serve until a signal, which uvicorn raises again once the last answers are sent."""
    # it may come before uvicorn listens to it, and an exception is lost in a callback of an import
    before = signal.signal(signal.SIGTERM, lambda *_: server.stop())
    try:
        with suppress(KeyboardInterrupt):
            server.serve()
        say(f"stopped; every confirmed label is in {labels}")
    finally:
        signal.signal(signal.SIGTERM, before)
        server.close()
