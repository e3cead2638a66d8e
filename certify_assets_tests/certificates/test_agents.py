"""Each agent left out of the certificate that decides it."""

from __future__ import annotations

import numpy as np
import pytest

from certify_assets.certificates import certify, leave_one_agent_out
from certify_assets.certificates.agents import largest_agent_error


@pytest.fixture(scope="module")
def table() -> dict[str, np.ndarray]:
    """Three agents that the judge ranks well, and one whose successes it scores low."""
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(100), 4)
    agents = np.tile(["a", "b", "c", "odd"], 100)
    outcomes = (rng.random(400) < 0.3).astype(int)
    scores = 3.0 * outcomes + rng.normal(0, 0.5, 400)
    fooled = (agents == "odd") & (outcomes == 1) & (rng.random(400) < 0.5)
    return {
        "scores": np.where(fooled, -2.0, scores),
        "outcomes": outcomes,
        "tasks": tasks,
        "agents": agents,
    }


def test_an_agent_that_fools_the_judge_is_the_largest_error(table: dict[str, np.ndarray]) -> None:
    agents = table["agents"]
    columns = {name: values for name, values in table.items() if name != "agents"}
    certificate = certify(**columns, alpha=0.1)
    rows = leave_one_agent_out(certificate, **columns, agents=agents)
    assert [row.agent for row in rows] == ["a", "b", "c", "odd"]
    assert {row.runs for row in rows} == {100}
    worst = largest_agent_error(rows)
    assert worst is not None and worst.agent == "odd" and worst.error is not None
    mine = agents == "odd"
    inside = columns["scores"][mine] <= worst.threshold
    assert worst.covered == inside.sum()
    assert worst.error == pytest.approx(columns["outcomes"][mine][inside].mean())
    assert worst.error > 0.1 > certificate.selective_error
    assert worst.low is not None and worst.high is not None
    assert worst.low <= worst.error <= worst.high
    own = columns["scores"][mine] <= certificate.threshold
    assert worst.own_covered == own.sum()


def test_without_the_agent_is_what_certify_says_of_the_others(
    table: dict[str, np.ndarray],
) -> None:
    columns = {name: values for name, values in table.items() if name != "agents"}
    certificate = certify(**columns, alpha=0.1)
    rows = leave_one_agent_out(certificate, **columns, agents=table["agents"])
    for row in rows:
        rest = table["agents"] != row.agent
        others = certify(**{name: values[rest] for name, values in columns.items()}, alpha=0.1)
        assert row.threshold == pytest.approx(others.threshold)


def test_few_agents_or_nothing_certified_say_nothing(table: dict[str, np.ndarray]) -> None:
    columns = {name: values for name, values in table.items() if name != "agents"}
    certificate = certify(**columns, alpha=0.1)
    two = np.where(table["agents"] == "a", "a", "b")
    assert leave_one_agent_out(certificate, **columns, agents=two) == []
    strict = certify(**columns, alpha=0.001)
    assert leave_one_agent_out(strict, **columns, agents=table["agents"]) == []
    assert largest_agent_error([]) is None
