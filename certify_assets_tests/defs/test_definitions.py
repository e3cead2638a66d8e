import os
from graphlib import TopologicalSorter
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from certify_assets.definitions import defs
from certify_assets.defs.assets import table_metadata
from certify_assets.judges.base import SCORE_COLUMNS
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES
from certify_assets.operations.decisions import DECISION_COLUMNS
from certify_assets.operations.labels import REVIEWED_COLUMNS
from certify_assets.operations.review_queue import QUEUE_COLUMNS


def named(prefix: str, names: str) -> set[str]:
    return {f"{prefix}/{name}" for name in names.split()}


TRANSFER_JUDGES = [name for name, spec in JUDGES.items() if spec.group == "transfer"]
COMPARISON_ASSETS = named("corpora", "comparison")
CORPUS_ASSETS = COMPARISON_ASSETS | named(
    "corpora",
    "cal_split leak_controls profile report rl_split sft_split source_runs "
    "split_manifest test_split trajectories",
)
STUDY_ASSETS = named("research", "certifiability simulation main_table report")
RESEARCH_ASSETS = STUDY_ASSETS | {"research/real_scores"}
MODEL_ASSETS = {"judges/compact_model"}
OPERATION_ASSETS = named(
    "operations",
    "inbox deployment incoming_runs decisions batch_certificates review_queue reviewed_labels monitor "
    "recertification history",
)
CHAIN = ("model", "audit", "certificate", "monitor", "report", "scores")


def test_the_assets_are_these() -> None:
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    made = CORPUS_ASSETS | RESEARCH_ASSETS | MODEL_ASSETS | OPERATION_ASSETS
    assert keys == made | {f"judges/{judge}/{name}" for judge in JUDGES for name in CHAIN}


def test_every_asset_says_what_it_promises_and_who_owns_it() -> None:
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description and node.owners and node.group_name, key
        assert node.kinds, key


def test_every_column_of_a_stored_table_has_a_description() -> None:
    tables = ([*SCORE_COLUMNS, "split"], DECISION_COLUMNS, QUEUE_COLUMNS, REVIEWED_COLUMNS)
    for columns in tables:
        schema = table_metadata(pd.DataFrame(columns=list(columns)))["dagster/column_schema"]
        assert isinstance(schema, dg.TableSchema)
        assert [item.name for item in schema.columns if not item.description] == []


def test_groups_form_no_cycle() -> None:
    graph, groups = defs.resolve_asset_graph(), TopologicalSorter[str | None]()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        before = {graph.get(parent).group_name for parent in node.parent_keys}
        groups.add(node.group_name, *(before - {node.group_name}))
    # a cycle raises
    order = list(groups.static_order())
    assert order.index("corpora") < order.index("operations") < order.index("research")


def test_the_lineage_reads_like_the_paper() -> None:
    graph = defs.resolve_asset_graph()

    def parents(*path: str) -> set[str]:
        return {key.to_user_string() for key in graph.get(dg.AssetKey(list(path))).parent_keys}

    assert parents("judges", "lexical", "model") == {"corpora/sft_split", "corpora/split_manifest"}
    assert "corpora/cal_split" in parents("judges", "lexical_weighted", "model")
    assert parents("judges", "lexical", "certificate") >= {
        "judges/lexical/scores",
        "corpora/cal_split",
    }
    assert parents("judges", "lexical", "audit") >= {
        "judges/lexical/certificate",
        "corpora/test_split",
    }
    # the chain of the language models: what ships, then each judge on the one before it
    assert parents("judges", "sft", "model") >= {"judges/compact_model", "judges/base/model"}
    assert parents("judges", "grpo", "model") >= {"judges/sft/model", "corpora/rl_split"}
    assert "judges/lexical/audit" in parents("operations", "deployment")
    assert {"operations/deployment"} <= parents("operations", "decisions")
    assert parents("operations", "recertification") == {
        "operations/reviewed_labels",
        "operations/monitor",
    }


