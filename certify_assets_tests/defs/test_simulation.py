"""The synthetic study as an asset: document, page, metadata, checks, and resuming."""

import json
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.defs.research.assets import simulation_study
from certify_assets.defs.research.checks import matches_the_paper, validity_within_delta
from certify_assets.research import simulation_study as study
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import materialize

CONFIG = {"trials": 4, "tasks": [20], "rhos": [0.5], "procedures": ["taskboot", "pseudo_task"]}


def _materialize(root: Path) -> dg.ExecuteInProcessResult:
    return materialize(
        [simulation_study, validity_within_delta, matches_the_paper],
        root,
        None,
        ops={"research__simulation": CONFIG},
        raise_on_error=False,
    )


@pytest.mark.slow
def test_document_page_metadata_and_checks(tmp_path: Path) -> None:
    result = _materialize(tmp_path)
    assert result.success
    metadata = result.asset_materializations_for_node("research__simulation")[0].metadata
    text = metadata["study"].value
    assert isinstance(text, str) and len(text) < 1000 and "| taskboot |" in text
    # four designs whose errors the score can see, and five that fool it at two true errors each
    document = json.loads((tmp_path / study.SIMULATION_KEY).read_text("utf-8"))
    assert len(document["cells"]) == 4 + 10 and document["truth"]
    assert isinstance(metadata["worst_violation_fooled_taskboot"].value, float)
    assert "<svg" in (tmp_path / study.PAGE).read_text("utf-8")
    assert not (tmp_path / "study/simulation.partial.jsonl").exists()
    checks = {event.check_name: event for event in result.get_asset_check_evaluations()}
    assert checks["validity_within_delta"].passed
    assert set(checks) == {"validity_within_delta", "matches_the_paper"}
    assert checks["matches_the_paper"].description


@pytest.mark.slow
def test_an_interrupted_study_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    question = study.SimulationPlan(trials=3, tasks=(20,), rhos=(0.5,), procedures=("taskboot",))
    whole, broken = Store(str(tmp_path / "whole")), Store(str(tmp_path / "broken"))
    study.run_study(whole, question, lambda cell, done, total: None)

    def stop(cell: object, done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run_study(broken, question, stop)
    key = "study/simulation.partial.jsonl"
    kept = broken.read_bytes(key)
    assert kept.count(b"\n") == 5
    # a kill in the middle of a line, and a line that is none of ours
    broken.local_path(key).write_bytes(b"[]\n" + kept[:-7])
    reported: list[int] = []
    study.run_study(broken, question, lambda cell, done, total: reported.append(done))
    assert broken.read_bytes(study.SIMULATION_KEY) == whole.read_bytes(study.SIMULATION_KEY)
    assert reported == list(range(1, 15)) and not broken.exists(key)
