"""What a command stores is reported to Dagster, where the data root has an instance."""

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from certify_assets.cli import launching
from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import CORPORA, VERSION, stored_version
from certify_assets.errors import ChangedInputError
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batch_audit import audits_version
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage import store as storage
from certify_assets.storage.events import parse_head
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.cli.calling import Answer, Call
from certify_assets_tests.operations_builders import ProvisionalBatch, agreeing, audit_of, deliver
from certify_assets_tests.recertification_builders import drawn_tasks, label_rows, write_batch
from certify_assets_tests.review_builders import session_batch

PLAN = SamplingPlan(0.2, 7)


@pytest.fixture(autouse=True)
def _no_tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Dagster home with its databases, which take longer to make than to copy."""
    store = Store(str(tmp_path_factory.mktemp("home")))
    launching.dagster_environment(store)
    folder = store.local_path("dagster")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        instance.add_dynamic_partitions(CORPORA, ["c"])
        assert not instance.get_runs() and not instance.all_asset_keys()
    return folder


@pytest.fixture
def watched(operated: Store, home: Path) -> Store:
    """A certified corpus in a data root whose Dagster home exists."""
    shutil.copytree(home, operated.local_path("dagster"))
    return operated


def reported(store: Store, *names: str, corpus: str = "c") -> list[str]:
    """Return the data versions that commands reported of assets, each of them once."""
    found = []
    with dg.DagsterInstance.from_config(str(store.local_path("dagster"))) as instance:
        assert instance.get_dynamic_partitions(CORPORA) == list(dict.fromkeys(["c", corpus]))
        for name in names:
            where = dg.AssetRecordsFilter(dg.AssetKey(name.split("/")), asset_partitions=[corpus])
            (record,) = instance.fetch_materializations(where, limit=9).records
            assert record.asset_materialization is not None and not record.run_id
            tags, about = record.asset_materialization.tags, record.asset_materialization.metadata
            assert tags is not None and str(about["made_by"].value).startswith("certify ")
            assert store.now().holds(**parse_head(str(about["ledger"].value)))
            found.append(tags[VERSION])
    return found


def of_documents(store: Store, *names: str, corpus: str = "c") -> list[str]:
    versions = [stored_version(store, name, corpus) for name in names]
    return [version.value for version in versions if version is not None]


def done(answer: Answer) -> None:
    assert answer.code == 0, answer.err
    assert "not reported" not in answer.err


def test_training_and_scoring_are_reported(call: Call, watched: Store) -> None:
    names = ("judges/lexical/model", "judges/lexical/scores")
    done(call("judge train c --judge lexical"))
    done(call("judge score c --judge lexical"))
    assert reported(watched, *names) == of_documents(watched, *names)


def test_what_is_not_committed_is_not_reported(
    call: Call, watched: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ChangedInputError("c changed meanwhile. Run this again.")

    monkeypatch.setattr(storage, "append", refused)
    assert call("judge train c --judge lexical").code != 0
    assert not watched.local_path("dagster/locks").exists()


def test_batches_and_decisions_are_reported(call: Call, watched: Store) -> None:
    deploy(judged(watched), sampling=PLAN, track=False)
    deliver(watched.local_path("inbox/c/new.jsonl"))
    done(call("ops ingest c"))
    names = ("operations/incoming_runs", "operations/decisions")
    versions = reported(watched, *names)
    # nothing is new in the same files
    done(call("ops ingest c"))
    assert reported(watched, *names) == versions and len(set(versions)) == 2


@pytest.mark.slow
def test_what_status_closes_is_reported_once(
    call: Call, provisional: ProvisionalBatch, home: Path
) -> None:
    store, name = provisional.store, "operations/batch_certificates"
    shutil.copytree(home, store.local_path("dagster"))
    while (audit := audit_of(provisional)).wanted:
        said = [Label(run, agreeing(audit)[run], "ann", "cli", run) for run in audit.wanted]
        append_labels(Corpus(store, "c"), said)
    assert audit.state == "provisional"
    done(call("ops status c"))
    assert audit_of(provisional).state != "provisional"
    assert reported(store, name) == [audits_version(Corpus(store, "c"))]
    done(call("ops status c"))
    assert len(reported(store, name)) == 1


def test_imported_labels_are_resolved_and_reported(
    call: Call, watched: Store, tmp_path: Path
) -> None:
    runs = session_batch(watched)
    labels = tmp_path / "labels.csv"
    pd.DataFrame({"trajectory_id": runs[:2], "outcome": [0, 1]}).to_csv(labels, index=False)
    where = ("--reviewer", "ann")
    done(call("review", "import", "c", labels, *where))
    done(call("review", "import", "c", labels, *where))
    name = "operations/reviewed_labels"
    assert reported(watched, name) == of_documents(watched, name)
    assert len(watched.read_table("operations/c/labels.parquet")) == 2


@pytest.mark.slow
def test_a_recertification_and_its_deployment_are_reported(call: Call, watched: Store) -> None:
    deploy(judged(watched), sampling=PLAN, track=False)
    # several runs of a drawn task: so few tasks certify nothing by one of each
    save_config(watched, replace(Corpus(watched, "c").config, audit_runs=4))
    audit = drawn_tasks(PLAN, "c", 40)
    label_rows(watched, "c", write_batch(watched, "c", "0001-a", PLAN, tasks=audit))
    made = call("ops recertify c --deploy --json")
    done(made)
    version, deployed = reported(watched, "operations/recertification", "operations/deployment")
    assert version == made.json["inputs_sha256"]
    assert [deployed] == of_documents(watched, "operations/deployment")


@pytest.mark.slow
def test_under_the_prefix_of_a_project_the_keys_are_its_own(watched: Store) -> None:
    command = ["-m", "certify_assets.cli", "judge", "train", "c", "--judge", "lexical", "--root"]
    done = {
        prefix: subprocess.run(
            [sys.executable, *command, watched.root],
            env={**os.environ, "CERTIFY_ASSET_PREFIX": prefix},
            capture_output=True,
            text=True,
            check=False,
        )
        for prefix in ("team/eval", "no prefix")
    }
    assert done["team/eval"].returncode == 0 and "not reported" not in done["team/eval"].stderr
    assert "CERTIFY_ASSET_PREFIX is 'no prefix': give letters" in done["no prefix"].stderr
    with dg.DagsterInstance.from_config(str(watched.local_path("dagster"))) as instance:
        assert instance.all_asset_keys() == [
            dg.AssetKey(["team", "eval", "judges", "lexical", "model"])
        ]


def test_without_an_instance_nothing_of_dagster_is_touched(
    call: Call, operated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(launching, "platform")
    done(call("judge train c --judge lexical"))
    # a home that is named and not there is no instance either
    monkeypatch.setenv("DAGSTER_HOME", str(operated.local_path("nowhere")))
    done(call("judge train c --judge lexical"))
    assert not operated.local_path("dagster").exists()
    assert not operated.local_path("nowhere").exists()


def test_a_report_that_fails_is_one_warning(
    call: Call, watched: Store, caplog: pytest.LogCaptureFixture
) -> None:
    watched.local_path("dagster/dagster.yaml").write_text("storage: nothing\n", "utf-8")
    with caplog.at_level(logging.WARNING, logger="certify_assets"):
        answer = call("judge train c --judge lexical")
    assert answer.code == 0 and "lexical" in answer.out
    (warning,) = [record for record in caplog.records if record.name == "certify_assets"]
    assert warning.levelno == logging.WARNING
    assert "judges/lexical/model of c stored, but not reported to Dagster" in warning.getMessage()
