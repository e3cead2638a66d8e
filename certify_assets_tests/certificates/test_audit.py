"""Audits: verdicts on other tasks, the bound against many resamples, and resampled thresholds."""

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import (
    Certificate,
    audit_certificate,
    certify,
    monitor_certificate,
    n_min,
    observe,
    resample_audit,
)
from certify_assets.certificates.audit import lower_error_bound
from certify_assets.certificates.counts import count_at
from certify_assets.research.populations import Sample
from certify_assets_tests.certificates.reference import resample_errors
from certify_assets_tests.populations import fooled, paper_process


def pair(tasks: int = 60) -> tuple[Sample, Sample]:
    rng = np.random.default_rng(7)
    cal, test = paper_process(tasks, 0.5, rng), paper_process(tasks, 0.5, rng)
    return cal._replace(tasks=cal.tasks + 1000), test


@cache
def issued() -> Certificate:
    return certify(*pair()[0])


@pytest.mark.parametrize(("tasks", "asked"), [(60, {}), (80, {"side": "release", "alpha": 0.2})])
def test_figures_of_an_audit_on_fresh_tasks(tasks: int, asked: dict[str, Any]) -> None:
    cal, test = pair(tasks)
    certificate = certify(*cal, **asked)
    found = audit_certificate(certificate, *test)
    reject = certificate.side == "reject"
    at = certificate.threshold
    inside = test.scores <= at if reject else test.scores >= at
    wrong = test.outcomes[inside] == reject
    assert found.realized_error == pytest.approx(wrong.mean()) and found.coverage == inside.mean()
    assert found.lower_bound <= found.realized_error
    assert found.paper_rule_pass == (found.realized_error <= certificate.alpha)
    assert found.covered_tasks == np.unique(test.tasks[inside]).size
    assert found.certificate_sha256 == certificate.sha256
    assert found.own_coverage == pytest.approx(certify(*test, **asked).coverage, abs=1e-9)


def test_error_when_the_lower_bound_exceeds_alpha() -> None:
    found = audit_certificate(issued(), *fooled(60, 0.5, 0))
    assert found.verdict == "ERROR" and found.lower_bound > 0.1 and not found.paper_rule_pass
    assert "exceeds alpha" in found.reason


@pytest.mark.slow
def test_warn_when_only_the_point_exceeds_alpha() -> None:
    seeds = (fooled(40, 0.15, seed) for seed in range(15))
    found = [audit_certificate(issued(), *data) for data in seeds]
    between = [item for item in found if item.realized_error > 0.1 >= item.lower_bound]
    assert between and {item.verdict for item in between} == {"WARN"}


@pytest.mark.parametrize(("few", "verdict"), [(1, "WARN"), (0, "PASS")])
def test_warn_when_too_few_tasks_are_covered(few: int, verdict: str) -> None:
    tasks = np.arange(60) % (n_min(0.1, 0.05) - few)
    found = audit_certificate(issued(), np.full(60, -9.0), np.zeros(60), tasks)
    assert found.verdict == verdict and ("28, needed 29" in found.reason) == (few == 1)


def test_warn_where_there_is_nothing_to_measure() -> None:
    rng = np.random.default_rng(0)
    nothing = certify(rng.normal(size=300), rng.integers(0, 2, 300), np.arange(300) % 50)
    found = audit_certificate(nothing, *pair()[1])
    assert (found.verdict, found.realized_error, found.coverage) == ("WARN", None, 0.0)
    assert "nothing to audit" in found.reason and found.own_coverage > 0
    bare = audit_certificate(issued(), np.full(40, 99.0), np.ones(40), np.arange(40))
    assert (bare.verdict, bare.realized_error) == ("WARN", None)
    unscored = audit_certificate(issued(), [np.nan, np.nan], [1, 0], ["a", "b"])
    assert unscored.verdict == "WARN" and "No row of the audit has a score" in unscored.reason
    assert (unscored.realized_error, unscored.own_coverage, unscored.unscored) == (None, None, 2)


@pytest.mark.parametrize(
    ("procedure", "differs"), [("guarded_taskboot", False), ("one_per_task", True)]
)
def test_an_audit_says_where_another_error_is_promised(procedure: str, differs: bool) -> None:
    cal, test = pair(200)
    reason = audit_certificate(certify(*cal, procedure=procedure), *test).reason
    assert ("promises an error in which every task weighs the same" in reason) == differs


@pytest.mark.parametrize(("procedure", "error"), [("one_run", True), ("average", False)])
def test_a_promise_on_average_is_measured_by_its_cap(procedure: str, error: bool) -> None:
    scores, tasks = np.arange(200.0), np.arange(200)
    found = certify(scores, (scores > 120).astype(int), tasks, procedure=procedure, alpha=0.2)
    # three in ten of the decided runs are wrong
    rows = np.arange(600)
    fresh = rows / 6, (rows % 10 < 3).astype(int), rows + 1000
    audit = audit_certificate(found, *fresh)
    assert found.certified and audit.realized_error == pytest.approx(0.3)
    assert (audit.verdict, audit.paper_rule_pass) == (("ERROR", False) if error else ("PASS", True))
    assert ("the cap 0.4 (twice alpha)" in audit.reason) != error
    assert monitor_certificate(found, *fresh).alarm == error


@pytest.mark.statistics
def test_lower_bound_is_the_delta_quantile_of_many_resamples() -> None:
    counts = count_at(observe(*pair()[0]), "reject", np.array([2.0]))
    bound = lower_error_bound(counts, 0.05, Fraction(1, 10))
    errors = resample_errors(counts, 40_000, 3)
    assert bound == pytest.approx(np.quantile(errors, 0.05), abs=0.003)
    assert bound > 0.1 or (errors <= 0.1).mean() > 0.04


def test_resample_audit_exact_and_drawn_agree() -> None:
    cal, _ = pair()
    exact = resample_audit(*cal, threshold=1.6, draws="exact")
    drawn = resample_audit(*cal, threshold=1.6, draws=40_000)
    assert 0.001 < exact.exceedance < 0.999 and (exact.draws, drawn.draws) == ("exact", 40_000)
    spread = (exact.exceedance * (1 - exact.exceedance) / 40_000) ** 0.5
    assert drawn.exceedance == pytest.approx(exact.exceedance, abs=4 * spread)
    by_default = resample_audit(*cal, threshold=1.6)
    assert resample_audit(*cal, threshold=1.6) == by_default
    assert resample_audit(*cal, threshold=1.6, seed=1).exceedance != by_default.exceedance


def test_resample_audit_passes_on_the_bootstraps_own_threshold() -> None:
    cal, _ = pair()
    threshold = issued().threshold
    found = resample_audit(*cal, threshold=threshold)
    assert found.passed and "by construction" in found.note
    few = resample_audit(*cal, threshold=threshold, draws=18)
    assert few.passed is None and "give at least 19" in few.note and few.exceedance == 0.0
    assert resample_audit(*cal, threshold=threshold, draws=19).passed
