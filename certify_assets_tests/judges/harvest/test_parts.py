"""Parts of a harvest: what is withheld, what is refused, when the gate opens, what is measured."""

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import Settings
from certify_assets.corpora.splits import SplitManifest, make_manifest
from certify_assets.errors import InputError, LeakError
from certify_assets.judges.harvest.gate import (
    HALF_A,
    LABEL_SOURCE,
    SMALLEST,
    contamination,
    fewest_tasks,
    halves,
    open_gate,
    training_set,
    withhold,
)
from certify_assets.judges.harvest.loop import quick_learner
from certify_assets_tests.builders import score_rows

TASKS = [f"t{number:03d}" for number in range(60)]


@pytest.fixture(scope="module")
def manifest() -> SplitManifest:
    return make_manifest(TASKS, "c", "certify", 42)


def rows(manifest: SplitManifest, split: str, outcome: int | None = 1) -> pd.DataFrame:
    tasks = manifest.tasks[split]
    return pd.DataFrame(
        {
            "corpus": "c",
            "task_id": tasks,
            "trajectory_id": [f"{task}/0" for task in tasks],
            "agent": "a",
            "outcome": [outcome] * len(tasks),
        }
    )


def test_a_pool_carries_no_outcome_and_an_empty_one_is_refused(manifest: SplitManifest) -> None:
    pool = withhold(rows(manifest, "rl"))
    assert pool.frame["outcome"].isna().all() and pool.withheld.tolist() == [1] * len(pool.frame)
    with pytest.raises(InputError, match="no RL split"):
        withhold(rows(manifest, "rl").iloc[:0])


def test_halves_share_no_task_and_hold_all_of_cal() -> None:
    cal = score_rows(tasks=31, attempts=3)
    half_a, half_b = halves(cal, 42)
    own = set(half_a["task_id"])
    assert not own & set(half_b["task_id"]) and len(half_a) + len(half_b) == len(cal)
    assert len(own) == 15, "the half that certifies is the larger one"
    assert own == set(halves(cal[::-1], 42)[0]["task_id"]) != set(halves(cal, 43)[0]["task_id"])
    with pytest.raises(InputError, match="CAL has 1 task"):
        halves(cal[cal["task_id"] == cal["task_id"].iloc[0]], 1)


@pytest.mark.parametrize("split", ["cal", "test"])
def test_no_pseudo_label_can_be_of_a_task_that_certifies_or_audits(
    manifest: SplitManifest, split: str
) -> None:
    with pytest.raises(LeakError, match=f"in {split.upper()}"):
        training_set(rows(manifest, "sft"), rows(manifest, split), label=0, manifest=manifest)


def test_training_refuses_such_rows_too_even_where_they_call_themselves_human(
    manifest: SplitManifest,
) -> None:
    learner = quick_learner(rows(manifest, "sft"), manifest)
    test = rows(manifest, "test", 0).assign(**{LABEL_SOURCE: "human"})
    for split, source, words in (
        ("sft", "human", "training rows are of tasks that certify or audit"),
        ("cal", HALF_A, "TEST"),
    ):
        own = rows(manifest, split).assign(**{LABEL_SOURCE: source})
        with pytest.raises(LeakError, match=words):
            learner.train(pd.concat([own, test]), "x")


def test_the_same_task_name_in_another_corpus_is_another_task(manifest: SplitManifest) -> None:
    elsewhere = rows(manifest, "test").assign(corpus="other")
    made = training_set(rows(manifest, "sft"), elsewhere, label=0, manifest=manifest)
    # a pseudo-label replaces the outcome that a row had
    assert made.groupby(LABEL_SOURCE)["outcome"].agg(["sum", "size"]).to_dict("index") == {
        "human": {"sum": len(manifest.tasks["sft"]), "size": len(manifest.tasks["sft"])},
        "harvest": {"sum": 0, "size": len(elsewhere)},
    }


def test_the_gate_closes_on_too_few_tasks_with_the_numbers() -> None:
    gate = open_gate(
        score_rows(tasks=SMALLEST - 1, attempts=20, signal=9), Settings(procedure="taskboot")
    )
    assert not gate.open and gate.reason == "too few CAL tasks: 19 of 20 needed in half A."
    assert gate.certificate.certified, "the bootstrap itself would have gone on"
    assert not gate.taken(np.array([-99.0])).any()
    assert fewest_tasks(Settings(procedure="betting")) == 29
    assert fewest_tasks(Settings(procedure="betting", alpha=0.2)) == 14


def test_the_gate_closes_where_nothing_is_certified_and_says_why() -> None:
    gate = open_gate(score_rows(tasks=60, signal=0.0, success_rate=0.5), Settings())
    assert not gate.open
    assert gate.reason.startswith("half A certifies nothing: ")
    assert gate.to_dict()["threshold"] is None


def test_an_open_gate_takes_its_region_and_never_an_unscored_row() -> None:
    gate = open_gate(score_rows(tasks=80, attempts=6, signal=4), Settings())
    threshold = gate.certificate.threshold
    assert gate.open and threshold is not None
    assert gate.taken(np.array([threshold, threshold + 1e-9, threshold - 5, np.nan])).tolist() == [
        True,
        False,
        True,
        False,
    ]


def test_contamination_is_counted_by_hand(manifest: SplitManifest) -> None:
    gate = open_gate(score_rows(tasks=80, attempts=6, signal=4), Settings())
    pool = withhold(rows(manifest, "rl").assign(outcome=[1, 0, 0, 1, 0, 0]))
    table = pool.frame.assign(score=[-9.0, -9.0, -9.0, 9.0, np.nan, -9.0])
    found = contamination(gate, table, pool)
    assert (found["size"], found["pool"], found["unscored"]) == (4, 6, 1)
    assert found["contamination"] == 0.25
    assert found["verdict"] == "WARN", "above the budget, on too few tasks to be beyond chance"
