"""Batches of a deployment whose certificates may not decide: a certificate of the batch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import drawn_decisions
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batches import close_batches, decide_ready, receive
from certify_assets.operations.checks import (
    decided_by_deployed,
    deployment_stands,
    drawn_as_planned,
)
from certify_assets.operations.decisions import BatchRecord, summarize
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.layout import decisions_of
from certify_assets.operations.lineage import find, walk
from certify_assets.operations.rollout import deploy
from certify_assets.operations.sampling import SamplingPlan
from certify_assets.storage.store import Store
from certify_assets_tests.operations_builders import (
    agreeing,
    alter_copies,
    deliver,
    empty_deployment,
    fail_audit,
    raise_alarm,
)

PLAN = SamplingPlan(0.2, 0.3, 5)
RUNS = 200


def decided(store: Store, folder: Path) -> BatchRecord:
    receive(Corpus(store, "c"), [str(deliver(folder / "new.jsonl", tasks=RUNS // 4))])
    (document,) = decide_ready(Corpus(store, "c"))
    return document


def label_draw(store: Store, batch: str) -> None:
    """Label what the draw wants until the batch is closed, as the judge expects."""
    while (audit := BatchAudit.load(Corpus(store, "c"), batch)) is not None and audit.wanted:
        said = agreeing(audit)
        labels = [Label(name, said[name], "ann", "cli", name) for name in audit.wanted]
        append_labels(Corpus(store, "c"), labels)
    close_batches(Corpus(store, "c"))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (empty_deployment, "no_certificate"),
        (fail_audit, "failed_audit"),
        (raise_alarm, "alarm"),
    ],
    ids=["no_certificate", "failed_audit", "alarm"],
)
def test_a_certificate_of_the_batch_decides_what_the_corpus_certificate_may_not(
    operated: Store, tmp_path: Path, fault: Callable[[Store], None], code: str
) -> None:
    deploy(JudgedCorpus(Corpus(operated, "c"), "lexical"), sampling=PLAN, track=False)
    fault(operated)
    alter_copies(operated)
    document = decided(operated, tmp_path)
    corpus = Corpus(operated, "c")
    frame = decisions_of(corpus, document.batch)
    assert not document.decided and document.refusal is not None
    assert document.refusal.code == code and document.reasons == {code: RUNS}
    assert frame["score"].notna().all() and set(frame["certificate_sha256"]) == {""}
    assert frame["reject_threshold"].isna().all()
    assert set(frame["decision"]) <= {"provisional", "human"}
    assert document.decisions["provisional"] > RUNS / 2
    assert [text.split(":")[0] for text in document.promises] == ["batch certificate"]
    assert f"are provisional and reviewers get the others, {code}" in summarize([document])[1]
    assert deployment_stands(corpus).status == "ERROR"
    # tasks are drawn as they are in any batch, and nothing passes for decided
    assert drawn_as_planned(corpus).status == "PASS" and len(drawn_decisions(corpus)) == RUNS
    assert decided_by_deployed(corpus).status == "WARN"
    label_draw(operated, document.batch)
    corpus = Corpus(operated, "c")
    audit = BatchAudit.load(corpus, document.batch)
    assert audit is not None and audit.state == "certified" and audit.decided > 0
    assert decided_by_deployed(corpus).status == "PASS" and len(drawn_decisions(corpus)) == RUNS
    frame = decisions_of(corpus, document.batch)
    run = frame.loc[frame["decision"] == "reject", "trajectory_id"].iloc[0]
    (found,) = find(operated, run)
    assert walk(operated, found) is not None
