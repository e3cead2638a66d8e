"""The draw of a provisional batch in the review queue: order, blindness, budget, closing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.label_files import export_queue, import_labels
from certify_assets.operations.labels import Label, append_label, label_table, read_labels
from certify_assets.operations.review_queue import QUEUE_COLUMNS, Queue, ask_twice, load_queue
from certify_assets.operations.review_session import ReviewSession
from certify_assets.reports.review_page import (
    Reviewer,
    budget_markdown,
    render_queue,
    render_review,
)
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.operations_builders import ProvisionalBatch, agreeing, audit_of


@pytest.fixture
def batch(provisional: ProvisionalBatch) -> ProvisionalBatch:
    return provisional


def queue_of(batch: ProvisionalBatch) -> Queue:
    return load_queue(Corpus(batch.store, "c"))


def drawn(queue: Queue) -> list[str]:
    rows = queue.frame[queue.frame["kind"] == "batch_draw"]
    found: list[str] = rows["trajectory_id"].tolist()
    return found


def say(batch: ProvisionalBatch, run: str, outcome: int | None, who: str = "ann") -> None:
    label = Label(run, outcome, who, "file", f"{who}:{run}:{outcome}")
    append_label(Corpus(batch.store, "c"), label)


def test_drawn_runs_come_first_in_the_order_of_the_draw(batch: ProvisionalBatch) -> None:
    wanted = list(audit_of(batch).wanted)
    queue = queue_of(batch)
    assert queue.frame["trajectory_id"].tolist()[: len(wanted)] == wanted == drawn(queue)
    assert len(wanted) > 5 and wanted != sorted(wanted)
    for name in wanted[:3]:
        say(batch, name, batch.truth[name])
    assert drawn(queue_of(batch)) == list(audit_of(batch).wanted)
    # a tie asks one more, first of all, and counts for neither side until then
    say(batch, wanted[1], 1 - batch.truth[wanted[1]], "bob")
    queue = queue_of(batch)
    assert drawn(queue)[0] == wanted[1] and queue.frame["why"].iloc[0] == "reviewers are tied"
    audit = audit_of(batch)
    assert audit.labels_used < 3
    # its label is forecast as right, and later labels with it
    known = {**audit.outcomes, wanted[1]: agreeing(audit)[wanted[1]]}
    assert {*audit.wanted} == {wanted[1], *audit.draw.wanted(known)}
    (draw,) = queue.budget.draws
    assert draw.saved > 0 and "a third reviewer settles 1 tied run" in draw.sentence()
    # two reviewers a run, where they are asked for
    ask_twice(Corpus(batch.store, "c"), 1.0)
    assert wanted[0] in drawn(queue_of(batch)) and wanted[0] not in drawn(queue)
    table = label_table(Corpus(batch.store, "c")).frame
    assert set(table["asked"]) == {"batch_draw"}


def test_reviewers_are_as_blind_to_a_draw_as_to_every_other_kind(
    batch: ProvisionalBatch, tmp_path: Path
) -> None:
    queue = queue_of(batch)
    assert set(queue.frame["why"].iloc[:5]) == {"random check"}
    export_queue(tmp_path / "queue.csv", Corpus(batch.store, "c"), queue)
    table = pd.read_csv(tmp_path / "queue.csv", dtype=str)
    assert tuple(table.columns) == (*QUEUE_COLUMNS, "run", "outcome", "reviewer", "comment")
    session = ReviewSession(batch.store, "c")
    shown = session.shown("ann")
    assert shown is not None and shown.run.trajectory_id == drawn(queue)[0]
    page = render_review(shown, None, "c", Reviewer("ann", "0"), news=session.news())
    text = page.partition("<body>")[2]
    for word in (
        "draw",
        "provisional",
        "reject",
        "release",
        "certificate",
        "threshold",
        batch.name,
    ):
        assert word not in text.replace("judge's score and decision", ""), word


def test_the_budget_says_what_a_draw_still_wants_and_what_it_saves(batch: ProvisionalBatch) -> None:
    (before,) = queue_of(batch).budget.draws
    audit = audit_of(batch)
    assert before.batch == batch.name and before.runs == len(audit.runs)
    assert 0 < before.wanted == len(audit.wanted) < len(audit.order)
    assert 0 < before.saved <= before.runs - before.wanted
    assert before.sentence().startswith(
        f"Batch {batch.name}: if the judge is right on all of them, {before.wanted} more "
        f"labels decide {before.saved} "
    )
    # it is true: so many labels that agree with the judge, and no fewer, certify each side
    agree = agreeing(audit)
    for side in audit.draw.sides:
        now = side.progress({})
        assert now is not None
        known = {name: agree[name] for name in now.wanted}
        assert side.close(known).certified
        assert not side.close({name: known[name] for name in now.wanted[:-1]}).certified
    first = audit.wanted[0]
    say(batch, first, agree[first])
    (after,) = queue_of(batch).budget.draws
    assert (after.wanted, after.saved) == (before.wanted - 1, before.saved)
    budget = queue_of(batch).budget
    assert after.sentence() in budget_markdown(budget)
    assert after.sentence() in render_queue(queue_of(batch), "c")
    assert budget.to_dict()["draws"][0]["wanted"] == after.wanted


def label_draw(session: ReviewSession, outcomes: dict[str, int], who: str = "ann") -> int:
    """Label drawn runs until another one is shown or the batch is closed; return how many."""
    for number in range(500):
        shown = session.shown(who)
        if shown is None or session.news() or shown.run.trajectory_id not in outcomes:
            return number
        session.say(who, shown.key, outcomes[shown.run.trajectory_id], shown.number)
    raise AssertionError("the draw does not end")


@pytest.mark.slow
def test_the_label_that_settles_a_draw_closes_its_batch(batch: ProvisionalBatch) -> None:
    session = ReviewSession(batch.store, "c")
    assert session.news() == ()
    labels = label_draw(session, agreeing(audit_of(batch)))
    audit = audit_of(batch)
    assert audit.state == "certified" and audit.decided > 0
    assert session.news() == (f"Batch {audit.sentence}",) and audit.labels_used <= labels
    assert labels == len(read_labels(Corpus(batch.store, "c"))) < len(audit.runs)
    # nobody is asked about what the certificate decided
    queue = queue_of(batch)
    assert drawn(queue) == [] and queue.budget.draws == ()
    # the last label is known for what it was, and a form sent twice is one line
    said = session.last("ann")
    assert said is not None and said.judged is not None
    assert said.judged["reason"] == "batch_draw"
    # a server that starts later has no news
    assert ReviewSession(batch.store, "c").news() == ()


@pytest.mark.slow
def test_a_label_that_comes_after_the_closing_is_kept(batch: ProvisionalBatch) -> None:
    session = ReviewSession(batch.store, "c")
    late = session.shown("bob")
    assert late is not None
    agree = agreeing(audit_of(batch))
    label_draw(session, agree)
    before = audit_of(batch).closing
    assert before is None, "what bob reads is kept for bob, and the draw waits for it"
    session.skip("bob", late.key)
    beside = session.shown("ann")
    assert beside is not None and beside.run.trajectory_id not in agree, "what is open stays"
    session.skip("ann", beside.key)
    label_draw(session, agree)
    before = audit_of(batch).closing
    assert before is not None
    written = session.say("bob", late.key, 1 - agree[late.run.trajectory_id], late.number)
    assert read_labels(Corpus(batch.store, "c"))[-1] == written
    assert audit_of(batch).closing == before


def test_a_file_of_labels_closes_the_batch_and_says_so(
    batch: ProvisionalBatch, tmp_path: Path
) -> None:
    agree = agreeing(audit_of(batch))
    for number in range(100):
        queue = queue_of(batch)
        path = tmp_path / f"queue-{number}.csv"
        export_queue(path, Corpus(batch.store, "c"), queue)
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table = table[table["kind"] == "batch_draw"]
        table["outcome"] = [str(agree[name]) for name in table["trajectory_id"]]
        table.to_csv(path, index=False)
        done = import_labels(Corpus(batch.store, "c"), path, reviewer="ann")
        assert done.added == len(table)
        if done.closed:
            break
    assert done.closed == (f"Batch {audit_of(batch).sentence}",)
    assert audit_of(batch).state == "certified"
