"""Two materializations of one partition at once: whoever is second waits or does the same work, and the bytes are those of one alone."""

import subprocess
import threading
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.ledger import (
    ledger_entries,
    ledger_violations,
    record_read,
    register,
)
from certify_assets.storage.store import Store
from certify_assets_tests.faults.small import (
    command,
    environment,
    left_parts,
    prepare,
    results,
    run,
)
from certify_assets_tests.paths import REPOSITORY


@pytest.mark.slow
def test_two_runs_of_one_partition_at_once_end_as_one(reference: Path, tmp_path: Path) -> None:
    root, alone = tmp_path / "root", results(reference)
    store = prepare(root, source=reference.parent / "small.jsonl")
    both = [
        subprocess.Popen(
            command(),
            env=environment(root),
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    # both began before either had said so, or the second saw the first and was told
    assert codes in ([0, 0], [0, 2]), said
    assert all(
        "is at work on" in text
        for process, text in zip(both, said, strict=True)
        if process.returncode == 2
    )
    print(
        f"two at once: exit codes {codes}, {len(results(root))} documents, {sum(results(root)[k] != v for k, v in alone.items())} differing"
    )
    assert results(root) == alone
    assert ledger_violations(Corpus(store, "small")) == []
    assert not left_parts(root)
    assert run(root).returncode == 0


def test_readers_that_ask_for_test_at_once_leave_one_first_read_each(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    registration = register(Corpus(store, "c"), {"seed": 1}, run_id="cli")
    barrier, failures = threading.Barrier(8), []

    def read(number: int) -> None:
        barrier.wait()
        try:
            for _ in range(5):
                record_read(
                    Corpus(store, "c"),
                    judge="j",
                    registration=registration,
                    configuration={"scores": "same"},
                    run_id=str(number),
                )
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [entry.kind for entry in ledger_entries(Corpus(store, "c"))]
    assert not failures and len(kinds) == 41
    assert kinds.count("first") == 1
    assert kinds.count("replay") == 39
    assert kinds.count("registration") == 1
