"""Families of judges: how the judges of one kind are trained, loaded, described and found stale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from certify_assets.errors import InputError
from certify_assets.judges.base import Scores, score_table
from certify_assets.judges.record import JudgeRecord, files_sha256, save_files, texts
from certify_assets.judges.specs import JudgeSpec, register_family
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Rendered
    from certify_assets.judges.base import Bill, Judge
    from certify_assets.judges.configured import NamedEntry
    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.judges.model_files import FileJudge, Fold
    from certify_assets.judges.reading import JudgeInput

Progress = Callable[[int, int], None]


class JudgeFamily(ABC):
    """A way to make judges: how one is trained, loaded, scored, described and found stale."""

    # A family is one module of `certify_assets.judges.families`: its specification, and a subclass
    # of this class under `judge_family`. Nothing else of the package names it.

    #: place of its judges in lists; the shipped families come first
    position: ClassVar[int] = 90
    #: judges that the platform ships
    judges: ClassVar[Sequence[JudgeSpec]] = ()
    #: settings of those that users add by their document; None where they can add none
    entry: ClassVar[type[NamedEntry] | None] = None

    @abstractmethod
    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train a judge, store its files and return its record, which `JudgedCorpus` stores."""

    # A family whose judges are made by the recipe of another, as `JudgeSpec.maker` says, trains,
    # describes and refuses them alone; all else is asked of the maker.

    def load(
        self, judge: JudgedCorpus, *, expected_sha256: str, resume: bool, replay: bool
    ) -> Judge:
        """Load the trained judge; refuse another than the expected one."""
        # resume: take up the scores that a killed run left, where the family keeps them
        # replay: repeat kept answers instead of asking a server, where the family keeps them
        raise NotImplementedError

    def made(
        self, judge: JudgedCorpus, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[Judge, Mapping[str, Any]]:
        """Train a judge of another family on labelled rows, and store its files."""
        # run: folder of its checkpoints; with the judge comes the document of its training
        raise NotImplementedError

    def prepared(self, judge: JudgedCorpus, model: Judge, *, progress: Progress) -> Judge:
        """Return a loaded judge ready for many rows, which reports its progress."""
        return model

    def fingerprint(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Hash the stored files as training did, without loading the judge; empty without files."""
        return files_sha256(judge.store, judge.key("adapter"))

    def prompt_sha256(self, judge: JudgedCorpus, record: JudgeRecord) -> str:
        """Hash of the question that a language model is asked; empty for a judge asked none."""
        return ""

    def describe(self, record: JudgeRecord) -> str:
        """Return what a judge was trained on, in one line."""
        weight = record.success_weight
        runs = f"{record.sft_trajectories} runs of {record.sft_tasks} SFT tasks"
        return runs if weight is None else f"success weight {weight:g}, {runs}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return what certificates of a judge say of its training beyond the hashes."""
        return {}

    def require_current(self, judge: JudgedCorpus, record: JudgeRecord) -> None:  # noqa: B027
        """Refuse a record whose sources, beyond splits and renderer, are others now."""

    def require_present(self, judge: JudgedCorpus) -> None:  # noqa: B027
        """Say why there is no record, where the family knows a reason."""

    def bill(self, model: Judge) -> Bill | None:
        """Return what the scores of a loaded judge cost; None where they cost nothing."""
        return None

    def cuts(
        self, judge: JudgedCorpus, model: Judge, rendered: Sequence[Rendered]
    ) -> Sequence[bool]:
        """Return which runs a loaded judge does not read whole."""
        return [item.cut_chars > 0 for item in rendered]

    def retrained(self, judge: JudgedCorpus, rows: pd.DataFrame, place: str) -> Judge:
        """Train the judge again on some SFT rows only; nothing is stored but checkpoints."""
        raise InputError(f"{judge} is not trained on SFT rows alone; name another judge.")

    def held_out(
        self, judge: JudgedCorpus, runs: pd.DataFrame, folds: Sequence[Fold]
    ) -> Iterator[tuple[Judge, Scores]]:
        """Train the judge again for each fold, and score the runs that the fold holds out.

        Parameters
        ----------
        judge : JudgedCorpus
            The judge, which is trained.
        runs : DataFrame
            Trajectories, to which the places of the folds belong.
        folds : sequence of Fold
            The known runs of each are labelled, with both outcomes.
        """
        for number, fold in enumerate(folds):
            model = self.retrained(judge, runs.iloc[fold.known], f"agent_fold_{number}")
            table = score_table(model, runs.iloc[fold.held], judge.renderer)
            log_p = (table[name].to_numpy(np.float64) for name in ("log_p_success", "log_p_fail"))
            yield model, Scores(*log_p)

    def reload(self, judge: JudgedCorpus, place: str, *, expected_sha256: str) -> Judge:
        """Load a judge that `held_out` made, from files that were stored under a place."""
        raise InputError(f"{judge} is kept in no other place than its own; name another judge.")

    def configure(self, entry: Any) -> JudgeSpec:
        """Return the judge that an entry of the user's document, of the class `entry`, says."""
        raise NotImplementedError


class FileFamily(JudgeFamily):
    """A family whose judges are their files, trained in seconds."""

    kind: ClassVar[type[FileJudge]]

    @abstractmethod
    def fitted(self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int) -> FileJudge:
        """Train on what is read of the labelled rows of a table."""

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train on SFT."""
        sft = judge.corpus.split("sft")
        model = self.fitted(sft, judge.spec.reading, seed=judge.spec.seed)
        save_files(judge.store, judge.key("adapter"), model)
        return judge.record(model.adapter_sha256, sft)

    def held_out(
        self, judge: JudgedCorpus, runs: pd.DataFrame, folds: Sequence[Fold]
    ) -> Iterator[tuple[Judge, Scores]]:
        """Train for each fold; what is read of a run is computed once for all of them."""
        model = self._loaded(judge, "adapter", judge.artifact.adapter_sha256)
        features = model.features(runs, texts(runs, judge.renderer))
        for fold in folds:
            labels = runs["outcome"].iloc[fold.known].to_numpy(np.int64)
            again = model.refitted(features[fold.known], labels)
            yield cast("Judge", again), again.decided(features[fold.held])

    def load(
        self, judge: JudgedCorpus, *, expected_sha256: str, resume: bool, replay: bool
    ) -> Judge:
        """Load the trained judge."""
        return self.reload(judge, "adapter", expected_sha256=expected_sha256)

    def reload(self, judge: JudgedCorpus, place: str, *, expected_sha256: str) -> Judge:
        """Load a judge from its files."""
        # every judge of files reads texts or runs, which its own class says
        return cast("Judge", self._loaded(judge, place, expected_sha256))

    def _loaded(self, judge: JudgedCorpus, place: str, expected_sha256: str) -> FileJudge:
        with judge.store.as_folder(judge.key(place)) as folder:
            return self.kind.load(folder, expected_sha256=expected_sha256)


def judge_family(name: str) -> Callable[[type[JudgeFamily]], type[JudgeFamily]]:
    """Register a family under the tag of its specifications."""

    def register(family: type[JudgeFamily]) -> type[JudgeFamily]:
        register_family(name, family())
        return family

    return register
