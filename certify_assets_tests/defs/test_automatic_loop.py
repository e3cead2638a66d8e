"""The loop of the sensors: deliveries, labels and the week lead to certificates."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.definitions.partitions.context import partition_loading_context

from certify_assets.cli.corpus import corpus as corpus_command
from certify_assets.cli.ops import ops
from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.execution import execute, failures, instance_with, run_corpus
from certify_assets.defs.names import CORPORA
from certify_assets.defs.resources import DataRoot
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import DELTA
from certify_assets.operations import notifications
from certify_assets.operations.audit import load_audits
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.decisions import batch_names, load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import load_deployment, open_deployment, read_deployments
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.notifications import DeliveryAttempt
from certify_assets.operations.recertification_record import recertifications
from certify_assets.operations.spending import Schedule, read_spending
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.operations_builders import deliver

MONDAY = datetime(2026, 1, 5, 6, tzinfo=UTC)
PLAN = SamplingPlan(0.3, 5)


class Loop:
    """A data root with its Dagster instance, whose sensors and schedule are evaluated by hand."""

    def __init__(self, root: Path) -> None:
        self.store = Store(str(root))
        self.resources = {"data_root": DataRoot(root=str(root))}
        self.repository = defs.get_repository_def()
        self.cursors: dict[str, str | None] = {}

    @property
    def corpus(self) -> Corpus:
        return Corpus(self.store, "c")

    def _run(self, job: str, requests: Any) -> list[str]:
        for request in requests or ():
            with instance_with([request.partition_key]) as instance:
                selection = set(request.asset_selection) if request.asset_selection else None
                done = execute(job, instance, request.partition_key, selection)
                assert done.success, failures(done.all_events)
        return [request.run_key for request in requests or ()]

    def tick(self, name: str) -> list[str]:
        """Evaluate a sensor, execute what it requests in this process, and keep its cursor."""
        sensor = self.repository.get_sensor_def(name)
        with (
            dg.DagsterInstance.get() as instance,
            dg.build_sensor_context(
                instance=instance,
                cursor=self.cursors.get(name),
                repository_def=self.repository,
                resources=self.resources,
            ) as context,
            # as the daemon does before it evaluates a tick
            partition_loading_context(dynamic_partitions_store=instance),
        ):
            made = sensor.evaluate_tick(context)
        self.cursors[name] = made.cursor or self.cursors.get(name)
        return self._run(sensor.job_name, made.run_requests)

    def week(self) -> list[str]:
        """Evaluate the weekly schedule, and execute what it requests."""
        schedule = self.repository.get_schedule_def("weekly_recertification")
        with (
            dg.DagsterInstance.get() as instance,
            dg.build_schedule_context(
                instance=instance,
                scheduled_execution_time=MONDAY,
                repository_def=self.repository,
                resources=self.resources,
            ) as context,
            # as the daemon does before it evaluates a tick
            partition_loading_context(dynamic_partitions_store=instance),
        ):
            made = schedule.evaluate_tick(context)
        return self._run(schedule.job_name, made.run_requests)

    def review(self, told: Path, seed: int) -> None:
        """Label what the draw asks about, as the truth has it."""
        rows = [json.loads(line) for line in told.read_text("utf-8").splitlines()]
        truth = {f"new-{seed}-{row['trajectory_id']}": row["outcome"] for row in rows}
        asked = load_decisions(self.corpus).query("asked != ''")["trajectory_id"]
        names = [name for name in asked if name in truth]
        append_labels(
            self.corpus, [Label(name, truth[name], "ann", "file", f"ann {name}") for name in names]
        )


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    root = tmp_path / "root"
    (root / "dagster").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith(("MLFLOW", "CERTIFY"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CERTIFY_ROOT", str(root))
    monkeypatch.setenv("DAGSTER_HOME", str(root / "dagster"))
    target = {"name": "team", "apprise": "ON_CALL"}
    (root / "notifications.yaml").write_text(json.dumps({"targets": [target]}), "utf-8")
    return Loop(root)


def command(group: Any, *arguments: str) -> Any:
    return CliRunner().invoke(group, [*arguments], catch_exceptions=False)


@pytest.mark.slow
def test_deliveries_labels_and_the_week_lead_to_certificates(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(
        notifications, "_send", lambda _, event: messages.append(event.message) or ""
    )
    runs = write_runs(tmp_path / "runs.jsonl", tasks=100, attempts=4)
    name = ["--name", "c", "--format", "table", "--root", loop.store.root]
    done = command(
        corpus_command,
        "import",
        str(runs),
        *name,
        *("--set", "rl=false"),
        *("--set", "judge=lexical"),
    )
    assert done.exit_code == 0, done.output
    assert loop.tick("new_versions") == [], "what was never certified is not certified unasked"
    assert run_corpus("c", shown="nothing") == 0
    deploy(JudgedCorpus(loop.corpus, "lexical"), sampling=PLAN)
    calibration = set(JudgedCorpus(loop.corpus, "lexical").calibration[0]["trajectory_id"])

    # an unlabelled delivery is decided, its labels come back, and a recertification decides
    told = write_runs(tmp_path / "told.jsonl", tasks=100, attempts=4, seed=1)
    deliver(Path(loop.store.root) / "inbox/c/1.jsonl", tasks=100, seed=1)
    assert len(loop.tick("new_inbox")) == 1 and len(batch_names(loop.corpus)) == 1
    loop.review(told, 1)
    assert len(loop.tick("reviewed_labels")) == 1
    (record,) = recertifications(loop.corpus)
    given = ("c", "--root", loop.store.root)
    assert command(ops, "recertify", *given, "--deploy").exit_code == 0
    now = load_deployment(loop.corpus)
    assert now is not None and (now.number, now.recertification) == (2, 1)
    assert record.delta == Schedule().share(1)
    assert open_deployment(loop.corpus).refusal is None
    kept = JudgedCorpus(loop.corpus, "lexical").calibration[0]["trajectory_id"]
    assert set(kept) == calibration, "labels of the review queue never enter CAL"

    # one command takes it back
    assert command(ops, "rollback", *given).exit_code == 0
    loop.week()
    now = load_deployment(loop.corpus)
    assert now is not None and (now.number, now.recertification) == (3, 0)
    assert read_spending(loop.corpus).of("lexical").later == 1, "a week without news costs nothing"

    # a labelled delivery of new tasks: certificate, audit, page, comparison
    added = write_runs(tmp_path / "added.jsonl", tasks=150, attempts=4, seed=3)
    lines = [json.loads(line) for line in added.read_text("utf-8").splitlines()]
    names = ("task_id", "trajectory_id", "instruction")
    renamed = [{**line, **{key: f"b-{line[key]}" for key in names}} for line in lines]
    added.write_text("".join(json.dumps(line) + "\n" for line in renamed), "utf-8")
    assert command(corpus_command, "import", str(added), *name, "--add").exit_code == 0
    assert open_deployment(loop.corpus).refusal is None, "it decides by its copies"
    assert len(loop.tick("new_versions")) == 1
    assert loop.tick("new_versions") == []
    judge = JudgedCorpus(loop.corpus, "lexical")
    assert {item.delta for item in load_certificates(judge)} == {Schedule().share(2)}
    assert load_audits(judge)[0] and loop.store.exists("comparison/c/comparison.json")
    page = loop.store.read_bytes(judge.key("page.html")).decode("utf-8")
    total = read_spending(loop.corpus).of("lexical").total()
    assert total in page and f"{DELTA + Schedule().share(1) + Schedule().share(2):.4g} of" in total
    assert command(ops, "deploy", "c", "lexical", *given[1:]).exit_code == 0
    assert open_deployment(loop.corpus).refusal is None
    loop.week()
    assert len(read_deployments(loop.corpus)) == 4
    assert loop.tick("reviewed_labels") == []

    sent = [item.content.about for item in loop.corpus.events(DeliveryAttempt) if item.content.sent]
    assert not sent and not messages, "nothing is wrong"
    with dg.DagsterInstance.get() as instance:
        assert instance.get_dynamic_partitions(CORPORA) == ["c"]
        key = dg.AssetKey(["operations", "deployment"])
        assert instance.get_latest_materialization_event(key) is not None
    shown = json.loads(command(ops, "status", "c", "--json", "--root", loop.store.root).stdout)
    assert shown["decides"] and shown["delta_spent"] == total
