"""Commands that start no job take turns on a corpus: with each other, with runs, after a kill."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certify_assets import Workspace
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.deployment_record import read_deployments
from certify_assets.storage import lease
from certify_assets.storage.store import Store
from certify_assets_tests.faults.small import environment, results
from certify_assets_tests.paths import REPOSITORY

_COMMAND = """
import sys, time
from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
with Corpus(Store(sys.argv[1]), "two").writing("a test"):
    print("held", flush=True)
    time.sleep(600)
"""
_RUN = """
import sys, time
import dagster as dg
from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.defs.names import CORPORA
from certify_assets.defs.resources import DataRoot, MlflowTracker
@asset("corpora", "corpora")
def first(step: AssetStep) -> Made:
    print("held", flush=True)
    sys.stdin.readline()
    return step.made({}, version="1")
with dg.DagsterInstance.ephemeral() as instance:
    instance.add_dynamic_partitions(CORPORA, ["two"])
    resources = {"data_root": DataRoot(root=sys.argv[1]), "mlflow": MlflowTracker(enabled=False)}
    assert dg.materialize([first], instance=instance, partition_key="two", resources=resources).success
"""


@contextmanager
def _holder(code: str, root: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a process that holds the lease of the corpus two."""
    with subprocess.Popen(
        [sys.executable, "-c", code, root],
        cwd=REPOSITORY,
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def _certify(root: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "certify_assets.cli", *arguments, "--root", root],
        cwd=REPOSITORY,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read_until(stream: Any, words: str) -> str:
    said = ""
    while words not in said:
        line = stream.readline()
        assert line, said
        said += " " + line.strip()
    return said


@pytest.mark.slow
def test_a_command_waits_for_a_run_and_says_for_whom(corpora: Store, tmp_path: Path) -> None:
    root = corpora.root
    with _holder(_RUN, root, tmp_path) as run:
        command = _certify(root, tmp_path, "judge", "train", "two", "--judge", "structure")
        said = _read_until(command.stderr, "Waiting for its end")
        assert "is at work on two (corpora__first) since" in said and f"process {run.pid}" in said
        assert command.poll() is None
        stored = Corpus(Store(root), "two").store
        assert not stored.exists("judges/structure/two/adapter.json")
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
        _, err = command.communicate(timeout=120)
        assert command.returncode == 0 and run.wait() == 0, err
    assert Store(root).exists("judges/structure/two/adapter.json")
    assert not Store(root).exists("leases/two.json")


@pytest.mark.slow
def test_two_deployments_at_once_are_two_numbers(corpora: Store, tmp_path: Path) -> None:
    Corpus(corpora, "one").store.delete("leases/one.json")
    from certify_assets.evaluation.audit import audit_judge
    from certify_assets.judges.judged import JudgedCorpus

    audit_judge(JudgedCorpus(Corpus(corpora, "one"), "lexical"))
    commands = [
        _certify(corpora.root, tmp_path, "ops", "deploy", "one", "lexical") for _ in range(2)
    ]
    said = [command.communicate(timeout=120)[1] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], said
    made = [item.number for item in read_deployments(Corpus(corpora, "one"))]
    assert made == [1, 2]
    document = json.loads(corpora.read_bytes("operations/one/deployment.json"))
    assert document["number"] == 2


@pytest.mark.slow
def test_two_imports_of_one_name_are_one_corpus(tmp_path: Path) -> None:
    from certify_assets_tests.builders import write_runs

    root = str(tmp_path / "root")
    sources = [
        write_runs(tmp_path / f"{seed}.jsonl", tasks=30, attempts=2, seed=seed) for seed in (1, 2)
    ]
    commands = [
        _certify(root, tmp_path, "corpus", "import", str(path), "--name", "c") for path in sources
    ]
    said = [command.communicate(timeout=120)[1] for command in commands]
    codes = [command.returncode for command in commands]
    assert sorted(codes) == [0, 2], said
    assert "a corpus called c is registered already (60 traj" in said[codes.index(2)]
    corpus = Corpus(Store(root), "c")
    assert corpus.config.paths == (str(sources[codes.index(0)]),)
    assert corpus.import_summary.sha256 == corpus.trajectories_sha256


def test_calls_take_turns_and_lose_patience(
    corpora: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)
    corpus, order = Corpus(corpora, "two"), list[str]()

    def second() -> None:
        with corpus.writing("second"):
            order.append("second")

    thread = threading.Thread(target=second)
    with corpus.writing("first"), corpus.writing("part of the first"):
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert not corpora.exists("leases/two.json")
    monkeypatch.setattr(lease, "_PATIENCE_SECONDS", 0.1)
    held = lease.Lease(corpora, "two", owner="run 1", what="scores")
    assert held.take() is None
    with (
        pytest.raises(CertifyError, match=r"run 1 is at work on two \(scores\) .* call this again"),
        Corpus(corpora, "two").writing("another"),
    ):
        raise AssertionError
    assert held.leave()


def test_every_writing_call_from_python_waits_for_another_process(
    corpora: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PATIENCE_SECONDS", -1)
    corpus = Workspace.open(corpora.root).corpus("two")
    judge = corpus.judge("lexical")
    calls = {
        "corpus": (
            *("prepare", "prepare_splits", "import_trajectories", "make_splits", "write_splits"),
            *("measure_profile", "measure_leaks"),
        ),
        "judge": ("train", "score", "certify", "audit", "deploy"),
    }
    before = results(Path(corpora.root))
    with _holder(_COMMAND, corpora.root, tmp_path):
        for opened, names in ((corpus, calls["corpus"]), (judge, calls["judge"])):
            for name in names:
                with pytest.raises(CertifyError, match=r"is at work on two \(a test\)"):
                    getattr(opened, name)()
        with pytest.raises(CertifyError, match="is at work on two"):
            corpus.write_split("cal")
    assert results(Path(corpora.root)) == before
    assert judge.train() == judge.artifact
