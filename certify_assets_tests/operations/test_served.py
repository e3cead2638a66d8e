"""A deployed judge without its data root: it decides as the platform does, or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import Certificate, decide
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.rollout import deploy
from certify_assets.operations.served import COLUMNS, ServedJudge, export_judge
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


def _deployed(store: Store) -> Deployment:
    deploy(judged(store), track=False)
    return Deployment.of(Corpus(store, "c"))


def _export(deployment: Deployment, folder: Path) -> str:
    assert deployment.judge is not None
    return export_judge(deployment.judge, deployment.certificates, folder)


def _new(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.assign(task_id="new " + runs["task_id"])


def test_a_served_judge_decides_as_the_platform_does_without_its_data_root(
    operated: Store, tmp_path: Path
) -> None:
    deployment = _deployed(operated)
    judge = deployment.judge
    assert judge is not None
    runs = _new(judge.corpus.split("test")).sample(frac=1.0, random_state=3)
    scores = judge.score_runs(runs)[0]["score"].to_numpy(np.float64)
    decisions, reasons = decide(list(deployment.certificates), scores)
    sha256 = _export(deployment, tmp_path / "served")
    shutil.rmtree(operated.root)
    found = ServedJudge.open(tmp_path / "served", sha256).decide(runs[list(COLUMNS)])
    np.testing.assert_array_equal(found["score"], scores)
    assert list(found["decision"]) == list(decisions) and {*decisions} >= {"reject", "human"}
    assert list(found["reason"]) == list(reasons)
    assert {*found["certificate_sha256"]} == {
        ";".join(item.sha256 for item in deployment.certificates)
    }


def test_runs_that_the_certificate_does_not_cover_go_to_a_reviewer(
    operated: Store, tmp_path: Path
) -> None:
    deployment = _deployed(operated)
    sha256 = _export(deployment, tmp_path / "served")
    opened = ServedJudge.open(tmp_path / "served", sha256)
    test = Corpus(operated, "c").split("test")
    rows = [test, _new(test).assign(agent="somebody else")]
    for runs, reason in zip(rows, ("known_task", "new_agent"), strict=True):
        found = opened.decide(runs)
        assert {*found["decision"]} == {"human"} and {*found["reason"]} == {reason}
        assert {*found["certificate_sha256"]} == {""} and found["score"].notna().all()
    texts = b"".join(path.read_bytes() for path in (tmp_path / "served").rglob("served.json"))
    assert not any(task.encode() in texts for task in test["task_id"])
    with pytest.raises(InputError, match="lack steps"):
        opened.decide(test.drop(columns="steps"))
    with pytest.raises(InputError, match="run 1 are not objects with action and observation"):
        opened.decide(test.head(2).assign(steps=[test["steps"].iloc[0], ["click"]]))


@pytest.mark.slow
def test_judges_of_other_families_are_served_as_well(operated: Store, tmp_path: Path) -> None:
    judge = judged(operated, judge="combined")
    judge.train()
    judge.score()
    runs = _new(judge.corpus.split("test"))
    expected = judge.score_runs(runs)[0]["score"]
    opened = ServedJudge.open(tmp_path, export_judge(judge, [], tmp_path))
    np.testing.assert_array_equal(opened.decide(runs)["score"], expected)


def test_without_a_certificate_nothing_is_decided(operated: Store, tmp_path: Path) -> None:
    judge = judged(operated)
    opened = ServedJudge.open(tmp_path, export_judge(judge, [], tmp_path))
    found = opened.decide(_new(Corpus(operated, "c").split("test")))
    assert {*found["decision"]} == {"human"} and {*found["reason"]} == {"no_certificate"}


def _wider(folder: Path) -> None:
    """Forge a certificate with a threshold that decides more, its own document consistent."""
    path = Store(str(folder)).objects.path(_document(folder)["certificates"][0])
    item = json.loads(path.read_bytes())
    path.write_bytes(canonical_json({**item, "delta": item["delta"] / 2}))


def _another_judge(folder: Path) -> None:
    """Put another judge's adapter in, and say so wherever a hash of it is."""
    key, objects = "judges/lexical/c/adapter/weights.safetensors", Store(str(folder)).objects
    files = _document(folder)["files"]
    files[key] = objects.put(objects.get(files[key])[:-1] + b"\x01")
    _rewrite(folder, files=files)


def _document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "served.json").read_bytes())
    return found


def _rewrite(folder: Path, **change: Any) -> None:
    (folder / "served.json").write_bytes(canonical_json(_document(folder) | change))


def _of_another(folder: Path) -> None:
    """Put the certificate of another judge in, under its own hash."""
    objects = Store(str(folder)).objects
    item = Certificate.from_json(objects.get(_document(folder)["certificates"][0]))
    other = item.replace(provenance={**item.provenance, "adapter_sha256": "0" * 64})
    _rewrite(folder, certificates=[objects.put(other.to_json())])


@pytest.mark.parametrize("alter", [_wider, _another_judge, _of_another])
@pytest.mark.parametrize("believed", [False, True])
def test_what_is_not_as_deployed_decides_nothing(
    operated: Store, tmp_path: Path, alter: Any, believed: bool
) -> None:
    sha256 = _export(_deployed(operated), tmp_path)
    alter(tmp_path)
    if believed:
        # somebody who can write the hash that the server is given as well
        sha256 = sha256_bytes((tmp_path / "served.json").read_bytes())
    with pytest.raises(CertifyError) as caught:
        ServedJudge.open(tmp_path, sha256)
    assert isinstance(caught.value, IntegrityError), caught.value
