"""How the grid is paid for: levels of chains, max-T as TaskBoot's own, and what a certificate says
of it.
"""

from fractions import Fraction

import numpy as np
import pytest

from certify_assets.certificates import (
    Certificate,
    Settings,
    certify,
    evaluate,
    observe,
    threshold_curve,
    verify_certificate,
)
from certify_assets.certificates.bootstrap import montecarlo_tails
from certify_assets.certificates.counts import count_tasks
from certify_assets.certificates.evaluation import chain, level_shares, maxt_tails, start_places
from certify_assets.certificates.populations import Sample
from certify_assets.errors import ForgedCertificateError
from certify_assets_tests.populations import fooled, paper_process, paper_truth


@pytest.fixture(scope="module")
def data() -> Sample:
    return paper_process(50, 0.5, np.random.default_rng(0))


def test_shares_and_starts() -> None:
    assert [
        level_shares(name, 40, (0.1, 0.3)) for name in ("bonferroni", "fixed", "fallback", "maxt")
    ] == [40, 1, 2, 1]
    quantiles = np.linspace(0.02, 0.98, 40)
    place = start_places((0.3,), 40)[0]
    assert quantiles[place - 1] < 0.3 <= quantiles[place]
    assert start_places((0.99, 0.01), 40) == (0, 39)
    assert start_places((0.5,), 3) == (1,)
    assert start_places((0.2, 0.3), 1) == (0,)


def test_a_fixed_sequence_stops_at_the_first_failure() -> None:
    levels, passed = chain(np.array([0.01, 0.9, 0.04, 0.05, 0.06, 0.01]), (2,), 0.05)
    assert passed.tolist() == [False, False, True, True, False, False]
    assert levels.tolist() == [0.0, 0.0, 0.05, 0.05, 0.05, 0.0]


def test_fallback_hands_levels_on_and_loses_them_by_failing() -> None:
    tails = np.array([0.001, 0.02, 0.02, 0.9, 0.01, 0.02, 0.02])
    levels, passed = chain(tails, (0, 2, 5), 0.02)
    assert levels == pytest.approx([0.02, 0.02, 0.04, 0.04, 0.0, 0.02, 0.02])
    assert passed.tolist() == [True, True, True, False, False, True, True]
    # no start passes at more than it has: .03 is above one share
    assert not chain(np.full(7, 0.03), (0, 2, 5), 0.02)[1].any()


def test_chains_spend_no_more_than_delta() -> None:
    # uniform tails under the null, all thresholds wrong: 20,000 trials have a standard error of
    # .0015 at .05
    rng = np.random.default_rng(0)
    for places, shares in (((3,), 1), ((0, 3, 6), 3)):
        hits = sum(chain(rng.random(10), places, 0.05 / shares)[1].any() for _ in range(20_000))
        assert hits / 20_000 <= 0.05 + 3 * 0.0016


def test_max_t_of_one_threshold_is_the_monte_carlo_tail(data: Sample) -> None:
    counts = count_tasks(observe(*data), "reject", 12)
    budget = Fraction(1, 5)
    alone = montecarlo_tails(counts, budget, 500, 3)
    for place in range(12):
        assert maxt_tails(counts.at(place), budget, 500, 3)[0] == pytest.approx(alone[place])
    together = maxt_tails(counts, budget, 500, 3)
    # adjusted for all; studentised, so a threshold of few covered tasks need not be cheaper than by
    # Bonferroni
    assert (together >= alone - 1e-12).all() and (together[1:8] <= 12 * alone[1:8]).all()


