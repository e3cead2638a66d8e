"""``certify ops deploy``, ``incoming`` and ``lineage``: documents, exit codes and sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.decisions import DECISION_COLUMNS
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.operations_builders import (
    ProvisionalBatch,
    agreeing,
    deliver,
    pin_present_files,
)


@pytest.mark.slow
def test_a_judge_is_deployed_shown_and_deployed_again(
    call: Call, operated: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nothing answers there
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    nothing = call("ops status c --json")
    assert nothing.code == 3 and nothing.json["refusal"]["code"] == "not_deployed"
    made = call("ops deploy c lexical --audit-rate .1 --draw-seed 7 --json")
    assert made.code == 0 and made.json["alpha"] == {"reject": 0.1} and made.json["decides"]
    # the seed is a secret
    assert made.json["sampling"] == {"audit_rate": 0.1} and "error" in made.json["mlflow"]
    other = call("ops deploy c lexical --alpha reject=.2")
    assert (
        other.code == 0
        and "auto-fail at 20 %" in other.out
        and "deployed, but MLflow has no record of it" in other.err
    )
    again = call("ops rollback c --json").json
    assert again["certificates"] == made.json["certificates"] and again["number"] == 3
    shown = call("ops status c")
    for words in ("3 (lexical).", "auto-fail at 10 %", "It decides new runs."):
        assert words in shown.out
    assert shown.code == 0 and made.json["certificates"][0][:12] in shown.out
    history = call("ops history c --json").json
    assert [step["deployed"] for step in history["steps"]] == [[1, 3], [2]]
    assert "lexical" in call("ops history c").out
    unknown = call("ops rollback c 9")
    assert unknown.code == 2 and "no deployment number 9. Its deployments: 1, 2, 3." in unknown.err
    assert [item["number"] for item in call("ops status c --json").json["deployments"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["c", "--alpha", ".1"], "Missing argument 'JUDGE'"),
        (["c", "lexical", "--alpha", "both=.1"], "is not a budget"),
        (["c", "lexical", "--audit-rate", "1.2"], "--audit-rate"),
        (["c", "nosuch"], "there is no judge 'nosuch'"),
        (["d", "lexical"], "no corpus is called 'd'"),
    ],
)
def test_a_mistake_is_exit_2(call: Call, operated: Store, arguments: list[str], words: str) -> None:
    answer = call("ops", "deploy", *arguments)
    assert answer.code == 2 and words in answer.err


def test_new_runs_are_decided_and_written_out(call: Call, operated: Store, tmp_path: Path) -> None:
    call("ops deploy c lexical --audit-rate .2 --draw-seed 5")
    deliver(operated.local_path("inbox/c") / "a.jsonl", tasks=30)
    answer = call(f"ops ingest c --json --decisions {tmp_path}/d.parquet")
    (document,) = answer.json["batches"]
    assert (
        answer.code == 0
        and answer.json["new"] == 120
        and document["decided"]
        and document["batch"] == answer.json["batch"]
    )
    rows = pd.read_parquet(tmp_path / "d.parquet")
    assert tuple(rows.columns) == (*DECISION_COLUMNS, "ledger") and len(rows) == 120
    assert set(rows["asked"]) == {"audit_sample", "undecided", ""}
    again = call("ops ingest c --json")
    assert again.code == 0 and again.json["known"] == 120 and again.json["batches"] == [document]
    shown = call("ops ingest c")
    assert (
        "120 received before" in shown.err
        and f"Batch {document['batch']}: 120 runs" in shown.out
        and "(audit sample)" in shown.out
    )


def test_runs_are_decided_after_labels_were_monitored(
    call: Call, operated: Store, tmp_path: Path
) -> None:
    call("ops deploy c lexical --audit-rate .5 --draw-seed 5")
    inbox = operated.local_path("inbox/c")
    deliver(inbox / "a.jsonl", tasks=20)
    assert call(f"ops ingest c --decisions {tmp_path}/d.parquet").code == 0
    rows = pd.read_parquet(tmp_path / "d.parquet").assign(outcome=0)
    rows[["trajectory_id", "outcome"]].to_csv(tmp_path / "o.csv", index=False)
    assert call(f"ops outcomes c {tmp_path}/o.csv").code == 0
    deliver(inbox / "b.jsonl", tasks=20, seed=2)
    answer = call("ops ingest c --json")
    assert answer.code == 0 and answer.json["batches"][0]["decided"]
    assert operated.exists("judges/lexical/c/monitor.html")


def test_what_incoming_refuses(call: Call, operated: Store, tmp_path: Path, scores: Path) -> None:
    answer = call(f"ops ingest c {scores}")
    assert answer.code == 2 and "for a table of scores use `certify certificate`" in answer.err
    empty = call("ops ingest c")
    assert empty.code == 0 and "holds no file" in empty.err
    path = deliver(tmp_path / "a.jsonl", tasks=2)
    answer = call(f"ops ingest c {path} --decisions {path}")
    assert answer.code == 2 and "would be overwritten" in answer.err
    answer = call(f"ops ingest c --decisions {tmp_path}/d.csv")
    assert answer.code == 2 and "nothing was decided by this call" in answer.err


def test_a_decision_is_followed(call: Call, operated: Store, tmp_path: Path) -> None:
    call("ops deploy c lexical")
    runs = deliver(tmp_path / "<a>.jsonl", tasks=5)
    document = call(f"ops ingest c {runs} --json").json
    answer = call("ops lineage new-1-task-000/0 --json")
    assert answer.code == 0 and answer.json["holds"] and answer.json["broken"] == []
    follow = f"ops lineage {document['batch']} --corpus c"
    shown = call(follow)
    assert shown.code == 0 and "Every link holds." in shown.out and "source <a>.jsonl" in shown.out
    runs.rename(tmp_path / "moved")
    moved = call(follow)
    said = " ".join(moved.out.split())
    assert moved.code == 0 and re.search(r"\d+ links hold. Source files that were moved: 1\.", said)
    (tmp_path / "moved").rename(runs)
    operated.write_bytes("judges/lexical/c/adapter/weights.safetensors", b"other")
    pin_present_files(operated)
    answer = call("ops lineage new-1-task-000/0")
    assert answer.code == 3 and "Links that do not hold: 1." in answer.out
    broken = call(f"ops lineage {document['batches'][0]['certificates'][0][:10]} --json")
    assert broken.code == 3 and broken.json["broken"] == ["model judges/lexical/c: differs"]
    missing = call("ops lineage nothing")
    assert missing.code == 2 and "Give a trajectory id, a batch" in missing.err


def test_the_status_names_provisional_batches_and_closes_them(
    call: Call, provisional: ProvisionalBatch, tmp_path: Path
) -> None:
    corpus = Corpus(provisional.store, "c")
    audit = BatchAudit.load(corpus, provisional.name)
    assert audit is not None
    arguments = ("ops", "status", "c")
    found = call(*arguments, "--json")
    (batch,) = found.json["batches"]
    assert found.code == 0 and found.json["faults"] == []
    assert (batch["state"], batch["labels_used"]) == ("provisional", 0)
    assert batch["labels_wanted"] == list(audit.wanted)
    shown = call(*arguments)
    asked = f"its draw has 0 labels, and reviewers are asked for {len(audit.wanted)} more (`"
    assert asked in shown.out
    assert "with 95 % confidence over the draw" in " ".join(shown.out.split())
    known, tied = agreeing(audit), audit.wanted[:2]
    append_labels(corpus, [Label(name, 1, "ann", "file", name) for name in tied])
    append_labels(corpus, [Label(name, 0, "ben", "file", f"{name}b") for name in tied])
    assert "more; a third reviewer settles 2 tied runs (`" in call(*arguments).out
    append_labels(
        corpus, [Label(name, known[name], "eve", "file", f"{name}c") for name in audit.order]
    )
    (batch,) = call(*arguments, "--json").json["batches"]
    assert batch["state"] == "certified" and batch["labels_wanted"] == []
