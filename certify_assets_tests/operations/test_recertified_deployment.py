"""The whole round: deploy, decide, label, recertify, deploy the result; the way from an alarm."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from certify_assets.cli.recertify import recertify as command
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.checks import (
    audit_sample_complete,
    delta_left,
    no_alarm,
    not_expired,
)
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy, promote, redeploy
from certify_assets.operations.deployment import load_deployment, open_deployment, read_deployments
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.lineage import follow
from certify_assets.operations.monitoring import monitor_judge
from certify_assets.operations.receiving import receive
from certify_assets.operations.recertification import plan_recertification, recertify
from certify_assets.operations.recertification_record import load_recertification
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.operations_builders import certified_corpus, deliver

PLAN = SamplingPlan(0.3, 5)


def judge_of(store: Store) -> JudgedCorpus:
    return judged(store)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = certified_corpus(tmp_path_factory.mktemp("recertified") / "root")
    deploy(judge_of(store), sampling=PLAN, track=False)
    return Path(store.root)


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    shutil.copytree(template, tmp_path / "root")
    return Store(str(tmp_path / "root"))


def bring(store: Store, *, seed: int, wrong: bool = False) -> str:
    """Deliver and decide 100 new tasks, and label all that is asked about; some labels `wrong`."""
    path = deliver(Path(store.root) / f"inbox/c/{seed}.jsonl", tasks=100, seed=seed)
    received = receive(Corpus(store, "c"))
    assert received.batch is not None
    decide_ready(Corpus(store, "c"))
    told = Path(store.root).parent / f"told-{seed}.jsonl"
    truth = {
        f"new-{seed}-{item['trajectory_id']}": item["outcome"]
        for item in _lines(write_runs(told, tasks=100, attempts=4, seed=seed))
    }
    rows = decisions_of(Corpus(store, "c"), received.batch)
    asked = rows.loc[rows["asked"] == "audit_sample", "trajectory_id"]
    said = [
        Label(name, 1 if wrong else truth[name], "ann", "file", f"ann {name}") for name in asked
    ]
    append_labels(Corpus(store, "c"), said)
    path.unlink()
    return received.batch


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.smoke
def test_a_recertification_is_deployed_and_decides(store: Store) -> None:
    bring(store, seed=1)
    assert (
        delta_left(Corpus(store, "c")).status == "PASS"
        and audit_sample_complete(Corpus(store, "c")).status == "PASS"
    )
    done = CliRunner().invoke(command, ["c", "--root", store.root, "--deploy", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    now = load_deployment(Corpus(store, "c"))
    assert (
        document["number"] == 1
        and document["deployment"] == 2
        and now is not None
        and now.number == 2
    )
    assert now.recertification == document["number"] and set(now.certificates) <= set(
        document["certificates"]
    )
    assert open_deployment(Corpus(store, "c")).refusal is None
    assert (
        promote(Corpus(store, "c"), load_recertification(Corpus(store, "c"), 1)) == now
        and len(read_deployments(Corpus(store, "c"))) == 2
    )
    batch = bring(store, seed=2)
    rows = decisions_of(Corpus(store, "c"), batch)
    assert (
        set(rows["certificate_sha256"]) == {";".join(now.certificates)}
        and (rows["decision"] != "human").any()
    )
    seen = monitor_judge(judge_of(store))
    about = next(iter(seen.operation.streams.values()))
    assert about.tasks > 0 and about.left_out["before_certificate"] > 0
    assert (
        no_alarm(Corpus(store, "c")).status in {"PASS", "WARN"}
        and not_expired(Corpus(store, "c")).status == "PASS"
    )


@pytest.mark.slow
def test_the_lineage_of_a_recertified_certificate_names_its_labels_and_batches(
    store: Store,
) -> None:
    batch = bring(store, seed=1)
    document = recertify(judge_of(store))[0]
    assert document is not None
    # later labels change nothing of it
    append_labels(
        Corpus(store, "c"),
        [
            Label(
                decisions_of(Corpus(store, "c"), batch)["trajectory_id"][0],
                1,
                "bea",
                "file",
                "later",
            )
        ],
    )
    _, (certificate,) = follow(store, document.certificates[0])
    links = {link.kind: link for link in certificate.walk()}
    assert not any(link.broken for link in links.values())
    assert links["labels"].status == "holds" and batch in links["table"].name


@pytest.mark.slow
def test_a_recertification_on_less_than_half_of_what_was_drawn_is_not_deployed(
    store: Store,
) -> None:
    bring(store, seed=1)
    document, _ = recertify(judge_of(store))
    assert document is not None and document.open_share == 0.0
    with pytest.raises(GateClosedError, match="60 % of the drawn tasks are open or tied"):
        promote(Corpus(store, "c"), document.replace(open_share=0.6))
    assert len(read_deployments(Corpus(store, "c"))) == 1


@pytest.mark.slow
def test_labels_that_show_errors_stop_the_next_batch_and_every_certificate_that_they_speak_against(
    store: Store,
) -> None:
    bring(store, seed=1, wrong=True)
    # nobody has run the monitor yet
    before = read_deployments(Corpus(store, "c"))
    for alpha in (0.1, 0.2):
        with pytest.raises(
            GateClosedError, match=r"raise an alarm for auto-fail|nothing is certified"
        ):
            deploy(judge_of(store), alpha=alpha, track=False)
    with pytest.raises(GateClosedError, match="present labels raise an alarm"):
        redeploy(Corpus(store, "c"), 1, track=False)
    assert len(read_deployments(Corpus(store, "c"))) == len(before)
    assert set(decisions_of(Corpus(store, "c"), bring(store, seed=2))["reason"]) == {"alarm"}
    # an alarm stays, also where its labels are gone from the monitor's document
    store.delete("judges/lexical/c/monitor.json")
    refusal = open_deployment(Corpus(store, "c")).refusal
    assert (
        refusal is not None
        and refusal.code == "alarm"
        and "the monitor raised an alarm for auto-fail" in refusal.sentence
    )


@pytest.mark.slow
def test_after_an_alarm_the_drawn_tasks_of_refused_batches_are_scored_for_the_recertification(
    store: Store,
) -> None:
    bring(store, seed=1, wrong=True)
    assert (
        monitor_judge(judge_of(store)).status == "alarm"
        and no_alarm(Corpus(store, "c")).status == "ERROR"
    )
    batch = bring(store, seed=2)
    rows = decisions_of(Corpus(store, "c"), batch)
    # a batch that waits for a certificate of its own is scored at once
    assert set(rows["reason"]) == {"alarm"}
    assert rows["score"].notna().all()
    plan = plan_recertification(judge_of(store))
    late = plan.table[plan.table["batch"] == batch]
    assert not plan.counted.rows.set_index("batch").loc[batch, "refused"].any()
    assert len(late) and late["score"].notna().all() and set(late["provenance"]) == {"audit_sample"}
    document, _ = recertify(judge_of(store))
    assert document is not None
    # every failure of the first delivery was called a success: nothing can be certified on that
    with pytest.raises(GateClosedError):
        promote(Corpus(store, "c"), document)
    assert (
        open_deployment(Corpus(store, "c")).refusal is not None
        and len(read_deployments(Corpus(store, "c"))) == 1
    )


@pytest.mark.slow
def test_what_the_audit_sample_alone_speaks_against_is_not_deployed(store: Store) -> None:
    bring(store, seed=1)
    document, _ = recertify(judge_of(store))
    assert document is not None
    failed = {"verdict": "ERROR", "reason": "too many."}
    sides = tuple(replace(side, audit_sample=failed) for side in document.sides)
    against = document.replace(sides=sides)
    with pytest.raises(GateClosedError, match="fails on the audit sample"):
        promote(Corpus(store, "c"), against)
    assert load_recertification(Corpus(store, "c"), 1) == document


@pytest.mark.slow
def test_the_command_previews_and_refuses(store: Store) -> None:
    bring(store, seed=1)

    def call(*options: str) -> tuple[int, Any]:
        done = CliRunner().invoke(command, ["c", "--root", store.root, "--json", *options])
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.exception

    code, preview = call("--dry-run")
    assert (
        code == 0
        and preview["number"] == 1
        and preview["made_before"] is False
        and preview["new_tasks"] >= preview["needed"]
    )
    assert (
        not {"sides", "certificates", "threshold"} & set(preview)
        and store.names("operations/c/recertifications") == []
    )
    code, document = call("--at-least", "5000")
    assert code == 3 and document["number"] is None and "nothing was spent" in document["said"]
    code, error = call("--every", "5")
    assert code == 2 or "--every is part of a schedule" in str(error)
    code, error = call("--schedule", "planned", "--total", "0.02", "--count", "4")
    assert code == 2 or "reason for the change" in str(error)
    changed = ("--schedule", "planned", "--total", "0.02", "--count", "4", "--every", "5")
    changed += ("--reason", "four times a year")
    _, preview = call(*changed, "--dry-run")
    assert (preview["delta"], preview["needed"]) == (0.004, 5), "as the call that it previews"
    code, document = call(*changed)
    assert code == 0 and document["delta"] == 0.004
    done = CliRunner().invoke(command, ["--help"])
    assert "never by what the labels say" in " ".join(done.stdout.split())
