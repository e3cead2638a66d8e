from __future__ import annotations

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.errors import InputError
from certify_assets.operations.labels import (
    Label,
    append_label,
    resolve_labels,
    reviewed_key,
    reviewer_name,
    write_label_table,
)
from certify_assets.operations.review_queue import ask_twice
from certify_assets.operations.review_session import QueuedRun, ReviewSession
from certify_assets.storage.store import Store
from certify_assets_tests.review_builders import (
    decided,
    labels_of,
    queue_of,
    session_batch,
    write_batch,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path))
    session_batch(made)
    return made


@pytest.fixture
def session(store: Store) -> ReviewSession:
    return ReviewSession(store, "c")


def shown(session: ReviewSession, reviewer: str) -> QueuedRun:
    found = session.shown(reviewer)
    assert found is not None
    return found


def test_a_reviewer_goes_through_the_queue_in_its_order(
    session: ReviewSession, store: Store
) -> None:
    expected = queue_of(store).frame["trajectory_id"].tolist()
    seen = []
    while (now := session.shown("ann")) is not None:
        assert now.left == len(expected) - len(seen)
        seen.append(now.run.trajectory_id)
        session.say("ann", now.key, len(seen) % 2, now.number)
    assert seen == expected
    assert [label.outcome for label in labels_of(store)] == [n % 2 for n in range(1, len(seen) + 1)]


def test_a_form_sent_twice_is_one_line_and_with_the_other_outcome_refused(
    session: ReviewSession, store: Store
) -> None:
    now = shown(session, "ann")
    first = session.say("ann", now.key, 1, now.number, " well done ")
    assert session.say("ann", now.key, 1, now.number) == first and first.comment == "well done"
    # after a kill, the same form to the next server
    assert ReviewSession(store, "c").say("ann", now.key, 1, now.number) == first
    with pytest.raises(InputError, match="sent before with the other outcome, which counts"):
        session.say("ann", now.key, 0, now.number)
    assert len(labels_of(store)) == 1


def test_a_form_older_than_a_statement_by_file_is_refused(
    session: ReviewSession, store: Store
) -> None:
    now = shown(session, "ann")
    append_label(Corpus(store, "c"), Label(now.run.trajectory_id, 0, "ann", "file", "f:1"))
    with pytest.raises(InputError, match="ann has labelled this run since the page was shown"):
        session.say("ann", now.key, 1, now.number)


def test_a_run_is_labelled_only_by_those_who_were_shown_it(
    session: ReviewSession, store: Store
) -> None:
    now = shown(session, "ann")
    for name in ("x", "y"):
        with pytest.raises(InputError, match=f"this run was not shown to {name}"):
            session.say(name, now.key, 0, 0)
        shown(session, name)
        with pytest.raises(InputError, match=f"this run was not shown to {name}"):
            session.say(name, now.key, 0, 0)
    assert labels_of(store) == []
    session.skip("ann", now.key)
    assert session.say("ann", now.key, 1, now.number).reviewer == "ann", "she saw it"
    with pytest.raises(InputError, match="this run was not shown to ann since the server"):
        ReviewSession(store, "c").say("ann", shown(session, "ann").key, 1, 0)


def test_nobody_is_shown_a_run_twice_and_a_tie_goes_to_a_third(store: Store) -> None:
    # both reviewers are asked about every run
    ask_twice(Corpus(store, "c"), 1.0)
    session = ReviewSession(store, "c")
    first = shown(session, "ann")
    beside = shown(session, "bob")
    assert beside.run.trajectory_id != first.run.trajectory_id, "what ann reads is kept for ann"
    session.say("ann", first.key, 1, 0)
    assert shown(session, "bob").run == beside.run, "what is open stays, whatever is more urgent"
    session.skip("bob", beside.key)
    assert shown(session, "bob").run == first.run
    session.say("bob", first.key, 0, 0)
    for name in ("ann", "bob"):
        assert shown(session, name).run.trajectory_id != first.run.trajectory_id
    assert shown(session, "cyd").run.trajectory_id == first.run.trajectory_id
    session.say("cyd", first.key, 0, 0)
    assert resolve_labels(labels_of(store))[first.run.trajectory_id].outcome == 0
    assert all(
        first.run.trajectory_id != shown(session, name).run.trajectory_id
        for name in ("ann", "bob", "cyd", "dan")
    )


