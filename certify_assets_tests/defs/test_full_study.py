"""The study as assets: seeds and real scores of a partition, and the report over all of them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.partitions import CORPORA
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.defs.study.full import full_study_assets
from certify_assets.defs.study.whole import materializations, study_run_passed
from certify_assets.evaluation.audit import audit_judge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.research import full_study
from certify_assets.research.study import Outcome
from certify_assets.research.study_stages import STAGES
from certify_assets.storage.store import Store
from certify_assets_tests.research.test_full_study import SHORT, registered


def test_a_corpus_is_studied_and_the_report_says_what_was_not_run(corpora: Store) -> None:
    audit_judge(JudgedCorpus(Corpus(corpora, "three"), "lexical"))
    seeds, real, report = full_study_assets()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(CORPORA, ["three"])
        shared = {
            "instance": instance,
            "resources": {
                "data_root": DataRoot(root=corpora.root),
                "mlflow": MlflowTracker(enabled=False),
            },
        }
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        config = {**quiet, "ops": {"research__seed_study": {"config": {"seeds": 1}}}}
        result = dg.materialize([seeds, real], partition_key="three", run_config=config, **shared)
        assert result.success
        over_all = dg.materialize([report], run_config=quiet, **shared)
    (event,) = result.asset_materializations_for_node("research__seed_study")
    frequencies = corpora.read_json("seeds/three.json")["frequencies"]
    (found,) = (
        item
        for item in frequencies
        if (item["side"], item["alpha"], item["procedure"]) == ("reject", 0.2, "guarded_taskboot")
    )
    assert event.metadata["certified_reject_at_0.2"].value == found["certified"]
    (event,) = result.asset_materializations_for_node("research__real_scores")
    assert event.metadata["judges"].value == 1
    (event,) = over_all.asset_materializations_for_node("research__report")
    assert event.metadata["not_run"].value > 10 and str(event.metadata["page"].value).endswith(
        "study/site/index.html"
    )


def test_the_job_of_all_of_it_runs_the_stages_and_observes_what_they_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = registered(tmp_path)
    monkeypatch.setattr(full_study, "STAGES", SHORT)
    monkeypatch.setenv("CERTIFY_ROOT", store.root)
    config = {
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        "ops": {"research__study_run": {"config": {"workers": 1, "corpora": ["c", "d"]}}},
        "resources": {"mlflow": {"config": {"enabled": False}}},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        results = [
            defs.resolve_job_def("research_study").execute_in_process(
                run_config=config, instance=instance
            )
            for _ in range(2)
        ]
        partitions = instance.get_materialized_partitions(
            dg.AssetKey(["judges", "lexical", "certificate"])
        )
        assert partitions == {"c", "d"} == set(instance.get_dynamic_partitions(CORPORA))
    first, second = (
        {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}
        for result in results
    )
    assert first >= {
        "research/study_run",
        "research/report",
        "corpora/trajectories",
        "judges/lexical/audit",
        "corpora/comparison",
        "research/certifiability",
    }
    assert second == {"research/study_run", "research/report"}, (
        "what stands is kept, and is nothing new"
    )
    made = next(
        event
        for event in results[0].asset_materializations_for_node("research__study_run")
        if event.asset_key == dg.AssetKey(["research", "study_run"])
    )
    assert made.metadata["stages_done"].value > made.metadata["stages_skipped"].value > 0
    assert "| lexical | 2 |" in str(made.metadata["stages"].value) and store.exists(
        "study/site/index.html"
    )


def test_a_stage_that_failed_fails_the_check_and_not_the_others(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    document = {
        "corpus": "c",
        "stage": "splits",
        "status": "failed",
        "reason": "it broke.",
        "command": "certify research study c",
    }
    store.write_json(full_study.RUN_KEY, {"stages": [document]})
    result = study_run_passed(DataRoot(root=store.root))
    assert (
        isinstance(result, dg.AssetCheckResult)
        and not result.passed
        and result.description == "c, splits: it broke."
    )


def test_every_stage_has_the_assets_that_hold_what_it_makes() -> None:
    known = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    without = []
    for stage in STAGES:
        made = materializations(Outcome("c", stage.name, "done", "", ""))
        assert {item.asset_key.to_user_string() for item in made} <= known
        assert materializations(Outcome("c", stage.name, "kept", "", "")) == []
        without += [] if made else [stage.name]
    assert without == ["arms", "harvests_sft", "harvests_transfer"]


def test_the_jobs_hold_what_they_say() -> None:
    held = {
        name: {
            key.to_user_string()
            for key in defs.resolve_job_def(name).asset_layer.executable_asset_keys
        }
        for name in ("research_study", "research_tables")
    }
    assert held == {
        "research_study": {"research/study_run", "research/report"},
        "research_tables": {
            f"research/{name}" for name in ("main_table", "certifiability", "simulation", "report")
        },
    }
