"""Assets of operation as Dagster runs them: decisions, refusals, checks, the sensor."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.operations import operation_assets, operation_checks
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.decisions import DECISION_COLUMNS
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.defs.running import PROJECT, SENSORS, materialize, tick
from certify_assets_tests.operations_builders import (
    ProvisionalBatch,
    agreeing,
    deliver,
    raise_alarm,
)

KEYS = [dg.AssetKey(["operations", name]) for name in ("incoming_runs", "decisions")]


def run(store: Store) -> tuple[dict[str, Any], dict[str, tuple[bool, str]]]:
    assets = [*operation_assets(PROJECT), *operation_checks(PROJECT)]
    result = materialize(assets, store, selection=dg.AssetSelection.assets(*KEYS))
    (made,) = result.asset_materializations_for_node("operations__decisions")
    checks = {
        item.check_name: (item.passed, item.severity.value)
        for item in result.get_asset_check_evaluations()
    }
    return dict(made.metadata), checks


def test_decisions_say_what_they_were_made_from(operated: Store) -> None:
    deploy(judged(operated), track=False)
    deliver(operated.local_path("inbox/c") / "a.jsonl", tasks=30)
    metadata, checks = run(operated)
    assert metadata["dagster/row_count"].value == 120
    columns = [column.name for column in metadata["dagster/column_schema"].value.columns]
    lineage = metadata["dagster/column_lineage"].value.deps_by_column
    assert tuple(columns) == DECISION_COLUMNS and set(lineage) <= set(columns)
    assert {dep.asset_key.to_user_string() for dep in lineage["decision"]} == {
        "operations/incoming_runs",
        "judges/lexical/model",
        "judges/lexical/certificate",
    }
    assert metadata["human"].value + metadata["reject"].value == 120
    assert checks["deployment_stands"][0]
    again, _ = run(operated)
    assert again["human"].value == 0 and again["dagster/row_count"].value == 120


def test_a_refused_batch_materializes_and_says_why(operated: Store) -> None:
    deploy(judged(operated), track=False)
    raise_alarm(operated)
    deliver(operated.local_path("inbox/c") / "a.jsonl", tasks=5)
    metadata, checks = run(operated)
    assert metadata["human"].value + metadata["provisional"].value == 20
    assert "alarm: the monitor raised an alarm" in metadata["said"].value
    assert checks["deployment_stands"] == (False, "ERROR")


def test_without_a_deployment_the_check_warns(operated: Store) -> None:
    _, checks = run(operated)
    assert checks["deployment_stands"] == (False, "WARN")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    Store(str(tmp_path)).write_json("corpora/c/corpus.json", {"name": "c"})
    return tmp_path


def test_the_sensor_asks_once_for_what_lies_in_an_inbox(root: Path) -> None:
    assert "nothing new in an inbox" in str(tick(SENSORS["new_inbox"], root).skip_reason)
    path = deliver(root / "inbox/c/a.jsonl", tasks=2)
    deliver(root / "inbox/stranger/a.jsonl", tasks=2)
    first = tick(SENSORS["new_inbox"], root)
    assert [request.partition_key for request in first.run_requests or ()] == ["c"]
    skipped = tick(SENSORS["new_inbox"], root, first.cursor)
    assert "stranger: no corpus has this name" in str(skipped.skip_reason)
    killed = tick(SENSORS["new_inbox"], root)
    assert killed.run_requests and first.run_requests
    assert killed.run_requests[0].run_key == first.run_requests[0].run_key, (
        "a tick that was lost asks under the same key"
    )
    path.with_name("b.jsonl").write_text("{}", "utf-8")
    waiting = tick(SENSORS["new_inbox"], root, first.cursor)
    assert "b.jsonl may still be written" in str(waiting.skip_reason)


def test_a_batch_is_provisional_until_the_labels_of_its_draw_close_it(
    provisional: ProvisionalBatch,
) -> None:
    store, corpus = provisional.store, Corpus(provisional.store, "c")
    assets = [*operation_assets(PROJECT), *operation_checks(PROJECT)]
    key = dg.AssetSelection.assets(dg.AssetKey(["operations", "batch_certificates"]))

    def closed() -> tuple[dict[str, Any], tuple[bool, str]]:
        result = materialize(assets, store, selection=key)
        (made,) = result.asset_materializations_for_node("operations__batch_certificates")
        (check,) = result.get_asset_check_evaluations()
        assert check.check_name == "batches_certified"
        values = {name: value.value for name, value in made.metadata.items()}
        return values, (check.passed, str(check.description))

    audit = BatchAudit.load(corpus, provisional.name)
    assert audit is not None
    metadata, (passed, said) = closed()
    assert not passed and f"reviewers are asked for {len(audit.wanted)} more" in said
    assert (metadata["provisional"], metadata["labels_wanted"]) == (1, len(audit.wanted))
    assert metadata["promises"][provisional.name].startswith("batch certificate:")
    known = agreeing(audit)
    append_labels(corpus, [Label(name, known[name], "ann", "file", name) for name in audit.order])
    metadata, (passed, said) = closed()
    assert passed and metadata["certified"] == 1 and metadata["labels_wanted"] == 0
    # those up to the label that settled it
    assert 0 < metadata["labels"] <= len(audit.order)
