"""Batches of a deployment whose certificates may not decide: a certificate of the batch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError
from certify_assets.operations.audit_sample import drawn_decisions
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batches import BatchRecord
from certify_assets.operations.checks import (
    decided_by_deployed,
    deployment_stands,
    drawn_as_planned,
)
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy, redeploy
from certify_assets.operations.deployment import Deployment, load_deployment
from certify_assets.operations.history import write_history
from certify_assets.operations.lineage import follow
from certify_assets.operations.monitoring import monitor_deployed
from certify_assets.operations.receiving import receive
from certify_assets.operations.sampling import SamplingPlan
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
    assert follow(operated, run)[1]


def test_a_judge_that_certifies_nothing_is_deployed_for_batch_certificates_alone(
    operated: Store, tmp_path: Path
) -> None:
    judge = judged(operated)
    operated.delete("judges/lexical/c/audits.json")
    with pytest.raises(GateClosedError):
        deploy(judge, sampling=PLAN, track=False)
    # scores are enough: the certificates of batches need none of the judge
    operated.delete("judges/lexical/c/certificates.json")
    judge = judged(operated)
    made = deploy(judge, sampling=PLAN, batch_only=True, track=False)
    assert made.batch_alpha == {"reject": 0.1, "release": 0.1} and not made.certificates
    corpus = Corpus(operated, "c")
    assert Deployment.of(corpus).refusal is None and load_deployment(corpus) == made
    said = deployment_stands(corpus)
    assert said.status == "PASS"
    assert (
        "lexical decides (batch certificates alone, reject at 10 %, release at 10 %"
        in said.sentence
    )
    document = decided(operated, tmp_path)
    assert document.decided and document.refusal is None
    assert document.reasons == {"no_certificate": RUNS} and document.certificates == ()
    assert document.decisions["provisional"] > RUNS / 2
    assert [text.split(":")[0] for text in document.promises] == ["batch certificate"]
    label_draw(operated, document.batch)
    corpus = Corpus(operated, "c")
    audit = BatchAudit.load(corpus, document.batch)
    assert audit is not None and audit.state == "certified" and audit.decided > 0
    assert decided_by_deployed(corpus).status == "PASS"
    assert monitor_deployed(corpus) is not None and write_history(corpus)
    assert redeploy(Corpus(operated, "c"), made.number, track=False) == made


def test_batches_are_certified_only_where_the_corpus_lets_them_be(operated: Store) -> None:
    corpus = Corpus(operated, "c")
    save_config(operated, replace(corpus.config, new_agents="review"))
    with pytest.raises(GateClosedError, match="its new_agents is review"):
        deploy(judged(operated), batch_only=True, track=False)
