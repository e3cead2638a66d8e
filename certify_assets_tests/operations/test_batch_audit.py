"""Batches with runs that the corpus certificate does not cover, from delivery to closing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.task_folds import training_tasks
from certify_assets.operations.audit_sample import SamplingPlan, drawn_decisions
from certify_assets.operations.batch_audit import BatchAudit, batch_audits
from certify_assets.operations.batch_drawing import close_batches
from certify_assets.operations.batches import BatchRecord, decided_version
from certify_assets.operations.checks import batches_certified
from certify_assets.operations.coverage import changed_agents
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import PROVISIONAL, decisions_of, first_decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.lineage import follow
from certify_assets.operations.receiving import receive, undo_batch
from certify_assets.operations.review_queue import load_queue
from certify_assets.storage.database import events
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import agreeing, deliver

TASKS, ATTEMPTS, SEED = 60, 4, 3


@pytest.fixture
def deployed(operated: Store) -> Store:
    # every batch has a draw of its own: test_pooled_batches has those that share one
    save_config(operated, replace(Corpus(operated, "c").config, batch_runs=1))
    deploy(
        judged(operated),
        sampling=SamplingPlan(0.0, 5),
        track=False,
    )
    return operated


def of_a_new_agent(record: dict[str, Any]) -> None:
    record["agent"] = "agent-new"


def delivered(
    store: Store,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], Any] = of_a_new_agent,
    **given: Any,
) -> str:
    options = {"tasks": TASKS, "attempts": ATTEMPTS, "seed": SEED} | given
    path = deliver(tmp_path / "new.jsonl", change=change, **options)
    return str(receive(Corpus(store, "c"), [str(path)]).batch)


def decided(store: Store, tmp_path: Path, **given: Any) -> BatchRecord:
    delivered(store, tmp_path, **given)
    (record,) = decide_ready(Corpus(store, "c"))
    return record


def opened(store: Store, record: BatchRecord) -> BatchAudit:
    audit = BatchAudit.load(Corpus(store, "c"), record.batch)
    assert audit is not None
    return audit


def label(store: Store, outcomes: dict[str, int]) -> None:
    said = [
        Label(name, outcome, "ann", "file", f"{name}:{outcome}")
        for name, outcome in outcomes.items()
    ]
    append_labels(Corpus(store, "c"), said)


def labelled_until_closed(store: Store, record: BatchRecord, outcome: Callable[[str], int]) -> None:
    for _ in range(100):
        audit = opened(store, record)
        if not audit.wanted:
            break
        label(store, {name: outcome(name) for name in audit.wanted})
    close_batches(Corpus(store, "c"))


def test_a_batch_of_a_new_agent_ends_certified(deployed: Store, tmp_path: Path) -> None:
    corpus = Corpus(deployed, "c")
    record = decided(deployed, tmp_path)
    first = first_decisions_of(corpus, record.batch)
    assert set(first["reason"]) == {"new_agent"} and set(first["certificate_sha256"]) == {""}
    assert record.decisions[PROVISIONAL] > 0
    assert record.promises[0].startswith("batch certificate:") and len(record.promises) == 1
    audit = opened(deployed, record)
    assert audit.state == "provisional" and audit.labels_used == 0 and audit.record.draws == 1
    assert sorted(audit.runs) == sorted(audit.order)
    queue = load_queue(Corpus(deployed, "c")).frame
    assert set(queue.loc[queue["kind"] == "batch_draw", "trajectory_id"]) == set(audit.wanted)
    assert batches_certified(Corpus(deployed, "c")).status == "WARN"
    before = decided_version(Corpus(deployed, "c"))
    known = agreeing(audit)
    labelled_until_closed(deployed, record, known.__getitem__)
    audit = opened(deployed, record)
    assert audit.state == "certified" and audit.wanted == () and audit.closing is not None
    frame = decisions_of(Corpus(deployed, "c"), record.batch)
    judged = frame[frame["reason"] == "batch_certificate"]
    assert len(judged) == audit.decided > 0 and set(judged["decision"]) <= {"reject", "release"}
    labelled = frame[frame["reason"] == "batch_draw"]
    assert set(labelled["decision"]) == {"human"} and set(labelled["asked"]) == {"batch_draw"}
    assert PROVISIONAL not in set(frame["decision"])
    # nothing that was stored is rewritten: the closing has a document of its own
    assert first_decisions_of(Corpus(deployed, "c"), record.batch).equals(first)
    assert decided_version(Corpus(deployed, "c")) != before
    verdict = batches_certified(Corpus(deployed, "c"))
    assert verdict.status == "PASS", verdict
    assert len(drawn_decisions(Corpus(deployed, "c"))) == len(frame)
    # a decision of the batch is followed to its draw
    for name in (judged["trajectory_id"].iloc[0], labelled["trajectory_id"].iloc[0]):
        _, (link,) = follow(deployed, name)
        assert not [part for part in link.walk() if part.broken]
        assert {"audit", "closing"} <= {part.kind for part in link.walk()}
    ((shown,), _) = batch_audits(Corpus(deployed, "c"))
    assert (shown.state, shown.decided, shown.wanted) == ("certified", audit.decided, ())
    # what comes after changes nothing of it
    label(deployed, {name: 1 - known[name] for name in audit.runs[:5]})
    assert opened(deployed, record).closing == audit.closing


def test_an_altered_closing_is_an_error(deployed: Store, tmp_path: Path) -> None:
    record = decided(deployed, tmp_path)
    labelled_until_closed(deployed, record, agreeing(opened(deployed, record)).__getitem__)
    closing = opened(deployed, record).closing
    assert closing is not None
    deployed.objects.path(closing.objects["closed"]).write_bytes(b"other decisions")
    verdict = batches_certified(Corpus(deployed, "c"))
    assert verdict.status == "ERROR" and "was altered" in verdict.sentence
    (fault,) = batch_audits(Corpus(deployed, "c"))[1].values()
    assert "was altered" in fault


def test_a_draw_with_another_seed_is_an_error(deployed: Store, tmp_path: Path) -> None:
    seed = opened(deployed, decided(deployed, tmp_path)).record.seed
    with deployed.database.writing(["c"]) as connection:
        deployed.database.unguard(connection)
        payload = sa.func.replace(events.c.payload, str(seed), str(seed + 1))
        connection.execute(events.update().where(events.c.kind == "drawn").values(payload=payload))
    verdict = batches_certified(Corpus(deployed, "c"))
    assert verdict.status == "ERROR" and "was changed after it was stored" in verdict.sentence


def test_a_batch_on_which_the_judge_errs_goes_to_reviewers(deployed: Store, tmp_path: Path) -> None:
    record = decided(deployed, tmp_path)
    audit = opened(deployed, record)
    scores = first_decisions_of(Corpus(deployed, "c"), record.batch).set_index("trajectory_id")
    middle = scores["score"].median()
    # every run ends otherwise than its score says
    labelled_until_closed(deployed, record, lambda name: int(scores.loc[name, "score"] <= middle))
    audit = opened(deployed, record)
    assert audit.state == "to_reviewers" and audit.decided == 0
    frame = decisions_of(Corpus(deployed, "c"), record.batch)
    assert set(frame["decision"]) == {"human"}
    assert batches_certified(Corpus(deployed, "c")).status == "PASS"
    queue = load_queue(Corpus(deployed, "c"))
    assert set(queue.frame["kind"]) == {"undecided"}
    assert "went to reviewers" in audit.sentence


def of_two_agents(record: dict[str, Any]) -> None:
    if record["trajectory_id"].endswith(("/0", "/1")):
        record["agent"] = "agent-new"


def test_runs_of_known_tasks_are_decided_by_a_certificate_of_their_batch(
    deployed: Store, tmp_path: Path
) -> None:
    corpus = Corpus(deployed, "c")
    known = [*sorted(corpus.manifest.assignment)]

    def change(record: dict[str, Any]) -> None:
        record["task_id"] = known[int(record["task_id"][-3:])]

    record = decided(deployed, tmp_path, change=change)
    frame = first_decisions_of(Corpus(deployed, "c"), record.batch)
    judge = judged(deployed)
    trained = frame["task_id"].isin(training_tasks(judge))
    assert trained.any() and set(frame["reason"]) == {"known_task"}
    # those that the judge was trained on are scored by one that never saw the task
    own = set(frame.loc[~trained, "adapter_sha256"])
    assert own == {judge.artifact.adapter_sha256}
    assert not own & set(frame.loc[trained, "adapter_sha256"])
    assert record.decisions[PROVISIONAL] > 0 and set(frame["asked"]) <= {"", "undecided"}
    labelled_until_closed(deployed, record, agreeing(opened(deployed, record)).__getitem__)
    assert opened(deployed, record).state == "certified"


def test_labels_of_runs_that_were_not_drawn_change_nothing(deployed: Store, tmp_path: Path) -> None:
    record = decided(deployed, tmp_path, change=of_two_agents)
    audit = opened(deployed, record)
    known = agreeing(audit)
    rows = first_decisions_of(Corpus(deployed, "c"), record.batch)
    others = sorted(set(rows["trajectory_id"]) - set(audit.runs))
    assert others
    # nor do those of later runs of the draw, as long as an earlier one has none
    starts = {side.names[0] for side in audit.draw.sides}
    later = [name for name in audit.order if name not in starts]
    label(deployed, {name: known.get(name, 0) for name in [*others, *later]})
    close_batches(Corpus(deployed, "c"))
    audit = opened(deployed, record)
    assert audit.state == "provisional" and audit.labels_used == 0
    assert set(audit.wanted) == starts


@pytest.mark.slow
def test_drawing_the_same_runs_again_is_counted_and_spends_less(
    deployed: Store, tmp_path: Path
) -> None:
    seeds, deltas = set(), []
    for number in range(2):
        record = decided(deployed, tmp_path)
        audit = opened(deployed, record)
        assert audit.record.draws == number + 1
        seeds.add(audit.record.seed)
        deltas.append(audit.draw.plan.delta)
        undo_batch(Corpus(deployed, "c"), record.batch)
    assert len(seeds) == 2 and deltas[0] == 0.05 and deltas[1] == pytest.approx(0.0075, abs=2e-4)
    # runs that no draw was of are at the whole again
    assert opened(deployed, decided(deployed, tmp_path, seed=8)).record.draws == 1


@pytest.mark.slow
def test_an_agent_of_cal_that_scores_otherwise_counts_as_new(
    deployed: Store, tmp_path: Path
) -> None:
    judge = judged(deployed)
    cal = judge.calibration[0]
    agent = str(cal["agent"].iloc[0])
    now = cal[cal["agent"] == agent]
    assert changed_agents(cal, now) == ()
    spread = float(cal["score"].std())
    assert changed_agents(cal, now.assign(score=now["score"] + 3 * spread)) == (agent,)
    few = now[now["task_id"].isin(sorted(set(now["task_id"]))[:5])]
    assert changed_agents(cal, few.assign(score=few["score"] + 3 * spread)) == ()
    rng, alarms = np.random.default_rng(4), 0
    tasks = np.array(sorted(set(cal["task_id"])))
    for _ in range(100):
        half = set(rng.permutation(tasks)[: tasks.size // 2])
        inside = cal["task_id"].isin(half)
        alarms += bool(changed_agents(cal[inside], cal[~inside]))
    # promised .01 a batch; three standard errors of 100 of them
    assert alarms <= 100 * 0.01 + 3 * np.sqrt(100 * 0.01)
