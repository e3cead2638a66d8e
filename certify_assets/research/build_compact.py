"""Build the compact model: ``python -m certify_assets.research.build_compact --out DIR``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.embedded import PRETRAINING_TASKS
from certify_assets.corpora.schema import to_frame, write_trajectories
from certify_assets.errors import CertifyError
from certify_assets.judges.lm.compact.pretrain import Progress
from certify_assets.judges.lm.compact.settings import RUNS_FILE, CompactSettings
from certify_assets.judges.lm.compact.shipped import build_compact

if TYPE_CHECKING:
    from certify_assets.corpora.schema import Trajectory

PRETRAINING_SEEDS = (1001, 1002, 1003, 1004, 1005)

_CORPUS = "miniwob_pretraining"
_ATTEMPTS = 2


def generate_runs(folder: Path) -> Path:
    """Run the scripted agents on the pretraining tasks with every seed; repeat after a kill."""
    from certify_assets.research.miniwob import generate

    made = [
        generate(folder / f"s{seed}", tasks=PRETRAINING_TASKS, attempts=_ATTEMPTS, seed=seed)
        for seed in PRETRAINING_SEEDS
    ]
    path = folder / RUNS_FILE.name
    write_runs(path, [item.path for item in made])
    return path


def write_runs(path: Path, generations: Sequence[Path]) -> None:
    """Write the episodes of several generation files, one a seed, as one table of trajectories."""
    write_trajectories(path, to_frame(_trajectories(generations)))


def _trajectories(generations: Iterable[Path]) -> Iterable[Trajectory]:
    from certify_assets.research.miniwob import read_episodes
    from certify_assets.research.miniwob.generate import content_sha256, trajectory_of

    for generation in generations:
        episodes = read_episodes(generation)
        digest = content_sha256(episodes)
        for episode in episodes:
            yield replace(
                trajectory_of(episode, digest),
                corpus=_CORPUS,
                trajectory_id=f"{episode.seed}/{episode.trajectory_id}",
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m certify_assets.research.build_compact", description=__doc__
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder of the model; call again to finish after a kill",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=42,
        help="names initial weights and the order of the runs (default 42)",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=CompactSettings().epochs,
        help="passes over the runs (default %(default)s)",
    )
    parser.add_argument("--limit", type=int, help="only so many runs: for a trial")
    parser.add_argument(
        "--runs",
        type=Path,
        default=RUNS_FILE,
        help="runs of further seeds (default: those in the package)",
    )
    parser.add_argument(
        "--generate",
        action="store_true",
        help="generate the runs of further seeds in --out with Chromium first (20 minutes of two "
        "cores)",
    )
    return parser


def _progress(item: Progress) -> None:
    if item.step % 10 == 0 or item.step == item.steps:
        print(
            f"step {item.step}/{item.steps}  loss {item.loss:.3f}  {item.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        runs = generate_runs(options.out / "runs") if options.generate else options.runs
        settings = CompactSettings(seed=options.seed, epochs=options.epochs)
        built = build_compact(
            options.out, settings, runs=runs, limit=options.limit, progress=_progress
        )
    except CertifyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{built.folder}: {built.parameters:,} parameters, loss {built.last.loss:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
