"""What labels of batch draws may do: train, and nothing to CAL, recertification or the monitor."""

from __future__ import annotations

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import SamplingPlan, count_audit_tasks
from certify_assets.operations.batches import ClosedBatch, DrawnBatch
from certify_assets.operations.decisions import PROVISIONAL, decisions_of
from certify_assets.operations.monitoring import monitor_judge, operation_stream
from certify_assets.operations.recertification import plan_recertification
from certify_assets.storage.store import Store
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    draw_tasks,
    drawn_tasks,
    label_rows,
    strictest_certificate,
    write_batch,
    write_decisions,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 6)
OTHERS = drawn_tasks(PLAN, "one", 10, drawn=False)
BATCH = "0001-a"


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    return corpora


def provisional_batch(store: Store) -> pd.DataFrame:
    """Write a batch in which every second attempt, and known tasks, wait for its certificate."""
    assignment = Corpus(store, "one").manifest.assignment
    undrawn = dict(zip(assignment, draw_tasks(PLAN, "one", assignment), strict=True))
    known = [
        next(task for task, split in assignment.items() if split == name and not undrawn[task])
        for name in ("cal", "sft", "test")
    ]
    rows = write_batch(store, "one", BATCH, PLAN, tasks=[*AUDIT, *OTHERS, *known])
    # of two runs the first is decided, so that runs of either kind wait
    waits = rows["trajectory_id"].str.endswith(("/2", "/3")) | rows["task_id"].isin(known)
    rows.loc[waits, "decision"] = PROVISIONAL
    rows.loc[waits, "agent"] = "agent-new"
    rows.loc[waits, "reason"] = "new_agent"
    rows.loc[rows["task_id"].isin(known), "reason"] = "known_task"
    rows.loc[waits & (rows["asked"] != "audit_sample"), "asked"] = ""
    write_decisions(store, "one", BATCH, rows)
    return rows.assign(waits=waits)


def label_draw(store: Store, rows: pd.DataFrame, *, wrong: bool = False) -> pd.DataFrame:
    """Label the provisional runs that are no audit sample, rightly or all of them wrongly."""
    drawn = rows[rows["waits"] & (rows["asked"] == "")]
    truth = 1 - drawn["truth"] if wrong else drawn["truth"]
    label_rows(store, "one", drawn.assign(asked="batch_draw", truth=truth), reviewer="bea")
    return drawn


def close(store: Store, rows: pd.DataFrame, drawn: pd.DataFrame) -> None:
    """Let the certificate of the batch decide what waits, but for what its draw labelled."""
    table = rows.loc[rows["waits"], ["trajectory_id", "asked"]]
    labelled = table["trajectory_id"].isin(drawn["trajectory_id"])
    decision, reason = (
        labelled.map({True: "human", False: "reject"}),
        labelled.map({True: "batch_draw", False: "batch_certificate"}),
    )
    closed = store.objects.put_table(table.assign(decision=decision, reason=reason))
    audit = store.objects.put_json({"order": list(table["trajectory_id"])})
    store.append(
        "one",
        DrawnBatch(batches=(BATCH,), batch_sha256="", draws=1, seed=0, objects={"audit": audit}),
        ClosedBatch(
            batch=BATCH,
            state="certified",
            labels_sequence=0,
            labels_used=len(drawn),
            outcomes={},
            certificates=(),
            decisions={},
            reasons={},
            objects={"closed": closed},
        ),
    )


def judge_of(store: Store) -> JudgedCorpus:
    return JudgedCorpus(Corpus(store, "one"), JUDGE)


def recertified(store: Store) -> str:
    return plan_recertification(judge_of(store)).inputs_sha256


def test_a_recertification_is_the_same_with_and_without_labels_of_a_draw(store: Store) -> None:
    rows = provisional_batch(store)
    label_rows(store, "one", rows)
    before = recertified(store)
    drawn = label_draw(store, rows, wrong=True)
    assert len(drawn) > 20 and recertified(store) == before
    close(store, rows, drawn)
    assert set(decisions_of(Corpus(store, "one"), BATCH)["decision"]) == {"human", "reject"}
    assert recertified(store) == before
    counted = count_audit_tasks(
        Corpus(store, "one"),
        adapter_sha256=str(judge_of(store).calibration[1]["adapter_sha256"]),
        plan=PLAN,
    )
    # drawn before scoring: runs of new agents too
    assert counted.tasks == AUDIT and len(counted.rows) == len(AUDIT)
    assert not set(counted.rows["trajectory_id"]) & set(drawn["trajectory_id"])


def test_the_monitor_leaves_out_what_its_certificate_does_not_cover(
    store: Store,
) -> None:
    rows = provisional_batch(store)
    label_rows(store, "one", rows)
    certificate = strictest_certificate(store)
    before = operation_stream(Corpus(store, "one"), certificate)
    covered = rows[~rows["waits"]]
    found = int((covered["asked"] == "audit_sample").sum())
    assert 0 < found < len(AUDIT) and before.figures.tasks == found
    assert len(before.scores) == found
    # every label of the draw is an error of the certified threshold, and no alarm comes of it
    drawn = label_draw(store, rows, wrong=True)
    for closed in (False, True):
        if closed:
            close(store, rows, drawn)
        after = operation_stream(Corpus(store, "one"), certificate)
        assert after.figures.sha256 == before.figures.sha256
        assert after.figures.left_out == before.figures.left_out
        document = monitor_judge(judge_of(store))
        assert document.operation is not None and document.status != "alarm"


def test_a_drawn_task_without_a_covered_run_is_counted_among_those_left_out(store: Store) -> None:
    rows = provisional_batch(store)
    before = operation_stream(Corpus(store, "one"), strictest_certificate(store))
    covered = rows[(rows["asked"] == "audit_sample") & ~rows["waits"]]
    other = rows["task_id"] == covered["task_id"].iloc[0]
    rows.loc[other, ["decision", "reason"]] = ["human", "new_agent"]
    write_decisions(store, "one", BATCH, rows)
    label_rows(store, "one", rows)
    stream = operation_stream(Corpus(store, "one"), strictest_certificate(store))
    assert stream.figures.tasks == len(covered) - 1
    assert stream.figures.left_out["not_covered"] == before.figures.left_out["not_covered"] + 1
