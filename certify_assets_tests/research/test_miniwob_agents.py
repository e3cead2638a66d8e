from collections import Counter

import numpy as np

from certify_assets.research.miniwob.agents import AGENTS, ScriptedAgent, draw_fault, instance_seed
from certify_assets.research.miniwob.skills import find_skill
from certify_assets_tests.research.miniwob_page import boxes_page, login_page

BY_NAME = {agent.name: agent for agent in AGENTS}
SKILL = find_skill("Select YM2l8 and click Submit.")[0]


def test_each_corpus_has_four_agents_of_its_own_and_one_that_always_claims_success() -> None:
    assert len(BY_NAME) == 8
    assert Counter(agent.corpus for agent in AGENTS) == {"miniwob_weak": 4, "miniwob_mixed": 4}
    assert Counter(agent.corpus for agent in AGENTS if agent.always_claims_success) == {
        "miniwob_weak": 1,
        "miniwob_mixed": 1,
    }


def test_instance_seeds_are_shared_by_no_two_runs() -> None:
    seeds = {
        instance_seed(42, task, agent.name, attempt)
        for task in ("a", "b")
        for agent in AGENTS
        for attempt in range(4)
    }
    assert len(seeds) == 2 * 8 * 4
    assert (
        instance_seed(42, "a", "b", 0)
        == instance_seed(42, "a", "b", 0)
        != instance_seed(43, "a", "b", 0)
    )


def test_a_fault_belongs_to_task_and_agent() -> None:
    agent = BY_NAME["scripted-literal"]
    alike = []
    for task in range(150):
        faults = [
            draw_fault(agent, f"task{task}", SKILL, attempt=attempt, seed=1) for attempt in range(8)
        ]
        assert faults == [
            draw_fault(agent, f"task{task}", SKILL, attempt=attempt, seed=1) for attempt in range(8)
        ]
        assert len(set(faults) - {""}) <= 1
        alike.append(Counter(faults).most_common(1)[0][1] / 8)
    assert np.mean(alike) > 0.9


def test_hard_tasks_are_hard_for_all() -> None:
    agents = [agent for agent in AGENTS if agent.corpus == "miniwob_weak"]
    fails = np.array(
        [
            [draw_fault(a, f"task{t}", SKILL, attempt=0, seed=1) != "" for a in agents]
            for t in range(300)
        ],
        dtype=float,
    )
    assert np.corrcoef(fails.T)[np.triu_indices(4, 1)].min() > 0.3


def attempt(name: str, fault_seed: int, page: object) -> tuple[list[tuple[str, str]], str]:
    agent = BY_NAME[name]
    scripted = ScriptedAgent(agent, seed=fault_seed)
    steps = scripted.attempt(page, "login-user", 0)  # type: ignore[arg-type]
    return steps, steps[-1][0]


def test_the_last_step_is_the_agents_claim() -> None:
    for name in BY_NAME:
        for seed in range(6):
            steps, claim = attempt(name, seed, login_page())
            assert claim.startswith('claim("')
            assert steps[-1][1] == ""
            assert sum(action.startswith("claim(") for action, _ in steps) == 1
            if BY_NAME[name].always_claims_success:
                assert "success" in claim


def test_a_claim_follows_belief_and_not_the_page() -> None:
    claims: Counter[bool] = Counter()
    for seed in range(60):
        page = login_page()
        _, claim = attempt("scripted-hasty", seed, page)
        # who forgets to submit believes to be done, who finds no way says so
        claims[("not done" in claim) == page.ended] += 1
        assert (
            claim in ('claim("ok, done")', 'claim("ok, done, but not sure that it worked")')
            or "not done" in claim
        )
    assert claims[False] > 30


def test_the_same_seed_gives_the_same_run() -> None:
    for name in BY_NAME:
        assert attempt(name, 3, boxes_page()) == attempt(name, 3, boxes_page())
