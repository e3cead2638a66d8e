"""Build the compact model from a shell: ``python -m certify_assets.research.build_compact --out DIR``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from certify_assets.errors import CertifyError
from certify_assets.judges.lm.compact.build import build_compact
from certify_assets.judges.lm.compact.data import RUNS_FILE
from certify_assets.judges.lm.compact.pretrain import Progress
from certify_assets.judges.lm.compact.settings import CompactSettings
from certify_assets.research.pretraining_runs import generate_runs


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
        help="generate the runs of further seeds in --out with Chromium first (20 minutes of two cores)",
    )
    return parser


def _progress(item: Progress) -> None:
    if item.step % 10 == 0 or item.step == item.steps:
        print(
            f"step {item.step}/{item.steps}  loss {item.loss:.3f}  verdict {item.verdict_loss:.3f}  {item.seconds:.0f} s",
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
    print(
        f"{built.folder}: {built.parameters:,} parameters, loss {built.last.loss:.3f}, verdict {built.last.verdict_loss:.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
