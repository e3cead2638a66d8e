"""CPU seconds that the Dagster definitions need to load, in processes of their own.

python benchmarks/definitions_load.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys

CODE = "import time\nfrom certify_assets.definitions import defs\nprint(time.process_time())"


def main() -> None:
    seconds = [
        float(
            subprocess.run(
                [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    print(
        f"definitions load: {statistics.median(seconds):.2f} CPU-s (median of 5; {min(seconds):.2f} to {max(seconds):.2f})"
    )


if __name__ == "__main__":
    main()
