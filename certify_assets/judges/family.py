"""Families of judges: how the judges of one kind are trained, loaded and described."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from certify_assets.certificates import Certifier, Settings
from certify_assets.judges.base import Scores
from certify_assets.judges.model_files import KnownRuns, Refittable
from certify_assets.judges.record import (
    CandidateScore,
    JudgeRecord,
    columns,
    files_sha256,
    labelled,
    save_files,
)
from certify_assets.judges.specs import DELTA, PROCEDURES, Catalogued, family_of
from certify_assets.judges.stored import StoredJudge
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.judges.base import Bill, Judge
    from certify_assets.judges.model_files import FileJudge, Fold
    from certify_assets.judges.reading import JudgeInput

Progress = Callable[[int, int], None]


class JudgeFamily(Catalogued, ABC):
    """A way to make judges: how one is trained, loaded, scored and described."""

    # A family is one module of `certify_assets.judges.families`: its specification, and a subclass
    # of this class under `judge_family`. Nothing else of the package names it.

    @abstractmethod
    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Train a judge, store its files and return its record, which `JudgedCorpus` stores."""

    # A family whose judges are made by the recipe of another, as `JudgeSpec.maker` says, trains and
    # describes them alone; all else is asked of the maker.

    def load(
        self, judge: StoredJudge, *, expected_sha256: str, resume: bool, replay: bool
    ) -> Judge:
        """Load the trained judge; refuse any but the expected one."""
        # resume: take up the scores that a killed run left, where the family keeps them
        # replay: repeat kept answers instead of asking a server, where the family keeps them
        raise NotImplementedError

    def made(
        self, judge: StoredJudge, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[Judge, Mapping[str, Any]]:
        """Train a judge of another family on labelled rows, and store its files."""
        # run: folder of its checkpoints; with the judge comes the document of its training
        raise NotImplementedError

    def prepared(self, judge: StoredJudge, model: Judge, *, progress: Progress) -> Judge:
        """Return a loaded judge ready for many rows, which reports its progress."""
        return model

    def fingerprint(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Hash the stored files as in training, without loading the judge; empty without files."""
        return files_sha256(judge.store, judge.key("adapter"))

    def prompt_sha256(self, judge: StoredJudge, record: JudgeRecord) -> str:
        """Hash of a language model's question; empty for a judge without a question."""
        return ""

    def describe(self, record: JudgeRecord) -> str:
        """Describe the training data of a judge in one line."""
        weight = record.success_weight
        runs = f"{record.sft_trajectories} runs of {record.sft_tasks} SFT tasks"
        return runs if weight is None else f"success weight {weight:g}, {runs}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return the facts about training that certificates carry besides the hashes."""
        return {}

    def bill(self, model: Judge) -> Bill | None:
        """Return the cost of a loaded judge's scores; None if they cost nothing."""
        return None

    def features(self, judge: StoredJudge, model: Judge, runs: pd.DataFrame) -> Any:
        """Return the known features that a loaded judge reads of runs of the corpus, or None."""
        return None

    def no_sources(self, judge: StoredJudge) -> str:
        """Return why other corpora give no training rows; empty if they do."""
        return ""


def maker_of(judge: StoredJudge) -> JudgeFamily:
    """Return the family of the trained judge: its own, or that of its recipe."""
    return cast("JudgeFamily", family_of(judge.spec.maker))


class FileFamily(JudgeFamily):
    """A family whose judges consist of files and are trained in seconds."""

    kind: ClassVar[type[FileJudge]]

    @abstractmethod
    def fitted(
        self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int, known: KnownRuns | None = None
    ) -> FileJudge:
        """Train on the labelled rows of a table, or on their known features."""

    def known(self, corpus: Corpus, reading: JudgeInput) -> KnownRuns | None:
        """Return the features of a corpus's runs for retrainable judges, computed once for all."""
        return None

    def features(self, judge: StoredJudge, model: Judge, runs: pd.DataFrame) -> Any:
        """Return the known features that a loaded judge reads of runs of the corpus, or None."""
        known = self.known(judge.corpus, judge.reading) if judge.spec.retrainable else None
        if known is None or not (isinstance(model, Refittable) and model.knows(known.features)):
            return None
        return known.of(runs["trajectory_id"])

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Train on SFT."""
        sft, reading = judge.corpus.split("sft"), judge.spec.reading
        known = self.known(judge.corpus, reading)
        model = self.fitted(labelled(sft), reading, seed=judge.spec.seed, known=known)
        return judge.record(save_files(judge.store, judge.key("adapter"), model), sft)

    def held_out(
        self, judge: StoredJudge, runs: pd.DataFrame, folds: Sequence[Fold]
    ) -> Iterator[tuple[Judge, Scores]]:
        """Train a retrainable judge for each fold, and score the runs that the fold holds out.

        Parameters
        ----------
        judge : StoredJudge
            The trained judge.
        runs : DataFrame
            Trajectories, to which the places of the folds belong.
        folds : sequence of Fold
            The known runs of each are labelled, with both outcomes.
        """
        model = self.reload(judge, "adapter", expected_sha256=judge.artifact.adapter_sha256)
        known = self.known(judge.corpus, judge.reading)
        assert known is not None and isinstance(model, Refittable)
        features = known.of(runs["trajectory_id"])
        for fold in folds:
            outcomes = runs["outcome"].iloc[fold.known].to_numpy(np.int64)
            again = model.refitted(features[fold.known], outcomes)
            yield cast("Judge", again), again.decided(features[fold.held])

    def load(
        self, judge: StoredJudge, *, expected_sha256: str, resume: bool, replay: bool
    ) -> Judge:
        """Load the trained judge."""
        return self.reload(judge, "adapter", expected_sha256=expected_sha256)

    def reload(self, judge: StoredJudge, place: str, *, expected_sha256: str) -> Judge:
        """Load a judge from files that were stored under a place."""
        with judge.store.as_folder(judge.key(place)) as folder:
            # every judge of files reads texts or runs, which its own class says
            return cast("Judge", self.kind.load(folder, expected_sha256=expected_sha256))


def certify_candidates(
    tables: Mapping[str, pd.DataFrame], config: CorpusConfig
) -> list[CandidateScore]:
    """Certify every candidate on its scores of CAL, at δ divided by their number.

    The budget is the smallest at which any candidate certifies, or else the largest.
    """
    # A certificate holds for a judge that was fixed before its outcomes were read. The best of
    # several on one table is a maximum: certified there at δ it breaks its promise more often than
    # δ. So every candidate is counted.
    certifiers = {name: Certifier.of(*columns(table)) for name, table in tables.items()}
    rows: list[CandidateScore] = []
    for alpha in config.alphas:
        settings = Settings(
            alpha=alpha,
            delta=DELTA,
            procedure=PROCEDURES[0],
            grid=config.grid,
            candidates=len(tables),
        )
        rows = [
            {"name": name, "alpha": alpha, "coverage": certifier.issue(settings).coverage}
            for name, certifier in certifiers.items()
        ]
        if any(row["coverage"] for row in rows):
            break
    return rows
