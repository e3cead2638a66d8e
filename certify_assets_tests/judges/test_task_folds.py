"""Out-of-fold judges: none saw the task that it scores, and none certifies the judge."""

import numpy as np
import pytest

from certify_assets.errors import IntegrityError
from certify_assets.judges.base import JUDGED_COLUMNS, judge_auroc
from certify_assets.judges.families.lexical import LexicalFamily, LexicalJudge
from certify_assets.judges.record import texts
from certify_assets.judges.task_folds import (
    score_unseen,
    stored_task_folds,
    train_task_folds,
    training_tasks,
    why_no_folds,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged

FOLDS = "judges/lexical/c/folds"


def place_of(store: Store) -> str:
    (document,) = (name for name in store.names(FOLDS) if name.endswith(".json"))
    return f"{FOLDS}/{document.removesuffix('.json')}"


def hashes(store: Store) -> dict[str, str]:
    parts = (f"/{number}/{file}" for number in range(5) for file in LexicalJudge.FILES)
    return {part: store.sha256(place_of(store) + part) for part in (".json", *parts)}


def test_every_training_task_is_scored_by_a_judge_that_never_saw_it(operated: Store) -> None:
    judge = judged(operated)
    runs = judge.corpus.trajectories
    found, folds = score_unseen(judge, runs), stored_task_folds(judge).folds
    tasks = training_tasks(judge)
    assert tasks == set(judge.corpus.manifest.tasks["sft"]) and found.reason == ""
    assert sorted(task for fold in folds for task in fold.tasks) == sorted(tasks)
    of_sft = runs["task_id"].isin(tasks).to_numpy()
    assert np.array_equal(found.seen, of_sft)
    assert np.array_equal([bool(name) for name in found.adapters], of_sft)
    # the same training by hand
    fold = folds[2]
    mine = runs["task_id"].isin(fold.tasks).to_numpy()
    others = runs[of_sft & ~mine & runs["outcome"].notna().to_numpy()]
    again = LexicalFamily().fitted(others, judge.reading, seed=judge.spec.seed)
    assert again.adapter_sha256 == fold.adapter_sha256
    assert {found.adapters[place] for place in np.flatnonzero(mine)} == {fold.adapter_sha256}
    table, _ = judge.score_runs(runs)
    used = found.for_batch(table)
    expected = again.score(texts(runs[mine], judge.renderer)).score
    assert np.array_equal(used["score"].to_numpy()[mine], expected)
    assert used[~of_sft].equals(table[~of_sft]), "the deployed judge scores what it never saw"
    assert judge_auroc(used[of_sft]) < judge_auroc(table[of_sft]), "and remembers what it saw"


def test_folds_trained_again_are_the_same_and_score_as_stored(operated: Store) -> None:
    judge = judged(operated)
    before = hashes(operated)
    operated.remove_tree(FOLDS)
    scores, reason = train_task_folds(judged(operated))
    assert hashes(operated) == before and reason == ""
    runs = judge.corpus.split("sft")
    table = runs.assign(**dict.fromkeys(JUDGED_COLUMNS, 0.0))
    assert np.array_equal(score_unseen(judge, runs).for_batch(table)["score"], scores)


def test_altered_files_of_a_fold_are_refused(operated: Store) -> None:
    judge = judged(operated)
    runs = judge.corpus.trajectories
    place = place_of(operated)
    for file in LexicalJudge.FILES:
        operated.write_bytes(f"{place}/0/{file}", operated.read_bytes(f"{place}/1/{file}"))
    with pytest.raises(IntegrityError, match="holds adapter"):
        score_unseen(judged(operated), runs)
    operated.write_json(f"{place}.json", {"schema": 1, "folds": 0})
    with pytest.raises(IntegrityError, match="folds is 0"):
        score_unseen(judged(operated), runs)


def test_without_a_fold_judge_runs_stay_unscored(operated: Store) -> None:
    base = judged(operated, judge="sft")
    runs = base.corpus.trajectories
    found = score_unseen(base, runs)
    assert "takes longer than seconds" in why_no_folds(base) == found.reason
    assert found.seen.any() and not any(found.adapters)
    table = runs.assign(**dict.fromkeys(JUDGED_COLUMNS, -1.0))
    assert np.array_equal(np.isnan(found.for_batch(table)["score"]), found.seen)
    strangers = runs[~found.seen].head(3)
    assert score_unseen(base, strangers).reason == "", "nothing of them was trained on"
    assert "is trained on no task" in why_no_folds(base.sibling("base"))
