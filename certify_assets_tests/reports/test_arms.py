"""The arms in words: where GRPO counts as an improvement, and where it does not."""

from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import Settings, audit_certificate
from certify_assets.judges.selection import bracket, select
from certify_assets.reports.arms import arm_cells, arms_markdown, arms_metrics, candidates_markdown
from certify_assets.reports.certificate_page import render_page
from certify_assets_tests.reports.conftest import Case

NAMES = ("start", "accuracy_30", "reject_3_30", "weighted_3_30")


def table(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(90), 6)
    return (
        (rng.random(owner.size) < rng.beta(1, 1.5, 90)[owner]).astype(int),
        owner,
        rng.normal(size=owner.size),
    )


def document(strengths: dict[str, float]) -> dict[str, Any]:
    """An audit of candidates whose scores know the outcome to these degrees."""
    outcomes, tasks, noise = table(0)
    scores = {name: strength * outcomes + noise for name, strength in strengths.items()}
    beside = {name: scores.pop(name) for name in list(scores) if name.startswith("weighted")}
    found = select(
        scores,
        outcomes,
        tasks,
        settings=Settings(alpha=0.1, delta=0.05),
        baseline="start",
        controls=beside,
    )
    outcomes, tasks, noise = table(1)
    results = {}
    for name, item in (found.certificates | found.controls).items():
        audit = audit_certificate(
            item, strengths[name] * outcomes + noise, outcomes, tasks
        ).to_dict()
        results[name] = {
            "auroc": 0.75,
            "audits": [{"side": "reject", "alpha": 0.1, "threshold": item.threshold, **audit}],
        }
    cell = {"side": "reject", "alpha": 0.1, **found.to_dict(), "cal_pick": found.chosen}
    plan = {"cells": [cell], "auroc": dict.fromkeys(strengths, 0.5)}
    seen = bracket(cell, {name: result["audits"][0] for name, result in results.items()})
    return {"plan": plan, "results": results, "brackets": [seen]}


@pytest.mark.parametrize(
    ("strengths", "words"),
    [
        (
            (2.0, 3.0, 5.0, 3.0),
            "GRPO covers more than the start and the weighted cross-entropy. reject_3_30 decides",
        ),
        (
            (2.0, 3.0, 4.0, 6.0),
            (
                "GRPO does not beat the weighted cross-entropy, so it does not count as an "
                "improvement."
            ),
        ),
        ((5.0, 3.0, 2.0, 1.0), "the start was kept: GRPO is no improvement here."),
        ((0.0, 0.0, 0.0, 0.0), "no candidate certifies anything on CAL"),
    ],
)
def test_it_counts_as_an_improvement_only_where_it_beats_the_control_too(
    strengths: tuple[float, ...], words: str
) -> None:
    (cell,) = arm_cells(document(dict(zip(NAMES, strengths, strict=True))))
    assert words in cell.sentence and cell.certified is any(strengths)
    roles = {row.name: row.roles for row in cell.rows}
    assert roles["weighted_3_30"] == "control, best on CAL"
    assert "oracle" not in roles["weighted_3_30"]


def test_tables_say_what_each_number_is() -> None:
    found = document(dict(zip(NAMES, (2.0, 3.0, 5.0, 3.0), strict=True)))
    assert len(arms_markdown(found)) < 1000
    assert "| reject | 0.1 | reject_3_30" in arms_markdown(found)
    full = candidates_markdown(found)
    assert "reject_3_30 (chosen, oracle)" in full
    assert "start (worst)" in full
    assert full.count("\n| ") == 5
    metrics = arms_metrics(found)
    assert metrics["gain_reject_at_0.1"] == found["brackets"][0]["gain"] > 0
    assert metrics["regret_reject_at_0.1"] == 0


def test_the_page_of_a_judge_with_arms_has_a_section_for_them(certified: Case) -> None:
    found = document(dict(zip(NAMES, (2.0, 3.0, 5.0, 3.0), strict=True)))
    page = render_page(certified.certificates[:1], certified.cal, title="arms", arms=found)
    assert '<section id="arms"' in page
    assert '<h2 id="arms-heading">Candidates</h2>' in page
    assert "never deployed" in page
    assert "reject_3_30" in page
    assert 'id="arms"' not in certified.html
