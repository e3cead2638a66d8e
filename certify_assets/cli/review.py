"""``certify review``."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import NATURAL, SHARE, open_corpus, store_option
from certify_assets.cli.output import NOTHING, OUT, PATH, TextTable, answer, answers, present, say
from certify_assets.cli.reading import remedies, say_read_as, set_option
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.words import number_of

if TYPE_CHECKING:
    from certify_assets.cli.review_server import ReviewServer
    from certify_assets.operations.review_queue import Queue
    from certify_assets.operations.review_session import GoldSet
    from certify_assets.storage.store import Store
    from certify_assets.tables.agreement import Agreement
    from certify_assets.tables.settings import TableSettings


#: of `review serve`, so that its address stays
PORT = 8713
_PUBLIC_URL = re.compile(r"https://[a-z0-9.\-]+(:[0-9]+)?(/[\w.~\-]+)*/?", re.ASCII)
_double_option = click.option(
    "--double", type=SHARE, help="From now on, two reviewers label this share of runs, at random."
)


@click.group()
def review() -> None:
    """Show, export, serve and import the review queue.

    The queue of a corpus holds runs that need a label: first draws of batches, then the audit
    sample, then runs that the judge left undecided. A run whose reviewers are tied needs one more.
    Stored labels are never changed.
    """


def _decided_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add CORPUS and --root, and give the command a corpus of which a batch was decided."""

    @wraps(command)
    def opened(*given: Any, corpus: str, store: Store, **options: Any) -> Any:
        from certify_assets.operations.batches import batch_names

        found = Corpus(store, corpus)
        if not batch_names(found):
            open_corpus(store, corpus)
            raise InputError(
                f"no batch of {corpus} is decided in {store.root}. Decide new runs first: "
                f"`certify ops ingest {corpus} PATH`."
            )
        return command(*given, corpus=found, **options)

    return click.argument("corpus")(store_option(opened))


@review.command("queue")
@_decided_option
@click.option("--limit", type=NATURAL, default=20, help="Rows of the queue to print.")
@answers
def queue_(corpus: Corpus, limit: int) -> None:
    """Print the review queue of a corpus and what it costs.

    A batch whose stored draw was edited is named and left out of the queue (exit 3).
    """
    from certify_assets.operations.review_queue import load_queue, queue_agreement

    queue, agreement = load_queue(corpus), queue_agreement(corpus)
    blocks = _blocks(corpus.name, queue, agreement, limit)
    code = NOTHING if queue.faults else 0
    answer(_document(corpus, queue, agreement, limit), *blocks, code=code)


@review.command("export")
@_decided_option
@click.argument("path", metavar="[FILE]", type=OUT, required=False)
@click.option(
    "--label-studio",
    "studio",
    type=OUT,
    help="Write the queue here as tasks of Label Studio (.json), with the runs' texts.",
)
@_double_option
@answers
def export(corpus: Corpus, path: Path | None, studio: Path | None, double: float | None) -> None:
    """Write the review queue for labelling elsewhere.

    FILE (CSV, JSON Lines or Parquet) gets empty columns outcome, reviewer and comment. Its column
    run names a file in the folder FILE_runs with the text of the run. A name that a spreadsheet
    would run as a formula is refused in a CSV.
    """
    from certify_assets.operations.label_files import export_queue, export_studio
    from certify_assets.operations.review_queue import ask_twice, load_queue, queue_agreement

    if path is None and studio is None:
        raise InputError("no file is named. Give FILE or --label-studio.")
    ask_twice(corpus, double)
    queue = load_queue(corpus)
    if path is not None:
        export_queue(path, corpus, queue)
    if studio is not None:
        export_studio(studio, corpus, queue)
    runs = number_of(len(queue.frame), "run")
    written = [f"{file}: {runs} to label" for file in (path, studio) if file]
    document = _document(corpus, queue, queue_agreement(corpus), 0)
    answer(document, *queue.faults, *written)


