"""Runs of further seeds on the pretraining tasks, generated with the MiniWoB++ agents: what the compact model is pretrained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.embedded import PRETRAINING_TASKS
from certify_assets.judges.lm.compact.data import RUNS_FILE

if TYPE_CHECKING:
    from certify_assets.corpora.schema import Trajectory
    from certify_assets.research.miniwob import Generated

__all__ = ["PRETRAINING_SEEDS", "generate_runs", "write_runs"]

PRETRAINING_SEEDS = (1001, 1002, 1003, 1004, 1005)

_CORPUS = "miniwob_pretraining"
_ATTEMPTS = 2


def generate_runs(
    folder: Path, *, workers: int = 2, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Run the scripted agents on the pretraining tasks with every seed of `PRETRAINING_SEEDS`; call again to finish after a kill.

    A seed names instances and faults, so that the same task is done well and badly in many ways.

    Returns
    -------
    Path
        ``runs.parquet`` in the folder.
    """
    from certify_assets.research.miniwob import generate

    made: list[Generated] = []
    for seed in PRETRAINING_SEEDS:
        made.append(
            generate(
                folder / f"s{seed}",
                tasks=PRETRAINING_TASKS,
                attempts=_ATTEMPTS,
                seed=seed,
                workers=workers,
                progress=progress,
            )
        )
    path = folder / RUNS_FILE.name
    write_runs(path, [item.path for item in made])
    return path


def write_runs(path: Path, generations: Sequence[Path]) -> None:
    """Write the episodes of several generation files, one a seed, as one table of trajectories."""
    from certify_assets.corpora.schema import to_frame, write_trajectories

    write_trajectories(path, to_frame(_trajectories(generations)))


def _trajectories(generations: Iterable[Path]) -> Iterable[Trajectory]:
    from certify_assets.corpora.schema import Step, Trajectory
    from certify_assets.research.miniwob import read_episodes
    from certify_assets.research.miniwob.tables import content_sha256

    for generation in generations:
        episodes = read_episodes(generation)
        digest = content_sha256(episodes)
        for episode in episodes:
            yield Trajectory(
                corpus=_CORPUS,
                task_id=episode.task_id,
                trajectory_id=f"{episode.seed}/{episode.trajectory_id}",
                agent=episode.agent,
                attempt=episode.attempt,
                instruction=episode.instruction,
                steps=tuple(Step(action, observation) for action, observation in episode.steps),
                outcome=episode.outcome,
                source_file=generation.name,
                source_sha256=digest,
            )
