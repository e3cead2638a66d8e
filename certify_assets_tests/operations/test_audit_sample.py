"""Which labelled tasks may extend CAL, and everything that may not."""

from __future__ import annotations

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import completed_at, count_audit_tasks, drawn_decisions
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.labels import Label, append_label, read_labels
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_tasks,
    label_rows,
    write_batch,
    write_decisions,
)

PLAN = SamplingPlan(0.2, 0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", "audit", 8)
SPOT = drawn_tasks(PLAN, "one", "spot", 4)
OTHERS = drawn_tasks(PLAN, "one", "", 4)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    return corpora


@pytest.fixture
def rows(store: Store) -> pd.DataFrame:
    return write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT, *SPOT, *OTHERS])


def adapter(store: Store) -> str:
    return str(JudgedCorpus(Corpus(store, "one"), JUDGE).calibration[1]["adapter_sha256"])


def say(
    store: Store, run: str, outcome: int | None, reviewer: str = "ann", token: str = ""
) -> None:
    append_label(
        Corpus(store, "one"),
        Label(run, outcome, reviewer, "page", token or f"{reviewer} {run} {outcome}"),
    )


def test_only_audit_tasks_with_every_attempt_labelled_count(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows[rows["task_id"] != AUDIT[3]])
    kept = rows[(rows["task_id"] == AUDIT[3])].iloc[:-1]
    label_rows(store, "one", kept)
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.tasks == [task for task in AUDIT if task != AUDIT[3]] and found.drawn == 8
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
    run = str(rows.loc[rows["task_id"] == AUDIT[0], "trajectory_id"].iloc[0])
    truth = int(rows.set_index("trajectory_id").loc[run, "truth"])
    say(store, run, 1 - truth, "bob")
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"tied": 1} and AUDIT[0] not in found.tasks
    say(store, run, 1 - truth, "cleo")
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
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
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"in_splits": 1, "other_adapter": 1} and not {seen, AUDIT[1]} & set(
        found.tasks
    )


def drawn_names(store: Store) -> list[str]:
    from certify_assets_tests.recertification_builders import draw_tasks

    names = list(Corpus(store, "one").manifest.assignment)
    return [
        name
        for name, drawn in zip(names, draw_tasks(PLAN, "one", names), strict=True)
        if drawn == "audit"
    ]


@pytest.mark.slow
def test_attempts_of_all_batches_must_be_labelled_and_later_ones_stay_out_of_what_was_counted(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    again = write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[:2], first=4, seed=1)
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"open": 2}
    label_rows(store, "one", again[again["task_id"] == AUDIT[0]])
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"open": 1} and (found.rows["task_id"] == AUDIT[0]).sum() == 8
    before = {AUDIT[0]: frozenset(f"{AUDIT[0]}/{place}" for place in range(4))}
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store), before=before)
    assert found.came_again == 1 and (found.rows["task_id"] == AUDIT[0]).sum() == 4
    with pytest.raises(IntegrityError, match="no longer among the decisions"):
        count_audit_tasks(
            Corpus(store, "one"),
            adapter_sha256=adapter(store),
            before={"gone": frozenset({"gone/0"})},
        )


def test_a_run_that_came_again_with_other_content_leaves_its_task_out(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    again = rows[rows["trajectory_id"] == f"{AUDIT[0]}/0"].assign(
        batch="0002-b", decision="human", reason="changed_run", asked="undecided"
    )
    write_decisions(store, "one", "0002-b", again, plan=PLAN, changed=True)
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"changed_run": 1} and AUDIT[0] not in found.tasks


def test_a_plan_that_was_deployed_before_still_explains_its_batch(
    store: Store, rows: pd.DataFrame
) -> None:
    wider = SamplingPlan(0.5, 0.1, 7)
    deploy_by_hand(store, "one", wider, number=2)
    later = write_batch(
        store,
        "one",
        "0002-b",
        wider,
        tasks=[AUDIT[0], OTHERS[0], SPOT[0]],
        first=4,
        seed=2,
        deployment=2,
    )
    label_rows(store, "one", rows)
    label_rows(store, "one", later)
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    # what one plan draws for the audit and the other does not has attempts that nobody asked about
    assert set(found.tasks) >= set(AUDIT) and found.left_out.get("drawn_otherwise", 0) == len(
        set(later.loc[later["asked"] == "audit_sample", "task_id"]) - {AUDIT[0]}
    )


def test_the_order_is_that_of_the_labels(store: Store, rows: pd.DataFrame) -> None:
    for task in reversed(AUDIT):
        label_rows(store, "one", rows[rows["task_id"] == task])
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store)).tasks
    assert found == list(reversed(AUDIT))


def test_a_label_that_is_taken_back_opens_the_task_and_its_place_stays(
    store: Store, rows: pd.DataFrame
) -> None:
    label_rows(store, "one", rows)
    order = completed_at(
        read_labels(Corpus(store, "one")),
        {task: [f"{task}/{place}" for place in range(4)] for task in AUDIT},
    )
    say(store, f"{AUDIT[0]}/0", None)
    assert count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store)).left_out == {
        "open": 1
    }
    say(store, f"{AUDIT[0]}/0", 1, token="again")
    assert (
        count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store)).tasks[0] == AUDIT[0]
    )
    assert completed_at(
        read_labels(Corpus(store, "one")), {AUDIT[0]: [f"{AUDIT[0]}/0"]}
    ) != {} and order[AUDIT[0]] == min(order.values())


def test_nothing_is_drawn_in_batches_from_before_the_first_deployment_and_their_tasks_do_not_count(
    store: Store, rows: pd.DataFrame
) -> None:
    early = rows[rows["task_id"] == AUDIT[0]].assign(
        batch="0000-z", reason="not_deployed", decision="human", asked="undecided"
    )
    early["trajectory_id"] = "early/" + early["trajectory_id"]
    write_decisions(store, "one", "0000-z", early)
    label_rows(store, "one", rows)
    label_rows(store, "one", early)
    frame = drawn_decisions(Corpus(store, "one"))
    assert set(frame.loc[frame["batch"] == "0000-z", "drawn"]) == {""}
    found = count_audit_tasks(Corpus(store, "one"), adapter_sha256=adapter(store))
    assert found.left_out == {"drawn_otherwise": 1} and AUDIT[0] not in found.tasks
