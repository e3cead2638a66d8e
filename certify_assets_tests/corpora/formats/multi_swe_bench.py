"""Multi-SWE-bench: runs of SWE-agent with old ids, a report with new ones, an OpenHands output."""

from pathlib import Path

from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.swe_builders import openhands, report, save, save_lines, traj

COUNTS = Counts(trajectories=4, tasks=2, successes=2, dropped={"run_rejected": 1})


def write(root: Path, canary: str | None = None) -> None:
    runs = root / "evaluation" / "java" / "verified"
    new = ["org/name:pr-1", "org/name:pr-2"]
    extra = {canary: canary, "error_ids": [canary]} if canary else {}
    for number in (1, 2):
        record = traj(f"look at {number}", canary) | {"replay_config": canary}
        save(runs / "20240825_SWE-agent_x" / "trajs" / f"org__name-{number}.traj", record)
    save(
        runs / "20240825_SWE-agent_x" / "results" / "results.json",
        report(new[:1], others=new[1:]) | extra,
    )
    # an agent's outputs lie in the same place
    records = [
        openhands(identity, None, f"list {identity}", error=canary, metrics={"note": canary})
        for identity in new
    ]
    save_lines(runs / "20250329_OpenHands_y" / "trajs" / "output.jsonl", records)
    save(
        runs / "20250329_OpenHands_y" / "results" / "results.json", report(new[1:], others=new[:1])
    )
    save(
        runs / "20240825_SWE-agent_mini" / "results" / "results.json",
        report(new[:1], total_instances=91),
    )
