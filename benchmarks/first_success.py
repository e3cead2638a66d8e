"""How long each reader of the documentation waits for a first result, after the installation.

    python benchmarks/first_success.py [--persona NAME …] [--quick]

Every persona gets a folder of its own and runs the commands of its page in docs/how-to one after
the other, each in a process of its own. Printed are the minutes until its last command has
answered, the CPU seconds, and both as multiples of `import dagster` in the same run, because
machines differ:
  scores    a table with semicolons, decimal commas and pass or fail: a certificate and its page;
  notebook  a DataFrame: a certificate and its card;
  gate      a build that fails below 20 % decided runs, with a summary for GitHub;
  auditor   a certificate that was handed over: recomputed, and audited on other tasks;
  paper     every procedure side by side;
  runs      1,000 recorded runs: a corpus, two trained judges, certificates, audits and pages;
  dagster   the same as a job of the code location, as its UI launches it;
  reviewer  a judge that is deployed, new runs decided, and the queue of those left.
--quick: the first five, which take seconds each.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

CERTIFY = (sys.executable, "-m", "certify_assets.cli")
QUICK = ("scores", "notebook", "gate", "auditor", "paper")
NOTEBOOK = """
import pandas as pd
from certify_assets import certify
table = pd.read_csv("plain.csv")
assert "<svg" in certify(table, alpha=0.1)._repr_html_()
"""
IMPORTED = "certify corpus import {runs} --name mine"
STEPS = {
    "scores": (
        "certify certificate scores.csv --out certificate.json",
        "certify report certificate.json scores.csv --out certificate.html",
    ),
    "notebook": ("python",),
    "gate": ("certify certificate plain.csv --min-coverage 20%",),
    "auditor": (
        "certify verify handed.json plain.csv",
        "certify audit handed.json later.csv",
    ),
    "paper": ("certify certificate plain.csv --side reject --procedure all",),
    "runs": (IMPORTED, "certify run mine"),
    "dagster": (
        IMPORTED,
        "dagster job execute -m certify_assets.definitions -j onboard_corpus "
        '--tags {{"dagster/partition":"mine"}}',
    ),
    "reviewer": (
        IMPORTED,
        "certify run mine",
        "certify ops deploy mine combined",
        "certify ops ingest mine {later}",
        "certify review queue mine",
    ),
}


def tables(folder: Path) -> None:
    """Write score tables: as a spreadsheet has them, plain, and of later tasks."""
    random = np.random.default_rng(7)
    for name, tasks, first in (("plain", 120, 0), ("later", 60, 120)):
        task = np.repeat(np.arange(first, first + tasks), 5)
        ease = random.beta(0.5, 0.8, tasks)[task - first]
        success = random.random(task.size) < ease
        score = np.where(success, 1.8, -1.8) + random.normal(size=task.size)
        rows = list(zip(task.tolist(), score.tolist(), success.tolist(), strict=True))
        lines = [f"task-{one},{value:.4f},{int(good)}" for one, value, good in rows]
        (folder / f"{name}.csv").write_text("\n".join(["task_id,score,outcome", *lines]), "utf-8")
        if name == "plain":
            lines = [
                f"task-{one};{value:.4f};{'pass' if good else 'fail'}".replace(".", ",")
                for one, value, good in rows
            ]
            text = "\n".join(["Task_ID;Score;Outcome", *lines])
            (folder / "scores.csv").write_text(text, "utf-8")


def embedded(name: str) -> Path:
    """Return where the package has a corpus of recorded runs."""
    import certify_assets.corpora.embedded as package

    return Path(package.__file__).parent / f"{name}.parquet"


def commands(persona: str) -> Iterator[list[str]]:
    """Return the commands of a persona, as the system starts them."""
    places = {"runs": embedded("miniwob_weak"), "later": embedded("miniwob_mixed")}
    for step in STEPS[persona]:
        program, *words = step.format(**places).split(" ")
        if program == "python":
            yield [sys.executable, "-c", NOTEBOOK]
        elif program == "certify":
            yield [*CERTIFY, *words]
        else:
            yield [sys.executable, "-m", program, *words]


def measured(calls: Sequence[Sequence[str]], folder: Path) -> tuple[float, float]:
    """Run commands; return wall and CPU seconds."""
    environment = os.environ | {
        "CERTIFY_ROOT": str(folder / "root"),
        "DAGSTER_HOME": str(folder / "root" / "dagster"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    before, started = _spent(), time.perf_counter()
    for call in calls:
        done = subprocess.run(
            call, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(call[1:])}: exit {done.returncode}\n{done.stderr[-3000:]}")
    return time.perf_counter() - started, _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persona", action="append", choices=list(STEPS))
    parser.add_argument("--quick", action="store_true", help="those that take seconds")
    arguments = parser.parse_args()
    asked = arguments.persona or (QUICK if arguments.quick else list(STEPS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wall, floor = measured([[sys.executable, "-c", "import dagster"]], folder)
        print(f"import dagster: {wall:.1f} s, {floor:.1f} CPU-s")
        print(f"{'persona':10} {'commands':>8} {'minutes':>8} {'CPU-s':>7} {'imports':>8}")
        for persona in asked:
            own = folder / persona
            own.mkdir()
            tables(own)
            if persona == "auditor":
                made = [*CERTIFY, "certificate", "plain.csv", "--out", "handed.json"]
                measured([made], own)
            calls = list(commands(persona))
            wall, spent = measured(calls, own)
            print(
                f"{persona:10} {len(calls):8} {wall / 60:8.2f} {spent:7.1f} {spent / floor:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
