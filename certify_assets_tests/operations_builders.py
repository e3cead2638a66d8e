"""A certified corpus and deliveries of new runs for the tests of operation."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batch_drawing import close_batches
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import (
    Alarm,
    Deployed,
    read_deployments,
    strictest_certificates,
)
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.ledger import ledger_entries, record_result
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.recertification_builders import drawn_tasks, label_rows, write_batch

__all__ = [
    "ProvisionalBatch",
    "agreeing",
    "audit_of",
    "certified_corpus",
    "deliver",
    "fail_audit",
    "label_draw",
    "other_scores",
    "pin_present_files",
    "place_wrong_labels",
    "put_deployment",
    "provisional_batch",
    "raise_alarm",
]


def certified_corpus(root: Path) -> Store:
    """Make a data root whose corpus `c` has a lexical judge with certificates on CAL and an audit on TEST."""
    store = Store(str(root))
    root.mkdir(parents=True, exist_ok=True)
    register_runs(
        store, "c", write_runs(root.parent / "runs.jsonl", tasks=100, attempts=4), rl=False
    )
    Corpus(store, "c").prepare_splits()
    Corpus(store, "c").measure_leaks()
    judged(store).train()
    judged(store).score()
    certifier.certify_judge(judged(store))
    audit_judge(judged(store))
    return store


def deliver(
    path: Path,
    *,
    tasks: int = 30,
    attempts: int = 4,
    seed: int = 1,
    change: Callable[[dict[str, Any]], Any] | None = None,
) -> Path:
    """Write new runs of tasks that the corpus does not have, without outcomes, as if they had lain there for a while.

    `change` gets every record and may alter it; where it returns False the record is left out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [
        json.loads(line)
        for line in write_runs(path, tasks=tasks, attempts=attempts, seed=seed)
        .read_text("utf-8")
        .splitlines()
    ]
    lines = []
    for record in records:
        record["task_id"] = f"new-{seed}-{record['task_id']}"
        record["trajectory_id"] = f"new-{seed}-{record['trajectory_id']}"
        # in the same words: only its task is another one
        record["instruction"] += "*"
        del record["outcome"]
        if change is None or change(record) is not False:
            lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    os.utime(path, (1, 1))
    return path


@dataclass(frozen=True)
class ProvisionalBatch:
    """A batch of which most runs are of a new agent and wait for its certificate."""

    store: Store
    name: str
    truth: Mapping[str, int]  # outcome of every run

    def decided_at_once(self) -> list[str]:
        """Return the runs that the corpus certificate decided."""
        rows = first_decisions_of(Corpus(self.store, "c"), self.name)
        found: list[str] = rows.loc[rows["decision"] == "reject", "trajectory_id"].tolist()
        return found


def provisional_batch(
    store: Store, folder: Path, *, tasks: int = 60, audit_rate: float = 0.0
) -> ProvisionalBatch:
    """Deploy the judge of `c` and decide a batch with an agent that CAL does not have."""
    plan = SamplingPlan(audit_rate, 5)
    deploy(judged(store), sampling=plan, track=False)
    truth: dict[str, int] = {}
    lines = write_runs(folder / "truth.jsonl", tasks=tasks, attempts=4, seed=3)
    for record in map(json.loads, lines.read_text("utf-8").splitlines()):
        truth[f"new-3-{record['trajectory_id']}"] = int(record["outcome"])

    def change(record: dict[str, Any]) -> None:
        if not record["trajectory_id"].endswith("/3"):
            record["agent"] = "agent-new"

    path = deliver(folder / "new.jsonl", tasks=tasks, seed=3, change=change)
    batch = receive(Corpus(store, "c"), [str(path)]).batch
    decide_ready(Corpus(store, "c"))
    return ProvisionalBatch(store, batch, truth)


def audit_of(batch: ProvisionalBatch) -> BatchAudit:
    """The audit of a provisional batch as it is stored now."""
    found = BatchAudit.load(Corpus(batch.store, "c"), batch.name)
    assert found is not None
    return found


def label_draw(store: Store, batch: str, *, close: bool = True) -> None:
    """Label what the draw of a batch wants, as the judge expects, and close the batch."""
    while (audit := BatchAudit.load(Corpus(store, "c"), batch)) is not None and audit.wanted:
        said = agreeing(audit)
        labels = [Label(name, said[name], "ann", "cli", name) for name in audit.wanted]
        append_labels(Corpus(store, "c"), labels)
    if close:
        close_batches(Corpus(store, "c"))


def agreeing(audit: BatchAudit) -> dict[str, int]:
    """Return the outcomes of drawn runs that certify whatever the seed: those the judge expects."""
    return {name: 1 - side.wrong for side in audit.draw.sides for name in side.names}


def other_scores(store: Store) -> None:
    """Replace the scores that the certificates were issued on."""
    key = "judges/lexical/c/scores.parquet"
    table = store.read_table(key)
    store.write_table(key, table.assign(score=table["score"] + 1))


def fail_audit(store: Store) -> None:
    """Let the audit of `c` say ERROR, by the book: as a read of TEST that gave this."""
    key = "judges/lexical/c/audits.json"
    document = store.read_json(key)
    for audit in document["audits"]:
        audit |= {"verdict": "ERROR", "reason": "the error is above the budget beyond chance."}
    result = sha256_bytes(
        canonical_json(
            {"audits": document["audits"], "test_scores_sha256": document["test_scores_sha256"]}
        )
    )
    read = next(entry for entry in ledger_entries(Corpus(store, "c")) if entry.kind == "first")
    record_result(store, read, result)
    store.write_json(key, document | {"ledger": read.ledger})


def place_wrong_labels(store: Store) -> None:
    """Label runs of drawn tasks of `c` whose every decision was wrong."""
    made = read_deployments(Corpus(store, "c"))[-1]
    plan, tasks = made.sampling, drawn_tasks(made.sampling, "c", 60)
    batch = {"tasks": tasks, "error": 1.0, "deployment": made.number}
    label_rows(store, "c", write_batch(store, "c", "0000-drawn", plan, **batch))


def raise_alarm(store: Store) -> None:
    """Record an alarm of every certificate of `c`."""
    certificates = strictest_certificates(certifier.load_certificates(judged(store)))
    alarms = [
        Alarm(
            judge="lexical",
            side=item.side,
            alpha=item.alpha,
            certificate_sha256=item.sha256,
            at=40,
            e_value=50.0,
            interval=(0.3, 0.9),
        )
        for item in certificates
        if item.certified
    ]
    store.append("c", *alarms)


def pin_present_files(store: Store, name: str = "c") -> None:
    """Deploy what is stored now with the certificates of the last deployment, by the book."""
    made = read_deployments(Corpus(store, name))[-1]
    put_deployment(store, name, objects=judged(store, name, made.judge).files())


def put_deployment(store: Store, name: str = "c", **changes: Any) -> None:
    """Append the last deployment again with some changes, past the checks."""
    made = store.events(name, Deployed)[-1].content
    store.append(name, made.model_copy(update={"number": made.number + 1, **changes}))
