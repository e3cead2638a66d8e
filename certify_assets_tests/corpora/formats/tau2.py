"""τ²-bench: a file of the old schema, and one of the new."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=3,
    tasks=2,
    successes=2,
    dropped={"infrastructure_error": 1, "no_label": 1, "no_trajectory": 1},
)


def call(name: str, requestor: str = "assistant", **arguments: Any) -> dict[str, Any]:
    return {"id": f"call_{name}", "name": name, "arguments": arguments, "requestor": requestor}


def task(identity: str = "0", canary: str | None = None, **changes: Any) -> dict[str, Any]:
    """A τ²-bench task, written by hand."""
    actions = [{"action_id": f"{identity}_0", "name": "gold_move", "arguments": {"gold": canary}}]
    scenario = {
        "domain": "shop",
        "reason_for_call": f"You want to move order {identity}.",
        "known_info": "You are Ada.",
        "unknown_info": None,
    }
    return {
        "id": identity,
        "description": {"purpose": canary, "notes": canary},
        "user_scenario": {"persona": None, "instructions": scenario},
        "ticket": canary,
        "initial_state": {"initialization_data": canary},
        "evaluation_criteria": {
            "actions": actions,
            "nl_assertions": [canary or "It moves."],
            "communicate_info": [canary or "9"],
        },
    } | changes


def simulation(
    identity: str,
    of: str = "0",
    reward: float | None = 1.0,
    canary: str | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A τ²-bench simulation, written by hand."""
    checks = {
        "reward": reward,
        "db_check": {"db_match": canary},
        "action_checks": [
            {"action": {"action_id": f"{of}_0", "name": "gold_move"}, "action_match": canary}
        ],
        "nl_assertions": [{"nl_assertion": canary or "It moves.", "met": canary}],
        "communicate_checks": [{"info": canary or "9", "met": canary}],
    }
    said: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": f"Please move order {of}."},
        {"role": "assistant", "content": None, "tool_calls": [call("find_order", number=of)]},
        {"role": "tool", "id": "call_find_order", "content": '{"state": "open"}'},
        {"role": "assistant", "content": f"Run {identity} is at its end."},
    ]
    messages = [{"tool_calls": None, "raw_data": {"note": canary}} | one for one in said]
    return {
        "id": identity,
        "task_id": of,
        "trial": 0,
        "termination_reason": "user_stop",
        "reward_info": None if reward is None else checks,
        "messages": messages,
        "review": canary,
        "info": {"note": canary},
    } | changes


def results(
    simulations: list[Any],
    tasks: list[Any],
    llm: str = "m-1",
    domain: str = "shop",
    **more: Any,
) -> dict[str, Any]:
    """A τ²-bench result file."""
    info = {
        "num_trials": 1,
        "user_info": {"implementation": "user_simulator", "llm": "u-1"},
        "agent_info": {"implementation": "llm_agent", "llm": llm, "llm_args": {}},
        "environment_info": {"domain_name": domain, "policy": "Be kind."},
    }
    document = {"timestamp": "2026-01-01", "info": info, "tasks": tasks}
    return document | {"simulations": simulations} | more


def write(root: Path, canary: str | None = None) -> None:
    tasks = [task(name, canary) for name in ("0", "1", "2")]
    old = [simulation("a0", "0", 1.0, canary), simulation("a1", "1", 0.0, canary)]
    write_json(root / "old.json", results(old, tasks))
    new = [
        simulation("b0", "0", 1.0, canary),
        simulation("b1", "1", None, canary),
        simulation("b2", "2", 0.0, canary, termination_reason="infrastructure_error"),
        simulation("b3", "2", 0.0, canary, messages=[]),
    ]
    write_json(root / "new.json", results(new, tasks, llm="m-2", simulation_index=None))
