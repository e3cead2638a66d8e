"""The inbox of a corpus: where new runs are put, and when they may be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.incoming import Arrival
from certify_assets.corpora.landed import Landed, Look, WaitingError
from certify_assets.errors import InputError
from certify_assets.storage.store import Store

__all__ = ["inbox_key", "is_empty", "scan_inbox", "settled"]

_PATIENCE = 8.0
# what another look may find settled; a broken file stays broken
_PASSING = (
    "may still be written",
    "since the last look",
    "the next look goes on",
    "changed while it was read",
)


def inbox_key(corpus: str) -> str:
    """Return where new runs of a corpus are put."""
    return f"inbox/{corpus}"


def is_empty(corpus: Corpus) -> bool:
    """Whether no file lies in the inbox of a corpus."""
    if not corpus.store.is_local:
        return not corpus.store.names(inbox_key(corpus.name))
    return not any(
        path.is_file() for path in corpus.store.local_path(inbox_key(corpus.name)).rglob("*")
    )


@contextmanager
def settled(corpus: Corpus, *, watched: bool) -> Iterator[Callable[[], None]]:
    """Wait until the files of an inbox are complete; give what refuses, once they are read, those that changed meanwhile.

    Raises
    ------
    WaitingError
        If a file is still being written, is broken, or changed.
    """
    if not watched or not corpus.store.is_local:
        yield lambda: None
        return
    look, folder = _look(corpus), [corpus.store.local_path(inbox_key(corpus.name))]
    before = _patient(look, folder)

    def unchanged() -> None:
        try:
            same = look.at(folder) == before
        except WaitingError:
            same = False
        if not same:
            raise WaitingError(
                f"the files in {folder[0]} changed while they were read; call it again."
            )

    yield unchanged


def scan_inbox(
    store: Store, *, settle_seconds: float = 5.0
) -> tuple[list[Arrival], dict[str, str]]:
    """Look into the inboxes of all corpora.

    Returns
    -------
    arrivals : list of Arrival
        Corpora whose files are complete, sorted by name.
    waiting : dict of str to str
        Folders that wait or cannot be used, with the reason.
    """
    arrivals, waiting = [], {}
    known = set(registered_corpora(store))
    folder = store.local_path("inbox")
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if not entry.is_dir() or entry.name not in known:
            waiting[entry.name] = (
                "no corpus has this name; put new runs into inbox/<corpus>/ of a registered one"
            )
            continue
        try:
            landed = _look(Corpus(store, entry.name), settle_seconds).at([entry])
        except (InputError, OSError) as error:
            waiting[entry.name] = str(error)
        else:
            arrivals.append(Arrival(entry.name, "inbox", landed.version, landed.files))
    return arrivals, waiting


def _look(corpus: Corpus, settle_seconds: float = 5.0) -> Look:
    return Look(
        corpus.store, f"operations/{corpus}/landed_inbox.json", settle_seconds=settle_seconds
    )


def _patient(look: Look, folder: Sequence[Path]) -> Landed:
    """Look again for a while: a copy that ended a second ago is complete in a few more."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return look.at(folder)
        except WaitingError as error:
            if time.monotonic() > end or not any(words in str(error) for words in _PASSING):
                raise WaitingError(
                    f"{folder[0]} waits: {str(error).rstrip('.')}; call it again."
                ) from None
        time.sleep(0.5)
