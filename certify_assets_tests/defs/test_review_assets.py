"""The queue and the labels as Dagster makes them, and their checks in all three states."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.operations import review_assets, review_checks
from certify_assets.operations.labels import Label, append_label, append_labels, reviewed_key
from certify_assets.operations.review_queue import queue_key
from certify_assets.storage.store import Store
from certify_assets_tests.defs.running import PROJECT, materialize
from certify_assets_tests.review_builders import queue_of, session_batch


def run(store: Store, **config: float) -> dg.ExecuteInProcessResult:
    assets = [*review_assets(PROJECT), *review_checks(PROJECT)]
    return materialize(assets, store, ops={"operations__review_queue": config})


def states(result: Any) -> dict[str, tuple[bool, str | None, str]]:
    return {
        one.check_name: (
            one.passed,
            None if one.passed else one.severity.value,
            str(one.description),
        )
        for one in result.get_asset_check_evaluations()
    }


def metadata(result: Any, name: str) -> dict[str, Any]:
    return {
        key: value.value
        for key, value in result.asset_materializations_for_node(f"operations__{name}")[
            0
        ].metadata.items()
    }


def say(store: Store, *said: tuple[str, int, str]) -> None:
    append_labels(
        Corpus(store, "c"),
        [Label(run, outcome, who, "file", f"{run}:{who}") for run, outcome, who in said],
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path))
    session_batch(made)
    return made


@pytest.mark.slow
def test_queue_and_labels_are_made_and_their_checks_follow_the_labels(store: Store) -> None:
    first = run(store)
    told = metadata(first, "review_queue")
    assert told["dagster/row_count"] == 9
    assert told["audit_sample_labels"] == 4
    assert told["undecided_labels"] == 5
    assert told["hours"] == 0.9
    assert told["saved_hours"] == 0.3
    assert Path(told["page"]).is_file()
    assert "| Audit sample | 4 | 4 | 2 | 0 | 24 min |" in told["budget"]
    assert metadata(first, "reviewed_labels")["dagster/row_count"] == 0
    assert states(first)["reviewers_agree"] == (
        False,
        "WARN",
        "No run was labelled by two reviewers, so their agreement is not known.",
    )
    assert states(first)["labels_of_known_runs"][:2] == (True, None)

    runs = queue_of(store).frame["trajectory_id"].tolist()
    say(store, *[(run, 1, "ann") for run in runs], *[(run, 1, "bob") for run in runs])
    second = run(store)
    assert metadata(second, "review_queue")["dagster/row_count"] == 0
    assert metadata(second, "reviewed_labels")["labelled_audit_sample"] == 4
    assert states(second)["reviewers_agree"] == (
        True,
        None,
        "Reviewers agree on 9 of 9 pairs of labels of the same run (9 runs, 7 tasks); all labels "
        "have one outcome, so Cohen's kappa is not defined.",
    )
    assert len(store.read_table(reviewed_key("c"))) == 9
    assert store.read_table(queue_key("c")).empty

    # two of 20 known runs wrong may be chance, and 20 are not
    for reviewer, right in (("ann", 18), ("bob", 0)):
        for number in range(20):
            said = int(number < right)
            about = (f"known-{number}", said, reviewer, "page", f"{number}:{reviewer}")
            append_label(Corpus(store, "c"), Label(*about, known=1))
        found = states(run(store))["reviewers_agree"]
        assert found[:2] == ((True, None) if right else (False, "WARN"))
    assert "Reviewer ann: 18 of 20 known runs right (90%, 95% interval 68% to 99%)." in found[2]
    assert "Reviewer bob: 0 of 20 known runs right (0%" in found[2]
    assert len(store.read_table(reviewed_key("c"))) == 9

    say(store, (runs[0], 0, "cyd"))
    assert states(run(store))["reviewers_agree"][:2] == (False, "WARN")
    say(store, *[(run, 0, "cyd") for run in runs[1:4]], ("gone/0", 1, "ann"))
    last = states(run(store))
    assert last["reviewers_agree"][:2] == (False, "ERROR")
    assert "agree on 9 of 17 pairs" in last["reviewers_agree"][2]
    assert last["labels_of_known_runs"] == (
        False,
        "ERROR",
        "In no decided batch: 1 labelled run, such as 'gone/0'. Restore the batch.",
    )


def test_a_corpus_without_decisions_has_an_empty_queue(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    result = run(store)
    assert result.success and metadata(result, "review_queue")["dagster/row_count"] == 0
    assert "No run waits for a label." in Path(metadata(result, "review_queue")["page"]).read_text(
        "utf-8"
    )
