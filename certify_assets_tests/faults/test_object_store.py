"""The whole line on a data root in an object store: import, run, deploy, ingest, review, ledger; killed in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import from_url

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.batch_audit import BatchAudit
from certify_assets.operations.batches import close_batches
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.operations.labels import read_labels
from certify_assets.operations.layout import batch_names, labels_key
from certify_assets.storage.journal import heads_journal, heads_key
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.judges.endpoint.faulty_server import Action, chat_body, faulty_server
from certify_assets_tests.operations_builders import agreeing, deliver
from certify_assets_tests.paths import REPOSITORY

pytestmark = pytest.mark.slow

_STEP = re.compile(r"^\s*\d+/\d+ (\S+) done")
_JUDGED = "judges/lexical/c"
_LABEL = """
import json, sys
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_label
from certify_assets.storage.store import Store
corpus, who = Corpus(Store(sys.argv[1]), "c"), sys.argv[2]
for name, outcome in json.loads(sys.stdin.read()).items():
    append_label(corpus, Label(name, outcome, who, "cli", f"{who} {name}"))
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(s3_root: str, tmp_path: Path) -> Start:
    """Start a command in a group of its own, as on a machine that has nothing but the environment."""
    home = tmp_path / "home"
    (home / "dagster").mkdir(parents=True)
    environment = {
        **platform_environment(home),
        "HOME": str(home),
        "CERTIFY_ROOT": s3_root,
        "OMP_NUM_THREADS": "1",
    }

    def started(*words: str, program: tuple[str, ...] = ("-m", "certify_assets.cli")) -> Any:
        return subprocess.Popen(
            [sys.executable, *program, *words],
            cwd=REPOSITORY,
            env={**environment, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return started


def _objects(root: str) -> dict[str, bytes]:
    """Content of every object below a root."""
    store = from_url(root)
    names = [item["path"] for part in obstore.list(store) for item in part]
    return {name: bytes(obstore.get(store, name).bytes()) for name in names}


def _killed_after(process: subprocess.Popen[str], step: str) -> None:
    assert process.stderr is not None
    done = (found.group(1) for line in process.stderr if (found := _STEP.match(line)))
    assert step in done and process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _labelled_at_once(start: Start, root: str, outcomes: dict[str, int]) -> None:
    """Let two reviewers label the same runs at once."""
    writers = [start(root, who, program=("-c", _LABEL)) for who in ("ann", "bob")]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(json.dumps(outcomes))
        writer.stdin.close()
        writer.stdin = None
    said = [writer.communicate(timeout=300)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said


def test_answers_of_a_server_outlive_a_killed_scoring(
    start: Start, s3_root: str, tmp_path: Path
) -> None:
    paid, more = 6, threading.Event()

    def answer(_: dict[str, Any], times: int) -> Action:
        # the rest waits until the first scoring was killed
        held = sum(faulty.arrived.values()) > paid and not more.is_set()
        body = chat_body(logs={"SUCCESS": -0.4, "FAIL": -1.1})
        return Action(body, hold=more if held else None)

    store = Store(s3_root)
    register_runs(store, "c", write_runs(tmp_path / "c.jsonl", tasks=20, attempts=1), rl=True)
    Corpus(store, "c").prepare_splits()
    with faulty_server(answer) as faulty:
        judge = {"name": "mine", "url": faulty.url, "model": "m", "read": "top", "concurrency": 1}
        store.write_bytes("judges.yaml", json.dumps({"judges": [judge]}).encode())
        registered = start("judge", "train", "c", "--judge", "mine")
        assert (registered.communicate()[1], registered.returncode)[1] == 0
        scoring = start("judge", "score", "c", "--judge", "mine")
        until = time.monotonic() + 120
        while _objects(s3_root).get("judges/mine/c/answers.jsonl", b"").count(b"\n") < paid:
            assert scoring.poll() is None and time.monotonic() < until
            time.sleep(0.2)
        os.killpg(scoring.pid, signal.SIGKILL)
        scoring.communicate()
        more.set()
        again = start("judge", "score", "c", "--judge", "mine", "--json")
        out, err = again.communicate()
        assert again.returncode == 0, err
        bill = json.loads(out)["bill"]
        assert bill["cache_hits"] == paid
        assert sum(faulty.arrived.values()) == bill["answers"] + 1, "only what was in flight"


def test_the_whole_line_on_an_object_store(start: Start, s3_root: str, tmp_path: Path) -> None:
    said: list[str] = []

    def certify(*words: str) -> str:
        process = start(*words)
        out, err = process.communicate(timeout=600)
        said.extend((out, err))
        assert process.returncode == 0, err
        return out

    bucket = Store(f"{s3_root}-source")
    runs = write_runs(tmp_path / "a.jsonl", tasks=100, attempts=4)
    bucket.write_bytes("runs/a.jsonl", runs.read_bytes())
    certify(
        "corpus",
        "import",
        bucket.locate("runs"),
        "--name",
        "c",
        "--set",
        "rl=false",
        "--set",
        "judge=lexical",
    )
    # killed between training and certificate: what is stored stays, the rest is made
    _killed_after(start("run", "c", "--judge", "lexical"), "judges/lexical/model")
    before = _objects(s3_root)
    assert "corpora/c/splits/manifest.json" in before
    assert f"{_JUDGED}/certificates.json" not in before
    certify("run", "c", "--judge", "lexical")
    after = _objects(s3_root)
    whole = [name for name in before if name.endswith((".parquet", "manifest.json"))]
    assert whole and all(after[name] == before[name] for name in whole)
    certificates = json.loads(after[f"{_JUDGED}/certificates.json"])["certificates"]
    assert any(item["alpha"] == 0.1 and item["side"] == "reject" for item in certificates)
    certify(
        "ops", "deploy", "c", "lexical", "--audit-rate", "0", "--spot-rate", "0", "--draw-seed", "5"
    )
    corpus, store = Corpus(Store(s3_root), "c"), Store(s3_root)
    assert [item.number for item in read_deployments(corpus)] == [1]
    # runs of an agent that CAL does not have wait for a certificate of their batch
    new = deliver(tmp_path / "d" / "new.jsonl", tasks=60, seed=3, change=_of_a_new_agent)
    bucket.write_bytes("new/new.jsonl", new.read_bytes())
    victim = start("ops", "ingest", "c", bucket.locate("new"))
    while not store.names("operations/c/batches"):
        assert victim.poll() is None
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    certify("ops", "ingest", "c", bucket.locate("new"))
    (batch,) = batch_names(Corpus(store, "c"))
    asked: set[str] = set()
    while (audit := BatchAudit.load(Corpus(store, "c"), batch)) is not None and audit.wanted:
        outcomes = {name: agreeing(audit)[name] for name in audit.wanted}
        asked |= set(outcomes)
        _labelled_at_once(start, s3_root, outcomes)
    labels = read_labels(Corpus(store, "c"))
    assert asked and {(item.trajectory_id, item.reviewer) for item in labels} == {
        (name, who) for name in asked for who in ("ann", "bob")
    }
    assert len(labels) == 2 * len(asked)
    print(f"\n2 kills, {len(labels)} labels of two reviewers at once on {len(asked)} runs")
    (audit,), faults = close_batches(Corpus(store, "c"))
    assert not faults and audit.state == "certified"
    heads = heads_journal(store, heads_key("c")).read()
    named = [head.lines for head in heads if head.journal == labels_key("c")]
    assert len(named) >= len(labels) // 20 and max(named) == len(labels)
    certify("ops", "ingest", "c", bucket.locate("new"))
    certify("ledger", "status", "c")
    certify("ops", "status", "c")
    # nobody holds the corpus, and no secret left the environment
    assert store.read_bytes("leases/c.json") == b""
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    assert not any(secret in text for text in said)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret.encode() in data for data in [*kept, *_objects(s3_root).values()])


def _of_a_new_agent(record: dict[str, Any]) -> None:
    if not record["trajectory_id"].endswith("/3"):
        record["agent"] = "agent-new"
