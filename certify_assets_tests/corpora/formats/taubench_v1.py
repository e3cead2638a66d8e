"""τ-bench v1 results of two agents in the retail domain."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import tau_record
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=4, tasks=2, successes=3, dropped={"infrastructure_error": 1})


def write(root: Path, canary: str | None = None) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for agent in ("alpha", "beta"):
        records = [
            tau_record(
                task,
                reward=float(task == 0 or agent == "beta"),
                text=f"{agent} is done with {task}.",
            )
            for task in range(2)
        ]
        if canary:
            for record in records:
                _plant(record, canary)
        if agent == "beta":
            records.append(
                tau_record(2)
                | {"info": {"error": canary or "timed out", "traceback": canary or ""}, "traj": []}
            )
        (root / f"{agent}-retail.json").write_text(json.dumps(records), "utf-8")


def _plant(record: dict[str, Any], canary: str) -> None:
    task = record["info"]["task"]
    task["actions"] = [{"name": canary, "kwargs": {canary: canary}}]
    task["outputs"] = [canary]
    record["info"]["reward_info"] = {
        "reward": 1.0,
        "info": {"outputs": {canary: True}},
        "actions": [canary],
    }
    record["info"]["source"] = canary
    record["info"]["user_cost"] = canary
    record["records"] = {canary: canary}
