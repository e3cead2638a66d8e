import socket
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.quality import BLOCKING, QualityResult, evaluate_suites
from certify_assets.corpora.schema import Step, to_frame
from certify_assets.corpora.splits import SPLITS, make_manifest, select
from certify_assets.reports.corpus_page import write_data_docs
from certify_assets.storage.store import Store
from certify_assets_tests.corpora.builders import corpus, trajectory
from certify_assets_tests.pages import assert_stands_alone, text_of

NASTY = "<b>${count}{0.__class__}" + "A" * 100_000
MARKUP = "<img src=x onerror=alert(1)>${fine}{{ 7*7 }}"
FRAME = corpus(tasks=60, attempts=4)
MANIFEST = make_manifest(FRAME["task_id"], "made")


def by_name(*arguments: Any, **options: Any) -> dict[str, QualityResult]:
    return {result.name: result for result in evaluate_suites(*arguments, **options).results}


def stored() -> dict[str, pd.DataFrame]:
    return {name: select(FRAME, MANIFEST, name) for name in SPLITS}


def test_a_sound_corpus_passes_every_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"a connection to {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    frame = FRAME.assign(outcome=FRAME["outcome"].where(FRAME.index > 0))
    found = by_name(frame, MANIFEST, splits=stored())
    assert found.keys() == {*BLOCKING, "n_min_tasks", "duplicates"}
    assert all(result.passed for result in found.values())
    warnings = {name for name, result in found.items() if result.severity == "warning"}
    assert warnings == {"n_min_tasks", "duplicates"} and found["disjoint_tasks"].expectations == 6
    assert list(tmp_path.iterdir()) == []


def test_without_a_manifest_the_table_alone_is_checked() -> None:
    assert list(by_name(FRAME)) == [
        "schema",
        "unique_trajectory_id",
        "binary_outcome",
        "no_leak_field",
        "duplicates",
    ]


def test_a_missing_column_or_identity_fails_the_schema() -> None:
    missing = by_name(FRAME.drop(columns=["agent", "outcome"]))
    assert not missing["schema"].passed and "agent, outcome are missing" in missing["schema"].detail
    assert set(missing) == set(by_name(FRAME)) and missing["unique_trajectory_id"].passed
    for name in ("binary_outcome", "no_leak_field", "duplicates"):
        assert not missing[name].passed and "column is missing" in missing[name].detail
    holes = by_name(FRAME.assign(task_id=FRAME["task_id"].where(FRAME.index > 1)))
    assert not holes["schema"].passed and "task_id is missing in 2 rows" in holes["schema"].detail


def test_a_repeated_id_fails() -> None:
    result = by_name(pd.concat([FRAME, FRAME.head(1)], ignore_index=True))
    assert not result["unique_trajectory_id"].passed
    assert "t000-0" in result["unique_trajectory_id"].detail
    assert not result["duplicates"].passed and "1 of 241 renderings" in result["duplicates"].detail


def test_an_outcome_that_is_neither_fails() -> None:
    result = by_name(FRAME.assign(outcome=FRAME["outcome"].where(FRAME.index > 0, 2)))
    assert not result["binary_outcome"].passed and "2" in result["binary_outcome"].detail


def test_a_leak_field_fails() -> None:
    assert "column reward" in by_name(FRAME.assign(reward=1.0))["no_leak_field"].detail
    leaky = to_frame([trajectory(0, steps=(Step("a", '"is_resolved": true'),))])
    result = by_name(leaky)["no_leak_field"]
    assert not result.passed and "key is_resolved" in result.detail


def test_a_task_in_two_stored_splits_fails() -> None:
    splits = stored()
    twice = splits["test"].head(1)
    results = by_name(FRAME, MANIFEST, splits=splits | {"cal": pd.concat([splits["cal"], twice])})
    disjoint, shared = results["disjoint_tasks"], repr(twice["task_id"].iloc[0])
    assert not disjoint.passed and shared in disjoint.detail
    assert "1 tasks are in both cal and test" in disjoint.detail
    assert not results["manifest"].passed and "stored cal split" in results["manifest"].detail


def test_a_manifest_of_other_data_fails() -> None:
    result = by_name(FRAME, make_manifest(corpus(tasks=59)["task_id"], "made"))["manifest"]
    assert not result.passed and "is in no split" in result.detail


def test_too_few_cal_tasks_are_a_warning() -> None:
    result = by_name(FRAME, make_manifest(FRAME["task_id"], "made", "paper"), alpha=0.1)[
        "n_min_tasks"
    ]
    assert not result.passed
    assert result.severity == "warning"
    assert "RL and CAL has 27 tasks, and α=0.1 needs 39" in result.detail


@pytest.mark.parametrize(
    ("frame", "check"),
    [
        (FRAME.assign(**{NASTY: 1}), "no_leak_field"),
        (FRAME.assign(trajectory_id=NASTY), "unique_trajectory_id"),
        (FRAME.assign(outcome=NASTY), "binary_outcome"),
    ],
)
def test_hostile_text_is_cut_and_fills_no_sentence(frame: pd.DataFrame, check: str) -> None:
    result = by_name(frame)[check]
    assert not result.passed and len(result.detail) < 400
    # what stands for a fact in a sentence of ours is text in theirs
    assert "<b>${count}{0.__class__}" in result.detail


def test_a_stored_split_with_an_id_twice_fails() -> None:
    splits = stored()
    splits["cal"] = pd.concat([splits["cal"], splits["cal"].head(1)])
    result = by_name(FRAME, MANIFEST, splits=splits)["split_rows"]
    assert not result.passed and result.severity == "error"
    assert "cal: 2 rows have a trajectory_id such as t0" in result.detail


def test_data_docs_show_what_failed_as_text(corpora: Store) -> None:
    key = "corpora/one/trajectories.parquet"
    # what the package would not write
    frame = corpora.read_table(key)
    frame.loc[:1, "trajectory_id"] = MARKUP
    corpora.write_table(key, frame)
    opened = Corpus(corpora, "one")
    docs = Path(write_data_docs(opened, opened.quality_report(stored_splits=False)))
    assert "&lt;img src=x onerror=alert(1)&gt;${fine}{{ 7*7 }}" in docs.read_text("utf-8")
    assert MARKUP not in docs.read_text("utf-8") and "8 of 9 expectations met" in text_of(
        docs.read_text("utf-8")
    )
    # but for the way back to the start page
    assert_stands_alone(docs.read_text("utf-8").replace(' href="../../../index.html#one"', ""))
