"""What a batch, its draw and its reviewers are told is what there is."""

import signal
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage.store import Store
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.review_client import Client, serve
from certify_assets_tests.review_builders import session_batch


@pytest.mark.parametrize("number", [5, 60])
def test_errors_are_those_of_the_labels_used(number: int, tmp_path: Path, call: Call) -> None:
    for name, seed in (("cal", 0), ("batch", 1)):
        score_rows(tasks=80, seed=seed).to_csv(tmp_path / f"{name}.csv", index=False)
    table, certificate = tmp_path / "batch.csv", tmp_path / "c.json"
    call(f"certificate {tmp_path}/cal.csv --side reject --out {certificate}")
    draw, labels = tmp_path / "draw.csv", tmp_path / "labels.csv"
    history = f"--history {tmp_path}/cal.csv --out {tmp_path}/plan.json"
    plan = call(f"batch plan {certificate} {table} {history} --json").json
    assert len(plan["thresholds"]) > 1
    call(f"batch draw {tmp_path}/plan.json {table} --seed 3 --out {draw}")
    # every third label says that the rejected run was a success
    drawn = pd.read_csv(draw).head(number).assign(outcome=lambda rows: (rows.index % 3 == 0) * 1)
    drawn[["trajectory_id", "outcome"]].to_csv(labels, index=False)
    first = drawn.loc[drawn["level"] == 0, "outcome"]
    command = f"batch close {tmp_path}/plan.json {table} {draw} {labels}"
    found = call(f"{command} --json")
    assert found.code == 3 and not found.json["certified"]
    # labels after the one that settled it do not count, nor does any error among them
    used, errors = found.json["labels_used"], found.json["errors_found"]
    assert 0 < used <= len(first) and errors == first.head(used).sum()
    shown = " ".join(call(command).out.split())
    stopped = found.json["state"] == "not_worth_it"
    assert (f"{errors} of the first {used} labels are wrong" in shown) == stopped
    assert (f"{used} labelled, {errors} of them wrong" in shown) == (not stopped)
    assert ("more without an error certify them" in shown) == (found.json["state"] == "continue")


def test_reviewers_who_are_done_hear_of_disputed_runs(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    names = session_batch(store)
    said = [Label(name, 1, "Ann", "file", name) for name in names]
    append_labels(Corpus(store, "c"), said)
    append_labels(
        Corpus(store, "c"), [Label(name, 0, "Ben", "file", f"{name}b") for name in names[:2]]
    )
    server = serve(store, "--reviewer", "Ann", "--reviewer", "Ben")
    try:
        client = Client(server.url, links=server.links)
        page = client.enter("Ann").text
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=30)
    assert "Nothing is left for you" in page
    assert "Disputed, for a third reviewer: 2 runs." in page
