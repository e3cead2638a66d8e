"""Deliveries too small for a draw of their own: their provisional runs share one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from certify_assets.cli.ops import ops
from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.audit_sample import SamplingPlan, drawn_decisions
from certify_assets.operations.batch_audit import BatchAudit, batch_audits
from certify_assets.operations.batch_drawing import close_batches, waiting_runs
from certify_assets.operations.batches import BatchRecord, draw_of
from certify_assets.operations.checks import batches_certified
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import PROVISIONAL, first_decisions_of, load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.lineage import follow
from certify_assets.operations.receiving import receive, undo_batch
from certify_assets.operations.review_queue import load_queue
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import agreeing, deliver, label_draw

# runs of a delivery
RUNS = 80


@pytest.fixture
def deployed(operated: Store) -> Store:
    configure(operated, batch_runs=2 * RUNS)
    redeploy(operated)
    return operated


def configure(store: Store, **given: Any) -> None:
    save_config(store, replace(Corpus(store, "c").config, **given))


def redeploy(store: Store) -> None:
    judge = judged(store)
    deploy(judge, sampling=SamplingPlan(0.1, 5), track=False)


def of_a_new_agent(record: dict[str, Any]) -> None:
    record["agent"] = "agent-new"


def decided(store: Store, folder: Path, seed: int, **given: Any) -> BatchRecord:
    path = deliver(folder / f"{seed}.jsonl", tasks=RUNS // 4, seed=seed, change=of_a_new_agent)
    receive(Corpus(store, "c"), [str(path)])
    (record,) = decide_ready(Corpus(store, "c"), **given)
    return record


def require_sound(store: Store) -> None:
    verdict = batches_certified(Corpus(store, "c"))
    assert verdict.status == "PASS", verdict


@pytest.mark.slow
def test_two_small_deliveries_end_certified_by_one_draw(deployed: Store, tmp_path: Path) -> None:
    first = decided(deployed, tmp_path, 3)
    corpus = Corpus(deployed, "c")
    assert first.decisions == {PROVISIONAL: RUNS}
    assert not first.promises and [item["code"] for item in first.findings][-1] != "not_drawn"
    (finding,) = [item for item in first.findings if item["code"] == "waits_for_draw"]
    assert f"{RUNS} runs of {first.batch} wait for a draw" in finding["message"]
    (finding,) = [item for item in first.findings if item["code"] == "new_agents"]
    assert re.search(rf"about \d+ labels .* decide \d+ of {RUNS} runs", finding["message"])
    assert batch_audits(corpus)[0] == []
    (waiting,) = waiting_runs(corpus)
    assert (waiting.batches, waiting.runs) == ((first.batch,), RUNS)
    kinds = set(load_queue(corpus).frame["kind"])
    assert "batch_draw" not in kinds
    said = batches_certified(corpus)
    assert said.status == "PASS" and "wait for a draw" in said.sentence
    # what a dry run says of them
    path = deliver(tmp_path / "later.jsonl", tasks=RUNS // 4, seed=4, change=of_a_new_agent)
    strange, waits = receive(corpus, [str(path)], dry_run=True).sentences
    assert strange.startswith(f"{RUNS} runs are of agents that CAL lacks (agent-new)")
    assert first.batch in waits and re.search(r"about \d+ labels", waits)

    second = decided(deployed, tmp_path, 4)
    corpus = Corpus(deployed, "c")
    assert waiting_runs(corpus) == []
    assert "these 2 batches together" in second.promises[0]
    (audit,) = batch_audits(corpus)[0]
    assert audit.record.batch == second.batch and audit.record.draws == 1
    assert audit.record.batches == (first.batch, second.batch)
    assert [draw_of(corpus, name) for name in audit.record.batches] == [second.batch] * 2
    frame = load_decisions(corpus)
    waits = frame[frame["decision"] == PROVISIONAL]
    assert set(waits["trajectory_id"]) == set(audit.runs)
    assert set(waits["batch"]) == {first.batch, second.batch}
    # of both batches what no threshold decides is with reviewers at once
    assert set(frame.loc[frame["decision"] == "human", "asked"]) <= {"undecided", "audit_sample"}
    assert set(first_decisions_of(corpus, first.batch)["decision"]) == {PROVISIONAL}
    queue = load_queue(corpus)
    drawn = queue.frame[queue.frame["kind"] == "batch_draw"]
    assert tuple(drawn["trajectory_id"]) == audit.wanted
    assert set(drawn["batch"]) == {first.batch, second.batch}
    assert [item.batch for item in queue.budget.draws] == [second.batch]

    status = CliRunner().invoke(ops, ["status", "c", "--root", deployed.root]).output
    assert f"{first.batch} and {second.batch}" in status and "u000a" not in status

    label_draw(deployed, second.batch)
    corpus = Corpus(deployed, "c")
    (shown,) = batch_audits(corpus)[0]
    assert (shown.state, shown.record.batches) == ("certified", audit.record.batches)
    assert shown.sentence.startswith(f"{first.batch} and {second.batch}: ")
    frame = load_decisions(corpus)
    assert PROVISIONAL not in set(frame["decision"])
    judged = frame[frame["reason"] == "batch_certificate"]
    assert len(judged) == shown.decided and set(judged["batch"]) == {first.batch, second.batch}
    require_sound(deployed)
    assert len(drawn_decisions(Corpus(deployed, "c"))) == 2 * RUNS
    for name in (first.batch, second.batch):
        for reason in ("batch_certificate", "batch_draw"):
            rows = frame[(frame["batch"] == name) & (frame["reason"] == reason)]
            _, (link,) = follow(deployed, rows["trajectory_id"].iloc[0])
            assert not [part for part in link.walk() if part.broken]
            assert {"audit", "closing"} <= {part.kind for part in link.walk()}


@pytest.mark.slow
def test_what_waits_is_drawn_when_it_is_old_or_when_it_is_asked_for(
    deployed: Store, tmp_path: Path
) -> None:
    first = decided(deployed, tmp_path, 3)
    close_batches(Corpus(deployed, "c"))
    assert waiting_runs(Corpus(deployed, "c"))
    configure(deployed, batch_days=0)
    (summary,), _ = close_batches(Corpus(deployed, "c"))
    assert summary.record.batches == (first.batch,) and summary.wanted
    configure(deployed, batch_days=28)
    second = decided(deployed, tmp_path, 4)
    shown = CliRunner().invoke(ops, ["ingest", "c", "--draw", "--root", deployed.root])
    assert shown.exit_code == 0, shown.output
    assert f"{second.batch}: " in shown.stdout and "are provisional; its draw has 0" in shown.stdout
    corpus = Corpus(deployed, "c")
    assert waiting_runs(corpus) == [] and draw_of(corpus, second.batch) == second.batch
    assert [item.record.batch for item in batch_audits(corpus)[0]] == [first.batch, second.batch]
    for record in (first, second):
        label_draw(deployed, record.batch)
    assert PROVISIONAL not in set(load_decisions(Corpus(deployed, "c"))["decision"])
    require_sound(deployed)
    _, (link,) = follow(deployed, first.batch)
    assert {"audit", "closing"} <= {part.kind for part in link.walk()}


def test_reviewers_get_the_runs_of_a_judge_that_is_gone(deployed: Store, tmp_path: Path) -> None:
    first = decided(deployed, tmp_path, 3)
    (waiting,) = waiting_runs(Corpus(deployed, "c"))
    scores = waiting.deployed.judge_on(Corpus(deployed, "c")).calibration[1]["scores_sha256"]
    deployed.objects.path(scores).unlink()
    configure(deployed, batch_days=0)
    close_batches(Corpus(Store(deployed.root), "c"))
    corpus = Corpus(Store(deployed.root), "c")
    assert waiting_runs(corpus) == [] and draw_of(corpus, first.batch) == ""
    frame = load_decisions(corpus)
    assert set(frame["decision"]) == {"human"} and len(frame) == RUNS
    assert "undecided" in set(load_queue(corpus).frame["kind"])


def test_runs_of_another_judge_share_no_draw(deployed: Store, tmp_path: Path) -> None:
    first = decided(deployed, tmp_path, 3)
    # the same judge with the same certificates again
    redeploy(deployed)
    (waiting,) = waiting_runs(Corpus(deployed, "c"))
    assert waiting.batches == (first.batch,) and not waiting.is_due
    other = {**waiting.deployed.fingerprint, "adapter_sha256": "0"}
    trained = waiting.deployed.model_copy(update={"fingerprint": other})
    assert replace(waiting, deployed=trained).is_due


@pytest.mark.slow
def test_a_batch_of_a_shared_draw_is_taken_back_until_it_is_labelled(
    deployed: Store, tmp_path: Path
) -> None:
    first, second = (decided(deployed, tmp_path, seed) for seed in (3, 4))
    before = BatchAudit.load(Corpus(deployed, "c"), second.batch)
    assert before is not None
    undo_batch(Corpus(deployed, "c"), first.batch)
    corpus = Corpus(deployed, "c")
    # the others wait again
    assert batch_audits(corpus)[0] == [] and draw_of(corpus, second.batch) is None
    assert [item.batches for item in waiting_runs(corpus)] == [(second.batch,)]
    assert not load_queue(corpus).faults
    assert follow(deployed, second.batch)[1]
    # a part of the second batch is with reviewers since its draw
    configure(deployed, batch_runs=RUNS + 1)
    third = decided(deployed, tmp_path, 5)
    corpus = Corpus(deployed, "c")
    (audit,) = batch_audits(corpus)[0]
    # a further draw of the same runs is counted
    assert audit.record.batches == (second.batch, third.batch) and audit.record.draws == 2
    assert audit.draw.plan.delta < before.draw.plan.delta
    name = audit.wanted[0]
    append_labels(corpus, [Label(name, agreeing(audit)[name], "ann", "cli", name)])
    quiet = next(
        one.batch
        for one in (second, third)
        if name not in set(first_decisions_of(corpus, one.batch)["trajectory_id"])
    )
    with pytest.raises(InputError, match="A reviewed batch cannot be undone"):
        undo_batch(Corpus(deployed, "c"), quiet)
    label_draw(deployed, third.batch)
    require_sound(deployed)
