"""Recertification as Dagster runs it: job, checks of three states, sensor, weekly schedule."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.names import CORPORA
from certify_assets.defs.operations import (
    recertify_assets,
    recertify_checks,
    review_assets,
    review_checks,
)
from certify_assets.defs.resources import DataRoot
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import load_deployment, read_deployments
from certify_assets.operations.labels import Label, append_label, append_labels
from certify_assets.operations.notifications import certificate_age
from certify_assets.storage.events import parse_head
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, stored
from certify_assets_tests.defs.running import PROJECT, SENSORS, materialize, partitions
from certify_assets_tests.recertification_builders import drawn_tasks, label_rows, write_batch

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "c", 40)
MONDAY = datetime(2026, 1, 5, 6, tzinfo=UTC)


@pytest.fixture
def store(operated: Store) -> Store:
    deploy(judged(operated), sampling=PLAN, track=False)
    # several runs of a drawn task: so few tasks certify nothing by one of each
    save_config(operated, replace(Corpus(operated, "c").config, audit_runs=4))
    label_rows(operated, "c", write_batch(operated, "c", "0001-a", PLAN, tasks=AUDIT))
    return operated


def run(store: Store, instance: dg.DagsterInstance, *, deploy: bool = False) -> Any:
    return materialize(
        [
            *review_assets(PROJECT),
            *review_checks(PROJECT),
            *recertify_assets(PROJECT),
            *recertify_checks(PROJECT),
        ],
        store,
        selection=dg.AssetSelection.assets(
            *(
                ["operations", name]
                for name in ("reviewed_labels", "monitor", "recertification", "history")
            )
        ),
        instance=instance,
        ops={"operations__recertification": {"deploy": deploy}},
        raise_on_error=False,
    )


def made(result: Any) -> dict[str, Any]:
    found = [
        event.step_materialization_data.materialization
        for event in result.all_events
        if event.is_step_materialization
    ]
    assert all(parse_head(item.metadata["ledger"].value)["corpus"] == "c" for item in found)
    return {item.asset_key.path[-1]: item.metadata for item in found}


def states(result: Any) -> dict[str, str]:
    return {
        found.check_name: "PASS" if found.passed else found.severity.value
        for found in result.get_asset_check_evaluations()
    }


@pytest.mark.slow
def test_the_job_monitors_recertifies_deploys_and_draws(store: Store) -> None:
    with partitions("c") as instance:
        result = run(store, instance, deploy=True)
        assert result.success
        found = states(result)
        assert found["no_alarm"] == "PASS"
        assert found["delta_left"] == "PASS"
        assert found["not_expired"] == "PASS"
        assert found["audit_sample_complete"] == "PASS"
        metadata = made(result)
        assert "recertification 1" in metadata["recertification"]["said"].value
        assert "Deployment 2" in metadata["recertification"]["said"].value
        for name in ("monitor", "history"):
            assert len(metadata[name]["verdict"].value) < 1000
            assert Path(metadata[name]["page"].value).is_file()
            assert (
                sum(isinstance(value, dg.FloatMetadataValue) for value in metadata[name].values())
                <= 12
            )
        again = run(store, instance, deploy=True)
        assert again.success and "nothing was spent" in made(again)["recertification"]["said"].value
    assert len(read_deployments(Corpus(store, "c"))) == 2


@pytest.mark.slow
def test_an_alarm_is_an_error_and_the_work_goes_on(store: Store) -> None:
    rows = write_batch(
        store, "c", "0002-b", PLAN, tasks=drawn_tasks(PLAN, "c", 60, prefix="bad"), error=0.9
    )
    label_rows(store, "c", rows)
    store.folder.write(
        "notifications.yaml",
        b"targets: [{name: gone, apprise: NO_SUCH_VARIABLE}]",
    )
    with partitions("c") as instance:
        result = run(store, instance)
    assert result.success and states(result)["no_alarm"] == "ERROR"
    metadata = made(result)
    assert "gone got no notification of alarm" in json.dumps(metadata["monitor"]["not_told"].value)
    assert "raised an alarm" in metadata["history"]["verdict"].value


def test_without_a_deployment_it_says_so(corpora: Store) -> None:
    from certify_assets.operations import checks, recertification

    assert recertification.recertify_deployed(Corpus(corpora, "one")) == (
        None,
        recertification.NOTHING_DEPLOYED,
    )
    asked = (checks.no_alarm, checks.not_expired, checks.audit_sample_complete)
    assert {ask(Corpus(corpora, "one")).status for ask in asked} == {"PASS"}


@pytest.mark.slow
def test_checks_have_three_states(store: Store) -> None:
    from certify_assets.operations import checks
    from certify_assets.operations.spending import Schedule, claim, declare

    assert checks.audit_sample_complete(Corpus(store, "c")).status == "PASS"
    write_batch(store, "c", "0002-b", PLAN, tasks=drawn_tasks(PLAN, "c", 5, prefix="open"))
    assert checks.audit_sample_complete(Corpus(store, "c")).status == "WARN"
    write_batch(store, "c", "0003-c", PLAN, tasks=drawn_tasks(PLAN, "c", 60, prefix="more"))
    assert checks.audit_sample_complete(Corpus(store, "c")).status == "ERROR"
    declare(Corpus(store, "c"), Schedule("inverse_square"))
    found = []
    for number in range(5):
        found.append(checks.delta_left(Corpus(store, "c")).status)
        claim(Corpus(store, "c"), "lexical", "recertification", f"{number}")
    assert found == ["PASS", "PASS", "PASS", "WARN", "WARN"]
    made = load_deployment(Corpus(store, "c"))
    assert made is not None
    days = certificate_age(made) / timedelta(days=1)
    aged = []
    for longest in (1000.0, days / 0.9, days / 2):
        store.folder.write("notifications.yaml", f"certificate_days: {longest:.12f}".encode())
        aged.append(checks.not_expired(Corpus(store, "c")).status)
    assert aged == ["PASS", "WARN", "ERROR"]


def tick(store: Store, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    root = {"data_root": DataRoot(root=store.root)}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=root) as context:
        return SENSORS["reviewed_labels"](context)


def test_the_sensor_asks_once_for_a_journal_and_again_when_it_grows(store: Store) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert tick(store, instance, None).skip_reason, "a corpus that is no partition"
        instance.add_dynamic_partitions(CORPORA, ["c", "elsewhere"])
        first = tick(store, instance, None)
        assert [request.partition_key for request in first.run_requests] == ["c"]
        assert tick(store, instance, first.cursor).skip_reason
        # the cursor was lost: the run key is the same, so that Dagster starts nothing
        assert tick(store, instance, None).run_requests[0].run_key == first.run_requests[0].run_key
        append_label(Corpus(store, "c"), Label("r", 1, "ann", "page", "one more"))
        append_labels(Corpus(store, "c"), [Label("r", 1, "ann", "page", "one more")])
        again = tick(store, instance, first.cursor)
        assert len(again.run_requests) == 1
        assert again.run_requests[0].run_key != first.run_requests[0].run_key
        assert tick(store, instance, again.cursor).skip_reason


def weekly(store: Store, corpora: list[str]) -> Any:
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions(CORPORA, corpora)
        options: dict[str, Any] = {
            "repository_def": defs.get_repository_def(),
            "resources": {"data_root": DataRoot(root=store.root)},
        }
        with dg.build_schedule_context(
            instance=instance, scheduled_execution_time=MONDAY, **options
        ) as context:
            return defs.resolve_schedule_def("weekly_recertification").evaluate_tick(context)


@pytest.mark.slow
def test_the_week_certifies_every_judge_and_trains_no_language_model_that_is_up_to_date(
    store: Store,
) -> None:
    assert "no corpus" in str(weekly(store, []).skip_message)
    # a transfer judge stands for every judge beyond the quick ones
    for key in stored(store, "judges/lexical/c"):
        store.point(key.replace("lexical", "lexical_weighted"), store.sha256(key))
    requests = weekly(store, ["b", "c"]).run_requests
    assert [request.partition_key for request in requests] == ["b", "c"]
    assert len({request.run_key for request in requests}) == 2
    keys = {key.to_user_string() for key in requests[1].asset_selection}
    assert {
        "judges/lexical/model",
        "judges/lexical/scores",
        "judges/lexical/report",
        "judges/lexical_weighted/certificate",
        "operations/recertification",
        "operations/history",
        # draws from batches that waited for batch_days
        "operations/batch_certificates",
        "corpora/trajectories",
        "corpora/comparison",
    } <= keys
    assert not any(
        key.startswith(
            tuple(f"judges/{name}/" for name in ("sft", "grpo", "transfer", "lexical_transfer"))
        )
        for key in keys
    )
