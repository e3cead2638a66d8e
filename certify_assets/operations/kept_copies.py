"""The copies that deployments keep: which are needed, and how much space the others take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_waiting import waiting_runs
from certify_assets.operations.deployment_record import read_deployments, stored_deployment
from certify_assets.operations.layout import kept_key, operation_key
from certify_assets.storage.store import Store


@dataclass(frozen=True)
class KeptCopies:
    """A folder of copies."""

    sha256: str
    deployments: tuple[int, ...]  # that decide by it; none where a call was killed before its line
    needed: bool
    files: int
    bytes: int  # of a local data root, where a file may be the stored one as well; else 0


def kept_copies(corpus: Corpus, *, last: int) -> list[KeptCopies]:
    """Return all copies of a corpus; needed are those of the last deployments, of the present one
    and of those whose runs wait for a draw.
    """
    made, now = read_deployments(corpus), stored_deployment(corpus)
    needed = {item.kept for item in made[-last:]} | {"" if now is None else now.kept}
    needed |= {item.deployed.kept for item in waiting_runs(corpus)}
    return [
        KeptCopies(
            name,
            tuple(item.number for item in made if item.kept == name),
            name in needed,
            len(keys := list(_files(corpus.store, kept_key(corpus.name, name)))),
            sum(corpus.store.local_path(key).stat().st_size for key in keys)
            if corpus.store.is_local
            else 0,
        )
        for name in corpus.store.names(operation_key(corpus.name, "kept"))
    ]


def prune_kept(corpus: Corpus, *, last: int) -> list[KeptCopies]:
    """Remove the copies that are not needed; return them, as they were."""
    with corpus.writing("ops prune"):
        gone = [item for item in kept_copies(corpus, last=last) if not item.needed]
        for item in gone:
            corpus.store.remove_tree(kept_key(corpus.name, item.sha256))
        return gone


def _files(store: Store, folder: str) -> Iterator[str]:
    for name in store.names(folder):
        below = list(_files(store, key := f"{folder}/{name}"))
        yield from below or ([key] if store.is_file(key) else [])
