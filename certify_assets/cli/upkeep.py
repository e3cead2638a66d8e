"""Looking after a data root: ``certify ledger``, ``gc``, ``pages``, ``backup`` and ``restore``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from certify_assets.cli.options import store_option
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    answer,
    answers,
    say,
    show_line,
    table,
    write_text,
)
from certify_assets.errors import InputError
from certify_assets.storage.store import Store
from certify_assets.words import number_of

_READS = ("first", "reused", "replay", "changed", "unregistered", "pool", "results", "last")


@click.group()
def ledger() -> None:
    """Show who read TEST; verify, export, blank and index the events of a data root."""


@ledger.command("status")
@click.argument("corpus", required=False)
@store_option
@answers
def ledger_status(corpus: str | None, store: Store) -> None:
    """Show registrations and reads of TEST, of CORPUS or of every corpus.

    \b
    Kinds of reads:
      first         the first read under a registration
      reused        runs that were read before, in another version of the corpus
      replay        the same read again, with the same hashes
      changed       with other hashes, after a result was seen
      unregistered  without a registration: refused
    Further columns:
      pool          scores and task sizes of TEST in a certificate, without outcomes: no read
      results       reads with a stored result

    --json lists every read with its registration. Exit 3 where a rule of the current registration
    was broken.
    """  # noqa: D301
    from certify_assets.operations.ledger import ledger_states

    states = ledger_states(store, () if corpus is None else (corpus,))
    blocks = [block for state in states for block in _readers(state)]
    if not states:
        say("No corpus is registered. Import one first.")
    answer(
        {"corpora": states} if corpus is None else states[0],
        *(blocks or [None]),
        code=NOTHING if any(state["violations"] for state in states) else 0,
    )


def _readers(state: Mapping[str, Any]) -> list[Any]:
    """Return who read TEST of a corpus, and which rules were broken."""
    number = len(state["registrations"])
    title = f"TEST of {state['corpus']}: {number} registration{'s' * (number != 1)}"
    return [
        table(title, state["readers"], ("judge", *_READS)),
        *(
            f"  {broken['judge']}: the read of {broken['time']} is {broken['kind']}."
            for broken in state["violations"]
        ),
        *([f"Head: {state['head']}"] if state["readers"] else []),
    ]


@ledger.command("verify")
@click.argument("corpus", required=False)
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="CORPUS:SEQUENCE:HASH",
    help="An event that must be there, as a document names it; repeat for more.",
)
@store_option
@answers
def ledger_verify(corpus: str | None, heads: tuple[str, ...], store: Store) -> None:
    """Verify every event of CORPUS or of every corpus, and every object that one names.

    Events alone cannot show that an older database was put back. For that, give --head: an event
    that certificates, audits, deployments, Dagster or MLflow name under ``ledger``. Exit 3 with the
    first fault.
    """
    from certify_assets.storage.care import verify
    from certify_assets.storage.events import head_text, parse_head

    found = verify(store, corpus, map(parse_head, heads))
    if not found:
        raise InputError(f"{store.root} holds no ledger, so nothing is verified. Check --root.")
    said = []
    for item in found:
        about = f"{number_of(item.events, 'event')}, {number_of(item.objects, 'object')}"
        name = item.head["corpus"]
        whole = f"{name} is whole: {about}, head {head_text(item.head)}"
        said.append(whole if name else f"The data root itself is whole: {about}")
        if item.blanked:
            said.append(f"  Blanked events: {item.blanked:,}. Their content is not verified.")
    answer({"verified": [item._asdict() for item in found]}, *said)


@ledger.command("export")
@click.argument("corpus")
@click.option("--out", type=OUT, metavar="FILE", help="Write here, not to stdout.")
@store_option
def ledger_export(corpus: str, out: Path | None, store: Store) -> None:
    """Write the events of CORPUS as JSON Lines, for an auditor without the data root.

    docs/security.md has a program that verifies them.
    """
    from certify_assets.storage.care import export
    from certify_assets.storage.events import head_text

    lines = [*export(store, corpus)]
    if out is None:
        for line in lines:
            click.echo(line)
        return
    write_text(out, "".join(f"{line}\n" for line in lines))
    # a corpus that is known has an event
    show_line(f"{out}: {len(lines):,} events, head {head_text(json.loads(lines[-1]))}")


@ledger.command("blank")
@click.argument("corpus")
@click.option("--reviewer", required=True, help="Name to remove.")
@store_option
@answers
def ledger_blank(corpus: str, reviewer: str, store: Store) -> None:
    """Remove a reviewer's name and comments from CORPUS, as privacy law may require.

    The outcomes stay, under a number instead of the name. The ledger still verifies, but no longer
    proves the content of the changed events. No other command may write meanwhile. Tables that
    were stored before hold the name until `certify gc --discard` removes them.
    """
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.operations.labels import blank_reviewer
    from certify_assets.operations.review_queue import load_queue, queue_page_key
    from certify_assets.reports.review_page import write_queue_page

    count = blank_reviewer(store, corpus, reviewer)
    # the page of the queue names who agrees with whom
    if store.exists(queue_page_key(corpus)):
        found = Corpus(store, corpus)
        write_queue_page(found, load_queue(found))
    said = f"Name and comments are removed from {number_of(count, 'event')} of {corpus}."
    answer(
        {"corpus": corpus, "events": count},
        said if count else f"{corpus} has no label of {reviewer!r}.",
    )


@ledger.command("rebuild")
@store_option
@answers
def ledger_rebuild(store: Store) -> None:
    """Rebuild the indexes of the database, such as the review queue, from the events."""
    from certify_assets.storage.care import rebuild

    count = rebuild(store)
    answer({"events": count}, f"The indexes of {number_of(count, 'event')} are rebuilt.")


# for so long a killed training may be resumed
_RESUMABLE_DAYS = 30


@click.command()
@click.option(
    "--older",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Days for which an unused object is kept.",
)
@click.option(
    "--discard",
    "reason",
    metavar="REASON",
    help="Also remove earlier versions that nothing else names, and all data of removed corpora.",
)
@click.option(
    "--discard-older",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Days for which such a version is kept.",
)
@store_option
@answers
def gc(older: float, reason: str | None, discard_older: float, store: Store) -> None:
    """Remove stored objects that no event in the ledger names, such as those of killed steps.

    With --discard, the ledger records which further objects are removed and why. Its events stay.
    Objects of deployments, batches and claims of δ are kept, except those of a removed corpus. The
    name of that corpus cannot be used again.
    """
    from certify_assets.corpora.config import removed_corpora
    from certify_assets.storage.care import collect, discard

    gone = 0
    if reason is not None:
        removed = removed_corpora(store)
        gone = discard(store, reason=reason, older_days=discard_older, removed=removed)
    freed = collect(store, older_days=older)
    store.forget_work(_RESUMABLE_DAYS)
    answer(
        {"discarded": gone, "removed": freed.objects, "bytes": freed.bytes},
        *([] if reason is None else [f"Discarded: {number_of(gone, 'object')}"]),
        f"Removed: {number_of(freed.objects, 'object')}, {freed.bytes:,} bytes",
    )


@click.command()
@store_option
@answers
def pages(store: Store) -> None:
    """Write the copies of all pages below pages/ of the data root again."""
    from certify_assets.storage.store import publish_all

    count = publish_all(store)
    page = store.locate("index.html")
    answer({"pages": count, "folder": page}, f"{number_of(count, 'page')}: {page}")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@store_option
@answers
def backup(folder: str, store: Store) -> None:
    """Copy the data root into FOLDER: the database first, then its objects.

    Others may work meanwhile. A later call copies only what is new. The databases of Dagster and
    MLflow are not copied.
    """
    from certify_assets.storage.backup import back_up

    count = back_up(store, folder)
    answer({"objects": count}, f"Copied: the database and {number_of(count, 'object')}.")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@store_option
@answers
def restore(folder: str, store: Store) -> None:
    """Restore a backup in FOLDER into an empty data root: objects first, then the database.

    Afterwards every event is verified, and every object that one names.
    """
    from certify_assets.storage.backup import restore as restore_from

    count = restore_from(store, folder)
    answer({"objects": count}, f"Restored: the database and {number_of(count, 'object')}.")
