"""The map of runs by task, and the verdict block."""

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from certify_assets.certificates import Sides, certify
from certify_assets.reports.charts import task_heatmap
from certify_assets.reports.judge_page import verdict
from certify_assets_tests.reports.conftest import arrays
from certify_assets_tests.reports.synthetic import score_table


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("signal", [0.15, 1.2])
def test_the_verdict_block_is_shown_inline(side: str, signal: float) -> None:
    table = arrays(score_table(60, seed=5, signal=signal, spread=1.0))
    certificate = certify(*table, side=side, alpha=0.2, grid=20)
    block = verdict(Sides((certificate,)))
    assert len(block) < 1000 and block.startswith("**")
    share = f"{100 * certificate.coverage:.1f}".rstrip("0").rstrip(".")
    assert (share if certificate.certified else "Nothing certified") in block
    assert f"{certificate.covered_tasks}/{certificate.tasks}" in block


def draw(tasks: Any, scores: Any, outcomes: Any, decisions: Any) -> Any:
    return task_heatmap(
        tasks, list(scores), decisions, np.asarray(outcomes, dtype=np.int8), label="Map"
    )


def test_rows_are_sorted_by_success_rate_and_names_are_escaped() -> None:
    drawn = draw(
        ["b", "b", "<script>", "a", "a"], [1, 2, 3, -1, -2], [1, 0, 1, 0, 0], ["human"] * 5
    )
    ElementTree.fromstring(drawn.markup)
    order = [drawn.markup.index(f">{name}</text>") for name in ("&lt;script&gt;", "b", "a")]
    assert order == sorted(order)
    assert "<script" not in drawn.markup


def test_wrong_decisions_are_marked_by_a_cross_and_counted_by_task() -> None:
    drawn = draw(
        ["a", "a", "b", "c"], [-3, -2, 3, 0], [0, 1, 0, 1], ["reject", "reject", "release", "human"]
    )
    assert drawn.wrong_tasks == 2
    assert "auto-fail, but succeeded (error)" in drawn.markup
    assert "auto-pass, but failed (error)" in drawn.markup
    assert "auto-pass, succeeded" not in drawn.markup


def test_two_thousand_runs_stay_small_and_huge_corpora_are_sampled() -> None:
    tasks = np.repeat(np.arange(250), 8)
    small = draw(tasks.tolist(), np.zeros(2000), np.tile([0, 1], 1000), ["human"] * 2000)
    assert small.shown == small.tasks == 250 and len(small.markup) < 150_000
    many = np.repeat(np.arange(5000), 4)
    large = draw(many.tolist(), np.zeros(20000), np.tile([0, 1], 10000), ["human"] * 20000)
    assert (large.tasks, large.shown) == (5000, 640) and len(large.markup) < 400_000


def test_outcomes_without_a_judge_stand_by_agent_and_attempt() -> None:
    drawn = draw(["a", "b", "a", "b"], ["y", "x", "x", "y"], [1, 0, 1, 1], ["run"] * 4)
    ElementTree.fromstring(drawn.markup)
    assert (drawn.tasks, drawn.shown, drawn.wrong_tasks) == (2, 2, 0)
    assert ">failed</text>" in drawn.markup
    assert ">succeeded</text>" in drawn.markup
