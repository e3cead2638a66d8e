"""Which labelled tasks may extend CAL, and everything that may not."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import (
    CountedTasks,
    SamplingPlan,
    count_audit_tasks,
    drawn_decisions,
)
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.labels import Label, append_label
from certify_assets.storage.store import Store
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_run,
    drawn_tasks,
    label_rows,
    write_batch,
    write_decisions,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 8)
OTHERS = drawn_tasks(PLAN, "one", 8, drawn=False)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    return corpora


@pytest.fixture
def rows(store: Store) -> pd.DataFrame:
    return write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT, *OTHERS])


def adapter(store: Store) -> str:
    return str(JudgedCorpus(Corpus(store, "one"), JUDGE).calibration[1]["adapter_sha256"])


def counted(store: Store, plan: SamplingPlan = PLAN, **about: Any) -> CountedTasks:
    about = {"adapter_sha256": adapter(store), **about}
    return count_audit_tasks(Corpus(store, "one"), plan=plan, **about)


def say(
    store: Store, run: str, outcome: int | None, reviewer: str = "ann", token: str = ""
) -> None:
    append_label(
        Corpus(store, "one"),
        Label(run, outcome, reviewer, "page", token or f"{reviewer} {run} {outcome}"),
    )


def test_one_run_of_every_task_counts_and_labels_of_its_other_runs_do_not(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows[rows["trajectory_id"] != drawn_run(rows, AUDIT[3])])
    found = counted(store)
    # reviewers labelled every run that the judge could not decide: they were selected, not drawn
    assert set(found.rows["trajectory_id"]) == {
        drawn_run(rows, task) for task in AUDIT if task != AUDIT[3]
    }
    assert found.drawn == 8 and len(found.others) == 7 * 3 and "outcome" not in found.others
    assert found.left_out == {"open": 1} and found.open_share == pytest.approx(1 / 8)
    assert set(found.unresolved["task_id"]) == {AUDIT[3]} and "outcome" not in found.unresolved
    told = rows.set_index("trajectory_id")["truth"]
    assert (
        found.rows["outcome"].to_numpy() == told.loc[found.rows["trajectory_id"]].to_numpy()
    ).all()


def test_a_tie_leaves_the_task_out_and_a_majority_brings_it_back(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    run = drawn_run(rows, AUDIT[0])
    truth = int(rows.set_index("trajectory_id").loc[run, "truth"])
    say(store, run, 1 - truth, "bob")
    found = counted(store)
    assert found.left_out == {"tied": 1} and AUDIT[0] not in found.tasks
    say(store, run, 1 - truth, "cleo")
    found = counted(store)
    assert (
        found.left_out == {}
        and int(found.rows.set_index("trajectory_id").loc[run, "outcome"]) == 1 - truth
    )


def test_tasks_of_the_splits_and_of_another_adapter_are_left_out_and_counted(store: Store) -> None:
    seen = next(
        task for task in Corpus(store, "one").manifest.assignment if task in drawn_names(store)
    )
    rows = write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT, seen])
    label_rows(store, "one", rows)
    table = first_decisions_of(Corpus(store, "one"), "0001-a")
    table.loc[table["task_id"] == AUDIT[1], "adapter_sha256"] = "f" * 64
    write_decisions(store, "one", "0001-a", table)
    found = counted(store)
    assert found.left_out == {"in_splits": 1, "other_adapter": 1} and not {seen, AUDIT[1]} & set(
        found.tasks
    )


def drawn_names(store: Store) -> list[str]:
    names = Corpus(store, "one").manifest.assignment
    return [name for name in names if PLAN.draws("one", name)]


def test_a_task_has_its_chance_in_the_batch_that_first_brings_it(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    deploy_by_hand(store, "one", wider := SamplingPlan(0.5, 7), number=2)
    again = write_batch(
        store, "one", "0002-b", wider, tasks=[AUDIT[0], *OTHERS], first=4, seed=1, deployment=2
    )
    label_rows(store, "one", again)
    assert "audit_sample" not in set(again["asked"])
    assert set(counted(store, wider).rows["batch"]) == {"0001-a"}


def test_a_run_that_came_again_with_other_content_leaves_its_task_out(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    again = rows[rows["trajectory_id"] == drawn_run(rows, AUDIT[0])].assign(
        batch="0002-b", decision="human", reason="changed_run", asked="undecided"
    )
    write_decisions(store, "one", "0002-b", again, plan=PLAN, changed=True)
    found = counted(store)
    assert found.left_out == {"changed_run": 1} and AUDIT[0] not in found.tasks


def test_runs_that_another_seed_drew_are_counted_and_left_out(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    found = counted(store, SamplingPlan(0.2, 8))
    assert found.left_out == {"drawn_otherwise": 8} and found.tasks == []


def test_the_order_is_that_of_the_labels(store: Store, rows: pd.DataFrame) -> None:
    for task in reversed(AUDIT):
        label_rows(store, "one", rows[rows["task_id"] == task])
    found = counted(store).tasks
    assert found == list(reversed(AUDIT))


def test_a_label_that_is_taken_back_opens_the_task_and_its_place_stays(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    say(store, drawn_run(rows, AUDIT[0]), None)
    assert counted(store).left_out == {"open": 1}
    say(store, drawn_run(rows, AUDIT[0]), 1, token="again")
    assert counted(store).tasks[0] == AUDIT[0]


def test_nothing_is_drawn_in_batches_from_before_the_first_deployment(store: Store) -> None:
    early = write_batch(store, "one", "0000-z", PLAN, tasks=AUDIT[:1]).assign(batch="0001-a")
    write_decisions(store, "one", "0001-a", early.assign(asked="undecided"))
    later = write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[:1], first=4)
    label_rows(store, "one", early)
    label_rows(store, "one", later)
    frame = drawn_decisions(Corpus(store, "one"))
    assert not frame.loc[frame["batch"] != "0000-z", "drawn"].any()
