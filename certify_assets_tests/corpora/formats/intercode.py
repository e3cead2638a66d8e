"""InterCode results of two models: episodes by index, with thoughts, and below settings."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=7, tasks=3, successes=4, dropped={"no_label": 1, "no_trajectory": 1})


def episode(
    task: int = 0,
    rewards: tuple[float, ...] = (0.5, 1.0),
    canary: str | None = None,
    **history: Any,
) -> dict[str, Any]:
    """An InterCode episode, written by hand."""
    secret = {
        "reward": {"file_diff": 0.33},
        "eval_obs": canary,
        "agent_obs": canary,
        "answer_similarity": canary,
    }
    actions = [f"ls /data/{task} | head -{turn}" for turn in range(len(rewards))]
    turns = {
        "actions": actions,
        "observations": [f"file{turn}.txt\n" for turn in range(len(rewards))],
    }
    return {
        "environment": "ic_bash",
        "dataset": "./data/files/files_fs_1.json",
        "task_id": task,
        "query": f"Count the files of folder {task}.",
        "turn_history": turns
        | {
            "rewards": [canary or value for value in rewards],
            "valid_action": [canary or True for _ in rewards],
        }
        | history,
        "info": secret if canary else {},
        "summary": {
            "max_reward": max(rewards, default=None),
            "max_reward_idx": canary,
            "turns_taken": canary,
            "turns_max": 10,
        },
    }


def write(root: Path, canary: str | None = None) -> None:
    alpha, beta = root / "bash" / "alpha", root / "bash" / "beta"
    episodes = [episode(task, (0.5, 1.0) if task else (0.25,), canary) for task in range(3)]
    _write(
        alpha / "ic_bash_multiturn_alpha_10_turns_fs_1.json",
        {str(n): item for n, item in enumerate([*episodes, episode(3, ())])},
    )
    thought = [
        episode(0, (1.0,), canary, thoughts=["I look first."]),
        episode(1, (0.7,), canary) | {"summary": {"max_reward_idx": canary}},
    ]
    thought.append(episode(2, (0.7, 0.7), canary, observations=["only one"]))
    _write(beta / "ic_bash_react_fs_1.json", {str(n): item for n, item in enumerate(thought)})
    planned = {
        str(task): episode(task, (1.0 - task / 2,), canary, steps=["Look.", "Count."])
        for task in range(2)
    }
    _write(
        beta / "ic_bash_plan_solve_fs_1.json",
        {"meta": {"env": "bash", "log_dir": canary}, "logs": planned},
    )


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), "utf-8")
