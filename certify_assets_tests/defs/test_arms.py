"""Arms as assets: partitions of two dimensions, lineage, and the checks of their audit."""

from dataclasses import replace

import dagster as dg
import pytest

from certify_assets.definitions import defs
from certify_assets.defs.judges.arms import arm_assets, arm_checks, arm_events, arm_partitions
from certify_assets.judges.lm.rewards import ARMS, CONTROLS
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JUDGES
from certify_assets.storage.store import Store
from certify_assets_tests.arms_builders import CORPUS, TINY
from certify_assets_tests.defs.running import materialize, partitions

pytestmark = pytest.mark.slow

ARM, AUDIT = dg.AssetKey(["judges", "grpo", "arm"]), dg.AssetKey(["judges", "grpo", "arms_audit"])


def test_keys_join_in_the_order_of_the_dimensions_names() -> None:
    key = dg.MultiPartitionKey({"corpus": "miniwob_weak", "arm": "reject_3"})
    assert str(key) == "reject_3|miniwob_weak"
    with partitions("a", "b") as instance:
        found = arm_partitions(JUDGES["grpo"])
        keys = found.get_partition_keys(dynamic_partitions_store=instance)
    assert set(keys) == {f"{arm}|{corpus}" for arm in [*ARMS, *CONTROLS] for corpus in ("a", "b")}


def test_the_adapter_is_the_choice_among_the_arms_and_the_page_shows_their_audit() -> None:
    graph = defs.resolve_asset_graph()
    assert graph.get(ARM).parent_keys >= {
        dg.AssetKey(["judges", "sft", "model"]),
        dg.AssetKey(["corpora", "rl_split"]),
        dg.AssetKey(["corpora", "cal_split"]),
    }
    for child in (["judges", "grpo", "model"], ["judges", "grpo", "arms_audit"]):
        assert ARM in graph.get(dg.AssetKey(child)).parent_keys
        assert isinstance(
            graph.get_partition_mapping(dg.AssetKey(child), ARM),
            dg.MultiToSingleDimensionPartitionMapping,
        )
    assert AUDIT in graph.get(dg.AssetKey(["judges", "grpo", "report"])).parent_keys
    in_job = defs.resolve_job_def("train_lm_judges").asset_layer.executable_asset_keys
    assert AUDIT in in_job and ARM not in in_job
    assert set(defs.resolve_job_def("grpo_arms").asset_layer.executable_asset_keys) == {ARM}


@pytest.mark.parametrize("forged", [False, True])
def test_the_audit_is_materialized_and_its_checks_tell_a_forged_one(
    arms_store: Store, forged: bool
) -> None:
    arms, audit = arm_assets([TINY])
    checks = arm_checks([TINY])
    with partitions(CORPUS) as instance:
        both = dg.MultiPartitionKey({"arm": "reject_3", "corpus": CORPUS})
        made = materialize([arms], arms_store, both, instance=instance)
        key = made.asset_materializations_for_node("judges__grpo__arm")[0].partition
        assert key == f"reject_3|{CORPUS}"
        if forged:
            document = arms_store.read_json(f"judges/grpo/{CORPUS}/arms_audit.json")
            arms_store.write_json(
                f"judges/grpo/{CORPUS}/arms_audit.json", {**document, "ledger_head": "0" * 64}
            )
        done = materialize(
            [audit, *checks], arms_store, CORPUS, instance=instance, raise_on_error=False
        )
        assert done.success is not forged
        if forged:
            (failed,) = [
                event
                for event in done.all_events
                if event.is_step_failure and event.step_key == "judges__grpo__arms_audit"
            ]
            assert "LedgerError" in str(failed.step_failure_data.error)
            return
        (event,) = done.asset_materializations_for_node("judges__grpo__arms_audit")
        assert "| reject | 0.1 | start" in str(event.metadata["bracket"].value)
        assert len(str(event.metadata["bracket"].value)) < 1000
        found = {item.check_name: item for item in done.get_asset_check_evaluations()}
        assert found["arms_registered"].passed
        assert "7 first; 7 replay" in str(found["arms_registered"].description)
        assert not found["beats_controls"].passed
        assert found["beats_controls"].severity == dg.AssetCheckSeverity.WARN


def test_arms_that_a_choice_stands_on_are_shown_once_under_their_version() -> None:
    spec = JUDGES["grpo"]
    hashes = dict.fromkeys(("adapter_sha256", "manifest_sha256", "renderer_sha256"), "0")
    versions = {"reject_3": "a" * 64, "reject_5": "b" * 64}
    record = JudgeRecord(judge="grpo", corpus=CORPUS, seed=42, details={"arms": versions}, **hashes)
    with dg.DagsterInstance.ephemeral() as instance:
        first = arm_events(instance, spec, record)
        assert {(made.asset_key, made.partition) for made in first} == {
            (ARM, f"reject_3|{CORPUS}"),
            (ARM, f"reject_5|{CORPUS}"),
        }
        for made in first:
            instance.report_runless_asset_event(made)
        assert arm_events(instance, spec, record) == []
        changed = {"arms": {**versions, "reject_5": "c" * 64}}
        (again,) = arm_events(instance, spec, replace(record, details=changed))
        assert again.partition == f"reject_5|{CORPUS}"
        assert arm_events(instance, JUDGES["sft"], replace(record, details={})) == []
