from __future__ import annotations

import json
import os
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.definitions import defs
from certify_assets.defs.launch import _chains, _steps
from certify_assets.defs.operations.sensors import new_runs_sensor
from certify_assets.defs.resources import DataRoot
from certify_assets.judges.specs import HARVEST_JUDGES, JUDGES, TRANSFER_JUDGES

CORPUS_ASSETS = {
    "audit_sample",
    "cal_split",
    "corpus_page",
    "corpus_profile",
    "harvests",
    "leak_controls",
    "miniwob_runs",
    "real_scores",
    "rl_split",
    "seed_study",
    "sft_split",
    "source_runs",
    "split_manifest",
    "test_split",
    "trajectories",
}
STUDY_ASSETS = {
    "certifiability_model",
    "simulation_study",
    "main_table",
    "study_report",
    "study_run",
}
COMPARISON_ASSETS = {"agent_disjoint", "comparison"}
MODEL_ASSETS = {"compact_model"}
ARM_ASSETS = {"grpo/arm", "grpo/arms_audit"}
OPERATION_ASSETS = {"inbox", "deployment", "incoming_runs", "decisions"}
OPERATION_ASSETS |= {
    "review_queue",
    "reviewed_labels",
    "operation_monitor",
    "recertification",
    "operation_history",
}
CHAIN = ("adapter", "audit", "certificate", "monitor", "page", "scores")


def test_the_assets_are_these() -> None:
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    made = (
        CORPUS_ASSETS
        | STUDY_ASSETS
        | MODEL_ASSETS
        | COMPARISON_ASSETS
        | ARM_ASSETS
        | OPERATION_ASSETS
    )
    assert keys == made | {f"{judge}/{name}" for judge in JUDGES for name in CHAIN}


def test_every_asset_says_what_it_promises_and_who_owns_it() -> None:
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description and node.owners and node.group_name, key
        assert node.kinds, key


def test_the_lineage_reads_like_the_paper() -> None:
    graph = defs.resolve_asset_graph()

    def parents(*path: str) -> set[str]:
        return {key.to_user_string() for key in graph.get(dg.AssetKey(list(path))).parent_keys}

    assert parents("lexical", "adapter") == {"sft_split", "split_manifest"}
    assert parents("lexical_weighted", "adapter") == {"sft_split", "split_manifest", "cal_split"}
    assert {"lexical/adapter", "cal_split", "test_split"} <= parents("lexical", "scores")
    assert {"lexical/scores", "cal_split"} <= parents("lexical", "certificate")
    assert {"lexical/certificate", "test_split"} <= parents("lexical", "audit")
    # the chain of the language models: what ships, then each judge on the one before it
    assert parents("base", "adapter") == {"compact_model", "sft_split", "split_manifest"}
    assert parents("sft", "adapter") == {
        "compact_model",
        "base/adapter",
        "sft_split",
        "split_manifest",
    }
    assert parents("grpo", "adapter") >= {"compact_model", "sft/adapter", "rl_split", "cal_split"}
    assert parents("base", "scores") == {
        "base/adapter",
        "split_manifest",
        "rl_split",
        "cal_split",
        "test_split",
    }
    assert parents("decisions") == {
        "incoming_runs",
        "deployment",
        "split_manifest",
    } and "lexical/audit" in parents("deployment")
    assert parents("recertification") == {"reviewed_labels", "operation_monitor"} and parents(
        "operation_monitor"
    ) == {"reviewed_labels"}
    assert parents("operation_history") == {"recertification", "operation_monitor"}
    assert parents("lexical", "monitor") == {
        "lexical/certificate",
        "audit_sample",
        "split_manifest",
    }


def test_the_checks_are_these_and_those_that_must_block_do() -> None:
    graph = defs.resolve_asset_graph()
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}": graph.get_check_spec(key).blocking
        for key in graph.asset_check_keys
    }
    blocking = {name for name, blocks in checks.items() if blocks}
    assert blocking == (
        {
            f"trajectories:{name}"
            for name in ("schema", "unique_trajectory_id", "binary_outcome", "no_leak_field")
        }
        | {f"{split}_split:disjoint_tasks" for split in ("sft", "rl", "cal", "test")}
        | {
            "leak_controls:no_structural_leak",
            "compact_model:as_shipped",
            "compact_model:task_disjoint",
        }
        | {
            f"{judge}/{name}"
            for judge in JUDGES
            for name in ("certificate:reproducible", "audit:audit_verdict", "audit:test_ledger")
        }
        | {f"{judge}/adapter:pseudo_labels_stay_out" for judge in HARVEST_JUDGES}
        | {"grpo/arms_audit:arms_registered"}
        | {"decisions:decided_by_deployed", "decisions:drawn_as_planned"}
    )
    assert set(checks) - blocking == (
        {
            "trajectories:duplicates",
            "cal_split:n_min_tasks",
            "certifiability_model:certifiability_model_honest",
            "study_run:study_run_passed",
        }
        | {"harvests:harvests_within_budget"}
        | {f"simulation_study:{name}" for name in ("validity_within_delta", "matches_the_paper")}
        | {f"comparison:{name}" for name in ("beats_controls", "same_rows")}
        | {
            f"{judge}/{name}"
            for judge in JUDGES
            for name in ("certificate:certified", "monitor:no_alarm")
        }
        | {f"{judge}/adapter:has_sources" for judge in TRANSFER_JUDGES}
        | {"grpo/arms_audit:beats_controls"}
        | {"decisions:deployment_stands", "operation_monitor:no_alarm"}
        | {f"reviewed_labels:{name}" for name in ("labels_of_known_runs", "reviewers_agree")}
        | {
            f"recertification:{name}"
            for name in ("audit_sample_complete", "delta_left", "not_expired")
        }
    )


