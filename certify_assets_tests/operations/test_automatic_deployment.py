"""Deployment by the policy of a corpus: what it lets decide, what it does not, and a kill on the way."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.automatic import deploy_by_policy, last_automatic
from certify_assets.operations.certifier import certify_judge
from certify_assets.operations.deploying import redeploy
from certify_assets.operations.deployment import (
    Deployed,
    Deployment,
    load_deployment,
    read_deployments,
)
from certify_assets.operations.monitoring import monitor_judge
from certify_assets.operations.notifications import gather_events
from certify_assets.operations.recertification import recertify
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.operations.test_recertified_deployment import (
    bring,
    judge_of,
    store,  # noqa: F401 - a fixture
    template,  # noqa: F401 - a fixture
)
from certify_assets_tests.operations_builders import raise_alarm


def set_policy(root: Store, policy: str) -> Corpus:
    config = Corpus(root, "c").config
    save_config(root, replace(config, auto_deploy=policy))  # type: ignore[arg-type]
    return Corpus(root, "c")


@pytest.fixture(scope="module")
def recertified(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The deployed corpus after a labelled batch and a recertification that nobody deployed."""
    root = tmp_path_factory.mktemp("recertified_by_policy") / "root"
    shutil.copytree(template, root)
    bring(Store(str(root)), seed=1)
    monitor_judge(judge_of(Store(str(root))))
    record, _ = recertify(judge_of(Store(str(root))))
    assert record is not None
    return root


@pytest.fixture
def ready(recertified: Path, tmp_path: Path) -> Store:
    return Store(str(shutil.copytree(recertified, tmp_path / "root")))


def kinds(root: Store) -> list[str]:
    return [event.kind for event in gather_events(Corpus(root, "c"))]


@pytest.mark.slow
def test_the_policy_takes_no_side_away(ready: Store) -> None:
    corpus = set_policy(ready, "always")
    now = load_deployment(corpus)
    assert now is not None
    known = {name: getattr(now, name) for name in Deployed.model_fields}
    # a budget that nothing meets
    both = Deployed(**{**known, "number": 2, "alpha": {**now.alpha, "release": 0.001}})
    ready.append("c", both)
    made = deploy_by_policy(Corpus(ready, "c"))
    assert made is not None and not made.deployed
    assert "the release side decides now" in made.reason and "by hand" in made.reason


@pytest.mark.slow
def test_the_policy_lets_new_certificates_decide_and_a_rollback_stays(ready: Store) -> None:
    made = deploy_by_policy(set_policy(ready, "never"))
    assert made is not None and made.deployed == 0 and "auto_deploy of the corpus is" in made.reason
    assert kinds(ready) == [] and len(read_deployments(Corpus(ready, "c"))) == 1
    made = deploy_by_policy(set_policy(ready, "always"))
    assert made is not None and made.deployed == 2 and not made.reason, made
    now = load_deployment(Corpus(ready, "c"))
    assert now is not None and now.policy == "always" and now.recertification == 1
    assert Deployment.of(Corpus(ready, "c")).refusal is None and kinds(ready) == ["deployment"]
    # the same again deploys nothing more
    again = deploy_by_policy(Corpus(ready, "c"))
    assert again is not None and again.deployed == 2
    redeploy(Corpus(ready, "c"), 1, track=False)
    back = deploy_by_policy(Corpus(ready, "c"))
    assert back is not None and not back.deployed and "is not deployed again unasked" in back.reason
    assert [item.policy for item in read_deployments(Corpus(ready, "c"))] == ["", "always", ""]
    assert Deployment.of(Corpus(ready, "c")).refusal is None


@pytest.mark.slow
def test_an_open_alarm_keeps_the_policy_from_deploying(store: Store) -> None:  # noqa: F811
    bring(store, seed=1)
    raise_alarm(store)
    record, _ = recertify(judge_of(store))
    assert record is not None and any(side.certified for side in record.sides)
    made = deploy_by_policy(set_policy(store, "always"))
    assert made is not None and not made.deployed and "an alarm is open" in made.reason, made
    assert len(read_deployments(Corpus(store, "c"))) == 1
    assert last_automatic(Corpus(store, "c")) == made


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [True, False])
def test_a_judge_of_a_delivery_is_audited_on_the_audit_sample_of_earlier_batches(
    store: Store,  # noqa: F811
    tmp_path: Path,
    wrong: bool,
) -> None:
    bring(store, seed=1, wrong=wrong)
    if not wrong:
        # newer certificates of the deployed judge, which those of the delivery replace
        assert recertify(judge_of(store))[0] is not None
    config = Corpus(store, "c").config
    added = write_runs(tmp_path / "added.jsonl", tasks=60, attempts=4, seed=3)
    lines = [json.loads(line) for line in added.read_text("utf-8").splitlines()]
    for line in lines:
        line |= {name: f"b-{line[name]}" for name in ("task_id", "trajectory_id", "instruction")}
    added.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    paths = (*config.paths, str(added))
    save_config(store, replace(config, paths=paths, auto_deploy="always"))
    Corpus(store, "c").prepare()
    judge_of(store).train()
    judge_of(store).score()
    certify_judge(judge_of(store))
    audit_judge(judge_of(store))
    made = deploy_by_policy(Corpus(store, "c"))
    assert made is not None
    if wrong:
        assert "on the audit sample of earlier batches the new reject side" in made.reason, made
    assert made.deployed == (0 if wrong else 2), made
