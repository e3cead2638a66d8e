"""Two-way resampling: tails against resamples drawn one by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from certify_assets.certificates import certify, verify_certificate
from certify_assets.certificates.agents import two_way_tail
from certify_assets.certificates.counts import count_at
from certify_assets.certificates.evaluation import Settings
from certify_assets.certificates.inputs import observe
from certify_assets.certificates.sample_size import corpus_facts, plan_sample_size
from certify_assets.certificates.two_way import two_way_tails
from certify_assets.errors import InputError
from certify_assets.research.simulation import make_variants


def table(agents: int, tasks: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Every agent runs every task; agents differ in how their runs are scored."""
    rng = np.random.default_rng(seed)
    who = np.tile(np.arange(agents), tasks)
    outcomes = (rng.random(agents * tasks) < 0.3).astype(int)
    scores = 2.5 * outcomes + rng.normal(0, 0.5, agents)[who] + rng.normal(0, 1, who.size)
    return {
        "scores": scores,
        "outcomes": outcomes,
        "tasks": np.repeat(np.arange(tasks), agents),
        "agents": np.array([f"agent-{place}" for place in who]),
    }


def cells_at(given: dict[str, np.ndarray], threshold: float) -> tuple[np.ndarray, np.ndarray]:
    observed = observe(*(given[name] for name in ("scores", "outcomes", "tasks", "agents")))
    counts = count_at(observed, "reject", np.array([threshold]))
    assert counts.cells is not None
    return counts.cells


@pytest.mark.parametrize("side", ["reject", "release"])
def test_cells_are_counted_by_agent_and_task(side: str) -> None:
    given = table(4)
    scores = given["scores"].copy()
    scores[:7] = np.nan
    thresholds = np.array([-1.0, 0.5, 2.0])
    thresholds = thresholds if side == "reject" else thresholds[::-1]
    wrong = 1 if side == "reject" else 0
    observed = observe(scores, given["outcomes"], given["tasks"], given["agents"])
    counts = count_at(observed, side, thresholds)
    assert counts.cells is not None
    covered, errors = counts.cells
    assert covered.shape == errors.shape == (3, 4, 59), "task 0 has no score left"
    assert np.array_equal(covered.sum(axis=1), counts.covered)
    assert np.array_equal(errors.sum(axis=1), counts.errors)
    for place, threshold in enumerate(thresholds):
        inside = scores <= threshold if side == "reject" else scores >= threshold
        for agent in range(4):
            mine = inside & (given["agents"] == f"agent-{agent}")
            assert covered[place, agent].sum() == mine.sum()
            assert errors[place, agent].sum() == (given["outcomes"][mine] == wrong).sum()


def test_agents_are_part_of_the_hash_and_their_order_is_not() -> None:
    given = table(3)
    columns = [given[name] for name in ("scores", "outcomes", "tasks", "agents")]
    plain, named = observe(*columns[:3]), observe(*columns)
    assert plain.agents is None and plain.sha256 != named.sha256
    order = np.random.default_rng(0).permutation(columns[0].size)
    assert observe(*(column[order] for column in columns)).sha256 == named.sha256
    # runs that agree in all but the agent
    twice = [np.array(values) for values in ([1.0, 1.0], [0, 0], ["t", "t"], ["a", "b"])]
    assert observe(*twice).sha256 == observe(*(column[::-1] for column in twice)).sha256
    with pytest.raises(InputError, match="the agent of every row"):
        observe(*columns[:3], columns[3][:-1])


@pytest.mark.parametrize("agents", [2, 4, 9])
def test_the_tail_is_that_of_resamples_drawn_one_by_one(agents: int) -> None:
    given = table(agents)
    # where 8 % of the covered runs are errors
    order = np.argsort(given["scores"])
    share = np.cumsum(given["outcomes"][order]) / np.arange(1, order.size + 1)
    threshold = given["scores"][order[np.flatnonzero(share <= 0.08)[-1]]]
    covered, errors = cells_at(given, float(threshold))
    cells = (covered, errors)
    tail = two_way_tails(cells, Fraction(1, 10), level=0.05, draws=3000, seed=1)[0]
    rng = np.random.default_rng(2)
    often, tasks = 40_000, covered.shape[2]
    excess = (10 * errors - covered)[0].astype(float)
    by_task = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=often).astype(float)
    by_agent = rng.multinomial(agents, np.full(agents, 1 / agents), size=often).astype(float)
    drawn = np.mean(((by_task @ excess.T) * by_agent).sum(axis=1) > 0)
    assert 0.001 < drawn < 0.99
    # of 40,000 resamples, and of 3,000 draws of agents where they are too many to enumerate
    error = 4 * (drawn * (1 - drawn) * (1 / often + (1 / 3000 if agents > 6 else 0))) ** 0.5
    assert tail == pytest.approx(drawn, abs=error + 5e-4)


def test_the_figure_is_of_the_certified_threshold_and_never_below_that_of_tasks() -> None:
    given = table(5, tasks=100)
    agents = given.pop("agents")
    certificate = certify(**given, alpha=0.1)
    assert certificate.certified and certificate.tail is not None
    tail = two_way_tail(certificate, **given, agents=agents)
    assert tail is not None and tail > certificate.tail
    assert tail == two_way_tail(certificate, **given, agents=agents)
    assert two_way_tail(certificate, **given, agents=np.full(agents.size, "one")) is None
    nothing = certify(**given, alpha=0.001)
    assert two_way_tail(nothing, **given, agents=agents) is None


@pytest.mark.slow
def test_two_way_certifies_at_most_what_tasks_alone_do_and_recomputes() -> None:
    given = table(6, tasks=100)
    alone = certify(**{name: given[name] for name in ("scores", "outcomes", "tasks")})
    both = certify(**given, procedure="two_way")
    assert both.certified and 0 < both.coverage < alone.coverage
    assert both.tail is not None and both.tail <= both.level
    assert any("Agents are drawn independently" in item for item in both.assumptions)
    columns = [given[name] for name in ("scores", "outcomes", "tasks")]
    assert verify_certificate(both, *columns, agents=given["agents"]) is None
    swapped = np.roll(given["agents"], 1)
    assert "inputs.sha256" in str(verify_certificate(both, *columns, agents=swapped))
    assert "inputs.sha256" in str(verify_certificate(both, *columns))
    again = certify(**{**given, "agents": list(given["agents"])}, procedure="two_way")
    assert again.to_dict() == both.to_dict()


def test_without_agents_nothing_is_tested() -> None:
    given = table(4)
    del given["agents"]
    found = certify(**given, procedure="two_way")
    assert not found.certified
    assert found.findings[-1]["code"] == "agents_missing"
    assert certify(**given).to_dict() == certify(**given, agents=["a"] * 240).to_dict()


def test_plans_and_simulations_without_agents_refuse_it() -> None:
    given = table(4)
    columns = [given[name] for name in ("scores", "outcomes", "tasks")]
    with pytest.raises(InputError, match="needs agents, which a plan cannot draw"):
        plan_sample_size(corpus_facts(observe(*columns)), Settings(procedure="two_way"))
    with pytest.raises(InputError, match="needs agents, which these populations do not have"):
        make_variants(["two_way"], {})
