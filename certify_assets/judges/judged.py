"""A judge on a corpus, opened for one operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.specs import JudgeSpec, judge_spec
from certify_assets.storage.progress import silent

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from certify_assets.judges.endpoint.judging import BilledJudge
    from certify_assets.judges.lexical import LexicalJudge
    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.storage.progress import Report
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

    @property
    def artifact(self) -> dict[str, Any]:
        """Document of the trained judge, refused where what it was trained on has changed."""
        from certify_assets.judges.judging import current_adapter

        return current_adapter(self)

    @property
    def scores(self) -> tuple[pd.DataFrame, dict[str, str], dict[str, Any]]:
        """Stored scores of RL, CAL and TEST, the hashes they depend on, and the artifact."""
        from certify_assets.judges.scoring import fresh_scores

        return fresh_scores(self)

    @property
    def calibration(self) -> tuple[pd.DataFrame, dict[str, str], dict[str, Any]]:
        """Labelled rows of CAL that certify this judge, the hashes they depend on, the artifact."""
        from certify_assets.judges.scoring import calibration_scores

        return calibration_scores(self)

    @property
    def bill(self) -> dict[str, Any] | None:
        """Cost of the stored scores of an endpoint judge; None for other judges."""
        from certify_assets.judges.scoring import stored_bill

        return stored_bill(self)

    @property
    def timings(self) -> dict[str, dict[str, Any]]:
        """Seconds and memory of the stages whose product is the stored one, by stage."""
        from certify_assets.judges.timings import read_timings

        return read_timings(self)

    def train(self, *, report: Report = silent) -> dict[str, Any]:
        """Train the judge, choose among its candidates on CAL, store it and return its document."""
        from certify_assets.judges.training import train_judge

        return train_judge(self, report=report)

    def load(
        self, *, expected_sha256: str, resume: bool = False, replay: bool = False
    ) -> LexicalJudge | CausalJudge | BilledJudge:
        """Load the trained judge; refuse another than the expected one.

        Parameters
        ----------
        resume : bool
            Take up the scores that a killed run left.
        replay : bool
            Let an endpoint judge repeat its kept answers, without a request.
        """
        from certify_assets.judges.judging import load_adapter

        return load_adapter(self, expected_sha256=expected_sha256, resume=resume, replay=replay)

    def score(self, *, report: Report = silent, engine: str = "") -> pd.DataFrame:
        """Score RL, CAL and TEST and store the table; TEST rows carry no outcome."""
        from certify_assets.judges.scoring import score_corpus

        return score_corpus(self, report=report, engine=engine)

    def score_runs(
        self, frame: pd.DataFrame, *, report: Report = silent
    ) -> tuple[pd.DataFrame, dict[str, Any] | None]:
        """Score new trajectories; return the table and what an endpoint judge cost. Stores nothing."""
        from certify_assets.judges.scoring import score_runs_with_bill

        return score_runs_with_bill(self, frame, report=report)

    def rescored(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Score again the CAL runs that certify this judge, in the order of the stored scores."""
        from certify_assets.judges.scoring import rescored

        return rescored(self)
