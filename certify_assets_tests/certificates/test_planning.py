"""The plan, and the population that it draws from."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr

from certify_assets.certificates import (
    CorpusFacts,
    Settings,
    corpus_facts,
    evaluate,
    observe,
    plan_sample_size,
)
from certify_assets.certificates.clustering import anova_icc
from certify_assets.certificates.diagnosis import approximate
from certify_assets.certificates.planning import within_task_auroc
from certify_assets.certificates.populations import Population, match_population
from certify_assets.research.populations import Clustered

_DRAWS = 400


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("rate", "area", "icc", "attempts", "alpha", "side"),
    [
        (0.3, 0.9, 0.3, 4, 0.2, "reject"),
        (0.5, 0.9, 0.6, 8, 0.1, "reject"),
        (0.5, 0.85, 0.3, 4, 0.2, "release"),
        (0.3, 0.95, 0.6, 8, 0.2, "release"),
    ],
)
def test_the_planned_size_certifies_in_four_of_five_draws(
    rate: float, area: float, icc: float, attempts: int, alpha: float, side: str
) -> None:
    settings = Settings(alpha=alpha, side=side)
    facts = CorpusFacts(success_rate=rate, auroc=area, icc=icc, sizes=(attempts,))
    found = plan_sample_size(facts, settings)
    assert found.tasks_needed is not None and found.success_probability is not None
    population = match_population(success_rate=rate, auroc=area, icc=icc, sizes=(attempts,))
    certified = [
        evaluate(observe(*population.draw(found.tasks_needed, (9, 9, trial))), settings).chosen
        is not None
        for trial in range(_DRAWS)
    ]
    # the size is one at which the share is within .05 of .8; Monte-Carlo error .4 / √draws
    for share, draws in ((float(np.mean(certified)), _DRAWS), (found.success_probability, 300)):
        assert abs(share - 0.8) <= 0.05 + 3 * 0.4 / math.sqrt(draws)


def test_a_plan_says_what_it_promises() -> None:
    facts = CorpusFacts(success_rate=0.3, auroc=0.95, icc=0.3, sizes=(4,), tasks=20, sft_auroc=0.9)
    plan = plan_sample_size(facts, Settings(procedure="naive"))
    document = plan.to_dict()
    assert document == json.loads(json.dumps(document))
    needed, more = document["tasks_needed"], document["more_tasks"]
    assert 0.7 <= document["success_probability"] <= 0.9 and more == needed - 20 > 0
    assert document["attempts_per_task"] == 4 and document["labels_needed"] == 4 * needed
    said = f"About {approximate(more)} more tasks are needed for an 80 % chance: "
    assert plan.answer.startswith(f"{said}{approximate(needed)} in all, of 4")
    assert 0 < document["coverage"] < document["predicted_coverage"]
    assert [gate["passed"] for gate in document["gates"]] == [True, True, False]
    assert document["gates"][2]["value"] == pytest.approx(20 * 4 / (1 + 3 * 0.3))
    enough = plan_sample_size(
        CorpusFacts(success_rate=0.3, auroc=0.95, icc=0.3, sizes=(4,), tasks=needed),
        Settings(procedure="naive"),
        trials=20,
    )
    assert enough.more_tasks == 0 and enough.answer.startswith("You have enough tasks")


@pytest.mark.parametrize(("procedure", "least"), [("taskboot", True), ("task_hoeffding", False)])
def test_below_twenty_tasks_nothing_was_validated(procedure: str, least: bool) -> None:
    facts = CorpusFacts(success_rate=0.2, auroc=0.99, icc=0.1, sizes=(8,))
    found = plan_sample_size(facts, Settings(procedure=procedure, alpha=0.5), trials=20)
    assert found.tasks_needed is not None and (found.tasks_needed == 20) == least


def test_the_same_question_has_the_same_answer() -> None:
    facts = CorpusFacts(success_rate=0.3, auroc=0.95, icc=0.3, sizes=(4,), tasks=10)
    one, again, other = (
        plan_sample_size(facts, Settings(procedure="naive", seed=seed), trials=50).to_dict()
        for seed in (3, 3, 4)
    )
    assert one == again and other["coverage"] != one["coverage"]


def test_facts_are_read_off_a_table() -> None:
    sample = match_population(
        success_rate=0.4, auroc=0.85, icc=0.4, sizes=(3, 6), within_auroc=0.7
    ).draw(400, (2,))
    table = observe(*sample)
    facts = corpus_facts(table)
    assert facts.tasks == 400 and facts.success_rate == pytest.approx(sample.outcomes.mean())
    assert len(facts.sizes) == 200
    assert facts.attempts == pytest.approx(np.bincount(sample.tasks).mean(), abs=0.02)
    assert facts.n_eff(400) == pytest.approx(table.clusters.n_eff, rel=0.02)
    assert facts.within_auroc == pytest.approx(0.7, abs=0.05) and facts.table is table
    other = corpus_facts(table, auroc=0.95, sizes=(8,), tasks=10)
    assert (other.auroc, other.sizes, other.tasks) == (0.95, (8,), 10)
    assert other.within_auroc is None and other.table is None


def test_ranking_within_tasks_by_counting_pairs() -> None:
    scores, outcomes, tasks = match_population(
        success_rate=0.5, auroc=0.8, icc=0.2, sizes=(5,)
    ).draw(40, (1,))
    pairs = [
        (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
        for i in range(200)
        for j in range(200)
        if tasks[i] == tasks[j] and outcomes[i] > outcomes[j]
    ]
    assert within_task_auroc(observe(scores, outcomes, tasks)) == pytest.approx(np.mean(pairs))
    assert within_task_auroc(observe(scores[:20], outcomes[:20], tasks[:20])) is None


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
