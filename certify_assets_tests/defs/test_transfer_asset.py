"""The model of a transfer judge as Dagster runs it: trained on other partitions, or skipped."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.config import remove_corpus
from certify_assets.definitions import defs
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import partitions
from certify_assets_tests.transfer_corpora import three_corpora

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return three_corpora(tmp_path_factory.mktemp("transfer"))


def run(store: Store, judge: str) -> Any:
    job = defs.resolve_job_def("transfer_judges")
    keys = [key for key in job.asset_layer.executable_asset_keys if key.path[1] == judge]
    with partitions("home", "near", "far") as instance:
        return job.execute_in_process(
            asset_selection=keys,
            instance=instance,
            partition_key="home",
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "resources": {
                    "data_root": {"config": {"root": store.root}},
                    "mlflow": {"config": {"enabled": False}},
                },
            },
        )


def checks(result: Any) -> dict[str, tuple[bool, str]]:
    return {
        f"{item.asset_key.to_user_string()}:{item.check_name}": (item.passed, str(item.description))
        for item in result.get_asset_check_evaluations()
    }


# the certificate asset asks for the run's id in the way of before
@pytest.mark.filterwarnings("ignore:AssetExecutionContext.run_id")
def test_the_chain_of_a_transfer_judge_is_made_for_one_partition_from_the_others(
    store: Store,
) -> None:
    result = run(store, "lexical_transfer")
    made = {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}
    assert made == {
        f"judges/lexical_transfer/{name}"
        for name in ("model", "scores", "certificate", "audit", "report", "monitor")
    }
    metadata = result.asset_materializations_for_node("judges__lexical_transfer__model")[0].metadata
    assert {item["corpus"] for item in metadata["sources"].value} == {"near", "far"}
    assert "miniwob_weak" in metadata["left_out"].value
    found = checks(result)
    assert found["judges/lexical_transfer/model:has_sources"][0]
    assert found["judges/lexical_transfer/certificate:reproducible"][0]
    assert "of other corpora: far (shell)" in store.read_bytes(
        "judges/lexical_transfer/home/page.html"
    ).decode("utf-8")


def test_a_judge_without_a_source_is_skipped_with_its_reason_and_the_run_succeeds(
    store: Store, tmp_path: Path
) -> None:
    shutil.copytree(store.root, tmp_path / "root")
    alone = Store(str(tmp_path / "root"))
    remove_corpus(alone, "far")
    result = run(alone, "lexical_transfer_strict")
    assert result.success and result.get_asset_materialization_events() == []
    found = checks(result)
    assert set(found) == {"judges/lexical_transfer_strict/model:has_sources"}, (
        "nothing downstream ran"
    )
    passed, reason = found["judges/lexical_transfer_strict/model:has_sources"]
    assert not passed
    assert "no corpus of another domain than web" in reason
    assert "near: its domain is web" in reason
    skipped = {
        event.step_key for event in result.all_events if event.event_type_value == "STEP_SKIPPED"
    }
    assert {
        "judges__lexical_transfer_strict__scores",
        "judges__lexical_transfer_strict__certificate",
    } <= skipped
