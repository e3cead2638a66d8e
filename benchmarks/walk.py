"""What a command visits: the files of the package that it enters, and their functions.

    python benchmarks/walk.py certificate SCORES
    python benchmarks/walk.py ops ingest CORPUS RUNS --root ROOT

Runs one `certify` command in this process and prints its output, then a line with the number of
files and of functions of the package that it entered. What runs when modules are imported does not
count. `--list` before the command prints them, files with most calls first.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType

import certify_assets
from certify_assets.cli.main import main as certify

PACKAGE = Path(certify_assets.__file__).parent


def visited(arguments: list[str]) -> Counter[tuple[str, str]]:
    """Return the functions that a command enters, with the number of calls."""
    calls: Counter[tuple[str, str]] = Counter()
    inside = f"{PACKAGE}/"
    # first, so that nothing of an import counts
    for module in pkgutil.walk_packages([str(PACKAGE)], "certify_assets."):
        with suppress(Exception):
            importlib.import_module(module.name)

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside) and code.co_name != "<module>":
            calls[code.co_filename.removeprefix(inside), code.co_qualname] += 1

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        certify(arguments)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def main() -> None:
    arguments = sys.argv[1:]
    listed = arguments[:1] == ["--list"]
    calls = visited(arguments[listed:])
    files: Counter[str] = Counter()
    for (name, _), number in calls.items():
        files[name] += number
    for name, number in files.most_common() if listed else ():
        print(f"{number:8,} {name}")
    print(f"{len(files)} files, {len(calls)} functions")


if __name__ == "__main__":
    main()