def test_what_is_made_over_all_corpora_waits_for_every_partition_and_is_no_part_of_one_corpus() -> (
    None
):
    graph = defs.resolve_asset_graph()
    in_job = defs.resolve_job_def("certify_corpus").asset_layer.executable_asset_keys
    for name in STUDY_ASSETS:
        key = dg.AssetKey(name)
        assert graph.get(key).partitions_def is None and key not in in_job
        for parent in graph.get(key).parent_keys:
            assert isinstance(graph.get_partition_mapping(key, parent), dg.AllPartitionMapping)
    assert graph.get(dg.AssetKey("certifiability_model")).parent_keys == {
        dg.AssetKey([judge, "certificate"]) for judge in JUDGES
    }


def test_transfer_judges_stand_on_the_sft_splits_of_every_partition_and_are_a_job_of_their_own() -> (
    None
):
    graph = defs.resolve_asset_graph()
    jobs = {
        name: defs.resolve_job_def(name).asset_layer.executable_asset_keys
        for name in ("certify_corpus", "language_judges", "transfer_judges")
    }
    for judge in TRANSFER_JUDGES:
        key = dg.AssetKey([judge, "adapter"])
        parents = {parent.to_user_string() for parent in graph.get(key).parent_keys}
        assert parents == {"sft_split", "split_manifest", "cal_split", "test_split"}
        for name in ("sft_split", "split_manifest"):
            assert isinstance(
                graph.get_partition_mapping(key, dg.AssetKey(name)), dg.AllPartitionMapping
            )
        assert isinstance(
            graph.get_partition_mapping(key, dg.AssetKey("cal_split")), dg.IdentityPartitionMapping
        )
        assert [key in keys for keys in jobs.values()] == [False, False, True]
    assert {key.path[0] for key in jobs["transfer_judges"]} == {*TRANSFER_JUDGES, "comparison"}


def test_jobs_schedules_and_sensors_are_these() -> None:
    repository = defs.get_repository_def()
    assert {job.name for job in repository.get_all_jobs()} >= {"certify_corpus"}
    assert [schedule.name for schedule in repository.schedule_defs] == ["weekly_recertification"]
    assert [sensor.name for sensor in repository.sensor_defs] == [
        "new_inbox",
        "new_runs",
        "reviewed_labels",
    ]


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    path = tmp_path / "incoming" / "mine" / "runs.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"task_id": "t", "outcome": 1, "text": "x"}\n', encoding="utf-8")
    os.utime(path, (1, 1))
    return path


def _tick(root: Path, cursor: str | None) -> dg.SensorResult | dg.SkipReason:
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance=instance, cursor=cursor) as context,
    ):
        result = new_runs_sensor(context, data_root=DataRoot(root=str(root)))
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def test_the_sensor_asks_once_for_new_runs_and_adds_the_partition(
    tmp_path: Path, incoming: Path
) -> None:
    first = _tick(tmp_path, None)
    assert (
        isinstance(first, dg.SensorResult)
        and first.run_requests
        and first.dynamic_partitions_requests
    )
    assert first.run_requests[0].partition_key == "mine"
    assert (
        json.loads((tmp_path / "corpora/mine/corpus.json").read_text(encoding="utf-8"))["name"]
        == "mine"
    )
    assert isinstance(_tick(tmp_path, first.cursor), dg.SkipReason)
    os.utime(incoming, (2, 2))
    assert isinstance(_tick(tmp_path, first.cursor), dg.SkipReason)
    incoming.write_text("{}\n", encoding="utf-8")
    os.utime(incoming, (3, 3))
    again = _tick(tmp_path, first.cursor)
    assert isinstance(again, dg.SensorResult) and again.run_requests
    assert again.run_requests[0].run_key != first.run_requests[0].run_key


def test_the_sensor_skips_an_empty_folder_with_the_reason(tmp_path: Path) -> None:
    result = _tick(tmp_path, None)
    assert isinstance(result, dg.SkipReason) and "no new runs" in str(result.skip_message)


def test_a_demo_with_language_models_takes_their_chains_and_the_comparison() -> None:
    keys = {key.to_user_string() for key in _chains(defs, ("base", "sft"))}
    chains = {
        f"{judge}/{name}"
        for judge in ("base", "sft")
        for name in ("adapter", "audit", "certificate", "page", "scores", "monitor")
    }
    assert keys == chains | COMPARISON_ASSETS | MODEL_ASSETS
    subset = defs.resolve_job_def("language_judges").get_subset(
        asset_selection=_chains(defs, ("base", "sft"))
    )
    ops = {"adapter.prepare", "adapter.train", "adapter.register", "scores.score", "scores.record"}
    assert _steps(subset.graph) == len(subset.graph.nodes) + 2 * (len(ops) - 2), (
        "the ops of adapter and scores are steps of their own"
    )
    assert _chains(defs, ("grpo",)).isdisjoint({dg.AssetKey(["grpo", "arm"])}), (
        "an arm has a partition of its own"
    )
