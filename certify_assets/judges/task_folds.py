"""Out-of-fold judges: for every task that a judge was trained on, a judge that never saw it.

The training tasks are dealt into folds. Each fold has a judge of the same recipe, trained on the
runs of all other folds. Features of a run are computed once for all folds, and a combined judge
keeps the scales of all training runs. Scores of two folds come from two models. They are used for
batch certificates, which assume nothing about scores, and for the task sizes of a pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.splits import SPLITS
from certify_assets.documents import Document
from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import JUDGED_COLUMNS, score_table
from certify_assets.judges.family import FileFamily, maker_of
from certify_assets.judges.model_files import Fold
from certify_assets.judges.pool import BY_FOLDS, BY_JUDGE, PoolPart, StoredPool, pool_part
from certify_assets.judges.record import save_files

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.stored import StoredJudge

FOLDS: Final = 5
_SALT: Final = 0x7F01D
_ONE_OUTCOME: Final = "the runs of the other tasks do not have both outcomes."


@dataclass(frozen=True)
class TaskFold:
    """Tasks that one judge never saw."""

    tasks: tuple[str, ...]
    #: of that judge; empty where the runs of the other tasks do not have both outcomes
    adapter_sha256: str


class TaskFolds(Document):
    """The folds of a judge, stored next to the files of their judges."""

    TITLE = "folds of a judge"
    SCHEMA = 1
    REFUSAL = IntegrityError

    folds: tuple[TaskFold, ...]


def training_tasks(judge: StoredJudge) -> frozenset[str]:
    """Return the tasks of the splits that the judge is trained on."""
    tasks = judge.corpus.manifest.tasks
    return frozenset(task for split in judge.spec.training_splits for task in tasks[split])


def why_no_folds(judge: StoredJudge) -> str:
    """Return the reason why a judge has no out-of-fold judges; empty if it has some."""
    spec = judge.spec
    if not spec.training_splits:
        return f"{judge} is trained on no task of {judge.corpus}."
    if spec.retrainable:
        return ""
    return (
        f"{judge} takes longer than seconds to train, or more than the SFT split, so no judge is "
        "trained without some of its tasks; reviewers decide runs of the tasks that it saw."
    )


def train_task_folds(judge: StoredJudge) -> tuple[NDArray[np.float64], str]:
    """Train and store the out-of-fold judges of a judge.

    Returns
    -------
    scores : ndarray of float64, shape (n,)
        Scores of the SFT runs, in order, each by the judge that never saw its task; NaN without
        such a judge.
    reason : str
        Why scores are missing; empty if every run has one.
    """
    runs = judge.corpus.split("sft")
    task, labelled = runs["task_id"], runs["outcome"].notna().to_numpy(bool)
    dealt = deal_tasks(sorted(training_tasks(judge)), judge.spec.seed)
    mine = [task.isin(tasks).to_numpy(bool) for tasks in dealt]
    folds = [Fold(np.flatnonzero(labelled & ~held), np.flatnonzero(held)) for held in mine]
    taught = [runs["outcome"].iloc[fold.known].nunique() == 2 for fold in folds]
    made = _maker(judge).held_out(
        judge, runs, [fold for fold, both in zip(folds, taught, strict=True) if both]
    )
    scores, adapters = np.full(len(runs), np.nan), [""] * len(folds)
    for number in np.flatnonzero(taught).tolist():
        model, found = next(made)
        scores[folds[number].held] = found.score
        save_files(judge.store, judge.key(_place(judge), str(number)), model)
        adapters[number] = model.provenance().adapter_sha256
    document = TaskFolds(
        folds=tuple(TaskFold(tuple(of), sha256) for of, sha256 in zip(dealt, adapters, strict=True))
    )
    judge.store.write_json(judge.key(f"{_place(judge)}.json"), document.to_dict())
    return scores, "" if all(taught) else _ONE_OUTCOME


def write_pool(judge: StoredJudge) -> StoredPool:
    """Gather and store the pool of a judge that has scored, by the rule.

    Out-of-fold judges are trained here, so that certificates need not train them. The same judge,
    splits and runs give the same bytes; the outcomes of the pool do not matter.
    """
    certified, _, record = judge.calibration
    table = judge.scores[0][["split", "task_id", "score"]]
    table = table[~table["task_id"].isin(certified["task_id"])]
    parts = [_part(judge, split, table[table["split"] == split]) for split in SPLITS]
    pool = StoredPool(
        corpus=judge.corpus.name,
        judge=judge.name,
        adapter_sha256=record.adapter_sha256,
        parts=tuple(parts),
    )
    judge.store.write_json(judge.key("pool.json"), pool.to_dict())
    return pool


def _part(judge: StoredJudge, split: str, scored: pd.DataFrame) -> PoolPart:
    """Return the tasks of a split, scored by the judge unless it was trained on them."""
    spec, tasks = judge.spec, len(judge.corpus.manifest.tasks[split])
    trained, reason = split in spec.training_splits, ""
    if trained:
        if why_no_folds(judge):
            reason = "the judge was trained on them, and training it without some takes long"
    elif spec.needs_other_corpora and split in ("sft", "rl"):
        reason = "runs of other corpora that the judge was trained on may be of them"
    elif split == "sft":
        reason = "the judge has not scored them, which takes longer than seconds or costs money"
    if reason and tasks:
        return PoolPart(split, "", {}, tasks, reason)
    if trained:
        runs, (scores, reason) = judge.corpus.split(split), train_task_folds(judge)
        part = pool_part(split, runs["task_id"].tolist(), scores, BY_FOLDS)
        return replace(part, reason=reason)
    scores = scored["score"].to_numpy(np.float64)
    return pool_part(split, scored["task_id"].tolist(), scores, BY_JUDGE if len(scored) else "")


def stored_task_folds(judge: StoredJudge) -> TaskFolds:
    """Return the folds that the scores step of the judge made."""
    return TaskFolds.from_dict(judge.read(f"{_place(judge)}.json"))


def score_unseen(
    judge: StoredJudge, runs: pd.DataFrame, table: pd.DataFrame
) -> tuple[pd.DataFrame, NDArray[np.object_], str]:
    """Score those runs whose task the judge was trained on, by judges that never saw the task.

    Only batch certificates may depend on these scores, which come from several models.

    Parameters
    ----------
    judge : StoredJudge
        The judge that these replace.
    runs : DataFrame
        Trajectories, of any tasks.
    table : DataFrame
        Their scores by the judge, in the same order.

    Returns
    -------
    table : DataFrame
        With the scores of these judges in the rows of training tasks, unscored where there is none.
    adapters : ndarray of str
        Hash of the judge of every such run; empty for the others and where there is none.
    reason : str
        Why runs of training tasks have no score; empty where all have one.
    """
    seen = runs["task_id"].isin(training_tasks(judge)).to_numpy(bool)
    adapters, judged = np.full(len(runs), "", dtype=object), table[list(JUDGED_COLUMNS)].copy()
    judged[seen] = np.nan
    reason = why_no_folds(judge) if seen.any() else ""
    for number, fold in enumerate(
        stored_task_folds(judge).folds if seen.any() and not reason else ()
    ):
        mine = np.flatnonzero(runs["task_id"].isin(fold.tasks).to_numpy(bool))
        if mine.size and not fold.adapter_sha256:
            reason = _ONE_OUTCOME
        elif mine.size:
            model = _maker(judge).reload(
                judge, f"{_place(judge)}/{number}", expected_sha256=fold.adapter_sha256
            )
            found = score_table(model, runs.iloc[mine], judge.renderer)
            judged.iloc[mine] = found[list(JUDGED_COLUMNS)].to_numpy(np.float64)
            adapters[mine] = fold.adapter_sha256
    return table.assign(**{name: judged[name] for name in JUDGED_COLUMNS}), adapters, reason


def _maker(judge: StoredJudge) -> FileFamily:
    """Return the family that trains a retrainable judge again."""
    return cast("FileFamily", maker_of(judge))


def deal_tasks(tasks: Sequence[str], seed: int) -> list[list[str]]:
    """Deal sorted tasks into folds."""
    order = np.random.default_rng([_SALT, seed, len(tasks)]).permutation(len(tasks))
    count = min(FOLDS, len(tasks))
    return [sorted(tasks[place] for place in order[fold::count]) for fold in range(count)]


def _place(judge: StoredJudge) -> str:
    """The key of a judge's folds; a judge that is trained again gets a new one."""
    bound = {
        "record": judge.artifact.to_dict(),
        "trajectories_sha256": judge.corpus.trajectories_sha256,
        "folds": FOLDS,
    }
    return f"folds/{sha256_bytes(canonical_json(bound))[:16]}"