def test_the_checks_are_these_and_those_that_must_block_do() -> None:
    graph = defs.resolve_asset_graph()
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}": graph.get_check_spec(key).blocking
        for key in graph.asset_check_keys
    }
    blocking = {name for name, blocks in checks.items() if blocks}
    assert blocking == (
        {f"corpora/trajectories:{name}" for name in ("no_leak_field", "separate_tasks")}
        | {f"corpora/{split}_split:disjoint_tasks" for split in ("sft", "rl", "cal", "test")}
        | {
            "corpora/leak_controls:no_structural_leak",
            "judges/compact_model:task_disjoint",
        }
        | {
            f"judges/{judge}/{name}"
            for judge in JUDGES
            for name in ("certificate:reproducible", "audit:audit_verdict", "audit:test_ledger")
        }
        | {f"judges/{judge}/model:pseudo_labels_stay_out" for judge in HARVEST_JUDGES}
    )
    assert set(checks) - blocking == (
        {
            "corpora/trajectories:data_quality",
            "research/certifiability:certifiability_model_honest",
        }
        | {f"corpora/comparison:{name}" for name in ("beats_controls", "same_rows")}
        | {
            f"judges/{judge}/{name}"
            for judge in JUDGES
            for name in (
                "certificate:certified",
                "certificate:canary_lift",
                "monitor:no_alarm",
            )
        }
        | {f"judges/{judge}/model:has_sources" for judge in TRANSFER_JUDGES}
        | {"operations/decisions:deployment_stands", "operations/monitor:no_alarm"}
        | {"operations/batch_certificates:batches_certified"}
        | {
            f"operations/reviewed_labels:{name}"
            for name in ("labels_of_known_runs", "reviewers_agree")
        }
        | {
            f"operations/recertification:{name}"
            for name in ("audit_sample_complete", "delta_left", "not_expired")
        }
    )


def test_what_is_made_over_all_corpora_waits_for_every_partition_and_is_no_part_of_one_corpus() -> (
    None
):
    graph = defs.resolve_asset_graph()
    in_job = defs.resolve_job_def("onboard_corpus").asset_layer.executable_asset_keys
    for name in STUDY_ASSETS:
        key = dg.AssetKey.from_user_string(name)
        assert graph.get(key).partitions_def is None and key not in in_job
        for parent in graph.get(key).parent_keys:
            assert isinstance(graph.get_partition_mapping(key, parent), dg.AllPartitionMapping)
    assert graph.get(dg.AssetKey(["research", "certifiability"])).parent_keys == {
        dg.AssetKey(["judges", judge, "certificate"]) for judge in JUDGES
    }


def test_transfer_judges_depend_on_the_sft_splits_of_every_partition() -> None:
    graph = defs.resolve_asset_graph()
    for judge in TRANSFER_JUDGES:
        key = dg.AssetKey(["judges", judge, "model"])
        found = {
            name: graph.get_partition_mapping(key, dg.AssetKey(["corpora", name]))
            for name in ("sft_split", "split_manifest", "cal_split", "test_split")
        }
        assert isinstance(found["sft_split"], dg.AllPartitionMapping)
        assert isinstance(found["cal_split"], dg.IdentityPartitionMapping)


def test_jobs_schedules_and_sensors_are_these() -> None:
    repository = defs.get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} >= {"onboard_corpus"}
    assert [schedule.name for schedule in repository.schedule_defs] == ["weekly_recertification"]
    assert [sensor.name for sensor in repository.sensor_defs] == [
        "keep_current",
        "new_inbox",
        "new_runs",
        "new_versions",
        "reviewed_labels",
    ]


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    path = tmp_path / "incoming" / "mine" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"task_id": "t", "outcome": 1, "text": "x"}\n', "utf-8")
    os.utime(path, (1, 1))
    return path
