"""Labels changed, and runs left out, after a certificate was seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from certify_assets import Workspace
from certify_assets.corpora.corpus import Corpus
from certify_assets.reports.judge_page import write_page
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call

Record = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    # nothing answers there, and no deployment waits for it
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def certifying(store: Store, corpus: str = "c") -> set[str]:
    """Tasks that certify the judge."""
    return set(Corpus(store, corpus).manifest.tasks["cal"])


def deliver(
    call: Call,
    store: Store,
    change: Callable[[Record], Record | None],
    *,
    name: str = "c",
    more: int = 0,
) -> None:
    """Import the first runs of `c` after a change, and `more` tasks; certify and audit."""
    folder = Path(store.root).parent
    lines = write_runs(folder / "as-first.jsonl", tasks=100 + more, attempts=4)
    made = (change(json.loads(line)) for line in lines.read_text("utf-8").splitlines())
    records = [record for record in made if record is not None]
    path = folder / f"{name}-again.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    options = "--replace" if name == "c" else "--set rl=false"
    arguments = f"--name {name} --format table {options} --root {store.root}"
    answer = call(f"corpus import {path} {arguments}")
    assert answer.code == 0, answer.err
    corpus = Workspace.open(store.root).corpus(name)
    corpus.prepare()
    judge = corpus.judge("lexical")
    judge.train()
    judge.score()
    judge.certify()
    judge.audit()


def relabelled(tasks: set[str]) -> Callable[[Record], Record]:
    """Call every run that looks bad to the judge a failure."""

    def change(record: Record) -> Record:
        bad = not any(word in str(record["steps"]) for word in ("confirmed", "shows", "sorted"))
        flips = bad and record["outcome"] == 1 and record["task_id"] in tasks
        return {**record, "outcome": 0} if flips else record

    return change


def left_out(tasks: set[str]) -> Callable[[Record], Record | None]:
    gone = sorted(tasks)[:3]
    return lambda record: None if record["task_id"] in gone else record


def finding(store: Store, corpus: str = "c") -> str:
    """The one sentence of the certificates that decide, empty without one."""
    certificates = Workspace.open(store.root).corpus(corpus).judge("lexical").certificates
    said = {
        item["message"]
        for certificate in certificates
        for item in certificate.findings
        if item["code"] == "relabelled_after_certificate"
    }
    assert len(said) <= 1
    return said.pop() if said else ""


def deploy(call: Call, store: Store, *options: str, corpus: str = "c") -> Any:
    return call("ops", "deploy", corpus, "lexical", *options, "--root", store.root, "--json")


@pytest.mark.slow
@pytest.mark.smoke
def test_labels_turned_towards_the_judge(call: Call, operated: Store) -> None:
    assert deploy(call, operated).code == 0
    tasks = certifying(operated)
    deliver(call, operated, relabelled(tasks))
    said = finding(operated)
    number = int(said.partition("labels changed: ")[2].partition(" ")[0])
    assert said == (
        f"Since these runs were first certified, labels changed: {number} (CAL {number}). The "
        f"judge had decided {number} of the runs with changed labels; {number} of these labels "
        "now agree with it."
    )
    # the page says so where it says what is certified
    write_page(Workspace.open(operated.root).corpus("c").judge("lexical"))
    page = operated.read_bytes("judges/lexical/c/page.html").decode()
    banner = unescape(page.partition('id="verdict"')[2].partition("</section>")[0])
    assert said in banner and "Certified, after labels or runs were changed" in banner
    refused = deploy(call, operated)
    assert refused.code == 3 and said in refused.err and "--accept-relabelled" in refused.err
    made = deploy(call, operated, "--accept-relabelled")
    assert made.code == 0
    findings = {item["code"]: item["message"] for item in made.json["findings"]}
    assert findings["relabelled_after_certificate"] == said
    assert "relabelling_accepted" in findings
    # what was accepted is accepted when it decides again, and no later change is
    assert call("ops", "rollback", "c", 2, "--root", operated.root).code == 0
    deliver(call, operated, left_out(tasks))
    assert deploy(call, operated).code == 3


def test_tasks_left_out(call: Call, operated: Store) -> None:
    deliver(call, operated, left_out(certifying(operated)))
    assert finding(operated) == (
        "Since these runs were first certified, runs left out: 12 (CAL 12); tasks left out: 3."
    )
    assert deploy(call, operated).code == 3


@pytest.mark.slow
def test_new_tasks_and_the_first_labels_again_are_no_finding(call: Call, operated: Store) -> None:
    deliver(call, operated, lambda record: record, more=10)
    assert finding(operated) == ""
    deliver(call, operated, relabelled(certifying(operated)), more=10)
    assert finding(operated) != ""
    deliver(call, operated, lambda record: record, more=10)
    assert finding(operated) == "" and deploy(call, operated).code == 0


@pytest.mark.slow
def test_the_same_runs_under_another_name(call: Call, operated: Store) -> None:
    deliver(call, operated, relabelled(certifying(operated)), name="other")
    assert "labels changed" in finding(operated, "other")
    assert deploy(call, operated, corpus="other").code == 3
    assert finding(operated) == "" and deploy(call, operated).code == 0
