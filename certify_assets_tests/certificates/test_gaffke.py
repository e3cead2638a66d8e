"""Gaffke's test: Clopper–Pearson for tasks of one, an exact tail otherwise, and the label that it
is conjectured.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.certificates import Settings, certify, evaluate, observe, verify_certificate
from certify_assets.certificates.betting import exponential_sum_tail, gaffke_tails
from certify_assets.certificates.procedures import binomial_tails
from certify_assets_tests.populations import fooled, paper_process


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([0.001, 0.01, 0.1, 0.2, 0.5]), st.integers(1, 3000), st.data())
def test_tasks_of_one_give_clopper_pearson(alpha: float, covered: int, data: st.DataObject) -> None:
    errors = data.draw(st.integers(0, covered - 1) | st.integers(0, min(3, covered - 1)))
    tail = exponential_sum_tail(
        np.array([-alpha / (1 - alpha), 1.0]), np.array([covered - errors, errors + 1.0])
    )
    exact = binomial_tails(np.array([float(errors)]), np.array([float(covered)]), alpha)[0]
    assert tail == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("multiplicity", ["bonferroni", "fixed"])
def test_the_certificate_of_tasks_of_one_is_that_of_clopper_pearson(
    side: str, multiplicity: str
) -> None:
    rng = np.random.default_rng(0)
    outcomes = (rng.random(600) < 0.5).astype(int)
    data = (3.0 * outcomes + rng.normal(size=600), outcomes, np.arange(600))
    plain, found = (
        certify(*data, side=side, procedure=name, multiplicity=multiplicity)
        for name in ("naive", "gaffke")
    )
    assert found.certified
    assert found.threshold == plain.threshold
    assert found.tail == pytest.approx(plain.tail, rel=1e-9)
    capped = certify(
        *data,
        side=side,
        procedure="gaffke",
        multiplicity=multiplicity,
        estimand="trajectory",
        max_task_size=1,
    )
    assert capped.threshold == plain.threshold


def test_the_tail_is_that_of_drawn_exponentials() -> None:
    rng = np.random.default_rng(1)
    for payoffs in (
        [-0.1, -0.1, -0.05, 0.4, -0.08, -0.02, -0.11, 0.0],
        [-0.11] * 30 + [0.2, -0.03],
        [0.5, 0.5, -0.1],
        [-0.02],
    ):
        drawn = rng.standard_exponential((200_000, len(payoffs) + 1)) @ np.append(payoffs, 1.0) >= 0
        tail = float(gaffke_tails(np.array([payoffs]))[0])
        assert abs(drawn.mean() - tail) <= 4 * (tail * (1 - tail) / drawn.size) ** 0.5 + 1e-9


def test_limits_of_the_tail() -> None:
    assert gaffke_tails(np.zeros((1, 5)))[0] == 1.0
    assert gaffke_tails(np.full((1, 3), 0.2))[0] == 1.0
    assert exponential_sum_tail(np.array([-1.0]), np.array([2.0])) == 0.0
    assert exponential_sum_tail(np.array([-1.0, 1.0]), np.array([3.0, 3.0])) == pytest.approx(0.5)
    # no error over one covered trajectory a task: (1 − α)^G
    assert gaffke_tails(np.full((1, 64), -0.1 / 0.9))[0] == pytest.approx(0.9**64)
    assert gaffke_tails(np.full((1, 32), -0.1 / 0.9), 2.0)[0] == pytest.approx(0.9**64)


def test_a_certificate_says_that_it_is_conjectured() -> None:
    data = paper_process(200, 0.1, np.random.default_rng(0))
    found = certify(*data, procedure="gaffke")
    assert found.certified and found.validity == "conjectured" and found.estimand == "task"
    assert any("conjecture" in text for text in found.assumptions) and not found.findings
    assert "by a conjecture that is not proved" in found.promise
    assert verify_certificate(found.to_json(), *data) is None
    lacking = certify(*data, procedure="gaffke", estimand="trajectory")
    assert not lacking.certified
    assert [item["code"] for item in lacking.findings] == ["max_task_size_missing"]


def violations(tasks: int, share: float, trials: int, **keywords: object) -> float:
    hits = 0
    for trial in range(trials):
        table = observe(*fooled(tasks, share, np.random.default_rng([trial, tasks, 9])))
        settings = Settings(procedure="gaffke", **keywords)  # type: ignore[arg-type]
        hits += evaluate(table, settings).chosen is not None
    return hits / trials


@pytest.mark.slow
def test_gaffke_is_not_fooled() -> None:
    # promised .05; standard error over 100 trials at that rate .022
    assert violations(64, 0.11, 100) <= 0.05 + 3 * 0.022
    assert violations(50, 0.15, 100, multiplicity="fixed") <= 0.05 + 3 * 0.022
