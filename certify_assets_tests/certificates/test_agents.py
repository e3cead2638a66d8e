"""Each agent left out of the certificate that decides it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from certify_assets.certificates import Certificate, certify, leave_one_agent_out
from certify_assets.certificates.agents import AgentError, agent_shift, excess, largest_agent_error
from certify_assets.certificates.counts import TaskCounts

AGENTS = np.tile(["a", "b", "c", "odd"], 100)
_Columns = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def columns() -> _Columns:
    """Three agents that the judge ranks well, and one whose successes it scores low."""
    rng = np.random.default_rng(0)
    outcomes = (rng.random(400) < 0.3).astype(int)
    scores = 3.0 * outcomes + rng.normal(0, 0.5, 400)
    fooled = (AGENTS == "odd") & (outcomes == 1) & (rng.random(400) < 0.5)
    tasks = np.repeat(np.arange(100), 4)
    return {"scores": np.where(fooled, -2.0, scores), "outcomes": outcomes, "tasks": tasks}


@pytest.fixture(scope="module")
def certificate(columns: _Columns) -> Certificate:
    return certify(**columns, alpha=0.1)


def test_an_agent_that_fools_the_judge_is_the_largest_error(
    certificate: Certificate, columns: _Columns
) -> None:
    rows = leave_one_agent_out(certificate, **columns, agents=AGENTS)
    assert [(row.agent, row.runs) for row in rows] == [(name, 100) for name in np.unique(AGENTS)]
    for row in rows:
        rest = row.agent != AGENTS
        others = certify(**{name: values[rest] for name, values in columns.items()}, alpha=0.1)
        assert row.threshold == pytest.approx(others.threshold)
    worst = largest_agent_error(rows)
    assert worst is not None and worst.agent == "odd" and worst.error is not None
    mine = AGENTS == "odd"
    inside = columns["scores"][mine] <= worst.threshold
    assert worst.covered == inside.sum()
    assert worst.error == pytest.approx(columns["outcomes"][mine][inside].mean())
    assert worst.error > 0.1 > certificate.selective_error


def test_few_agents_or_nothing_certified_say_nothing(
    certificate: Certificate, columns: _Columns
) -> None:
    two = np.where(AGENTS == "a", "a", "b")
    assert leave_one_agent_out(certificate, **columns, agents=two) == []
    strict = certify(**columns, alpha=0.001)
    assert leave_one_agent_out(strict, **columns, agents=AGENTS) == []
    one = {**columns, "tasks": np.arange(400)}
    average = certify(**one, alpha=0.1, procedure="average")
    assert average.certified and leave_one_agent_out(average, **one, agents=AGENTS) == []
    assert largest_agent_error([]) is None


def of_error(agent: str, wrong: int, covered: int, tail: float | None) -> AgentError:
    error = wrong / covered if covered else None
    return AgentError(agent, 100, 0.0, covered, error, tail, own_error=None)


def test_the_tail_is_binomial_where_every_task_is_covered_once(columns: _Columns) -> None:
    certificate = certify(**columns, alpha=0.1, procedure="guarded_taskboot")
    rows = leave_one_agent_out(certificate, **columns, agents=AGENTS)
    decided = [row for row in rows if row.tail is not None]
    for row in decided:
        assert row.error is not None
        wrong = round(row.error * row.covered)
        assert row.tail == pytest.approx(binom.sf(wrong - 1, row.covered, 0.1))
    assert len(decided) == 2 and agent_shift(rows, 0.1) == "", "12 of 85 may be chance"


def test_a_shift_is_of_all_agents_together() -> None:
    rows = [of_error("a", 3, 10, 0.03), of_error("b", 0, 10, 1.0)]
    assert agent_shift(rows, 0.1) == agent_shift([], 0.1) == ""
    assert "a (0.300 of 10 runs)" in agent_shift([rows[0], of_error("c", 0, 0, None)], 0.1)


@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("agents", [3, 10])
def test_at_the_budget_a_shift_is_found_in_one_of_twenty_trials_at_most(
    agents: int, attempts: int
) -> None:
    # the worst case: every agent is wrong in a tenth of its tasks, in all attempts of a task
    rng = np.random.default_rng([5, agents, attempts])
    trials, found = 1000, 0
    for _ in range(trials):
        rows = []
        for agent in range(agents):
            sizes = rng.integers(1, attempts + 1, 40).astype(np.int32)
            wrong = np.where(rng.random(40) < 0.1, sizes, 0).astype(np.int32)
            counts = TaskCounts(
                "reject", np.zeros(1), sizes[None], wrong[None], sizes.astype(np.int64), sizes
            )
            tail = excess(counts.effective_tasks[0], counts.selective_error[0], 0.1)
            rows.append(of_error(str(agent), int(wrong.sum()), 40, tail))
        found += bool(agent_shift(rows, 0.1))
    # Monte-Carlo error of .05 over 1,000 trials: .007
    assert found / trials < 0.05 + 3 * 0.007
    assert found > 0 or attempts == 1