def test_max_t_without_spread() -> None:
    whole = count_tasks(observe(np.zeros(30), np.zeros(30), np.arange(30) % 10), "reject", 4)
    assert maxt_tails(whole, Fraction(1, 10), 99, 1) == pytest.approx(0.01)
    wrong = count_tasks(observe(np.zeros(30), np.ones(30), np.arange(30) % 10), "reject", 4)
    assert maxt_tails(wrong, Fraction(1, 10), 99, 1) == pytest.approx(1.0)


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("multiplicity", ["fixed", "fallback", "maxt"])
def test_a_certificate_says_how_its_grid_is_paid_for(
    data: Sample, multiplicity: str, side: str
) -> None:
    found = certify(
        *data, procedure="guarded_taskboot", multiplicity=multiplicity, side=side, alpha=0.2
    )
    shares = {"fixed": 1, "fallback": 4, "maxt": 1}[multiplicity]
    assert found.certified
    assert found.parameters["multiplicity"] == multiplicity
    assert found.tail <= found.level
    assert round(found.level / (0.05 / shares), 6) in range(1, shares + 1)
    words = {"fixed": "fixed sequence", "fallback": "fallback chains", "maxt": "max-T"}[
        multiplicity
    ]
    assert any(words in text for text in found.assumptions)
    assert any(f"{multiplicity} missed them" in text for text in found.assumptions)
    assert (
        found.parameters["starts"]
        == {"fixed": [0.3], "fallback": [0.1, 0.3, 0.5, 0.7], "maxt": None}[multiplicity]
    )
    assert Certificate.from_json(found.to_json()) == found
    assert verify_certificate(found.to_json(), *data) is None
    for change in (
        {"multiplicity": "bonferroni"},
        {"starts": [0.4]},
        {"starts": ["x"]},
        {"starts": []},
        {"multiplicity": "none"},
    ):
        forged = {**found.to_dict(), "parameters": {**found.parameters, **change}}
        assert verify_certificate(forged, *data) is not None
    with pytest.raises(ForgedCertificateError):
        Certificate.parse({**found.to_dict(), "level": found.level * 1.5})


def test_other_starts_and_procedures(data: Sample) -> None:
    for procedure in (
        "naive",
        "deff",
        "one_per_task",
        "task_hoeffding",
        "korn_graubard",
        "taskboot",
    ):
        for multiplicity, starts in (("fixed", [0.5]), ("fallback", [0.6, 0.4])):
            found = certify(*data, procedure=procedure, multiplicity=multiplicity, starts=starts)
            assert found.parameters["starts"] == sorted(starts)
            assert verify_certificate(found.to_json(), *data) is None
    few = certify(*data, procedure="taskboot", multiplicity="maxt", draws=10)
    assert not few.certified and "coarse_draws" in [item["code"] for item in few.findings]


def test_nothing_certified_is_diagnosed_from_the_starts() -> None:
    few = paper_process(12, 0.5, np.random.default_rng(1))
    for multiplicity in ("fixed", "fallback", "maxt"):
        found = certify(*few, procedure="guarded_taskboot", multiplicity=multiplicity, alpha=0.05)
        assert not found.certified and found.findings[-1]["code"] == "nothing_passes"
        assert verify_certificate(found.to_json(), *few) is None


def test_the_curve_shows_each_threshold_by_itself(data: Sample) -> None:
    fixed, joint = (
        threshold_curve(*data, procedure="guarded_taskboot", multiplicity=name)
        for name in ("fixed", "maxt")
    )
    assert (fixed.tail == joint.tail).all() and fixed.level == joint.level == 0.05
    assert ((fixed.bootstrap_upper <= 0.1) == (fixed.tail <= fixed.level)).all()


@pytest.mark.parametrize("multiplicity", ["fixed", "fallback", "maxt"])
def test_violations_under_the_guard(multiplicity: str) -> None:
    # promised .05; standard error over 80 trials at that rate .024
    settings = Settings(procedure="guarded_taskboot", multiplicity=multiplicity, draws=500)
    wrong = 0
    for trial in range(80):
        found = evaluate(
            observe(*paper_process(50, 0.5, np.random.default_rng([trial, 50, 5]))), settings
        )
        place = found.chosen
        wrong += place is not None and paper_truth(float(found.counts.thresholds[place]), 0.5) > 0.1
    assert wrong / 80 <= 0.05 + 3 * 0.024
    hits = sum(
        evaluate(observe(*fooled(50, 0.15, np.random.default_rng([trial, 50]))), settings).chosen
        is not None
        for trial in range(80)
    )
    assert hits / 80 <= 0.05 + 3 * 0.024
