"""A generic table; it has no fields but those that are named, so nothing can leak from others."""

from pathlib import Path

from certify_assets_tests.corpora.builders import write_lines
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=4, tasks=2, successes=2, dropped={"no_label": 1})


def write(root: Path, canary: str | None = None) -> None:
    rows = [
        {
            "task_id": f"t{number % 2}",
            "outcome": None if number == 4 else number % 2,
            "text": f"ran command {number}",
            "reward": canary,
            "gold": canary,
        }
        for number in range(5)
    ]
    write_lines(root / "runs.jsonl", rows)
