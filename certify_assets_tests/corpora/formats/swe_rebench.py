"""Two Parquet tables, one of each schema."""

from pathlib import Path

from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.swe_builders import rebench_row, save_parquet, swe_agent_row

COUNTS = Counts(trajectories=7, tasks=3, successes=4, dropped={"no_label": 1, "no_trajectory": 1})


def write(root: Path, canary: str | None = None) -> None:
    rows = [
        rebench_row(f"org__name-{number % 2}", number % 2, number, canary) for number in range(5)
    ]
    rows[4]["resolved"] = None
    save_parquet(root / "openhands.parquet", rows)
    agents = [
        swe_agent_row(f"org__name-{number % 3}", number != 1, number, canary) for number in range(4)
    ]
    agents[3]["trajectory"] = agents[3]["trajectory"][:2]
    save_parquet(root / "data" / "train-0.parquet", agents)
