"""What the compact model is pretrained on: labelled runs of the pretraining tasks, from the embedded corpora and from further seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["RUNS_FILE", "pretraining_runs"]

RUNS_FILE = Path(__file__).with_name("runs.parquet")


def pretraining_runs(runs: Path = RUNS_FILE) -> pd.DataFrame:
    """Return the labelled runs of the pretraining tasks, sorted by id: of the embedded corpora, and those that `runs` holds."""
    import pandas as pd

    from certify_assets.corpora.schema import read_trajectories

    frame = pd.concat([*map(load_embedded, EMBEDDED), read_trajectories(runs)], ignore_index=True)
    frame = frame[frame["task_id"].isin(PRETRAINING_TASKS) & frame["outcome"].notna()]
    return frame.sort_values("trajectory_id", kind="stable").reset_index(drop=True)
