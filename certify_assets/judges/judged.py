"""A judge on a corpus, opened for one operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import JudgeSpec, judge_spec

if TYPE_CHECKING:
    from certify_assets.storage.snapshot import Snapshot

__all__ = ["JudgedCorpus"]


@dataclass(frozen=True)
class JudgedCorpus:
    """One judge on one corpus, as one operation sees them.

    Parameters
    ----------
    corpus : Corpus
    name : str
        Name of the judge.
    given : JudgeSpec, optional
        Specification that no registry holds; by default the one of that name.
    """

    corpus: Corpus
    name: str
    given: JudgeSpec | None = field(default=None, compare=False)

    @classmethod
    def of(cls, corpus: Corpus, spec: JudgeSpec) -> JudgedCorpus:
        """Return the judge of a specification on a corpus."""
        return cls(corpus, spec.name, spec)

    def __str__(self) -> str:
        return self.name

    @property
    def store(self) -> Snapshot:
        """Data root, as the corpus sees it."""
        return self.corpus.store

    @property
    def identity(self) -> tuple[str, ...]:
        """Name of the judge on its corpus among the views of a snapshot."""
        return (self.corpus.name, self.name)

    @property
    def spec(self) -> JudgeSpec:
        """Specification of the judge.

        Raises
        ------
        InputError
            If there is no such judge.
        """
        return self.given or judge_spec(self.name, self.store.root)

    def beside(self, name: str) -> JudgedCorpus:
        """Return another judge on the same corpus, in the same operation."""
        return JudgedCorpus(self.corpus, name)

    def key(self, *parts: str) -> str:
        """Return the storage key of a file of the judge on this corpus."""
        return "/".join(("judges", self.name, self.corpus.name, *parts))
