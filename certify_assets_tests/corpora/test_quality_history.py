"""What Great Expectations keeps of a corpus: a project that it opens itself, results over time."""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.config import remove_corpus
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.quality import RUN_TABLES, Project, evaluate_suites
from certify_assets.corpora.splits import SPLITS
from certify_assets.corpora.validations import TABLES
from certify_assets.reports.corpus_page import write_data_docs
from certify_assets.storage.store import Store
from certify_assets_tests.corpora.builders import corpus
from certify_assets_tests.pages import assert_stands_alone, text_of
from certify_assets_tests.paths import REPOSITORY

NASTY = "<img src=x onerror=alert(1)>${fine}{{ 7*7 }}"


def validated(store: Store) -> list[Path]:
    return sorted(
        path for path in (Path(store.root) / "corpora/one/gx/validations").rglob("*.json")
    )


def test_the_project_is_one_that_the_library_opens(
    corpora: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"a connection to {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert all(
        item.passed for item in Corpus(corpora, "one").quality_report(stored_splits=True).results
    )
    # once the package has imported it: the library imports modules that Python calls deprecated
    import great_expectations as gx

    folder = Path(corpora.root) / "corpora/one/gx"
    definitions = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path not in validated(corpora)
    }
    context = gx.get_context(mode="file", context_root_dir=folder)
    assert {item.name for item in context.checkpoints.all()} == set(TABLES)
    assert {item.name for item in context.suites.all()} == set(TABLES)
    frame = pd.DataFrame({"task_id": ["a", None], "trajectory_id": ["x", "x"], "outcome": [0, 7]})
    ran = context.checkpoints.get("cal").run(batch_parameters={"dataframe": frame})
    assert not ran.success
    # each result is a file of its own, and running changes no suite
    assert len(validated(corpora)) == len(TABLES) + 1
    Corpus(corpora, "one").quality_report(stored_splits=True)
    assert {path: path.read_bytes() for path in definitions} == definitions
    assert not list(folder.rglob("*.part"))


def test_what_was_validated_is_not_validated_again_for_the_splits(corpora: Store) -> None:
    first = Corpus(corpora, "one").quality_report(stored_splits=False)
    assert {path.parts[-4] for path in validated(corpora)} == set(RUN_TABLES)
    second = Corpus(corpora, "one").quality_report(stored_splits=True)
    assert len(validated(corpora)) == len(TABLES)
    assert [item.table for item in second.validations] == list(TABLES)
    assert second.results[: len(first.results)] == first.results


def test_data_docs_show_what_failed_as_text(corpora: Store) -> None:
    path = Path(corpora.root) / "corpora/one/trajectories.parquet"
    # what the package would not write
    frame = pd.read_parquet(path)
    frame.loc[:1, "trajectory_id"] = NASTY
    frame.to_parquet(path)
    opened = Corpus(corpora, "one")
    docs = Path(write_data_docs(opened, opened.quality_report(stored_splits=False)))
    assert "&lt;img src=x onerror=alert(1)&gt;${fine}{{ 7*7 }}" in docs.read_text("utf-8")
    assert NASTY not in docs.read_text("utf-8") and "8 of 9 expectations met" in text_of(
        docs.read_text("utf-8")
    )
    # but for the way back to the start page
    assert_stands_alone(docs.read_text("utf-8").replace(' href="../../../index.html#one"', ""))


def test_the_same_results_give_the_same_data_docs(corpora: Store) -> None:
    pages = []
    for _ in range(2):
        opened = Corpus(corpora, "one")
        docs = write_data_docs(opened, opened.quality_report(stored_splits=True))
        pages.append(Path(docs).read_bytes())
    assert pages[0] == pages[1]


def test_a_damaged_result_stops_nothing(corpora: Store) -> None:
    Corpus(corpora, "one").quality_report(stored_splits=False)
    damaged = validated(corpora)[0]
    damaged.write_text('{"results": [', "utf-8")
    odd = damaged.with_name("odd.json")
    odd.write_text(json.dumps({"meta": {"run_id": {}}, "results": [NASTY]}), "utf-8")
    opened = Corpus(corpora, "one")
    report = opened.quality_report(stored_splits=True)
    assert {item.table for item in report.validations} == set(TABLES)


def test_a_data_root_under_a_url_has_the_same_project() -> None:
    store = Store(f"memory://quality-{uuid.uuid4().hex}")
    frame = corpus(tasks=10, attempts=2)
    project = Project(store, "made", "ab" * 32)
    report = evaluate_suites(frame, project=project)
    assert store.exists("corpora/made/gx/great_expectations.yml")
    assert store.names("corpora/made/gx/checkpoints") == sorted(
        f"{name}.json" for name in RUN_TABLES
    )
    assert tuple(project.latest(*RUN_TABLES)) == report.validations


def test_a_stored_split_with_an_id_twice_fails() -> None:
    splits = dict.fromkeys(SPLITS, corpus(tasks=2, attempts=2))
    twice = {**splits, "cal": pd.concat([splits["cal"], splits["cal"].head(1)])}
    report = evaluate_suites(corpus(tasks=4, attempts=2), splits=twice)
    result = next(item for item in report.results if item.name == "split_rows")
    assert not result.passed and result.severity == "error"
    assert "cal: 2 rows have a trajectory_id such as t000-0" in result.detail


_CHILD = """
import sys
from certify_assets.corpora.corpus import Corpus
from certify_assets.reports.corpus_page import write_data_docs
from certify_assets.storage.store import Store
opened = Corpus(Store(sys.argv[1]), "one")
for _ in range(2):
    write_data_docs(opened, opened.quality_report(stored_splits=True))
"""


@pytest.mark.slow
def test_processes_at_once_and_a_killed_one_leave_whole_results(corpora: Store) -> None:
    command = [sys.executable, "-c", _CHILD, corpora.root]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    children = [subprocess.Popen(command, env=environment) for _ in range(3)]
    # one is killed when its first results are there
    while len(validated(corpora)) < 3 and children[0].poll() is None:
        time.sleep(0.05)
    children[0].kill()
    assert [child.wait(timeout=300) for child in children[1:]] == [0, 0]
    children[0].wait(timeout=60)
    opened = Corpus(corpora, "one")
    assert all(item.passed for item in opened.quality_report(stored_splits=True).results)


def test_a_corpus_that_was_validated_is_removed_whole(corpora: Store) -> None:
    opened = Corpus(corpora, "one")
    write_data_docs(opened, opened.quality_report(stored_splits=False))
    gone = remove_corpus(corpora, "one")
    assert {"data_docs", "gx"} <= set(gone)
    assert not (Path(corpora.root) / "corpora/one").exists()
