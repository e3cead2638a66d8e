"""Outcomes that become known after a decision: what is stored, and what feeds the monitor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.labels import Label, append_label
from certify_assets.operations.monitoring import load_monitor, monitor_judge, operation_stream
from certify_assets.operations.outcomes import (
    decided_outcomes,
    import_outcomes,
    known_head,
    stream_places,
)
from certify_assets.operations.receiving import undo_batch
from certify_assets.storage.store import Store
from certify_assets.tables.settings import ReadingOptions
from certify_assets_tests.recertification_builders import (
    JUDGE,
    deploy_by_hand,
    drawn_tasks,
    label_rows,
    strictest_certificate,
    write_batch,
)

PLAN = SamplingPlan(0.2, 7)
AUDIT = drawn_tasks(PLAN, "one", 10)


@pytest.fixture
def store(corpora: Store) -> Store:
    deploy_by_hand(corpora, "one", PLAN)
    return corpora


@pytest.fixture
def rows(store: Store) -> pd.DataFrame:
    return write_batch(store, "one", "0001-a", PLAN, tasks=[*AUDIT, "nobody-asks"], error=0.5)


@pytest.fixture
def corpus(store: Store, rows: pd.DataFrame) -> Corpus:
    return Corpus(store, "one")


def drawn(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["asked"] == "audit_sample"]


def give(corpus: Corpus, path: Path, rows: pd.DataFrame, source: str = "ci") -> tuple[int, int]:
    """Import the truth of some rows; return what was new and what was not."""
    table = rows.rename(columns={"truth": "outcome"})[["trajectory_id", "outcome"]]
    table.to_csv(path, index=False)
    made = import_outcomes(corpus, path, ReadingOptions(), source=source)
    corpus.store.refresh()
    return made.added, made.stood_already


def stream(corpus: Corpus) -> tuple[list[str], dict[str, int]]:
    found = operation_stream(corpus, strictest_certificate(corpus.store))
    return list(map(str, found.tasks)), dict(found.figures.left_out)


def test_outcomes_of_drawn_runs_feed_the_monitor_once_each(
    corpus: Corpus, rows: pd.DataFrame, tmp_path: Path
) -> None:
    assert give(corpus, tmp_path / "o.csv", rows) == (len(rows), 0)
    head = known_head(corpus)
    assert give(corpus, tmp_path / "o.csv", rows) == (0, len(rows)) and known_head(corpus) == head
    tasks, left_out = stream(corpus)
    assert set(tasks) == set(AUDIT) and left_out == {}
    found = {item.trajectory_id: item for item in decided_outcomes(corpus)}
    uses = {name for name, item in found.items() if item.use == "monitor"}
    assert uses == set(drawn(rows)["trajectory_id"])
    assert {item.use for item in found.values()} == {"monitor", "not_drawn"}
    wrong = rows[(rows["decision"] == "reject") & (rows["truth"] == 1)]["trajectory_id"]
    assert {name for name, item in found.items() if item.wrong} == set(wrong)


def test_an_outcome_waits_for_every_drawn_run_before_it(
    corpus: Corpus, rows: pd.DataFrame, tmp_path: Path
) -> None:
    asked = drawn(rows)
    third = asked.iloc[[2]]
    give(corpus, tmp_path / "o.csv", asked.drop(third.index))
    before = stream(corpus)
    assert len(before[0]) == 2 and before[1] == {"open": 1, "behind_open": 7}
    record = monitor_judge(JudgedCorpus(corpus, JUDGE))
    label_rows(corpus.store, "one", third)
    corpus.store.refresh()
    after = stream(corpus)
    # nothing that was read before has moved
    assert after[0][:2] == before[0] and len(after[0]) == 10 and after[1] == {}
    again = monitor_judge(JudgedCorpus(corpus, JUDGE))
    assert again.operation != record.operation and not again.findings
    assert load_monitor(JudgedCorpus(corpus, JUDGE)) == again


def test_a_label_of_reviewers_goes_before_an_outcome(
    corpus: Corpus, rows: pd.DataFrame, tmp_path: Path
) -> None:
    give(corpus, tmp_path / "o.csv", drawn(rows))
    outcomes = operation_stream(corpus, strictest_certificate(corpus.store)).outcomes
    first = drawn(rows).iloc[0]
    label = Label(first["trajectory_id"], 1 - first["truth"], "ann", "page", "t")
    append_label(corpus, label)
    found = operation_stream(corpus, strictest_certificate(corpus.store)).outcomes
    assert found.tolist() == [1 - outcomes[0], *outcomes[1:]]
    (item,) = (item for item in decided_outcomes(corpus) if item.contradicted)
    assert (item.trajectory_id, item.use) == (first["trajectory_id"], "labelled")


def test_a_source_says_one_thing_of_a_run(
    corpus: Corpus, rows: pd.DataFrame, tmp_path: Path
) -> None:
    give(corpus, tmp_path / "o.csv", rows)
    other = rows.assign(truth=1 - rows["truth"]).iloc[:1]
    with pytest.raises(InputError, match="ci said a"):
        give(corpus, tmp_path / "o.csv", other)
    assert give(corpus, tmp_path / "o.csv", other, source="revert") == (1, 0)
    # the file of the other source once more is no news
    assert give(corpus, tmp_path / "o.csv", rows) == (0, len(rows))
    first, *others = decided_outcomes(corpus)
    assert first.outcome == other["truth"].iloc[0]
    assert first.contradicted and first.denied_by == ("ci",)
    assert not any(item.contradicted for item in others)


def test_a_batch_is_taken_back_until_the_monitor_reads_its_outcomes(
    corpus: Corpus, rows: pd.DataFrame, tmp_path: Path
) -> None:
    others = write_batch(corpus.store, "one", "0002-b", PLAN, tasks=["nobody-asks"], first=4)
    give(corpus, tmp_path / "o.csv", pd.concat([drawn(rows), others]))
    undo_batch(corpus, "0002-b")
    corpus.store.refresh()
    assert {item.trajectory_id for item in decided_outcomes(corpus)} == {
        *drawn(rows)["trajectory_id"]
    }
    with pytest.raises(InputError, match="10 drawn runs whose outcomes the monitor reads"):
        undo_batch(corpus, "0001-a")


def test_outcomes_of_unknown_runs_alone_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    unknown = pd.DataFrame({"trajectory_id": ["x"], "truth": [1]})
    with pytest.raises(InputError, match="no outcome of a decided run"):
        give(corpus, tmp_path / "o.csv", unknown)


def test_outcomes_that_are_only_known_of_failures_feed_a_beginning_of_the_draw() -> None:
    rng = np.random.default_rng(3)
    tasks = {f"t{place}": [f"t{place}/0"] for place in range(50)}
    failed = rng.random(50) < 0.3
    known = [
        Label(f"t{place}/0", 0, "outcome", "file", str(place), number=place + 1)
        for place in rng.permutation(50)
        if failed[place]
    ]
    places = stream_places([], known, tasks)
    assert list(places) == [f"t{place}" for place in range(int(np.argmin(failed)))]


def test_a_label_that_denies_an_outcome_settles_the_run() -> None:
    tasks = {"a": ["a/0", "a/1"], "b": ["b/0"]}
    outcomes = [
        Label(run, 0, "outcome", "file", run, number=number)
        for run, number in (("a/0", 1), ("a/1", 3), ("b/0", 4))
    ]
    for label in (2, 0):
        labels = [Label("a/0", 1, "ann", "page", "t", number=label)]
        assert stream_places(labels, outcomes, tasks) == {"a": 3, "b": 4}
