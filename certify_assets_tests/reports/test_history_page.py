"""The history of certificates in use: what it gathers, and the page that it becomes."""

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.history import operation_history, write_history
from certify_assets.operations.monitoring import monitor_judge
from certify_assets.operations.recertification import recertify
from certify_assets.reports.history_page import history_markdown, render_history, write_history_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_tasks,
    label_rows,
    write_batch,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 90)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    label_rows(corpora, "one", write_batch(corpora, "one", "0001-a", PLAN, tasks=AUDIT[:40]))
    return corpora


def test_a_corpus_without_operation_has_an_empty_history(corpora: Store) -> None:
    document = write_history(Corpus(corpora, "two"))
    assert document.steps == () and "Nothing is in operation yet" in render_history(document)
    assert len(history_markdown(document)) < 1000


@pytest.mark.slow
def test_it_tells_what_was_certified_how_often_it_was_wrong_and_what_was_spent(
    store: Store,
) -> None:
    first = operation_history(Corpus(store, "one"))
    (step,) = first.steps
    (side,) = (item for item in step.sides if item.side == "reject")
    assert step.deployed == (1,) and step.label == "lexical, first"
    rows = write_batch(store, "one", "0001-a", PLAN, tasks=AUDIT[:40])
    decided = rows[(rows["decision"] == "reject") & (rows["asked"] != "")]
    # one run of each task
    found = side.runs, side.errors, side.tasks
    assert found == (len(decided), int(decided["truth"].sum()), len(decided))
    for number in (1, 2, 3):
        recertify(judged(store, "one", JUDGE))
        label_rows(
            store,
            "one",
            write_batch(
                store,
                "one",
                f"000{number + 1}-b",
                PLAN,
                tasks=AUDIT[40 + 20 * (number - 1) : 20 * number + 40],
            ),
        )
    deploy_by_hand(store, "one", PLAN, recertification=2, number=2)
    deploy_by_hand(store, "one", PLAN, number=3)
    document = write_history(Corpus(store, "one"))
    assert [step.label for step in document.steps] == [
        "lexical, first",
        *(f"recertification {number}" for number in (1, 2, 3)),
    ]
    assert [step.deployed for step in document.steps] == [(1, 3), (), (2,), ()]
    assert [item.number for item in document.claims] == [1, 2, 3]
    assert document.spent == pytest.approx(sum(item.delta for item in document.claims))
    page = Path(write_history_page(store, document)).read_text("utf-8")
    assert all(text in page for text in ("recertification 3", "never", document.joint))
    assert len(history_markdown(document)) < 1000


@pytest.mark.slow
def test_an_alarm_is_said_in_verdict_and_table(store: Store) -> None:
    label_rows(
        store,
        "one",
        write_batch(store, "one", "0002-b", PLAN, tasks=AUDIT[40:], error=0.8),
    )
    assert monitor_judge(judged(store, "one", JUDGE)).status == "alarm"
    document = operation_history(Corpus(store, "one"))
    side = document.steps[0].sides[0]
    page = render_history(document)
    assert side.alarm > 0
    assert "raised an alarm" in page
    assert f"after {side.alarm} tasks" in page
    assert "**The certificates in use raised an alarm**" in history_markdown(document)
