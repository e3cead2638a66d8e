from fractions import Fraction

import numpy as np
import pytest

from certify_assets.certificates import audit_certificate, certify, n_min, observe, resample_audit
from certify_assets.certificates.audit import lower_error_bound
from certify_assets.certificates.counts import count_at
from certify_assets.certificates.populations import Sample
from certify_assets.certificates.taskboot import resample_errors
from certify_assets_tests.populations import fooled, paper_process


def pair(tasks: int = 60) -> tuple[Sample, Sample]:
    rng = np.random.default_rng(7)
    cal, test = paper_process(tasks, 0.5, rng), paper_process(tasks, 0.5, rng)
    return cal._replace(tasks=cal.tasks + 1000), test


@pytest.mark.slow
def test_pass_on_fresh_tasks() -> None:
    cal, test = pair()
    certificate = certify(*cal)
    found = audit_certificate(certificate, *test)
    inside = test.scores <= certificate.threshold
    assert found.verdict == "PASS" and found.paper_rule_pass
    assert found.realized_error == test.outcomes[inside].mean() and found.coverage == inside.mean()
    assert found.lower_bound <= found.realized_error
    assert found.certificate_sha256 == certificate.sha256
    assert found.own_coverage == pytest.approx(certify(*test).coverage, abs=1e-9)
    assert found.covered_tasks == np.unique(test.tasks[inside]).size


def test_error_when_the_lower_bound_exceeds_alpha() -> None:
    cal, _ = pair()
    certificate = certify(*cal)
    bad = fooled(60, 0.5, np.random.default_rng(0))
    found = audit_certificate(certificate, *bad)
    assert found.verdict == "ERROR" and found.lower_bound > 0.1 and not found.paper_rule_pass
    assert "exceeds alpha" in found.reason


@pytest.mark.slow
def test_warn_when_only_the_point_exceeds_alpha() -> None:
    cal, _ = pair()
    certificate = certify(*cal)
    seeds = (fooled(40, 0.15, np.random.default_rng(seed)) for seed in range(15))
    found = [audit_certificate(certificate, *data) for data in seeds]
    between = [item for item in found if item.realized_error > 0.1 >= item.lower_bound]
    assert between and {item.verdict for item in between} == {"WARN"}


def test_warn_when_too_few_tasks_are_covered() -> None:
    cal, _ = pair()
    certificate = certify(*cal)
    found = audit_certificate(
        certificate, np.full(60, -9.0), np.zeros(60), np.arange(60) % (n_min(0.1, 0.05) - 1)
    )
    assert found.verdict == "WARN" and "28 of at least 29" in found.reason
    assert (
        audit_certificate(certificate, np.full(60, -9.0), np.zeros(60), np.arange(60) % 29).verdict
        == "PASS"
    )


def test_warn_when_nothing_was_certified_or_nothing_is_covered() -> None:
    cal, test = pair()
    rng = np.random.default_rng(0)
    nothing = certify(rng.normal(size=300), rng.integers(0, 2, 300), np.arange(300) % 50)
    found = audit_certificate(nothing, *test)
    assert (found.verdict, found.realized_error, found.coverage) == ("WARN", None, 0.0)
    assert "nothing to audit" in found.reason and found.own_coverage > 0
    bare = audit_certificate(certify(*cal), np.full(40, 99.0), np.ones(40), np.arange(40))
    assert (bare.verdict, bare.realized_error) == ("WARN", None)


@pytest.mark.parametrize(
    ("procedure", "differs"), [("guarded_taskboot", False), ("one_per_task", True)]
)
def test_an_audit_says_where_the_certificate_promises_another_error(
    procedure: str, differs: bool
) -> None:
    cal, test = pair(200)
    certificate = certify(*cal, procedure=procedure)
    assert certificate.certified
    assert (
        "promises an error in which every task weighs the same"
        in audit_certificate(certificate, *test).reason
    ) == differs


def test_an_audit_without_a_score_is_a_warning_that_measured_nothing() -> None:
    certificate = certify(*pair()[0])
    found = audit_certificate(certificate, [np.nan, np.nan], [1, 0], ["a", "b"])
    assert found.verdict == "WARN" and "No TEST row has a score" in found.reason
    assert (found.realized_error, found.own_coverage) == (None, None)
    assert (found.coverage, found.covered_tasks, found.unscored) == (0.0, 0, 2)
    again = resample_audit([np.nan], [1], ["a"], threshold=0.0)
    assert again.passed is None and again.coverage == 0 and "No row has a score" in again.note


def test_release_side() -> None:
    cal, test = pair(80)
    certificate = certify(*cal, side="release", alpha=0.2)
    found = audit_certificate(certificate, *test)
    inside = test.scores >= certificate.threshold
    assert found.realized_error == pytest.approx((1 - test.outcomes[inside]).mean())


@pytest.mark.statistics
def test_lower_bound_is_the_delta_quantile_of_many_resamples() -> None:
    cal, _ = pair()
    counts = count_at(observe(*cal), "reject", np.array([2.0]))
    bound = lower_error_bound(counts, 0.05, Fraction(1, 10))
    errors = resample_errors(counts.covered[0], counts.errors[0], 40_000, 3)
    assert bound == pytest.approx(np.quantile(errors, 0.05), abs=0.003)
    assert lower_error_bound(counts, 0.05, Fraction(1, 10)) > 0.1 or (errors <= 0.1).mean() > 0.04


def test_resample_audit_exact_and_drawn_agree() -> None:
    cal, _ = pair()
    exact = resample_audit(*cal, threshold=1.6, draws="exact")
    drawn = resample_audit(*cal, threshold=1.6, draws=40_000)
    assert 0.001 < exact.exceedance < 0.999 and exact.draws == "exact" and drawn.draws == 40_000
    assert drawn.exceedance == pytest.approx(
        exact.exceedance, abs=4 * (exact.exceedance * (1 - exact.exceedance) / 40_000) ** 0.5
    )
    by_default = resample_audit(*cal, threshold=1.6)
    assert resample_audit(*cal, threshold=1.6) == by_default
    assert resample_audit(*cal, threshold=1.6, seed=1).exceedance != by_default.exceedance


def test_resample_audit_passes_on_the_bootstraps_own_threshold() -> None:
    cal, _ = pair()
    threshold = certify(*cal).threshold
    found = resample_audit(*cal, threshold=threshold)
    assert found.passed and "by construction" in found.note
    few = resample_audit(*cal, threshold=threshold, draws=18)
    assert few.passed is None and "give at least 19" in few.note and few.exceedance == 0.0
    assert resample_audit(*cal, threshold=threshold, draws=19).passed


def test_resample_audit_of_nothing_says_so_and_passes_nothing() -> None:
    cal, _ = pair()
    for draws in (3000, "exact"):
        found = resample_audit(*cal, threshold=-1e9, draws=draws)
        assert (found.exceedance, found.passed, found.coverage) == (0.0, None, 0.0)
        assert "covers nothing" in found.note
