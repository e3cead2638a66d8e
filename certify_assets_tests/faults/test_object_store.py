"""A data root on an S3 server, its database on PostgreSQL: the whole way, kills, lost objects."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels, read_labels
from certify_assets.operations.receiving import receive
from certify_assets.storage.care import collect, rebuild, verify
from certify_assets.storage.database import VARIABLE
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.operations_builders import deliver
from certify_assets_tests.services import postgres_server

pytestmark = pytest.mark.slow


@pytest.fixture
def store(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty data root on the server."""
    with postgres_server("rows") as databases:
        monkeypatch.setenv(VARIABLE, databases["rows"])
        yield Store(s3_root)


def work(root: str, folder: Path) -> None:
    """Import, certify, deploy, decide and label; a call that is made again goes on."""
    corpus = Corpus(Store(root), "c")
    corpus.prepare_splits()
    corpus.measure_leaks()
    judge = JudgedCorpus(corpus, "lexical")
    judge.train()
    judge.score()
    certifier.certify_judge(judge)
    audit_judge(judge)
    deploy(judge, track=False)
    receive(corpus, [str(folder / "new.jsonl")])
    decide_ready(corpus)
    rows = load_decisions(corpus)
    asked = rows.loc[rows["asked"] != "", "trajectory_id"].tolist()[:5]
    append_labels(corpus, [Label(run, 1, "ann", "file", run) for run in asked])


def test_the_whole_way_on_an_object_store_with_kills(store: Store, tmp_path: Path) -> None:
    source = write_runs(tmp_path / "runs.jsonl", tasks=100, attempts=4)
    register_runs(store, "c", source, rl=False)
    deliver(tmp_path / "new.jsonl", tasks=20)
    context = multiprocessing.get_context("spawn")
    for seconds in (4.0, 6.0, 9.0):
        child = context.Process(target=work, args=(store.root, tmp_path))
        child.start()
        time.sleep(seconds)
        if child.is_alive():
            os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        verify(store)
    work(store.root, tmp_path)
    verify(store)
    rebuild(store)
    corpus = Corpus(store, "c")
    assert len(read_labels(corpus)) == 5 and len(load_decisions(corpus)) == 80
    # what was there before a kill is the same, and nothing else is left
    collect(store, older_days=-1)
    verify(store)
    assert store.folder.exists("pages/judges/lexical/c/certificates.json")


def test_an_object_that_was_altered_or_removed_is_named(store: Store) -> None:
    sha256 = store.write_json("corpora/c/a.json", {"a": 1})
    key = f"objects/{sha256[:2]}/{sha256}"
    store.folder.write(key, b"another")
    with pytest.raises(IntegrityError, match=f"the object {sha256[:12]} .* was altered"):
        store.read_json("corpora/c/a.json")
    store.folder.delete(key)
    with pytest.raises(IntegrityError, match=f"the object {sha256[:12]} .* is gone"):
        store.read_json("corpora/c/a.json")
