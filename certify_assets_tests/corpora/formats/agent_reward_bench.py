"""Cleaned runs of two agents at three tasks, with two annotators, a judgment and a list."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats import Counts

AGENTS = ("GenericAgent-alpha", "GenericAgent-beta_1.5")
HEADER = (
    "annotator_name,benchmark,task_id,model_name,exp_name,trajectory_success,"
    "trajectory_side_effect,trajectory_optimality,trajectory_looping"
)

# task 1 of beta is a tie, task 3 of beta has no file, task 3 of alpha was not valid
COUNTS = Counts(
    trajectories=3,
    tasks=2,
    successes=2,
    dropped={"no_label": 1, "infrastructure_error": 1, "no_trajectory": 1},
)


def experiment(agent: str) -> str:
    return f"{agent}_on_shop.resized"


def annotation(annotator: str, task: str, agent: str, verdict: str, side: str = "No") -> str:
    cells = annotator, "shop", task, agent, experiment(agent), verdict, side, "2. Suboptimal", side
    return ",".join(cells)


def step(number: int, action: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "reasoning": f"thought {number}" if action else None,
        "action": action,
        "url": f"http://shop.test/{number}",
        "last_action_error": "",
        "axtree": f"RootWebArea 'page {number}'",
        "axtree_pruned": "pruned",
    } | changes


def record(agent: str = AGENTS[0], goal: Any = "Buy a lamp.", **changes: Any) -> dict[str, Any]:
    return {
        "benchmark": "shop",
        "agent": agent,
        "valid": True,
        "experiment": experiment(agent),
        "goal": goal,
        "summary_info": {"cum_reward": 1.0},
        "steps": [
            step(0, "click('12')"),
            step(1, f"send_msg_to_user('{agent} is done')"),
            step(2, None),
        ],
    } | changes


def write_run(root: Path, task: str, run: dict[str, Any]) -> Path:
    folder = root / "cleaned" / "shop" / run["agent"] / experiment(run["agent"])
    return write_json(folder / f"{task}.json", run)


def write_annotations(root: Path, rows: list[str]) -> Path:
    path = root / "data" / "annotations.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\r\n".join([HEADER, *rows]) + "\r\n", "utf-8")
    return path


def write(root: Path, canary: str | None = None) -> None:
    alpha, beta = AGENTS
    annotations = [
        ("A", "shop.1", alpha, "Successful"),
        ("B", "shop.1", alpha, "Successful"),
        ("A", "shop.1", beta, "Successful"),
        ("B", "shop.1", beta, "Unsuccessful"),
        ("A", "shop.resized.2", alpha, "Unsuccessful"),
        ("A", "shop.resized.2", beta, "Successful"),
        ("B", "shop.resized.2", beta, "Unsure"),
        ("A", "shop.3", alpha, "Successful"),
        ("A", "shop.3", beta, "Successful"),
    ]
    write_annotations(root, [annotation(*row, canary or "No") for row in annotations])
    splits = "task_id,benchmark,split\nshop.1,shop,test\n"
    (root / "data" / "splits.csv").write_text(splits, "utf-8")
    write_json(root / "data" / "shop.task_ids.json", ["1", "2", "3"])
    for task in ("shop.1", "shop.resized.2", "shop.3"):
        for agent in AGENTS if task != "shop.3" else (alpha,):
            run = record(agent, f"Buy lamp {task[-1]}.", valid=task != "shop.3")
            write_run(root, task, _planted(run, canary))
    judgment = {
        "benchmark": "shop",
        "goal": "Buy a lamp.",
        "agent": alpha,
        "judge": "j",
        "trajectory_info": {},
        "response": canary or "yes",
        "steps": [],
    }
    write_json(root / "judgments" / "shop" / alpha / "j" / "shop.1.json", judgment)


def _planted(run: dict[str, Any], canary: str | None) -> dict[str, Any]:
    if canary:
        planted = {"logs": canary, "stats": {canary: canary}, "reward": canary, canary: canary}
        run |= planted | {"summary_info": planted}
        for item in run["steps"]:
            item |= planted | {"chat_messages": [{"role": "user", "message": canary}]}
    return run
