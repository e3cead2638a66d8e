"""Adapters and scores of language-model judges as Dagster makes them, run for real."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.judges.specs import JUDGES
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.defs.running import configured, observed

pytestmark = pytest.mark.slow

NAMES = ("one", "two")
# what MLflow's own use of SQLAlchemy says at its import
MLFLOW = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("language")
    opened = Store(str(root / "root"))
    for seed, name in enumerate(NAMES):
        register_runs(
            opened,
            name,
            write_runs(root / f"{name}.jsonl", tasks=24, attempts=3, seed=seed),
            rl=True,
        )
        Corpus(opened, name).prepare_splits()
    return opened


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with configured(tmp_path / "home", *NAMES) as opened:
        yield opened


def _materialize(
    instance: dg.DagsterInstance,
    store: Store,
    corpus: str,
    *keys: str,
    track: bool = False,
    config: dict[str, Any] | None = None,
    **keywords: Any,
) -> dg.ExecuteInProcessResult:
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        run_config={
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            "resources": {
                "data_root": {"config": {"root": store.root}},
                "mlflow": {"config": {"enabled": track}},
            },
            **(config or {}),
        },
        instance=instance,
        # the compact model is of no corpus
        partition_key=None if keys == ("judges/compact_model",) else corpus,
        asset_selection=[dg.AssetKey(key.split("/")) for key in keys],
        raise_on_error=False,
        **keywords,
    )


def _causes(result: dg.ExecuteInProcessResult) -> dict[str | None, str]:
    return {
        event.step_key: str(event.step_failure_data.error)
        for event in result.all_events
        if event.is_step_failure
    }


def test_base_is_the_model_as_it_comes_and_its_scores_are_a_table(
    instance: dg.DagsterInstance, store: Store
) -> None:
    result = _materialize(
        instance, store, "one", "judges/compact_model", "judges/base/model", "judges/base/scores"
    )
    assert result.success, _causes(result)
    made = {
        event.asset_key: event.materialization
        for event in result.get_asset_materialization_events()
    }
    adapter = made[dg.AssetKey(["judges", "base", "model"])]
    assert adapter.partition == "one" and "success_weight" not in adapter.metadata
    assert (
        adapter.metadata["base_revision"]
        == made[dg.AssetKey(["judges", "compact_model"])].metadata["revision"]
    )
    assert made[dg.AssetKey(["judges", "compact_model"])].metadata["parameters"].value == 1_824_416
    assert {"dagster/row_count", "dagster/column_lineage"} <= set(
        made[dg.AssetKey(["judges", "base", "scores"])].metadata
    )


def test_a_mistake_is_said_and_is_not_tried_again(
    instance: dg.DagsterInstance, store: Store
) -> None:
    result = _materialize(instance, store, "two", "judges/grpo/model")
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_key == "judges__grpo__model"
    said = str(failure.step_failure_data.error)
    assert "run `certify judge train two --judge sft` first" in said
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


@pytest.mark.slow
@MLFLOW
def test_the_lineage_is_walked_in_mlflow_from_grpo_to_the_compact_model_and_back(
    instance: dg.DagsterInstance, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    from certify_assets.storage.tracking import tracking_uri

    # a curve of two steps is one
    monkeypatch.setitem(JUDGES, "grpo", JUDGES["grpo"].model_copy(update={"steps": (1, 2)}))
    keys = [
        "judges/compact_model",
        *(f"judges/{name}/model" for name, spec in JUDGES.items() if spec.group == "lm"),
    ]
    result = _materialize(instance, store, "one", *keys, track=True)
    assert result.success, _causes(result)
    made = {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in result.get_asset_materialization_events()
    }
    client = MlflowClient(tracking_uri=tracking_uri(store))
    run = client.get_run(str(observed(instance, "judges/grpo/model")["mlflow_run_id"].value))
    walked = [run.data.tags["dagster.asset"]]

    def tagged(name: str, value: str) -> list[Any]:
        found = client.search_runs([run.info.experiment_id], f"tags.`{name}` = '{value}'")
        return list(found)

    while start := run.data.tags.get("certify.start_sha256"):
        # and back, from an adapter to what was trained on from it
        assert run.info.run_id in {
            item.info.run_id for item in tagged("certify.start_sha256", start)
        }
        # of GRPO that did not improve on its start, the adapter is that of the start
        others = tagged("adapter_sha256", start)
        (run,) = [item for item in others if item.info.run_id != run.info.run_id]
        walked.append(run.data.tags["dagster.asset"])
    assert walked == ["judges/grpo/model", "judges/sft/model", "judges/base/model"]
    compact = str(observed(instance, "judges/compact_model")["mlflow_run_id"].value)
    model = client.get_run(compact).data.tags
    for name in ("certify.base_model", "certify.base_revision"):
        assert run.data.tags[name] == model[name]
    for judge in ("sft", "grpo"):
        found = observed(instance, f"judges/{judge}/model")["mlflow_run_id"]
        run = client.get_run(str(found.value))
        assert {item.path for item in client.list_artifacts(run.info.run_id, "adapter")} == {
            f"adapter/{name}"
            for name in (
                "adapter_config.json",
                "adapter_model.safetensors",
                "judge.json",
                "provenance.json",
            )
        }
        assert run.data.tags["adapter_sha256"] == str(made[f"judges/{judge}/model"]["sha256"].value)
        assert float(run.data.params["learning_rate"]) > 0
    weights = client.download_artifacts(run.info.run_id, "adapter/adapter_model.safetensors")
    assert Path(weights).read_bytes() == store.read_bytes(
        "judges/grpo/one/adapter/adapter_model.safetensors"
    )
