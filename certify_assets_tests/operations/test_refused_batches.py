"""Batches of a deployment whose certificates may not decide: a certificate of the batch does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit_sample import SamplingPlan, drawn_decisions
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batches import BatchRecord
from certify_assets.operations.checks import deployment_stands
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.lineage import follow
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.operations_builders import (
    deliver,
    fail_audit,
    label_draw,
    pin_present_files,
    raise_alarm,
)

PLAN = SamplingPlan(0.2, 5)
RUNS = 200


def decided(store: Store, folder: Path) -> BatchRecord:
    receive(Corpus(store, "c"), [str(deliver(folder / "new.jsonl", tasks=RUNS // 4))])
    (document,) = decide_ready(Corpus(store, "c"))
    return document


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (fail_audit, "failed_audit"),
        (raise_alarm, "alarm"),
    ],
    ids=["failed_audit", "alarm"],
)
def test_a_certificate_of_the_batch_decides_what_the_corpus_certificate_may_not(
    operated: Store, tmp_path: Path, fault: Callable[[Store], None], code: str
) -> None:
    deploy(judged(operated), sampling=PLAN, track=False)
    fault(operated)
    pin_present_files(operated)
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
    assert document.remarks[-1].startswith(f"{code}: ")
    assert deployment_stands(corpus).status == "ERROR"
    # tasks are drawn as they are in any batch
    assert len(drawn_decisions(corpus)) == RUNS
    label_draw(operated, document.batch)
    corpus = Corpus(operated, "c")
    audit = BatchAudit.load(corpus, document.batch)
    assert audit is not None and audit.state == "certified" and audit.decided > 0
    assert len(drawn_decisions(corpus)) == RUNS
    frame = decisions_of(corpus, document.batch)
    run = frame.loc[frame["decision"] == "reject", "trajectory_id"].iloc[0]
    assert follow(operated, run)[1]
