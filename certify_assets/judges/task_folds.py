"""Out-of-fold judges: for every task that a judge was trained on, one that never saw the task.

The training tasks are dealt into folds, and each fold has a judge of the same recipe, trained on
the runs of all other folds. Scores of two folds come from two models, so they are good for a batch
certificate, which assumes nothing of scores, and for the task sizes of a pool: they come as
`FoldScores`, which no procedure accepts in place of the scores of one judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.files import canonical_json, sha256_bytes, stored_as
from certify_assets.judges.base import JUDGED_COLUMNS, score_table
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import save_files
from certify_assets.work import Advance, Report, silent

if TYPE_CHECKING:
    import pandas as pd

FOLDS: Final = 5
_SALT: Final = 0x7F01D


@dataclass(frozen=True, kw_only=True)
class TaskFold:
    """The document of one fold, stored after the files of its judge."""

    number: int
    #: hash of all that the folds depend on: the judge, its record, splits, texts and runs
    bound_sha256: str
    #: held out, sorted
    tasks: tuple[str, ...]
    #: labelled runs of the other tasks
    runs: int
    #: of the fold's judge; empty where the other tasks cannot train one
    adapter_sha256: str
    #: why there is none
    reason: str

    @property
    def place(self) -> str:
        """Where the files of its judge are stored, below those of the judge."""
        return _place(self.bound_sha256, self.number)


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Scores of runs of training tasks, each by the judge whose fold holds the task out.

    Not an array, and without one: what certifies a judge takes the scores of one model.

    Attributes
    ----------
    seen : ndarray of bool, shape (n,)
        Whether the judge was trained on the run's task.
    adapters : tuple of str
        Hash of the fold's judge for every such run; empty for the others, and where a fold has no
        judge.
    reason : str
        Why runs of training tasks have no score; empty where all have one.
    """

    seen: NDArray[np.bool_]
    adapters: tuple[str, ...]
    reason: str
    _judged: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.adapters)

    def for_batch(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the score table of a batch with these scores in the rows of training tasks.

        Rows that no fold scores become unscored. Nothing but a batch certificate may depend on the
        result, because its rows are of several models.
        """
        columns = {}
        for place, name in enumerate(JUDGED_COLUMNS):
            own = table[name].to_numpy(np.float64)
            columns[name] = np.where(self.seen, self._judged[:, place], own)
        return table.assign(**columns)

    def for_pool(self) -> NDArray[np.float64]:
        """Return the scores for a pool, whose outcomes nobody reads; NaN where no fold scores."""
        return self._judged[:, JUDGED_COLUMNS.index("score")]


def training_tasks(judge: JudgedCorpus) -> frozenset[str]:
    """Return the tasks of the splits that the judge is trained on."""
    tasks = judge.corpus.manifest.tasks
    return frozenset(task for split in judge.spec.training_splits for task in tasks[split])


def why_no_folds(judge: JudgedCorpus) -> str:
    """Return why a judge has no out-of-fold judges, in a sentence; empty where it has."""
    spec = judge.spec
    if not spec.training_splits:
        return f"{judge} is trained on no task of {judge.corpus}."
    if spec.retrainable and spec.quick:
        return ""
    return (
        f"{judge} takes longer than seconds to train, or more than the SFT split, so no judge is "
        "trained without some of its tasks; reviewers decide runs of the tasks that it saw."
    )


def train_task_folds(judge: JudgedCorpus, *, report: Report = silent) -> list[TaskFold]:
    """Train the out-of-fold judges that are missing; return all of them.

    A killed call resumes with the folds that are there. Empty where `why_no_folds` says why.
    """
    if why_no_folds(judge):
        return []
    known = judge.corpus.split("sft")
    known = known[known["outcome"].notna()]
    dealt = deal_tasks(sorted(training_tasks(judge)), judge.spec.seed)
    bound, folds = _bound(judge), []
    for number, tasks in enumerate(dealt):
        key = judge.key(f"{_place(bound, number)}.json")
        if judge.store.exists(key):
            folds.append(stored_as(TaskFold, judge.store.read_json(key)))
            continue
        fold = _trained(judge, known[~known["task_id"].isin(tasks)], number, tasks, bound)
        judge.store.write_json(key, asdict(fold))
        report(Advance("training without some tasks", number + 1, len(dealt)))
        folds.append(fold)
    return folds


def score_unseen(judge: JudgedCorpus, runs: pd.DataFrame, *, report: Report = silent) -> FoldScores:
    """Score those runs whose task the judge was trained on, by judges that never saw the task.

    Parameters
    ----------
    judge : JudgedCorpus
        The judge that these stand in for. Its folds are trained here where they are missing.
    runs : DataFrame
        Trajectories, of any tasks.

    Returns
    -------
    FoldScores
        One a run, in order.
    """
    seen = runs["task_id"].isin(training_tasks(judge)).to_numpy(bool)
    adapters, judged = [""] * len(runs), np.full((len(runs), len(JUDGED_COLUMNS)), np.nan)
    reasons = [why_no_folds(judge)] if seen.any() else []
    for fold in train_task_folds(judge, report=report) if seen.any() else []:
        mine = np.flatnonzero(runs["task_id"].isin(fold.tasks).to_numpy(bool))
        if not mine.size:
            continue
        if not fold.adapter_sha256:
            reasons.append(fold.reason)
            continue
        model = judge.maker.reload(judge, fold.place, expected_sha256=fold.adapter_sha256)
        table = score_table(model, runs.iloc[mine], judge.renderer)
        judged[mine] = table[list(JUDGED_COLUMNS)].to_numpy(np.float64)
        for place in mine.tolist():
            adapters[place] = fold.adapter_sha256
    reason = " ".join(dict.fromkeys(filter(None, reasons)))
    return FoldScores(seen, tuple(adapters), reason, judged)


def _trained(
    judge: JudgedCorpus, rows: pd.DataFrame, number: int, tasks: Sequence[str], bound: str
) -> TaskFold:
    adapter, reason = "", ""
    if rows["outcome"].nunique() < 2:
        reason = (
            f"the runs of the other tasks do not have both outcomes, so fold {number} of {judge} "
            "has no judge."
        )
    else:
        place = _place(bound, number)
        model = judge.family.retrained(judge, rows, place)
        save_files(judge.store, judge.key(place), model)
        adapter = model.provenance().adapter_sha256
    return TaskFold(
        number=number,
        bound_sha256=bound,
        tasks=tuple(tasks),
        runs=len(rows),
        adapter_sha256=adapter,
        reason=reason,
    )


def _place(bound: str, number: int) -> str:
    # a deployed judge and one that was trained again since have folds of their own
    return f"folds/{bound[:16]}/{number}"


def deal_tasks(tasks: Sequence[str], seed: int) -> list[list[str]]:
    """Deal sorted tasks into folds."""
    order = np.random.default_rng([_SALT, seed, len(tasks)]).permutation(len(tasks))
    count = min(FOLDS, len(tasks))
    return [sorted(tasks[place] for place in order[fold::count]) for fold in range(count)]


def _bound(judge: JudgedCorpus) -> str:
    record = judge.artifact
    return sha256_bytes(
        canonical_json(
            {
                "record": record.to_dict(),
                "trajectories_sha256": judge.corpus.trajectories_sha256,
                "folds": FOLDS,
            }
        )
    )
