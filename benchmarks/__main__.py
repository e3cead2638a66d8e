"""Run benchmarks one after the other, and say how long each takes.

    python benchmarks [--whole] [NAME …]

Every script has a quick form, which is run here; --whole runs them as the documentation quotes them,
which takes hours. Without names all of them run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
#: modules that others import have no quick form
SCRIPTS = sorted(
    path.stem
    for path in HERE.glob("*.py")
    if path != Path(__file__) and '"--quick"' in path.read_text("utf-8")
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    if unknown := set(given.names) - set(SCRIPTS):
        parser.error(f"there is no {min(unknown)}; name some of {', '.join(SCRIPTS)}")
    names, failed = given.names or SCRIPTS, []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} …", flush=True)
        started = time.perf_counter()
        form = [] if given.whole else ["--quick"]
        code = subprocess.run([sys.executable, HERE / f"{name}.py", *form], check=False).returncode
        failed += [name] if code else []
        spent = time.perf_counter() - started
        end = f"failed with {code}" if code else "done"
        print(f"[{number}/{len(names)}] {name} {end}, {spent:.0f} s\n", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
