"""A corpus of the data root, opened for one operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from certify_assets.corpora.config import CorpusConfig, load_config
from certify_assets.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from certify_assets.storage.store import Store

__all__ = ["Corpus"]


@dataclass(frozen=True, init=False)
class Corpus:
    """One corpus, as one operation sees it.

    Parameters
    ----------
    store : Store
        Data root; a plain store starts a new snapshot, a snapshot is shared.
    name : str
        Partition key.
    """

    store: Snapshot
    name: str

    def __init__(self, store: Store, name: str) -> None:
        object.__setattr__(self, "store", Snapshot.of(store))
        object.__setattr__(self, "name", name)

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> tuple[str, ...]:
        """Name of the corpus among the views of a snapshot."""
        return (self.name,)

    @property
    def config(self) -> CorpusConfig:
        """Registered configuration.

        Raises
        ------
        InputError
            If no such corpus is registered; the sentence lists those that are.
        """
        return load_config(self.store, self.name)

    def key(self, *parts: str) -> str:
        """Return the storage key of a file of the corpus."""
        return "/".join(("corpora", self.name, *parts))
