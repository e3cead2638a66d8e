"""What a command visits: the files of the package that it enters, and their functions.

    python benchmarks/walk.py certificate SCORES
    python benchmarks/walk.py --until decided ops ingest CORPUS RUNS --root ROOT

Runs one `certify` command in this process and prints its output, then the files and functions of
the package that it entered, by part. Imports do not count, nor do comprehensions and lambdas.
`--until KIND` stops at the first event of this kind. `--list` prints the functions.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType

import certify_assets
from certify_assets.cli.main import main as certify
from certify_assets.storage.store import Store

PACKAGE = Path(certify_assets.__file__).parent


def visited(arguments: list[str], until: str = "") -> set[tuple[str, str]]:
    """Return file and name of the functions that a command enters."""
    found: set[tuple[str, str]] = set()
    inside, append = f"{PACKAGE}/", Store.append.__code__
    stopped = False
    # first, so that nothing of an import counts
    for module in pkgutil.walk_packages([str(PACKAGE)], "certify_assets."):
        with suppress(Exception):
            importlib.import_module(module.name)

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal stopped
        code = frame.f_code
        if stopped or event != "call" or not code.co_filename.startswith(inside):
            return
        if until and code is append:
            stopped = any(item.kind == until for item in frame.f_locals["payloads"])
        if "<" not in code.co_name:
            found.add((code.co_filename.removeprefix(inside), code.co_qualname))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        certify(arguments)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--until", default="", metavar="KIND")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    found = visited(asked.command, asked.until)
    for name, function in sorted(found) if asked.list else ():
        print(name, function)
    for part in sorted({name.split("/")[0] for name, _ in found}):
        mine = [place for place in found if place[0].split("/")[0] == part]
        print(f"{part}: {len({name for name, _ in mine})} files, {len(mine)} functions")
    print(f"in all: {len({name for name, _ in found})} files, {len(found)} functions")


if __name__ == "__main__":
    main()
