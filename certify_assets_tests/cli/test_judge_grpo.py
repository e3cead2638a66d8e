"""A GRPO judge of judges.yaml by TRL: trained by the command, certified by its jobs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.store import Store
from certify_assets_tests.arms_builders import CORPUS, small_corpus, start_judge
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.paths import REPOSITORY

pytestmark = pytest.mark.slow

_ENTRY = {
    "name": "sampled",
    "family": "grpo",
    "optimiser": "trl",
    "rewards": [{"lambda": 2, "mu": 3}],
    "steps": [1, 7],
    "samples": 2,
    "prompts_per_step": 2,
}
_TRAIN = [sys.executable, *f"-m certify_assets.cli judge train {CORPUS} --judge sampled".split()]
_PARTS = ("model", "scores", "certificate", "audit", "report")
_JOBS = f"""
import dagster as dg
from certify_assets.definitions import defs
from certify_assets.defs.names import CORPORA
from certify_assets.defs.project import this_project
quiet = {{"loggers": {{"console": {{"config": {{"log_level": "CRITICAL"}}}}}}}}
quiet["resources"] = {{"mlflow": {{"config": {{"enabled": False}}}}}}
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions(CORPORA, ["{CORPUS}"])
    made = defs.resolve_job_def("train_lm_judges").execute_in_process(
        run_config=quiet,
        instance=instance,
        partition_key="{CORPUS}",
        asset_selection=this_project().keys("judges/sampled", *{_PARTS}),
    )
    assert made.success
"""


def _world(folder: Path) -> Path:
    store = small_corpus(folder, tasks=100)
    Corpus(store, CORPUS).prepare()
    start_judge(store, epochs=10.0)
    (Path(store.root) / "judges.yaml").write_text(yaml.safe_dump({"judges": [_ENTRY]}), "utf-8")
    return Path(store.root)


def _run(root: Path, *command: str) -> str:
    environment = platform_environment(root)
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_trl_trains_by_command_and_is_certified_by_its_jobs(tmp_path: Path) -> None:
    root = _world(tmp_path)
    made = json.loads(_run(root, *_TRAIN, "--json"))
    assert made["training"]["optimiser"] == "trl" and made["training"]["config"]["samples"] == 2
    assert made["training"]["arms"] == {"lambda_2_mu_3": {"lam": 2.0, "mu": 3.0}}
    # the start, and the arm after either number of steps
    assert made["candidates"] == 3
    _run(root, sys.executable, "-c", _JOBS)
    judge = JudgedCorpus(Corpus(Store(str(root)), CORPUS), "sampled")
    (certificate, *_) = judge.store.read_json(judge.key("certificates.json"))["certificates"]
    assert certificate["provenance"]["optimiser"] == "GRPO of TRL, 2 samples a prompt"
    page = judge.store.read_bytes(judge.key("page.html")).decode("utf-8")
    assert "GRPO of TRL, 2 samples a prompt" in page and "lambda_2_mu_3_7" in page
    assert judge.stored_artifact.to_dict() == made
