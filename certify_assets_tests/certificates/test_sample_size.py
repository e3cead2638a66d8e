import json
import math

import numpy as np
import pytest

from certify_assets.certificates import (
    CorpusFacts,
    Settings,
    corpus_facts,
    evaluate,
    observe,
    plan_sample_size,
)
from certify_assets.certificates.clustering import summarise_clusters
from certify_assets.certificates.populations import match_population
from certify_assets.certificates.sample_size import within_task_auroc
from certify_assets.certificates.sizing import size_tasks

# success rate, AUROC, ICC, attempts, alpha, side: every level of each
_SETTINGS = [
    (0.3, 0.9, 0.3, 4, 0.2, "reject"),
    (0.5, 0.9, 0.6, 8, 0.1, "reject"),
    (0.5, 0.85, 0.3, 4, 0.2, "release"),
    (0.3, 0.95, 0.6, 8, 0.2, "release"),
]
_DRAWS = 400


def _share_that_certifies(
    rate: float, area: float, icc: float, attempts: int, settings: Settings, others: int
) -> float:
    """Of draws at the planned size, under fresh keys; Monte-Carlo error .4 / √others."""
    population = match_population(success_rate=rate, auroc=area, icc=icc, sizes=(attempts,))
    found = size_tasks(population, settings, guess=49, most=10_000)
    assert found.tasks is not None and found.checks[-1].inside and len(found.checks) <= 3
    shares = [
        evaluate(observe(*population.draw(found.tasks, (9, 9, trial))), settings).chosen is not None
        for trial in range(others)
    ]
    return float(np.mean(shares))


@pytest.mark.statistics
@pytest.mark.parametrize("setting", _SETTINGS)
def test_the_planned_size_certifies_in_four_of_five_draws(
    setting: tuple[float, float, float, int, float, str],
) -> None:
    *facts, alpha, side = setting
    share = _share_that_certifies(*facts, Settings(alpha=alpha, side=side), _DRAWS)
    # the planned size is one at which the share is within .05 of .8
    assert abs(share - 0.8) <= 0.05 + 3 * 0.4 / math.sqrt(_DRAWS)


@pytest.mark.slow
def test_a_plan_says_what_it_promises() -> None:
    facts = CorpusFacts(success_rate=0.3, auroc=0.95, icc=0.3, sizes=(4,), tasks=20, sft_auroc=0.9)
    document = plan_sample_size(facts, Settings(procedure="naive"), other_attempts=(1,)).to_dict()
    assert document == json.loads(json.dumps(document)) and document["notes"] == []
    needed, more = document["tasks_needed"], document["more_tasks"]
    assert 0.75 <= document["success_probability"] <= 0.85 and more == needed - 20 > 0
    assert document["attempts_per_task"] == 4 and document["trajectories_needed"] == 4 * needed
    assert document["sentence"].startswith(f"With about {more} more tasks of 4 attempts each")
    assert document["answer"].startswith(
        f"You do not have enough tasks (20; about {needed} are needed)"
    )
    coverage = document["coverage"]
    assert coverage["law"] == pytest.approx(0.7 * 0.9) and document["enough"] is False
    assert 0 < coverage["at_planned_size"] < coverage["population"]
    assert coverage["population"] == document["predicted_coverage"]
    assert [gate["passed"] for gate in document["gates"]] == [True, True, False]
    assert document["gates"][2]["value"] == pytest.approx(20 * 4 / (1 + 3 * 0.3))
    tasks = {item["attempts_per_task"]: item["tasks"] for item in document["alternatives"]}
    # attempts at one task tell less and less
    assert list(tasks) == [1, 4] and tasks[4] == needed < tasks[1] < 5 * needed
    assert document["fewest_trajectories"]["trajectories"] == min(tasks[1], 4 * needed)


@pytest.mark.parametrize(
    ("procedure", "noted"),
    [pytest.param("deff", True, marks=pytest.mark.slow), ("naive", False)],
)
def test_a_plan_below_twenty_tasks_says_that_nothing_was_validated_there(
    procedure: str, noted: bool
) -> None:
    settings = Settings(procedure=procedure, alpha=0.5)
    found = plan_sample_size(
        CorpusFacts(success_rate=0.2, auroc=0.99, icc=0.1, sizes=(8,)),
        settings,
        trials=20,
        other_attempts=(),
    )
    assert found.sizing.tasks is not None and found.sizing.tasks < 20
    assert any("Below 20 tasks" in note for note in found.notes) == noted


def test_the_same_question_has_the_same_answer() -> None:
    asked = (CorpusFacts(success_rate=0.5, auroc=0.85, icc=0.3, tasks=10), Settings(seed=3))
    one, again = (plan_sample_size(*asked, most_tasks=40).to_dict() for _ in range(2))
    assert one == again
    other = plan_sample_size(asked[0], Settings(seed=4), most_tasks=40).to_dict()
    assert other["gates"][0]["value"] != one["gates"][0]["value"]


@pytest.mark.slow
def test_where_no_size_is_within_the_window_the_plan_says_so() -> None:
    facts = CorpusFacts(success_rate=0.3, auroc=0.95, icc=0.3, sizes=(8,))
    # six draws in ten certify with two tasks, nine with three
    found = plan_sample_size(facts, Settings(alpha=0.55, procedure="naive"), other_attempts=())
    assert not found.sizing.checks[-1].inside
    assert found.sizing.fewer is not None
    assert found.sizing.fewer.share < 0.8
    assert any("steps over" in note for note in found.notes)


def test_where_two_tasks_do() -> None:
    found = plan_sample_size(
        CorpusFacts(success_rate=0.05, auroc=0.9, icc=0.0, sizes=(50,), tasks=5),
        Settings(procedure="taskboot", alpha=0.5),
        other_attempts=(),
    )
    # plain TaskBoot says yes to error-free data of any size
    guards, two, below = found.notes
    assert "guards" in guards and "Two tasks" in two and "Below 20" in below
    assert (found.sizing.tasks, found.sizing.at_lower_bound, found.more_tasks) == (2, True, 0)
    assert "as many as a certificate takes" in found.sentence


def test_facts_are_read_off_a_table() -> None:
    population = match_population(
        success_rate=0.4, auroc=0.85, icc=0.4, sizes=(3, 6), within_auroc=0.7
    )
    sample = population.draw(400, (2,))
    facts = corpus_facts(observe(*sample))
    sizes = np.bincount(sample.tasks)
    hits = np.bincount(sample.tasks, weights=sample.outcomes).astype(np.int64)
    assert facts.tasks == 400 and facts.success_rate == pytest.approx(sample.outcomes.mean())
    assert len(facts.sizes) == 200 and facts.attempts == pytest.approx(sizes.mean(), abs=0.02)
    assert facts.n_eff(400) == pytest.approx(summarise_clusters(sizes, hits).n_eff, rel=0.02)
    assert facts.within_auroc == pytest.approx(0.7, abs=0.05) and facts.bootstrapped
    other = corpus_facts(observe(*sample), auroc=0.95, sizes=(8,), tasks=10)
    assert (other.auroc, other.sizes, other.tasks) == (0.95, (8,), 10)
    assert other.within_auroc is None and not other.bootstrapped


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
