"""A job executed in process on small corpora: what runs, what a check stops, what is reported."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from certify_assets.definitions import defs
from certify_assets.defs import execution
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.defs.running import materialize
from certify_assets_tests.paths import REPOSITORY


def _materialize(root: Path, corpus: str) -> Any:
    return materialize(defs.resolve_job_def("onboard_corpus"), root, corpus, raise_on_error=False)


def test_named_judges_alone_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Any other one that is certified would count as one to choose among."""
    made: list[str] = []

    def execute(name: str, *about: Any, **options: Any) -> SimpleNamespace:
        made.extend(key.to_user_string() for key in about[2])
        return SimpleNamespace(success=True, all_events=[])

    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(execution, "execute", execute)
    assert execution.run_corpus("c", shown="nothing", judges=["lexical"]) == 0
    judges = {name.split("/")[1] for name in made if name.startswith("judges/")}
    assert judges == {"lexical"} and "corpora/split_manifest" in made


def test_a_failed_blocking_check_keeps_everything_downstream_from_running(tmp_path: Path) -> None:
    source = write_runs(tmp_path / "runs.jsonl")
    records = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    for record in records:
        record["steps"][-1]["observation"] = json.dumps({"reward": record["outcome"]})
    source.write_text("\n".join(json.dumps(record) for record in records) + "\n", "utf-8")
    register_runs(Store(str(tmp_path / "root")), "leaky", source)
    result = _materialize(tmp_path / "root", "leaky")
    assert not result.success
    evaluations = {item.check_name: item.passed for item in result.get_asset_check_evaluations()}
    assert evaluations["no_leak_field"] is False and evaluations["separate_tasks"] is True
    ran = {event.step_key for event in result.all_events if event.is_step_success}
    assert "corpora__trajectories" in ran
    assert not ran & {
        "corpora__split_manifest",
        "corpora__sft_split",
        "judges__lexical__model",
        "judges__lexical__certificate",
    }


def _runs_that_tell(path: Path) -> Path:
    """Runs whose length, number of steps and last words tell the outcome."""
    source = write_runs(path)
    records = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
    for record in records:
        record["steps"] += [{"action": "look()", "observation": "1 passed"}] * (
            3 * record["outcome"]
        )
    source.write_text("\n".join(json.dumps(record) for record in records) + "\n", "utf-8")
    return source


@pytest.mark.slow
def test_what_a_blocking_check_found_is_said_and_ends_with_its_own_code(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    register_runs(
        store, "told", _runs_that_tell(tmp_path / "runs.jsonl"), leak_thresholds={"agent": 0.99}
    )
    command = [sys.executable, "-m", "certify_assets.cli", "run", "told", "--root", store.root]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert (
        "no_structural_leak of corpora/leak_controls stops the pipeline: Length (AUROC 1.000, "
        "threshold 0.85), steps (AUROC 1.000" in done.stderr
    )
    assert "--set accept_structural_leak=REASON" in done.stderr
    assert "DagsterAssetCheckFailedError" not in done.stderr
    assert "certify: told is stopped by a check (see above)" in done.stderr
    assert "certify corpus show told" in done.stderr


@pytest.mark.slow
def test_the_first_certificate_waits_for_no_slow_import(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    register_runs(store, "c", write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3), rl=False)
    script = """
import sys
from certify_assets.cli.main import main
from certify_assets.operations import certifier
certify, slow = certifier.certify_judge, {"mlflow", "great_expectations"}
def observed(*given, **named):
    made = certify(*given, **named)
    print("ISSUED", *slow & set(sys.modules), file=sys.stderr)
    return made
certifier.certify_judge = observed
main()
"""
    command = [sys.executable, "-c", script, "run", "c", "--verbose", "--root", store.root]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()
    assert done.returncode in (0, 3) and "ISSUED" in said, done.stderr
    issued, *after = [line.strip() for line in said[said.index("ISSUED") + 1 :]]
    assert issued.startswith(("combined: ", "lexical: ")), "and it is on the screen at once"
    assert any("data_quality done" in line for line in after)
