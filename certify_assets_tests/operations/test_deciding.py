from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import decide
from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import deciding
from certify_assets.operations.audit_sample import RunDraw, SamplingPlan
from certify_assets.operations.batches import BatchRecord, batch_runs
from certify_assets.operations.checks import deployment_stands
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import DECISION_COLUMNS, PROVISIONAL, decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import load_deployment, open_deployment
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.batch_builders import stored_object
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import (
    deliver,
    fail_audit,
    other_scores,
    pin_present_files,
    raise_alarm,
)
from certify_assets_tests.recertification_builders import draw_tasks, label_rows

PLAN = SamplingPlan(0.2, 5)


def between(monkeypatch: pytest.MonkeyPatch, store: Store, fault: Callable[[Store], None]) -> None:
    """Let something happen once, in a view of its own, when the runs of a batch are scored."""
    scored, left = JudgedCorpus.score_runs, [fault]

    def score_runs(judge: JudgedCorpus, *args: Any, **kwargs: Any) -> Any:
        found = scored(judge, *args, **kwargs)
        for happens in left:
            left.clear()
            happens(Store(store.root))
        return found

    monkeypatch.setattr(JudgedCorpus, "score_runs", score_runs)


@pytest.fixture
def deployed(operated: Store) -> Store:
    deploy(judged(operated), sampling=PLAN, track=False)
    return operated


def decided(store: Store, tmp_path: Path, **delivery: Any) -> BatchRecord:
    receive(Corpus(store, "c"), [str(deliver(tmp_path / "new.jsonl", **delivery))])
    (document,) = decide_ready(Corpus(store, "c"))
    return document


@pytest.mark.parametrize("alarm", [False, True])
def test_scores_of_another_scale_decide_nothing(
    deployed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alarm: bool
) -> None:
    if alarm:
        raise_alarm(deployed)
    scored = JudgedCorpus.score_runs

    def score_runs(*given: Any, **options: Any) -> Any:
        table, bill = scored(*given, **options)
        return table.assign(score=1 / (1 + np.exp(-table["score"]))), bill

    monkeypatch.setattr(JudgedCorpus, "score_runs", score_runs)
    document = decided(deployed, tmp_path, tasks=60)
    assert document.refusal is not None and document.refusal.code == "stale_certificate"
    assert "as probabilities are" in document.refusal.sentence
    assert document.decisions == {"human": 240}
    # which says nothing of what the corpus certificate covers
    assert "not_drawn" not in {item["code"] for item in document.findings}


def test_every_row_says_what_it_stands_on(deployed: Store, tmp_path: Path) -> None:
    document = decided(deployed, tmp_path, tasks=40)
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    certificates = open_deployment(Corpus(deployed, "c")).certificates
    assert tuple(frame.columns) == DECISION_COLUMNS and len(frame) == 160 and document.decided
    runs = batch_runs(Corpus(deployed, "c"), document.batch)
    again = judged(deployed).score_runs(runs)[0]
    assert (
        np.array_equal(frame["score"], again["score"])
        and frame["trajectory_id"].tolist() == runs["trajectory_id"].tolist()
    )
    expected = decide(certificates, frame["score"].to_numpy())
    assert (
        frame["decision"].tolist() == expected.decisions.tolist()
        and frame["reason"].tolist() == expected.reasons.tolist()
    )
    assert set(frame["certificate_sha256"]) == {";".join(item.sha256 for item in certificates)}
    made = load_deployment(Corpus(deployed, "c"))
    judge = made.judge_on(Corpus(deployed, "c"))
    assert document.deployment == made.number and document.certificates == made.certificates
    assert set(frame["adapter_sha256"]) == {judge.artifact.adapter_sha256}
    assert deployed.now().holds(**document.ledger)
    assert (frame["reject_threshold"] == certificates[0].threshold).all() and frame[
        "release_threshold"
    ].isna().all()
    assert document.decisions == {
        name: int((frame["decision"] == name).sum()) for name in sorted(set(frame["decision"]))
    }
    assert (
        0 < document.decisions["reject"] < 160
        and Corpus(deployed, "c").last(BatchRecord, document.batch).content == document
    )


def test_people_are_asked_as_the_plan_draws(deployed: Store, tmp_path: Path) -> None:
    document = decided(deployed, tmp_path, tasks=200, attempts=2)
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    places = draw_tasks(PLAN, "c", frame["task_id"])
    human = (frame["decision"] == "human").to_numpy()
    drawn = frame["trajectory_id"].isin(RunDraw.load(Corpus(deployed, "c"), document.batch).drawn)
    one_each = frame[drawn].groupby("task_id").size()
    assert (one_each == 1).all() and set(one_each.index) == set(frame["task_id"][places])
    assert ((frame["asked"] == "audit_sample") == drawn).all(), (
        "one run of a drawn task, whatever was decided"
    )
    assert ((frame["asked"] == "undecided") == (human & ~drawn)).all()
    # binomial standard error .028
    assert abs(document.drawn_tasks / 200 - 0.2) < 4 * 0.028


