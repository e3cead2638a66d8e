"""Batches are compared with CAL together with those before them, and spend one level over all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify_assets.certificates.shift import LIFE_LEVEL, spent_level
from certify_assets.corpora.config import save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.batches import BatchRecord, decided
from certify_assets.operations.coverage import BatchComparison
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.receiving import receive, undo_batch
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, write_runs
from certify_assets_tests.operations_builders import deliver, label_draw, raise_alarm

_Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def deployed(operated: Store) -> Store:
    deploy(judged(operated), sampling=SamplingPlan(0.2, 5), track=False)
    return operated


def _decide(store: Store, path: Path, **delivery: Any) -> BatchRecord:
    receive(Corpus(store, "c"), [str(deliver(path, **delivery))])
    (document,) = decide_ready(Corpus(store, "c"))
    return document


def _comparison(store: Store, batch: str) -> BatchComparison:
    corpus = Corpus(store, "c")
    return BatchComparison.of(corpus, decided(corpus, batch).content)


def _codes(document: BatchRecord) -> set[str]:
    return {item["code"] for item in document.findings}


def _successes(folder: Path, seed: int, tasks: int) -> set[str]:
    """Return the runs that succeed of a delivery that `deliver` writes with this seed."""
    path = write_runs(folder / f"truth-{seed}.jsonl", tasks=tasks, attempts=4, seed=seed)
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return {f"new-{seed}-{item['trajectory_id']}" for item in records if item["outcome"]}


def _sabotage(store: Store, folder: Path, seed: int, tasks: int) -> _Change:
    """Put the judge's words of failure three times into the last observation of every success."""
    model = judged(store).load()
    assert isinstance(model, LexicalJudge)
    words = " ".join([model.success_words(40, success=False)] * 3)
    successes = _successes(folder, seed, tasks)

    def change(record: dict[str, Any]) -> None:
        if record["trajectory_id"] in successes:
            record["steps"][-1]["observation"] += f" {words}"

    return change


# of three tasks a delivery the first one is too small to be compared with anything
@pytest.mark.parametrize(("tasks", "deliveries", "fewest", "most"), [(9, 6, 0, 2), (3, 8, 1, 5)])
def test_small_sabotaged_deliveries_wait(
    deployed: Store, tmp_path: Path, tasks: int, deliveries: int, fewest: int, most: int
) -> None:
    documents = []
    for seed in range(41, 41 + deliveries):
        change = _sabotage(deployed, tmp_path, seed, tasks)
        path = tmp_path / f"{seed}.jsonl"
        documents.append(_decide(deployed, path, tasks=tasks, seed=seed, change=change))
    waits = ["shifted" in item.reasons for item in documents]
    first = waits.index(True)
    assert fewest <= first <= most and all(waits[first:]), waits
    for item in documents[first:]:
        assert item.reasons == {"shifted": 4 * tasks} and "shifted" in _codes(item)
        assert not any(text.startswith("corpus certificate") for text in item.promises)
    # what was decided before is decided as it was
    for item in documents[:first]:
        rows = decisions_of(Corpus(deployed, "c"), item.batch)
        assert rows["decision"].value_counts().to_dict() == item.decisions
        assert item.decisions["reject"] and "provisional" not in item.decisions


def test_honest_deliveries_of_the_same_sizes_are_decided(deployed: Store, tmp_path: Path) -> None:
    tasks, level = 0, 0.0
    for number, seed in enumerate(range(41, 47), start=1):
        document = _decide(deployed, tmp_path / f"{seed}.jsonl", tasks=9, seed=seed)
        assert not {"shifted", "too_few_to_compare"} & _codes(document)
        assert document.decisions["reject"] > 0
        made = _comparison(deployed, document.batch)
        assert (made.tasks, made.spent) == (9 * number, 9 * number)
        levels = [group["level"] for group in made.compared]
        assert sum(levels) == pytest.approx(spent_level(9 * number) - spent_level(tasks))
        tasks, level = 9 * number, level + sum(levels)
        # alone, up to 40 tasks, and up to 200
        sizes = [group["tasks"] for group in made.compared]
        assert sizes == sorted({9, min(9 * number, 45), 9 * number})
    assert level < LIFE_LEVEL


def test_too_few_tasks_are_decided_with_a_finding(deployed: Store, tmp_path: Path) -> None:
    first = _decide(deployed, tmp_path / "1.jsonl", tasks=3, seed=41)
    (said,) = [item["message"] for item in first.findings if item["code"] == "too_few_to_compare"]
    assert said.startswith("There are 3 new tasks so far, and 5 are needed")
    assert "shifted" not in first.reasons and first.decided
    # nothing was compared, so nothing is spent
    assert _comparison(deployed, first.batch).spent == 0
    second = _decide(deployed, tmp_path / "2.jsonl", tasks=3, seed=42)
    assert "too_few_to_compare" not in _codes(second)
    (group,) = _comparison(deployed, second.batch).compared
    assert group["batches"] == [first.batch, second.batch] and group["tasks"] == 6
    assert group["level"] == pytest.approx(spent_level(6))


def test_a_batch_that_was_taken_back_is_compared_with_none_and_its_level_stays_spent(
    deployed: Store, tmp_path: Path
) -> None:
    first = _decide(deployed, tmp_path / "1.jsonl", tasks=9, seed=41)
    undo_batch(Corpus(deployed, "c"), first.batch)
    second = _decide(deployed, tmp_path / "2.jsonl", tasks=9, seed=42)
    made = _comparison(deployed, second.batch)
    assert [group["batches"] for group in made.compared] == [[second.batch]]
    assert made.compared[0]["level"] == pytest.approx(spent_level(18) - spent_level(9))


def test_batches_under_an_alarm_are_not_compared_and_change_no_count(
    deployed: Store, tmp_path: Path
) -> None:
    first = _decide(deployed, tmp_path / "1.jsonl", tasks=9, seed=41)
    raise_alarm(deployed)
    second = _decide(deployed, tmp_path / "2.jsonl", tasks=9, seed=42)
    assert not second.decided
    before, after = (_comparison(deployed, item.batch) for item in (first, second))
    assert after == before.replace(batch=second.batch, compared=())


def test_a_certificate_of_its_own_ends_what_a_batch_is_compared_with(
    deployed: Store, tmp_path: Path
) -> None:
    save_config(deployed, replace(Corpus(deployed, "c").config, batch_runs=1))

    def fail(record: dict[str, Any]) -> bool:
        # too few tasks of an agent to call it another one
        words = " could not find the button, no element matches the selector"
        record["steps"][-1]["observation"] += 3 * words
        task, attempt = int(record["task_id"][-3:]), int(record["trajectory_id"].split("/")[-1])
        return task % 3 == attempt % 3

    first = _decide(deployed, tmp_path / "1.jsonl", tasks=9, seed=41)
    path = tmp_path / "2.jsonl"
    second = _decide(deployed, path, tasks=27, attempts=24, seed=42, change=fail)
    assert second.reasons == {"shifted": 216} and second.decisions["provisional"]
    label_draw(deployed, second.batch)
    closed = decisions_of(Corpus(deployed, "c"), second.batch)
    assert "batch_certificate" in set(closed["reason"])
    third = _decide(deployed, tmp_path / "3.jsonl", tasks=9, seed=43)
    groups = _comparison(deployed, third.batch).compared
    assert [group["batches"] for group in groups] == [[third.batch]]
    assert "shifted" not in third.reasons and first.batch not in groups[0]["batches"]
