"""Runs of known outcome in reviewers' queues: share, blindness, figures, and what they touch."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from scipy.stats import binomtest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deployment import strictest_certificates
from certify_assets.operations.labels import label_table, read_gold_labels
from certify_assets.operations.monitoring import operation_stream
from certify_assets.operations.recertification import plan_recertification
from certify_assets.operations.review_queue import load_queue, queue_agreement
from certify_assets.operations.review_session import GoldSet, QueuedRun, ReviewSession, read_gold
from certify_assets.reports.review_page import render_queue
from certify_assets.storage.store import Store
from certify_assets_tests.operations_builders import ProvisionalBatch, audit_of
from certify_assets_tests.review_builders import labels_of, queue_of, session_batch, write_runs

#: every place is for a known run while there are some
EVERY = 1.0


def corpus_run(name: str) -> Trajectory:
    steps = (Step("click('the button')", "a page"), Step("claim(done)", ""))
    return Trajectory("c", f"old-{name}", name, "agent-a", 0, "Do", steps, 1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "root"))
    session_batch(made, undecided=20)
    write_runs(
        made, "corpora/c/trajectories.parquet", [corpus_run(f"cal-{n}/0") for n in range(10)]
    )
    return made


def table(store: Store, **outcomes: int) -> Path:
    path = Path(store.root).parent / "gold.csv"
    rows = outcomes or {f"cal-{n}/0": n % 2 for n in range(10)} | {"auto-0/0": 0, "auto-1/0": 1}
    lines = [f"{name},{outcome}" for name, outcome in rows.items()]
    path.write_text("\n".join(["trajectory_id,outcome", *lines]) + "\n", "utf-8")
    return path


def session_of(store: Store, share: float = 0.2, path: Path | None = None) -> ReviewSession:
    gold, _ = read_gold(Corpus(store, "c"), path or table(store), share)
    return ReviewSession(store, "c", gold=gold)


def shown(session: ReviewSession, reviewer: str = "ann") -> QueuedRun:
    found = session.shown(reviewer)
    assert found is not None
    return found


def gold_of(store: Store) -> list[str]:
    return [label.trajectory_id for label in read_gold_labels(Corpus(store, "c"))]


def is_known(run: str) -> bool:
    return run.startswith(("cal-", "auto-"))


@pytest.mark.parametrize("share", ["0.05", "0.07", "0.29", "0.5"])
def test_the_share_is_kept_by_every_reviewer_at_places_that_only_the_table_gives(
    share: str,
) -> None:
    runs = {f"r{n}": corpus_run(f"r{n}") for n in range(5)}
    one, other = (GoldSet(runs, dict.fromkeys(runs, 1), Fraction(share), seed) for seed in "ab")
    places: list[list[bool]] = []
    for gold, reviewer in ((one, "ann"), (one, "bob"), (other, "ann")):
        due = [gold.is_due(reviewer, place) for place in range(3000)]
        for end in range(0, 3001, 60):
            assert abs(sum(due[:end]) - end * Fraction(share)) <= 1
        places.append(due)
        # what is still to come, as a queue would count it
        for place, others in ((0, 1), (13, 40), (977, 300)):
            found, at, rest = 0, place, others
            while rest:
                found, rest, at = found + due[at], rest - (not due[at]), at + 1
            assert gold.coming(reviewer, place, others, 10**6) == found
            assert gold.coming(reviewer, place, others, 3) == min(found, 3)
    assert places[0] != places[1] != places[2] != places[0]
    assert sorted(one.order("ann")) == sorted(one.order("bob")) == sorted(runs)


@pytest.mark.slow
def test_known_runs_come_among_those_of_the_queue_and_a_restart_changes_nothing(
    store: Store,
) -> None:
    waiting = queue_of(store).frame["trajectory_id"].tolist()
    session, seen, left = session_of(store), list[str](), shown(session_of(store)).left
    while (now := session.shown("ann")) is not None:
        assert now.left == left - len(seen) and now.number == 0 and now.run.outcome is None
        assert now.labelled == len(seen)
        # the page a second time, and on a server that was started again
        assert session.shown("ann") == now
        if len(seen) % 9 == 4:
            session = session_of(store)
            assert shown(session) == now
        seen.append(now.run.trajectory_id)
        session.say("ann", now.key, 1, now.number)
    assert [name for name in seen if not is_known(name)] == waiting
    known = [name for name in seen if is_known(name)]
    assert len(known) in (5, 6, 7) and len(set(known)) == len(known)
    assert gold_of(store) == known
    assert [label.trajectory_id for label in labels_of(store)] == waiting
    # where nothing waits, nobody is asked about known runs
    assert session.shown("bob") is None


def test_a_known_run_that_waits_in_the_queue_is_labelled_for_the_queue(store: Store) -> None:
    waiting = queue_of(store).frame["trajectory_id"].tolist()
    path = table(store, **{waiting[0]: 1, "auto-0/0": 0})
    session = session_of(store, EVERY, path)
    now = shown(session)
    assert now.run.trajectory_id == "auto-0/0"
    session.say("ann", now.key, 1, now.number)
    now = shown(session)
    assert now.run.trajectory_id == waiting[0]
    session.say("ann", now.key, 1, now.number)
    assert gold_of(store) == ["auto-0/0"]
    assert [label.trajectory_id for label in labels_of(store)] == waiting[:1]
    assert shown(session).run.trajectory_id == waiting[1], "ann has labelled it"
    # to others it is a known one now
    for _ in range(2):
        now = shown(session, "bob")
        session.say("bob", now.key, 1, now.number)
    assert sorted(gold_of(store)[1:]) == sorted(("auto-0/0", waiting[0]))
    assert len(labels_of(store)) == 1


def test_shares_right_are_on_the_queue_page_with_their_interval_but_not_served(
    store: Store,
) -> None:
    session = session_of(store, EVERY)
    for place in range(10):
        now = shown(session)
        truth = session._gold.outcomes[now.run.trajectory_id]  # type: ignore[union-attr]
        session.say("ann", now.key, truth if place else 1 - truth, now.number)
    (ann,) = queue_agreement(Corpus(store, "c")).reviewers
    assert (ann.gold, ann.gold_errors) == (10, 1)
    found = binomtest(9, 10).proportion_ci(0.95, method="exact")
    assert (ann.gold_low, ann.gold_high) == pytest.approx((found.low, found.high))
    assert ann.gold_sentence() == (
        "Reviewer ann: 9 of 10 known runs right (90%, 95% interval 55% to 100%)."
    )
    queue, agreement = queue_of(store), queue_agreement(Corpus(store, "c"))
    page = render_queue(queue, "c", agreement=agreement)
    assert "9 of 10 known runs right (90%, 95% interval 55% to 100%)" in page
    assert "known runs right" not in render_queue(queue, "c")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("trajectory_id,outcome\nauto-0/0,1\nelse/0,1\n", r"row 2 \(line 3\): 'else/0' is neither"),
        ("trajectory_id,outcome\nauto-0/0,1\nauto-0/0,1\n", r"row 2 .*is in the table twice"),
        ("trajectory_id,outcome\nauto-0/0,1\nauto-1/0,\n", r"row 2 .*has no outcome"),
    ],
)
def test_a_table_of_known_runs_at_fault_is_one_sentence(
    store: Store, rows: str, words: str
) -> None:
    path = table(store)
    path.write_text(rows, "utf-8")
    with pytest.raises(InputError, match=words):
        read_gold(Corpus(store, "c"), path, 0.05)


@pytest.mark.slow
def test_labels_of_known_runs_are_in_their_own_journal_alone(
    provisional: ProvisionalBatch, tmp_path: Path
) -> None:
    store = provisional.store
    corpus = Corpus(store, "c")
    cal = JudgedCorpus(corpus, "lexical").calibration[0]["trajectory_id"].tolist()[:6]
    names = [*cal, *provisional.decided_at_once()[:6]]
    path = tmp_path / "gold.csv"
    path.write_text(
        "\n".join(["trajectory_id,outcome", *(f"{name},1" for name in names)]) + "\n", "utf-8"
    )

    def derived() -> tuple[object, ...]:
        now = Corpus(store, "c")
        judge = JudgedCorpus(now, "lexical")
        certificate = strictest_certificates(load_certificates(judge))[0]
        audit = audit_of(provisional)
        return (
            load_queue(now).frame.to_dict("records"),
            label_table(now).frame.to_dict("records"),
            (audit.wanted, audit.labels_used),
            load_decisions(now).to_dict("records"),
            operation_stream(now, certificate),
            plan_recertification(judge),
            judge.calibration[0].to_dict("records"),
        )

    before = derived()
    session = session_of(store, EVERY, path)
    for _ in names:
        now = shown(session)
        assert now.run.trajectory_id in names
        session.say("ann", now.key, 0, now.number)
    session.take_back("ann", session.last("ann").label.number)  # type: ignore[union-attr]
    assert labels_of(store) == [] and len(gold_of(store)) == len(names) + 1
    assert repr(derived()) == repr(before)
