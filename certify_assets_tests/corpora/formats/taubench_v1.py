"""τ-bench v1 results of two agents in the retail domain."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import tau_record, write_json
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=4, tasks=2, successes=3, dropped={"infrastructure_error": 1})


def write(root: Path, canary: str | None = None) -> None:
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
        write_json(root / f"{agent}-retail.json", records)


def _plant(record: dict[str, Any], canary: str) -> None:
    info, messages = record["info"], record["traj"]
    info["task"] |= {"actions": [{"name": canary, "kwargs": {canary: canary}}], "outputs": [canary]}
    info["reward_info"] = {"reward": 1.0, "info": {"outputs": {canary: True}}, "actions": [canary]}
    info |= {"source": canary, "user_cost": canary}
    record |= {"records": {canary: canary}, canary: canary}
    messages[0]["content"] = f"policy {canary}"
    messages[4]["reward"] = canary
    messages.append({"role": "evaluator", "content": canary})
