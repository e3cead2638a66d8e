"""Run atheris on the readers, each in a process of its own, and print what came of it."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

#: of an input: beyond it the readers have limits of their own, which other tests reach
_LONGEST = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m certify_assets_tests.fuzzing")
    parser.add_argument("--seconds", type=int, default=300, help="for each reader")
    parser.add_argument("--inputs", type=int, help="for each reader, instead of a time")
    parser.add_argument("--reader", action="append", help="by default every one")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--found", type=Path, help="keep the smallest set of new inputs there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--failures", type=Path, default=Path("fuzzing-failures"))
    given, fuzzer = parser.parse_known_args()
    if given.one:
        return _fuzz(given.one, given.failures, fuzzer)
    from certify_assets_tests.fuzzing.readers import READERS

    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed; pip install 'certify_assets[fuzz]' has it")
    names = given.reader or [*READERS]
    if unknown := [name for name in names if name not in READERS]:
        parser.error(f"there is no reader {unknown[0]!r}; name one of {', '.join(READERS)}")
    print(f"{'reader':28} {'inputs':>9} {'a second':>9} {'places':>7} {'kept':>5}  failures")
    wrong = 0
    for name in names:
        wrong += _row(name, given)
    return 1 if wrong else 0


_COMMAND = [sys.executable, "-m", "certify_assets_tests.fuzzing"]


def _row(name: str, given: argparse.Namespace) -> int:
    """Fuzz one reader; print its row and return the number of failures."""
    from certify_assets_tests.fuzzing.readers import kept_inputs

    before = {path.name for path in given.failures.glob(f"{name}-*")}
    with tempfile.TemporaryDirectory() as folder:
        work, smallest = Path(folder) / "work", Path(folder) / "smallest"
        for made in (work, smallest):
            made.mkdir()
        for data in kept_inputs(name):
            (work / hashlib.sha256(data).hexdigest()).write_bytes(data)
        options = (f"-max_len={_LONGEST}", "-timeout=10", "-rss_limit_mb=6000", "-verbosity=1")
        stopping = (
            f"-runs={given.inputs}" if given.inputs else f"-max_total_time={given.seconds}",
            f"-seed={given.seed}",
        )
        said = _call(name, given, *options, *stopping, "-print_final_stats=1", str(work))
        _call(name, given, *options, "-merge=1", str(smallest), str(work))
        kept = sorted(smallest.iterdir())
        if given.found is not None:
            target = given.found / name
            target.mkdir(parents=True, exist_ok=True)
            for path in kept:
                (target / path.name[:16]).write_bytes(path.read_bytes())
        executed, rate = (
            _number(said, f"stat::{label}:")
            for label in ("number_of_executed_units", "average_exec_per_sec")
        )
        places = max((int(number) for number in re.findall(r"cov: (\d+)", said)), default=0)
        failed = {path.name for path in given.failures.glob(f"{name}-*")} - before
        row = f"{name:28} {executed:9} {rate:9} {places:7} {len(kept):5}"
        nothing = "" if executed else "nothing was read, see above"
        print(f"{row}  {' '.join(sorted(failed)) or nothing or 0}", flush=True)
        return len(failed) or int(not executed)


def _number(said: str, label: str) -> int:
    found = re.search(rf"{re.escape(label)}\s+(\d+)", said)
    return int(found[1]) if found else 0


def _call(name: str, given: argparse.Namespace, *options: str) -> str:
    command = [*_COMMAND, "--one", name, "--failures", str(given.failures), *options]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        # the interpreter itself, memory or time: libFuzzer has kept the input
        print(done.stderr[-2000:], file=sys.stderr)
    return done.stderr


def _fuzz(name: str, failures: Path, options: Sequence[str]) -> int:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["certify_assets"]):
        from certify_assets_tests.fuzzing.readers import READERS
    failures.mkdir(parents=True, exist_ok=True)
    reader, seen = READERS[name], set[str]()

    def read(data: bytes) -> None:
        try:
            reader(data)
        except Exception as error:
            # one input for each place, and on: the first fault must not hide the next
            where = _place(error, error.__traceback__)
            if where not in seen:
                seen.add(where)
                key = hashlib.sha256(where.encode()).hexdigest()[:12]
                (failures / f"{name}-{key}").write_bytes(data)
                text = f"{where}\n\n{traceback.format_exc()}"
                (failures / f"{name}-{key}.txt").write_text(text, "utf-8")

    with tempfile.TemporaryDirectory() as folder:
        # what libFuzzer starts to merge
        again = Path(folder) / "again"
        call = shlex.join([*_COMMAND, "--one", name, "--failures", str(failures)])
        again.write_text(f'#!/bin/sh\nexec {call} "$@"\n', "utf-8")
        again.chmod(0o700)
        atheris.Setup([str(again), f"-artifact_prefix={failures}/{name}-", *options], read)
        atheris.Fuzz()
    return 0


def _place(error: Exception, trace: TracebackType | None) -> str:
    frames = [item for item in traceback.extract_tb(trace) if "certify_assets/" in item.filename]
    last = frames[-1]
    file = last.filename.rpartition("certify_assets/")[2]
    return f"{type(error).__name__} at {file}:{last.lineno}"


if __name__ == "__main__":
    sys.exit(main())
