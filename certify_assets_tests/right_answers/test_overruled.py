"""Labels of the audit sample that reviewers replaced after the judge had decided."""

import json
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.operations_builders import ProvisionalBatch, agreeing, audit_of, deliver


@pytest.mark.slow
@pytest.mark.smoke
def test_labels_replaced_by_what_the_judge_says(
    call: Call, operated: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nothing answers there, and no deployment waits for it
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    root = ("--root", operated.root)
    seeded = ("--audit-rate", 0.95, "--draw-seed", 5)
    assert call("ops", "deploy", "c", "lexical", *seeded, *root).code == 0
    runs, out = deliver(tmp_path / "new.jsonl", tasks=100), tmp_path / "decisions.csv"
    assert call("ops", "ingest", "c", runs, "--decisions", out, *root).code == 0
    rows = pd.read_csv(out).query("asked == 'audit_sample'")
    lines = write_runs(tmp_path / "truth.jsonl", tasks=100, seed=1, attempts=4)
    records = map(json.loads, lines.read_text("utf-8").splitlines())
    truth = {f"new-1-{record['trajectory_id']}": record["outcome"] for record in records}
    rows = rows.assign(outcome=rows["trajectory_id"].map(truth))

    def label(outcomes: "pd.Series[int]", *names: str) -> None:
        path = tmp_path / "labels.csv"
        rows.assign(outcome=outcomes)[["trajectory_id", "outcome"]].to_csv(path, index=False)
        for name in names:
            assert call("review", "import", "c", path, "--reviewer", name, *root).code == 0

    # one label of each kind is wrong at first, and corrected
    turned = (rows["decision"] == "reject") & (rows["outcome"] == 1)
    away = (rows["decision"] == "human") & (rows["outcome"] == 1)
    assert turned.any() and away.any()
    label(rows["outcome"].mask(away, 0), "ann")
    label(rows["outcome"], "ann")
    first = call("ops", "recertify", "c", "--deploy", *root, "--json")
    assert first.code == 0 and "overruled" not in {item["code"] for item in first.json["findings"]}
    label(rows["outcome"].mask(turned, 0), "ann")
    second = call("ops", "recertify", "c", "--at-least", 0, *root, "--json")
    (said,) = (item for item in second.json["findings"] if item["code"] == "overruled")
    total = int(turned.sum() + away.sum())
    assert said["message"].startswith(f"Reviewers changed {total} labels of the audit sample")
    assert said["message"].endswith(f"agree with these certificates only now: {turned.sum()}.")
    refused = call("ops", "recertify", "c", "--deploy", "--at-least", 0, *root)
    assert refused.code == 3 and said["message"] in refused.err
    taken = call("ops", "recertify", "c", "--deploy", "--accept-relabelled", *root, "--json")
    assert taken.code == 0 and taken.json["deployment"] == 3
    shown = call("ops", "status", "c", *root, "--json").json["deployment"]["findings"]
    assert {"overruled", "relabelling_accepted"} <= {item["code"] for item in shown}


def test_replaced_labels_of_a_batch_draw(
    call: Call, provisional: ProvisionalBatch, tmp_path: Path
) -> None:
    root, path = ("--root", provisional.store.root), tmp_path / "labels.csv"
    audit = audit_of(provisional)

    def label(outcomes: dict[str, int]) -> str:
        rows = [f"{name},{outcome}" for name, outcome in outcomes.items()]
        path.write_text("\n".join(["trajectory_id,outcome", *rows]), "utf-8")
        assert call("review", "import", "c", path, "--reviewer", "ann", *root).code == 0
        return call("ops", "status", "c", *root).out

    said = agreeing(audit)
    assert "Reviewers changed" not in label({name: 1 - said[name] for name in audit.order[-3:]})
    assert "Reviewers changed 3 labels of the draw to the judge's decision" in label(said)
