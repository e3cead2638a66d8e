import numpy as np
import pytest
from scipy.special import ndtr

from certify_assets.certificates import observe
from certify_assets.certificates.clustering import anova_icc
from certify_assets.certificates.planning import within_task_auroc
from certify_assets.certificates.populations import Population, match_population
from certify_assets.research.populations import Clustered

_DRAWS, _TASKS = 16, 1000


def figures(population: Population, trial: int) -> list[float]:
    sample = population.draw(_TASKS, (5, trial))
    observations = observe(*sample)
    sizes, hits = (
        np.bincount(sample.tasks),
        np.bincount(sample.tasks, weights=sample.outcomes).astype(np.int64),
    )
    return [
        float(sample.outcomes.mean()),
        float(observations.auroc or 0),
        anova_icc(sizes, hits),
        within_task_auroc(observations) or 0,
    ]


@pytest.mark.parametrize(
    ("rate", "area", "icc", "within"),
    [
        (0.3, 0.9, 0.5, None),
        (0.5, 0.85, 0.3, None),
        (0.3, 0.93, 0.6, 0.8),
        (0.1, 0.7, 0.1, 0.55),
        (0.6, 0.75, 0.0, None),
    ],
)
def test_draws_have_the_facts_that_were_asked_for(
    rate: float, area: float, icc: float, within: float | None
) -> None:
    population = match_population(
        success_rate=rate, auroc=area, icc=icc, sizes=(2, 5, 8), within_auroc=within
    )
    # a success and a failure of one task differ by their separation and noise alone
    wanted = [rate, area, icc, float(ndtr(np.sqrt(2) * population.separation))]
    assert [population.success_rate, population.auroc, population.icc] == pytest.approx(
        wanted[:3], abs=1e-6
    )
    assert within is None or wanted[3] == pytest.approx(within)
    found = np.array([figures(population, trial) for trial in range(_DRAWS)])
    # Monte-Carlo error of the mean of 16 draws of 1,000 tasks: .001 to .005; an ICC of 0 is clipped
    # below
    error = found.std(axis=0, ddof=1) / np.sqrt(_DRAWS)
    assert (np.abs(found.mean(axis=0) - wanted) <= 4 * error + 1e-3).all()
    assert error.max() < 0.006


def test_the_paper_process_is_one_of_these_populations() -> None:
    paper = Clustered(tasks=2, rho=0.5)
    same = Population(
        base=paper.base, spread=2.6, separation=paper.separation, loading=paper.loading, sizes=(8,)
    )
    again = match_population(
        success_rate=same.success_rate, auroc=same.auroc, icc=same.icc, sizes=(8,)
    )
    assert (again.base, again.spread, again.separation) == pytest.approx((-0.8, 2.6, 2.2), abs=1e-3)
    assert again.loading == pytest.approx(0.9, abs=1e-3)
    assert same.icc == pytest.approx(paper.population_icc())


@pytest.mark.parametrize("side", ["reject", "release"])
def test_the_error_at_the_coverage_named_is_alpha(side: str) -> None:
    population = match_population(success_rate=0.4, auroc=0.9, icc=0.4, sizes=(4,))
    coverage = population.coverage_at(0.15, side)
    scores, outcomes, _ = population.draw(50_000, (1,))
    order = np.argsort(scores if side == "reject" else -scores)[: round(coverage * scores.size)]
    wrong = outcomes[order] if side == "reject" else 1 - outcomes[order]
    # clustered standard error of the share: .0015
    assert 0.1 < coverage < 0.9 and wrong.mean() == pytest.approx(0.15, abs=0.005)


def test_extremes_are_clipped_and_finite() -> None:
    perfect = match_population(success_rate=0.01, auroc=1.0, icc=1.0, sizes=(3,))
    assert perfect.auroc == pytest.approx(0.9999) and perfect.icc == pytest.approx(0.95)
    assert perfect.draw(500, (0,)).scores.size == 1500 and perfect.coverage_at(0.1, "reject") == 1.0
    blind = match_population(success_rate=0.5, auroc=0.2, icc=0.5, sizes=(3,))
    assert (blind.separation, blind.loading, blind.coverage_at(0.1, "reject")) == (0.0, 0.0, 0.0)
    # knowing every task's effect and ranking within tasks at .6 does not add up to .95
    unreachable = match_population(
        success_rate=0.3, auroc=0.95, icc=0.3, sizes=(3,), within_auroc=0.6
    )
    assert unreachable.auroc == pytest.approx(0.95)
    assert ndtr(np.sqrt(2) * unreachable.separation) > 0.8
