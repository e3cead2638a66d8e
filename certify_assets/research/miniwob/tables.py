"""From generation file to Parquet: the same episodes give the same bytes, whatever order they were finished in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.files import canonical_json, sha256_bytes

if TYPE_CHECKING:
    from certify_assets.corpora.schema import Trajectory
    from certify_assets.research.miniwob.generate import Episode

__all__ = ["EPISODES_FILE", "content_sha256", "differing_tasks", "write_corpora"]

EPISODES_FILE = "episodes.jsonl"


def content_sha256(episodes: Iterable[Episode]) -> str:
    """Return the SHA-256 of the episodes in the order of their ids, as canonical JSON lines."""
    ordered = sorted(episodes, key=lambda episode: episode.trajectory_id)
    return sha256_bytes(b"".join(canonical_json(asdict(episode)) for episode in ordered))


def write_corpora(episodes: Iterable[Episode], folder: Path) -> dict[str, Path]:
    """Write one Parquet file a corpus beside the generation file.

    Returns
    -------
    dict of str to Path
        The file of each corpus that has episodes.
    """
    # here, because every worker imports this module and none needs Arrow
    from certify_assets.corpora.schema import to_frame, write_trajectories

    by_corpus: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_corpus.setdefault(episode.corpus, []).append(episode)
    paths: dict[str, Path] = {}
    for corpus, members in sorted(by_corpus.items()):
        digest = content_sha256(members)
        paths[corpus] = folder / f"{corpus}.parquet"
        write_trajectories(
            paths[corpus], to_frame(_trajectory(episode, digest) for episode in members)
        )
    return paths


def differing_tasks(one: Iterable[Episode], other: Iterable[Episode]) -> list[str]:
    """Return the tasks of which some run of the same id differs between two generations: where the pages are not deterministic."""
    first = {episode.trajectory_id: episode for episode in one}
    return sorted(
        {
            episode.task_id
            for episode in other
            if first.get(episode.trajectory_id, episode) != episode
        }
    )


def _trajectory(episode: Episode, digest: str) -> Trajectory:
    from certify_assets.corpora.schema import Step, Trajectory

    return Trajectory(
        corpus=episode.corpus,
        task_id=episode.task_id,
        trajectory_id=episode.trajectory_id,
        agent=episode.agent,
        attempt=episode.attempt,
        instruction=episode.instruction,
        steps=tuple(Step(action, observation) for action, observation in episode.steps),
        outcome=episode.outcome,
        source_file=EPISODES_FILE,
        source_sha256=digest,
    )
