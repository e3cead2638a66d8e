"""Generate MiniWoB++ runs: ``python -m certify_assets.research.miniwob --out runs``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from certify_assets.errors import CertifyError
from certify_assets.research.miniwob.browser import list_tasks
from certify_assets.research.miniwob.generate import (
    CORPORA,
    EPISODES_FILE,
    differing_tasks,
    generate,
    read_episodes,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m certify_assets.research.miniwob", description=__doc__
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("miniwob"),
        help="folder of the runs; call again to finish after a kill",
    )
    parser.add_argument(
        "--seed", type=int, default=42, help="names instances, competence and faults (default 42)"
    )
    parser.add_argument(
        "--attempts", type=int, default=4, help="attempts for each task and agent (default 4)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="processes, each with one Chromium (default 2)"
    )
    parser.add_argument(
        "--corpus", action="append", choices=CORPORA, help="only this corpus; may be repeated"
    )
    parser.add_argument("--task", action="append", help="only this task; may be repeated")
    parser.add_argument(
        "--agent", action="append", help="only this agent, or model; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="list the tasks and leave")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FOLDER",
        help="name the tasks whose runs differ between FOLDER and --out, and leave",
    )
    return parser


def _progress(done: int, total: int) -> None:
    if done % 20 == 0 or done == total:
        print(
            f"\r{done}/{total} episodes",
            end="\n" if done == total else "",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.list:
            print("\n".join(list_tasks()))
            return 0
        if options.compare:
            one, other = (
                read_episodes(folder / EPISODES_FILE) for folder in (options.compare, options.out)
            )
            print("\n".join(differing_tasks(one, other)) or "no task differs")
            return 0
        result = generate(
            options.out,
            corpora=options.corpus or CORPORA,
            tasks=options.task,
            agents=options.agent,
            attempts=options.attempts,
            seed=options.seed,
            workers=options.workers,
            progress=_progress,
        )
    except CertifyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    failed = (
        ", ".join(f"{count} {reason}" for reason, count in sorted(result.failed.items())) or "none"
    )
    print(
        f"{result.path}: {result.episodes} new, {result.kept} kept, {result.retries} retried, "
        f"failed: {failed}"
    )
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