def test_undo_takes_back_the_last_label_once_and_shows_the_run_again(
    session: ReviewSession, store: Store
) -> None:
    now = shown(session, "ann")
    first = session.say("ann", now.key, 1, now.number)
    now = shown(session, "ann")
    second = session.say("ann", now.key, 1, now.number)
    said = session.last("ann")
    assert said is not None and said.label == second
    assert said.judged is not None and said.task_id == now.run.task_id
    back = session.take_back("ann", second.number)
    assert (
        back.outcome is None
        and session.take_back("ann", second.number) == back
        and len(labels_of(store)) == 3
    )
    again = shown(session, "ann")
    assert again.run == now.run and again.number == 2
    previous = session.last("ann")
    assert previous is not None and previous.label == first
    session.say("ann", again.key, 0, again.number)
    assert resolve_labels(labels_of(store))[now.run.trajectory_id].votes == (("ann", 0),)
    for reviewer, number in (("bob", first.number), ("ann", back.number), ("ann", 99)):
        with pytest.raises(InputError, match=f"label {number} is not one of {reviewer}"):
            session.take_back(reviewer, number)


def test_undo_does_not_reach_past_a_later_statement(session: ReviewSession, store: Store) -> None:
    now = shown(session, "ann")
    said = session.say("ann", now.key, 1, now.number)
    append_label(Corpus(store, "c"), Label(now.run.trajectory_id, 0, "ann", "file", "f:1"))
    with pytest.raises(InputError, match="ann has changed this label meanwhile"):
        session.take_back("ann", said.number)
    assert session.last("ann") is None, "the file has the last word"


def test_a_skipped_run_is_left_for_others_until_it_is_asked_for(session: ReviewSession) -> None:
    first = shown(session, "ann")
    while (now := session.shown("ann")) is not None:
        session.skip("ann", now.key)
    assert (
        session.skipped("ann") == 9
        and shown(session, "bob").run.trajectory_id == first.run.trajectory_id
    )
    session.show_skipped("ann")
    assert session.skipped("ann") == 0 and shown(session, "ann").left == 9


def test_a_run_that_cannot_be_read_stands_in_nobodys_way(store: Store) -> None:
    runs = [Trajectory("c", "t", "t/1", "a", 0, "Do it", (), None)]
    write_batch(
        store,
        [decided("t/0", asked="audit_sample"), decided("t/1", asked="audit_sample")],
        runs,
        batch="0000",
    )
    session = ReviewSession(store, "c")
    seen = []
    while (now := session.shown("ann")) is not None:
        seen.append(now.run.trajectory_id)
        session.say("ann", now.key, 1, now.number)
    assert "t/1" in seen and len(seen) == 10 and len(session.unreadable()) == 1
    assert "has no run 't/0'" in session.unreadable()[0]


def test_what_others_write_and_decide_is_seen_at_once(session: ReviewSession, store: Store) -> None:
    now = shown(session, "ann")
    append_label(Corpus(store, "c"), Label(now.run.trajectory_id, 1, "bob", "file", "f:1"))
    assert shown(session, "ann").run.trajectory_id != now.run.trajectory_id
    write_batch(store, [decided("new/0", asked="audit_sample")], batch="0002")
    assert "new/0" in session.queue().frame["trajectory_id"].tolist()


def test_names_that_differ_in_case_and_spaces_are_one_person() -> None:
    assert (
        reviewer_name("  Ann   Lee ", []) == "Ann Lee"
        and reviewer_name("ann lee", ["Ann Lee"]) == "Ann Lee"
    )
    for bad in ("", "  ", "x" * 81, "a\u202eb", "a\x00b"):
        with pytest.raises(InputError, match="Give 1 to 80 letters"):
            reviewer_name(bad, [])


def test_resolved_labels_join_the_decisions(store: Store) -> None:
    said = [
        ("open-0/0", 1, "ann"),
        ("open-0/0", 0, "bob"),
        ("audit-0/0", 0, "ann"),
        ("audit-0/0", 0, "bob"),
        ("auto-0/0", 0, "ann"),
    ]
    for number, (run, outcome, who) in enumerate([*said, ("gone/0", 1, "ann")]):
        append_label(Corpus(store, "c"), Label(run, outcome, who, "page", f"t{number}"))
    reviewed = write_label_table(Corpus(store, "c"))
    rows = reviewed.frame.set_index("trajectory_id")
    assert rows["outcome"].isna().to_dict() == {
        "open-0/0": True,
        "audit-0/0": False,
        "auto-0/0": False,
    }
    assert rows["asked"].to_dict() == {
        "open-0/0": "undecided",
        "audit-0/0": "audit_sample",
        "auto-0/0": "",
    }
    assert (
        rows.loc["open-0/0", "votes"] == '{"ann": 1, "bob": 0}'
        and rows.loc["auto-0/0", "decision"] == "reject"
    )
    assert reviewed.unknown == ("gone/0",)
    assert reviewed.figures() == {"labelled": 3, "unknown": 1, "disputed": 1, "tied": 1}
    assert store.read_table(reviewed_key("c"))["outcome"].isna().sum() == 1
