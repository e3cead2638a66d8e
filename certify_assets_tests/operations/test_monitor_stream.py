"""What operation feeds the monitor of the deployed judge: drawn tasks, in a permanent order."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from certify_assets.certificates import Certificate
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import (
    RunDraw,
    SamplingPlan,
    drawn_decisions,
    monitored_rows,
)
from certify_assets.operations.deployment import Alarm, strictest_certificates
from certify_assets.operations.labels import Label, append_label
from certify_assets.operations.monitoring import load_monitor, monitor_judge, operation_stream
from certify_assets.operations.recertification import recertify
from certify_assets.operations.recertification_record import recertification_certificates
from certify_assets.reports.monitor_page import (
    monitor_markdown,
    monitor_metrics,
    write_monitor_page,
)
from certify_assets.storage.care import rebuild
from certify_assets.storage.store import Store
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_run,
    drawn_tasks,
    label_rows,
    strictest_certificate,
    write_batch,
    write_decisions,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 40)
OTHERS = drawn_tasks(PLAN, "one", 9, drawn=False)


def judge_of(store: Store) -> JudgedCorpus:
    return JudgedCorpus(Corpus(store, "one"), JUDGE)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    return corpora


def page_of(store: Store) -> str:
    return Path(write_monitor_page(judge_of(store))).read_text("utf-8")


@pytest.fixture
def certificate(store: Store) -> Certificate:
    return strictest_certificate(store)


def test_a_drawn_task_comes_with_its_drawn_run_and_no_label_of_another(
    store: Store, certificate: Certificate
) -> None:
    rows = write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT, *OTHERS])
    # those that the judge could not decide have labels too: they were selected, not drawn
    label_rows(store, "one", rows)
    stream = operation_stream(Corpus(store, "one"), certificate)
    asked = rows[rows["asked"] == "audit_sample"]
    assert stream.figures.tasks == len(AUDIT) and stream.figures.left_out == {}
    told = asked.set_index("task_id").loc[list(stream.tasks), ["score", "truth"]]
    assert stream.scores.tolist() == told["score"].tolist()
    assert stream.outcomes.tolist() == told["truth"].tolist()


def test_the_index_has_what_the_tables_of_all_batches_say(store: Store) -> None:
    write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT[:3], *OTHERS[:4]])
    other = SamplingPlan(0.2, 8)
    deploy_by_hand(store, "one", other, number=2)
    tasks = [AUDIT[0], *drawn_tasks(other, "one", 6), *OTHERS[:4]]
    later = write_batch(store, "one", "0002-b", other, tasks=tasks, first=4, seed=2, deployment=2)
    drawn = RunDraw.load(Corpus(store, "one"), "0002-b").drawn
    again = later[later["trajectory_id"].isin(list(drawn)[:1])].assign(
        batch="0003-c", decision="human", reason="changed_run", asked="undecided"
    )
    write_decisions(store, "one", "0003-c", again, plan=other, deployment=2, changed=True)
    every = drawn_decisions(Corpus(store, "one"))
    every["twice"] = every["trajectory_id"].duplicated(keep=False)
    order = ["batch", "trajectory_id"]
    expected = every[every["drawn"].astype(bool)].sort_values(order, ignore_index=True)
    for _ in range(2):
        found = monitored_rows(Corpus(store, "one")).sort_values(order, ignore_index=True)
        columns = [name for name in expected if name in found]
        pd.testing.assert_frame_equal(found[columns], expected[columns], check_dtype=False)
        rebuild(store)
    assert {"twice", "score"} <= {*columns} and expected["twice"].any()


@pytest.mark.slow
def test_nothing_moves_when_more_comes(store: Store, certificate: Certificate) -> None:
    first = write_batch(store, "one", "0001-a", PLAN, tasks=AUDIT[:20])
    label_rows(store, "one", first.iloc[::-1])
    before = operation_stream(Corpus(store, "one"), certificate)
    monitor_judge(judge_of(store))
    later = write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[10:40], first=4, seed=1)
    label_rows(store, "one", later)
    after = operation_stream(Corpus(store, "one"), certificate)
    assert after.sha256(len(before.scores)) == before.sha256(len(before.scores)) and len(
        after.scores
    ) > len(before.scores)
    document = monitor_judge(judge_of(store))
    assert not [item for item in document.findings if item["code"] == "stream_rewritten"]
    append_label(
        Corpus(store, "one"), Label(drawn_run(first, AUDIT[0]), None, "ann", "page", "taken back")
    )
    document = monitor_judge(judge_of(store))
    assert [item["code"] for item in document.findings].count("stream_rewritten") == 1
    assert [item["code"] for item in monitor_judge(judge_of(store)).findings].count(
        "stream_rewritten"
    ) == 1, "it stays told"


def test_an_alarm_is_raised_recorded_once_with_its_time_and_stays(
    store: Store,
) -> None:
    rows = write_batch(store, "one", "0001-a", PLAN, tasks=AUDIT, error=0.7)
    label_rows(store, "one", rows)
    document = monitor_judge(judge_of(store))
    assert document.status == "alarm" and load_monitor(judge_of(store)) == document
    assert len(monitor_markdown(document)) < 1000 and len(monitor_metrics(document)) <= 12
    assert "Labels and outcomes up to event" in page_of(store)
    monitor_judge(judge_of(store))
    entries = Corpus(store, "one").events(Alarm)
    alarms = {entry.content.certificate_sha256: entry.content for entry in entries}
    # one of each certificate that is above its budget, and none twice
    assert len(alarms) == len(entries)
    raised = [entry for entry in document.monitors if entry.result.first_alarm_at is not None]
    assert {alarm.at for alarm in alarms.values()} == {
        entry.result.first_alarm_at for entry in raised
    }
    assert raised and set(alarms) <= set(document.certificates) and len(alarms) == len(raised)
    assert all(entry.time > "2026" for entry in entries)
    assert all(alarm.interval[0] > alarm.alpha for alarm in alarms.values())


@pytest.mark.slow
def test_a_recertified_threshold_is_monitored_on_what_came_after_it(store: Store) -> None:
    label_rows(store, "one", write_batch(store, "one", "0001-a", PLAN, tasks=AUDIT[:30]))
    document, _ = recertify(judge_of(store))
    assert document is not None
    chosen = strictest_certificates(recertification_certificates(Corpus(store, "one"), 1))
    deploy_by_hand(store, "one", PLAN, recertification=document.number, number=2)
    seen = monitor_judge(judge_of(store))
    assert seen.certificates == tuple(item.sha256 for item in chosen) and seen.monitors == ()
    about = seen.operation.streams[chosen[0].sha256]
    assert about.tasks == 0 and about.left_out["before_certificate"] >= 30
    label_rows(store, "one", write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[30:], seed=2))
    seen = monitor_judge(judge_of(store))
    assert seen.monitors[0].result.tasks == 10 and seen.monitors[0].delta == document.delta
    assert load_monitor(judge_of(store)) == seen