def test_the_same_runs_give_the_same_bytes(operated: Store, tmp_path: Path) -> None:
    tables = []
    for share in (2000, 7):
        store = Store(f"{operated.root}-{share}")
        subprocess.run(["cp", "-r", operated.root, store.root], check=True)
        deploy(judged(store), sampling=PLAN, track=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(deciding, "_SHARE", share)
            document = decided(store, tmp_path, tasks=10)
        tables.append(
            [
                stored_object(store, "c", document.batch, name)
                for name in ("runs", "scores", "decisions")
            ]
        )
    assert tables[0] == tables[1]


def test_tasks_that_were_seen_and_runs_that_changed_go_to_people(
    deployed: Store, tmp_path: Path
) -> None:
    save_config(deployed, replace(Corpus(deployed, "c").config, batch_runs=1))
    cal = Corpus(deployed, "c").split("cal")["task_id"].iloc[0]
    decided(deployed, tmp_path, tasks=6)

    def change(record: dict[str, Any]) -> None:
        record["agent"] = "stranger"
        if record["task_id"].endswith("task-007"):
            record["task_id"] = cal

    document = decided(deployed, tmp_path, tasks=8, change=change)
    frame = decisions_of(Corpus(deployed, "c"), document.batch).set_index("trajectory_id")
    assert document.reasons == {"changed_run": 24, "known_task": 4, "new_agent": 4}
    aside = frame[frame["reason"].isin(["changed_run", "known_task"])]
    assert (
        set(aside["decision"]) == {"human"}
        and set(aside["asked"]) == {"undecided"}
        and len(frame) == 32
    )
    findings = {finding["code"]: finding["message"] for finding in document.findings}
    assert findings["seen_tasks"].startswith("4 runs are of tasks of the splits (4 of CAL)")
    assert (
        "32 runs are of agents that CAL lacks (stranger; CAL has agent-0" in findings["new_agents"]
    )
    assert "24 runs came before" in findings["changed_runs"]
    assert "Reviewers get the 8 runs" in findings["not_drawn"]


def spoil_weights(store: Store) -> None:
    key = "judges/lexical/c/adapter/weights.safetensors"
    data = bytearray(store.read_bytes(key))
    data[-1] ^= 1
    store.write_bytes(key, bytes(data))


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        (other_scores, "stale_certificate", "ERROR"),
        (spoil_weights, "stale_certificate", "ERROR"),
        (fail_audit, "failed_audit", "ERROR"),
        (raise_alarm, "alarm", "ERROR"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_where_the_deployment_does_not_stand_it_decides_nothing(
    deployed: Store, tmp_path: Path, fault: Callable[[Store], None], code: str, status: str
) -> None:
    fault(deployed)
    pin_present_files(deployed)
    document = decided(deployed, tmp_path, tasks=20)
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    assert not document.decided and document.refusal.code == code and document.reasons == {code: 80}
    assert set(frame["certificate_sha256"]) == {""}
    # a certificate of the batch holds whatever the judge, so its runs are scored and wait
    waits = code in ("failed_audit", "alarm")
    assert set(frame["decision"]) == {PROVISIONAL if waits else "human"}
    assert (frame["score"].notna() == waits).all()
    assert set(frame["asked"]) == {"" if waits else "undecided", "audit_sample"}
    assert deployment_stands(Corpus(deployed, "c")).status == status


@pytest.mark.parametrize("labels", [False, True])
def test_standing_is_asked_again_once_a_batch_is_scored(
    deployed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: bool
) -> None:
    fault: Callable[[Store], None] = raise_alarm
    if labels:
        before = decided(deployed, tmp_path, tasks=120, seed=8)
        rows = decisions_of(Corpus(deployed, "c"), before.batch)
        # the contrary of what was decided
        drawn = rows[rows["asked"] == "audit_sample"]
        drawn = drawn.assign(truth=(drawn["decision"] == "reject").astype(int))
        fault = partial(label_rows, corpus="c", frame=drawn)
    between(monkeypatch, deployed, fault)
    document = decided(deployed, tmp_path, tasks=50)
    frame = decisions_of(Corpus(deployed, "c"), document.batch)
    assert not document.decided and document.refusal.code == "alarm"
    assert not {"reject", "release"} & set(frame["decision"])
    assert document.reasons == {"alarm": 200} and set(frame["certificate_sha256"]) == {""}
    # a certificate of the batch holds whatever the judge
    assert "provisional" in set(frame["decision"])


def test_a_batch_that_another_process_decides_meanwhile_is_passed_over(
    deployed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive(Corpus(deployed, "c"), [str(deliver(tmp_path / "x.jsonl"))])
    waits = Store.workplace

    def workplace(view: Store, key: str) -> AbstractContextManager[Path]:
        monkeypatch.setattr(Store, "workplace", waits)
        assert len(decide_ready(Corpus(Store(deployed.root), "c"))) == 1
        return waits(view, key)

    monkeypatch.setattr(Store, "workplace", workplace)
    assert decide_ready(Corpus(deployed, "c")) == []
