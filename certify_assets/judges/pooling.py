"""The pool of a judge is gathered when the judge has scored: every task that certifies nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.corpora.splits import SPLITS
from certify_assets.judges.pool import FOLDS, JUDGE, PoolPart, StoredPool, pool_part
from certify_assets.judges.task_folds import train_task_folds, why_no_folds

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.stored import StoredJudge


def write_pool(judge: StoredJudge) -> StoredPool:
    """Gather the pool of a judge that has scored, by the rule, and store it.

    Out-of-fold judges are trained here, so that no certificate does. The same judge, splits and
    runs give the same bytes, whatever the outcomes of the pool are.
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
    """Return the tasks of a split, scored by the judge where it was not trained on them."""
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
        part = pool_part(split, runs["task_id"].tolist(), scores, FOLDS)
        return replace(part, reason=reason)
    scores = scored["score"].to_numpy(np.float64)
    return pool_part(split, scored["task_id"].tolist(), scores, JUDGE if len(scored) else "")
