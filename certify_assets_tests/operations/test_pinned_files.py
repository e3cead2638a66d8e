"""A deployment decides by what it was made of, whatever is delivered or trained later."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batches import BatchRecord
from certify_assets.operations.certifier import certify_judge
from certify_assets.operations.checks import deployment_stands
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy, redeploy
from certify_assets.operations.deployment import DeploymentRecord, behind, open_deployment
from certify_assets.operations.history import operation_history
from certify_assets.operations.lineage import follow
from certify_assets.operations.receiving import receive
from certify_assets.operations.recertification import recertify_deployed
from certify_assets.operations.spending import read_spending
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.operations_builders import deliver


def judge_of(store: Store) -> JudgedCorpus:
    return judged(store)


def put(store: Store) -> DeploymentRecord:
    return deploy(judge_of(store), sampling=SamplingPlan(0.0, 5), track=False)


def add_runs(store: Store, path: Path) -> None:
    """Deliver labelled runs of new tasks, and let the line train and certify on them."""
    config = Corpus(store, "c").config
    added = write_runs(path, tasks=40, attempts=4, seed=3)
    lines = [json.loads(line) for line in added.read_text("utf-8").splitlines()]
    for line in lines:
        line |= {name: f"b-{line[name]}" for name in ("task_id", "trajectory_id", "instruction")}
    added.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    save_config(store, replace(config, paths=(*config.paths, str(added))))
    Corpus(store, "c").prepare()


def train_again(store: Store) -> None:
    judge_of(store).train()
    judge_of(store).score()
    certify_judge(judge_of(store))
    audit_judge(judge_of(store))


def decided(store: Store, folder: Path, *, seed: int) -> BatchRecord:
    receive(Corpus(store, "c"), [str(deliver(folder / f"{seed}.jsonl", tasks=10, seed=seed))])
    return decide_ready(Corpus(store, "c"))[-1]


@pytest.mark.slow
def test_a_delivery_and_a_training_change_no_decision(operated: Store, tmp_path: Path) -> None:
    first = put(operated)
    before = decided(operated, tmp_path, seed=11)
    assert before.decided and behind(Corpus(operated, "c"), first) == ""
    add_runs(operated, tmp_path / "added.jsonl")
    during = decided(operated, tmp_path, seed=12)
    train_again(operated)
    after = decided(operated, tmp_path, seed=13)
    assert judge_of(operated).artifact.adapter_sha256 != first.fingerprint["adapter_sha256"]
    for document in (during, after):
        assert document.decided, document.refusal
        assert document.certificates == first.certificates
        frame = decisions_of(Corpus(operated, "c"), document.batch)
        assert set(frame["adapter_sha256"]) == {first.fingerprint["adapter_sha256"]}
    _, (link,) = follow(operated, "new-13-task-000/0")
    assert not any(part.broken for part in link.walk())
    stands = deployment_stands(Corpus(operated, "c"))
    assert stands.status == "PASS" and "decides by version 1 of the corpus" in (stands.sentence)
    second = put(operated)
    assert second.objects != first.objects and behind(Corpus(operated, "c"), second) == ""
    # the history has what each of them certified
    steps = operation_history(Corpus(operated, "c")).steps
    assert [(step.label, step.deployed) for step in steps] == [
        ("lexical, first", (1,)),
        ("lexical, later", (2,)),
    ]
    for step, made in zip(steps, (first, second), strict=True):
        assert tuple(side.certificate_sha256 for side in step.sides) == made.certificates
    back = redeploy(Corpus(operated, "c"), 1, track=False)
    assert (back.objects, back.certificates) == (first.objects, first.certificates)
    # the same runs under other names have the same scores as under the first deployment
    scores = decisions_of(Corpus(operated, "c"), decided(operated, tmp_path, seed=14).batch)[
        "score"
    ]
    assert scores.notna().all()
    assert open_deployment(Corpus(operated, "c")).refusal is None


def deliver_again(
    store: Store, folder: Path, change: Callable[[list[dict[str, Any]]], object]
) -> None:
    """Deliver the runs of the corpus again, with a change."""
    config = Corpus(store, "c").config
    source = Path(config.paths[0])
    rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    change(rows)
    changed = folder / source.name
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    save_config(store, replace(config, paths=(str(changed),)))
    Corpus(store, "c").import_trajectories()


@pytest.mark.parametrize("renamed", [False, True], ids=["same_ids", "other_ids"])
def test_a_label_of_cal_that_is_corrected_ends_the_deployment(
    operated: Store, tmp_path: Path, renamed: bool
) -> None:
    put(operated)
    cal = set(Corpus(operated, "c").manifest.tasks["cal"])

    def correct(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["task_id"] in cal)
        row["outcome"] = 1 - row["outcome"]
        for each in rows if renamed else ():
            each["trajectory_id"] = f"again-{each['trajectory_id']}"

    deliver_again(operated, tmp_path, correct)
    refusal = open_deployment(Corpus(operated, "c")).refusal
    assert refusal is not None and refusal.code == "corrected_labels"
    assert "1 runs of CAL" in refusal.sentence and "have other labels than" in refusal.sentence
    document = decided(operated, tmp_path, seed=11)
    assert not document.decided and document.reasons == {"corrected_labels": 40}
    # the judge is what it was, and a certificate of the batch holds whatever labels certified it
    assert document.decisions == {"provisional": 40}
    # no way leads back to it, and no δ is spent on the labels that were wrong
    with pytest.raises(GateClosedError, match="have other labels than"):
        redeploy(Corpus(operated, "c"), 1, track=False)
    record, said = recertify_deployed(Corpus(operated, "c"))
    assert record is None and "Nothing was spent." in said
    assert not read_spending(Corpus(operated, "c")).claims


def test_ids_that_pass_to_other_runs_correct_no_label(operated: Store, tmp_path: Path) -> None:
    put(operated)

    def number_again(rows: list[dict[str, Any]]) -> None:
        for place in range(0, len(rows), 4):
            names = [row["trajectory_id"] for row in rows[place : place + 4]]
            for row, name in zip(rows[place : place + 4], names[1:] + names[:1], strict=True):
                row["trajectory_id"] = name

    deliver_again(operated, tmp_path, number_again)
    assert open_deployment(Corpus(operated, "c")).refusal is None


@pytest.mark.parametrize(
    ("what", "file"), [("gone", "scores.parquet"), ("altered", "adapter/weights.safetensors")]
)
def test_nothing_is_decided_where_an_object_is_not_what_it_was(
    operated: Store, tmp_path: Path, file: str, what: str
) -> None:
    made = put(operated)
    path = operated.objects.path(made.objects[f"judges/lexical/c/{file}"])
    path.unlink() if what == "gone" else path.write_bytes(path.read_bytes()[:-1] + b"?")
    document = decided(operated, tmp_path, seed=11)
    assert document.refusal is not None and document.refusal.code == "stale_certificate"
    assert f"{what}; restore it from a backup" in document.refusal.sentence
