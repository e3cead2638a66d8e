import pandas as pd
import pytest

from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import make_manifest
from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import corpus, trajectory


def table(*rows: tuple[str, str, int | None, str]) -> pd.DataFrame:
    """Rows of task, agent, outcome and what was seen."""
    return to_frame(
        [
            trajectory(
                number,
                task_id=task,
                agent=agent,
                attempt=number,
                outcome=outcome,
                instruction="go",
                steps=(Step("look", seen),),
            )
            for number, (task, agent, outcome, seen) in enumerate(rows)
        ]
    )


def test_flips_are_counted_by_pair_and_by_task() -> None:
    frame = table(
        ("a", "x", 1, "1"), ("a", "x", 0, "2"), ("a", "x", 1, "3"), ("a", "y", 1, "4"),
        ("a", "y", 1, "5"), ("b", "x", 0, "6"), ("b", "x", 0, "7"), ("b", "y", 1, "8"),
        ("c", "x", 1, "9"), ("d", "x", 0, "10"), ("d", "x", None, "11"),
    )  # fmt: skip
    found = profile_corpus(frame).flips
    assert (found.cells, found.flipped_cells, found.cell_rate) == (3, 1, pytest.approx(1 / 3))
    assert (found.tasks, found.flipped_tasks, found.task_rate) == (2, 2, 1.0)
    assert found.contradicted == 0


def test_equal_texts_with_both_outcomes_are_counted() -> None:
    frame = table(
        ("a", "x", 1, "same"),
        ("a", "y", 1, "same"),
        ("b", "x", 0, "same"),
        ("b", "y", 0, "other"),
        ("c", "x", None, "same"),
    )
    found = profile_corpus(frame).flips
    assert found.contradicted == 3


def test_outcomes_of_test_are_in_no_flip() -> None:
    frame = corpus(tasks=40)
    manifest = make_manifest(frame["task_id"], "made")
    turned = frame.copy()
    test = turned["task_id"].map(manifest.assignment) == "test"
    turned.loc[test, "outcome"] = 1 - turned.loc[test, "outcome"]
    assert profile_corpus(frame, manifest).flips == profile_corpus(turned, manifest).flips
    assert profile_corpus(frame).flips.tasks == 40 > profile_corpus(frame, manifest).flips.tasks
