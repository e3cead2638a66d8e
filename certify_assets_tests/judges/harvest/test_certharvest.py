"""Parts of a harvest: what is withheld, what is refused, when the gate opens, what is measured."""

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import Settings
from certify_assets.corpora.splits import SplitManifest, make_manifest
from certify_assets.errors import InputError, LeakError
from certify_assets.judges.certharvest import (
    SMALLEST,
    certharvest,
    contamination,
    fewest_tasks,
    halves,
    open_gate,
    refuse_held_out,
    training_set,
    withhold,
)
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
    pool, withheld = withhold(rows(manifest, "rl"))
    assert pool["outcome"].isna().all() and withheld.tolist() == [1] * len(pool)
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


def test_labels_of_half_a_may_be_spent_and_those_of_test_may_not(manifest: SplitManifest) -> None:
    cal, test = rows(manifest, "cal"), rows(manifest, "test", 0)
    refuse_held_out(cal, manifest, what="training", spent=set(cal["task_id"]))
    with pytest.raises(LeakError, match="training rows are of tasks that certify or audit"):
        refuse_held_out(pd.concat([cal, test]), manifest, what="training", spent=cal["task_id"])


def test_the_gate_closes_on_too_few_tasks_with_the_numbers() -> None:
    gate = open_gate(
        score_rows(tasks=SMALLEST - 1, attempts=20, signal=9), Settings(procedure="taskboot")
    )
    assert not gate.open and gate.reason == "too few CAL tasks: 19 of 20 needed in half A."
    assert gate.certificate.certified, "the bootstrap itself would have gone on"
    assert not gate.region(np.array([-99.0])).any()
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
    scores = np.array([threshold, threshold + 1e-9, threshold - 5, np.nan])
    assert gate.region(scores).tolist() == [True, False, True, False]


def test_algorithm_2_by_hand(manifest: SplitManifest) -> None:
    half_a, source = score_rows(tasks=80, attempts=6, signal=4), rows(manifest, "sft")
    pool, withheld = withhold(rows(manifest, "rl").assign(outcome=[1, 0, 0, 1, 0, 0]))
    pool = pool.assign(score=[-9.0, -9.0, -9.0, 9.0, np.nan, -9.0])
    found = certharvest(half_a, pool, source, len, settings=Settings(), manifest=manifest)
    assert found.taken.tolist() == [True, True, True, False, False, True]
    assert found.judge == len(source) + 4, "trained on the source and the harvest"
    harvested = found.training[found.training["task_id"].isin(manifest.tasks["rl"])]
    assert harvested["outcome"].tolist() == [0] * 4
    counted = contamination(found, pool, withheld)
    assert (counted["size"], counted["pool"], counted["unscored"]) == (4, 6, 1)
    assert counted["contamination"] == 0.25
    assert counted["verdict"] == "WARN", "above the budget, on too few tasks to be beyond chance"
    released = certharvest(
        half_a, pool, source, len, settings=Settings(side="release"), manifest=manifest
    )
    assert released.training["outcome"].iloc[-1] == 1 and released.taken.tolist()[3]


def test_a_closed_gate_and_an_empty_region_train_nothing(manifest: SplitManifest) -> None:
    pool, withheld = withhold(rows(manifest, "rl"))
    pool, source = pool.assign(score=9.0), rows(manifest, "sft")
    for signal, reason in ((0.0, "half A certifies nothing"), (4.0, "holds no run of the pool")):
        half_a = score_rows(tasks=80, attempts=6, signal=signal, success_rate=0.5)
        found = certharvest(half_a, pool, source, len, settings=Settings(), manifest=manifest)
        assert found.judge is None and reason in found.reason
        assert contamination(found, pool, withheld)["contamination"] is None
