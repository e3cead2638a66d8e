"""The study as assets: seeds and real scores of a partition, and the report over all of them."""

from __future__ import annotations

import dagster as dg

from certify_assets.definitions import defs
from certify_assets.defs.partitions import CORPORA
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.defs.study.full import full_study_assets
from certify_assets.protocol import auditing
from certify_assets.protocol.store import Store


def test_a_corpus_is_studied_and_the_report_says_what_was_not_run(corpora: Store) -> None:
    auditing.audit_judge(corpora, "three", "lexical")
    seeds, real, report = full_study_assets()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(CORPORA, ["three"])
        shared = {"instance": instance, "resources": {"data_root": DataRoot(root=corpora.root), "mlflow": MlflowTracker(enabled=False)}}
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        config = {**quiet, "ops": {"seed_study": {"config": {"seeds": 1}}}}
        result = dg.materialize([seeds, real], partition_key="three", run_config=config, **shared)
        assert result.success
        over_all = dg.materialize([report], run_config=quiet, **shared)
    (event,) = result.asset_materializations_for_node("seed_study")
    frequencies = corpora.read_json("seeds/three.json")["frequencies"]
    (found,) = (item for item in frequencies if (item["side"], item["alpha"], item["procedure"]) == ("reject", 0.2, "guarded_taskboot"))
    assert event.metadata["certified_reject_at_0.2"].value == found["certified"]
    (event,) = result.asset_materializations_for_node("real_scores")
    assert event.metadata["judges"].value == 1
    (event,) = over_all.asset_materializations_for_node("study_report")
    assert event.metadata["not_run"].value > 10 and str(event.metadata["page"].value).endswith("study/site/index.html")


def test_the_job_holds_what_is_over_all_corpora() -> None:
    keys = {key.to_user_string() for key in defs.resolve_job_def("study").asset_layer.executable_asset_keys}
    assert keys == {"main_table", "certifiability_model", "simulation_study", "study_report"}
