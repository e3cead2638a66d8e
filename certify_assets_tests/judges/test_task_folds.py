"""Out-of-fold judges: none saw the task that it scores, and none certifies the judge."""

import numpy as np

from certify_assets.judges.base import JUDGED_COLUMNS, judge_auroc
from certify_assets.judges.families.lexical import LexicalFamily
from certify_assets.judges.record import texts
from certify_assets.judges.task_folds import (
    score_unseen,
    stored_task_folds,
    training_tasks,
    why_no_folds,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged

FOLDS = "judges/lexical/c/folds"


def test_every_training_task_is_scored_by_a_judge_that_never_saw_it(operated: Store) -> None:
    judge = judged(operated)
    runs = judge.corpus.trajectories
    table, _ = judge.score_runs(runs)
    used, adapters, reason = score_unseen(judge, runs, table)
    folds = stored_task_folds(judge).folds
    tasks = training_tasks(judge)
    assert tasks == set(judge.corpus.manifest.tasks["sft"]) and reason == ""
    assert sorted(task for fold in folds for task in fold.tasks) == sorted(tasks)
    of_sft = runs["task_id"].isin(tasks).to_numpy()
    assert np.array_equal(adapters != "", of_sft)
    # the same training by hand
    fold = folds[2]
    mine = runs["task_id"].isin(fold.tasks).to_numpy()
    others = runs[of_sft & ~mine & runs["outcome"].notna().to_numpy()]
    again = LexicalFamily().fitted(others, judge.reading, seed=judge.spec.seed)
    assert again.adapter_sha256 == fold.adapter_sha256
    assert set(adapters[mine]) == {fold.adapter_sha256}
    expected = again.score(texts(runs[mine], judge.renderer)).score
    assert np.array_equal(used["score"].to_numpy()[mine], expected)
    assert used[~of_sft].equals(table[~of_sft]), "the deployed judge scores what it never saw"
    assert judge_auroc(used[of_sft]) < judge_auroc(table[of_sft]), "and remembers what it saw"


def test_without_a_fold_judge_runs_stay_unscored(operated: Store) -> None:
    base = judged(operated, judge="sft")
    runs = base.corpus.trajectories
    table = runs.assign(**dict.fromkeys(JUDGED_COLUMNS, -1.0))
    used, adapters, reason = score_unseen(base, runs, table)
    assert "takes longer than seconds" in why_no_folds(base) == reason
    seen = runs["task_id"].isin(training_tasks(base)).to_numpy()
    assert seen.any() and not any(adapters)
    assert np.array_equal(np.isnan(used["score"]), seen)
    assert score_unseen(base, runs[~seen], table[~seen])[2] == "", "nothing was trained on"
    assert "is trained on no task" in why_no_folds(base.sibling("base"))