@review.command("import")
@_decided_option
@click.argument("path", metavar="FILE", type=PATH)
@click.option("--reviewer", help="Name of the reviewer, if FILE has no column for it.")
@set_option
@answers
def import_(corpus: Corpus, path: Path, reviewer: str | None, settings: TableSettings) -> None:
    """Add the labels of a file to a corpus.

    FILE is a table with trajectory_id and outcome (0, 1, failure, success), read like a score
    table, or the JSON export of Label Studio. Either all of its labels are added or none. The same
    file a second time adds nothing.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.operations.label_files import import_labels
    from certify_assets.operations.labels import reviewed_key, write_label_table

    key = reviewed_key(corpus.name)
    with corpus.writing(), remedies():
        done = import_labels(corpus, path, reviewer=reviewer, settings=settings)
        # also where nothing is added: the call before this one may have been killed
        before = corpus.store.current(key)
        write_label_table(corpus)
    if done.added or done.changed or corpus.store.current(key) != before:
        report_stored(corpus, "review import", "operations/reviewed_labels")
    say_read_as(path, done.read_as)
    about = asdict(done)
    del about["read_as"]
    whose = f" of {', '.join(done.reviewers)}" if done.reviewers else ""
    said = [
        f"{number_of(done.added, 'label')}{whose} added to {corpus}, {done.changed:,} changed, "
        f"{done.stood_already:,} unchanged. Rows without an outcome: {done.without_outcome:,}."
    ]
    if done.overruled:
        said.append(
            f"{done.overruled:,} of the unchanged labels do not count, because the same reviewer "
            "changed them later. If the file is right, label these runs again."
        )
    answer({"corpus": corpus.name, **about}, *said, *done.closed, *done.waiting)


@review.command("serve")
@_decided_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port; 0 for any free one.",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--reviewer", "reviewers", multiple=True, required=True, help="A reviewer; repeat for more."
)
@click.option(
    "--criteria", type=PATH, help="Text that says what a success is, shown next to every run."
)
@click.option(
    "--gold",
    type=PATH,
    help="Table of trajectory_id and known outcome. One run in twenty comes from it, unmarked.",
)
@click.option(
    "--public-url",
    default="",
    metavar="URL",
    help="Address of the page behind a proxy, such as https://review.example.org/judges.",
)
@click.option(
    "--exposed", is_flag=True, help="Allow an unencrypted address that other machines reach."
)
@_double_option
@answers
def serve(
    corpus: Corpus,
    port: int,
    host: str,
    reviewers: tuple[str, ...],
    criteria: Path | None,
    gold: Path | None,
    public_url: str,
    exposed: bool,
    double: float | None,
) -> None:
    """Serve the page on which runs are labelled, until Ctrl-C or SIGTERM.

    Each --reviewer gets a link of their own, which stays the same after a restart.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.cli.review_server import ReviewServer
    from certify_assets.operations.labels import labels_head
    from certify_assets.operations.review_queue import ask_twice
    from certify_assets.operations.review_session import ReviewSession

    _require_reachable(host, exposed)
    if public_url and not _PUBLIC_URL.fullmatch(public_url):
        raise InputError(
            f"--public-url {public_url!r} is not an address of a proxy. Give one like "
            "https://review.example.org/judges."
        )
    text = "" if criteria is None else _text(criteria)
    known = None if gold is None else _known_runs(corpus, gold)
    ask_twice(corpus, double)
    session = ReviewSession(corpus.store, corpus.name, criteria=text, gold=known)
    waiting = len(session.queue().frame)
    server = ReviewServer(session, reviewers=reviewers, host=host, port=port, public=public_url)
    present(
        {
            "corpus": corpus.name,
            "links": server.links,
            "port": server.server_port,
            "waiting": waiting,
        },
        f"Waiting: {number_of(waiting, 'run')}. Give each reviewer their link. Anyone who has it "
        "can label in that name:",
        *(f"  {name}: {url}" for name, url in server.links.items()),
    )
    sys.stdout.flush()
    before = labels_head(corpus)
    try:
        _serve(server)
        say(f"stopped; every confirmed label is in {corpus.store.root}")
    finally:
        corpus.store.refresh()
        if labels_head(corpus) != before:
            report_stored(corpus, "review serve", "operations/reviewed_labels")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"--criteria {path} does not exist. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"--criteria {path} cannot be read ({why}). Give a text.") from None


def _known_runs(corpus: Corpus, path: Path) -> GoldSet:
    """Read the runs of known outcome."""
    from certify_assets.operations.review_session import read_gold

    with remedies():
        found, read_as = read_gold(corpus, path)
    say_read_as(path, read_as)
    return found


def _document(corpus: Corpus, queue: Queue, agreement: Agreement, limit: int) -> JsonObject:
    return {
        "corpus": corpus.name,
        "budget": queue.budget.to_dict(),
        "waiting": len(queue.frame),
        "faults": list(queue.faults),
        "agreement": asdict(agreement),
        "queue": queue.frame.head(limit).to_dict("records"),
    }


def _blocks(corpus: str, queue: Queue, agreement: Agreement, limit: int) -> list[Any]:
    """Return what the queue asks for, what the certificate saved, and the first runs."""
    from certify_assets.reports.review_page import (
        BUDGET_COLUMNS,
        KIND_WORDS,
        budget_rows,
        budget_sentence,
    )

    budget, first = queue.budget, queue.frame.head(limit).to_dict("records")
    blocks: list[Any] = [
        TextTable(f"Labels that {corpus} asks for", BUDGET_COLUMNS, budget_rows(budget)),
        budget_sentence(budget),
        *(draw.sentence() for draw in budget.draws),
        *queue.faults,
    ]
    if agreement.reviewers:
        blocks.append(agreement.sentence())
    blocks += filter(None, (one.gold_sentence() for one in agreement.reviewers))
    if first:
        lines = [
            [row["trajectory_id"], KIND_WORDS[row["kind"]][0], row["why"], str(row["reviews"])]
            for row in first
        ]
        title = f"The first {len(lines):,} of {len(queue.frame):,}"
        blocks.append(TextTable(title, ["run", "for", "why here", "votes"], lines))
    return blocks


def _require_reachable(host: str, exposed: bool) -> None:
    from certify_assets.operations.notifications import is_loopback

    if host in {"", "0.0.0.0", "::"}:
        raise InputError(
            f"--host {host!r} means every address of this machine. Give the one that reviewers "
            "will open."
        )
    if is_loopback(host):
        return
    if not exposed:
        raise InputError(
            f"other machines reach {host}, and links and labels are not encrypted. Use 127.0.0.1 "
            "behind a proxy or a tunnel (ssh -L), or add --exposed."
        )
    say(f"warning: anyone who can read the traffic to {host} can label in any reviewer's name")


def _serve(server: ReviewServer) -> None:
    """Serve until a signal, which uvicorn raises again once the last answers are sent."""
    # it may come before uvicorn listens to it, and an exception is lost in a callback of an import
    before = signal.signal(signal.SIGTERM, lambda *_: server.stop())
    try:
        with suppress(KeyboardInterrupt):
            server.serve()
    finally:
        signal.signal(signal.SIGTERM, before)
        server.close()
