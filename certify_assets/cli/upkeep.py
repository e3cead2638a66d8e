"""``certify gc``, ``pages``, ``backup`` and ``restore``: looking after a data root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import store_option
from certify_assets.cli.output import answer, answers
from certify_assets.words import number_of

if TYPE_CHECKING:
    from certify_assets.storage.store import Store


# for so long a killed training may be resumed
_RESUMABLE_DAYS = 30


@click.command()
@click.option(
    "--older",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Days that an unused object is kept.",
)
@click.option(
    "--discard",
    "reason",
    metavar="REASON",
    help="Also give up earlier versions that nothing else names, and all of removed corpora.",
)
@click.option(
    "--discard-older",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Days that such a version is kept.",
)
@store_option
@answers
def gc(older: float, reason: str | None, discard_older: float, store: Store) -> None:
    """Remove objects that nothing in the ledger names, such as those of killed steps.

    With --discard the ledger notes which objects go and why. Its events stay. What a deployment, a
    batch or a claim names is kept unless its corpus was removed; the name of that corpus cannot be
    used again.
    """
    from certify_assets.corpora.config import removed_corpora
    from certify_assets.storage.cleaning import collect, discard

    gone = 0
    if reason is not None:
        removed = removed_corpora(store)
        gone = discard(store, reason=reason, older_days=discard_older, removed=removed)
    freed = collect(store, older_days=older)
    store.forget_work(_RESUMABLE_DAYS)
    answer(
        {"discarded": gone, "removed": freed.objects, "bytes": freed.bytes},
        *([] if reason is None else [f"Given up: {number_of(gone, 'object')}"]),
        f"Removed: {number_of(freed.objects, 'object')}, {freed.bytes:,} bytes",
    )


@click.command()
@store_option
@answers
def pages(store: Store) -> None:
    """Make all copies below pages/ of the data root again."""
    from certify_assets.storage.store import publish_all

    count = publish_all(store)
    page = store.locate("index.html")
    answer({"pages": count, "folder": page}, f"{count} pages: {page}")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@store_option
@answers
def backup(folder: str, store: Store) -> None:
    """Copy the data root into FOLDER: the database first, then its objects.

    Others may work meanwhile. A later call copies what is new. Dagster's and MLflow's databases
    are not part of it.
    """
    from certify_assets.storage.backup import back_up

    count = back_up(store, folder)
    answer({"objects": count}, f"The database and {count} objects are copied.")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@store_option
@answers
def restore(folder: str, store: Store) -> None:
    """Make an empty data root that of a backup in FOLDER: objects first, then the database.

    Afterwards every event, and every object that one names, is verified.
    """
    from certify_assets.storage.backup import restore as restore_from

    count = restore_from(store, folder)
    answer({"objects": count}, f"The database and {count} objects are restored.")
