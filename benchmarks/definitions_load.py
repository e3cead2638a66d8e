"""CPU seconds that the Dagster definitions need to load, in processes of their own.

python benchmarks/definitions_load.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CODE = "import time\nfrom certify_assets.definitions import defs\nprint(time.process_time())"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one process instead of five")
    processes = 1 if parser.parse_args().quick else 5
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(processes)
    ]
    print(
        f"definitions load: {statistics.median(seconds):.2f} CPU-s (median of {processes}; "
        f"{min(seconds):.2f} to {max(seconds):.2f})"
    )


if __name__ == "__main__":
    main()
