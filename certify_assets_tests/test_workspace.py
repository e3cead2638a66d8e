"""The platform from Python: one object per thing, from runs to a decided batch."""

from pathlib import Path

import pytest

from certify_assets import CertifyError, InputError, Workspace
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.operations_builders import deliver


@pytest.mark.slow
def test_from_runs_to_certificates_in_one_workspace(tmp_path: Path) -> None:
    root = tmp_path / "root"
    register_runs(
        Store(str(root)), "shop", write_runs(tmp_path / "runs.jsonl", tasks=120), rl=False
    )
    workspace = Workspace.open(str(root))
    assert "shop" in workspace.corpora
    corpus = workspace.corpus("shop")
    corpus.prepare()
    judge = corpus.judge("lexical")
    judge.train()
    judge.score()
    made = judge.certify()
    assert made == judge.certificates and any(item.certified for item in made)
    audited = judge.audit()
    assert {audit.certificate_sha256 for audit in audited.audits} <= {item.sha256 for item in made}
    refusal = corpus.deployment().refusal
    assert refusal is not None and refusal.code == "not_deployed"


@pytest.mark.slow
def test_a_deployment_decides_a_batch(operated: Store, tmp_path: Path) -> None:
    corpus = Workspace.open(operated.root).corpus("c")
    record = corpus.judge("lexical").deploy()
    received = corpus.receive([str(deliver(tmp_path / "new" / "runs.jsonl"))], format="table")
    deployment = corpus.deployment()
    assert deployment.refusal is None and deployment.record == record
    assert received.batch is not None
    first = corpus.decide(received.batch)
    assert first.decided and corpus.decide(received.batch) == first


def test_names_that_do_not_exist_are_refused_when_they_are_opened(tmp_path: Path) -> None:
    workspace = Workspace.open(str(tmp_path))
    with pytest.raises(InputError, match="no corpus is called 'nothing'"):
        workspace.corpus("nothing")
    with pytest.raises(CertifyError, match="no judge 'nobody'"):
        workspace.corpus("miniwob_weak").judge("nobody")
