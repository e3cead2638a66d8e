"""How long people wait for a first answer once `pip install` has finished, and what it installs.

    python benchmarks/first_success.py [--persona NAME …] [--quick]

Every persona gets a virtual environment with the tool that it uses already, and then this package.
Printed are the megabytes that the package adds, the seconds until its commands have answered in
processes of their own, the first start included, their CPU seconds, because the machine may have
other load, and the lines that they print. At most 60 s are allowed; exit 1 says that someone waited
longer.
  csv      an evaluation lead with a spreadsheet's CSV: semicolons, decimal commas, pass or fail;
  log      an evaluation lead with an export of Langfuse and sixty labels in a sheet;
  inspect  a user of Inspect AI: a certificate for a scorer of a log, and the log decided by it;
  mlflow   a user of MLflow with traces that a judge and people assessed;
  dagster  an engineer with an asset that holds a DataFrame, who adds a certificate to it.
--quick: in the environment at hand, without installing anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 60.0
LABELS = 60
TRACES = """
import json
from pathlib import Path
import mlflow
from mlflow.entities import AssessmentSource
mlflow.set_tracking_uri("sqlite:///mlflow.db")
judge, person = AssessmentSource("LLM_JUDGE", "a judge"), AssessmentSource("HUMAN", "ann")
runs, ids = json.loads(Path("runs.json").read_text()), []
for run in runs:
    with mlflow.start_span(name="answer") as span:
        span.set_inputs({"question": run["task"]})
        span.set_outputs("an answer")
    ids.append(span.trace_id)
mlflow.flush_trace_async_logging()
for run, name in zip(runs, ids):
    for value, source in ((run["score"], judge), (run["success"], person)):
        mlflow.log_feedback(trace_id=name, name="correct", value=value, source=source)
lines = [mlflow.get_trace(name).to_json() for name in ids]
Path("traces.jsonl").write_text("\\n".join(lines))
"""
PROJECT = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "mine"\n',
    "mine/__init__.py": "",
    "mine/definitions.py": """
from pathlib import Path
import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "mine/defs/__init__.py": "",
    "mine/defs/table.py": """
import dagster as dg
import pandas as pd

@dg.asset
def my_scores() -> pd.DataFrame:
    return pd.read_json("runs.json")
""",
    "mine/defs/judged/defs.yaml": """
type: certify_assets.components.Certificate
attributes:
  asset: my_scores
  columns: {task: task, score: score, outcome: success}
""",
}


class Run(NamedTuple):
    """A judged run of a task."""

    task: str
    score: float
    success: bool


def judged() -> list[Run]:
    """Return 600 runs of 120 tasks; a good judge has scored them."""
    random = np.random.default_rng(7)
    task = np.repeat(np.arange(120), 5)
    success = random.random(task.size) < random.beta(0.5, 0.8, 120)[task]
    score = 1 / (1 + np.exp(-np.where(success, 1.8, -1.8) - random.normal(size=task.size)))
    return [
        Run(f"task-{a}", round(b, 4), c)
        for a, b, c in zip(task, score.tolist(), success.tolist(), strict=True)
    ]


def spreadsheet(folder: Path, runs: Sequence[Run]) -> None:
    lines = [f"{run.task};{run.score};{'pass' if run.success else 'fail'}" for run in runs]
    text = "\n".join(["Task_ID;Score;Outcome", *(line.replace(".", ",") for line in lines)])
    (folder / "scores.csv").write_text(text, "utf-8")


def langfuse(folder: Path, runs: Sequence[Run]) -> None:
    traces = [
        {
            "id": f"trace-{place}",
            "timestamp": "2026-03-01T10:00:00.000Z",
            "name": "support",
            "metadata": {"task_id": run.task},
            "input": f"Question {run.task}",
            "output": f"Answer {place}",
            "scores": [
                {"name": "helpful", "value": run.score, "source": "EVAL", "dataType": "NUMERIC"}
            ],
        }
        for place, run in enumerate(runs)
    ]
    (folder / "traces.json").write_text(json.dumps({"data": traces}), "utf-8")
    # one run of each of the first tasks
    labels = [f"trace-{place},{int(runs[place].success)}" for place in range(0, 5 * LABELS, 5)]
    (folder / "labels.csv").write_text("\n".join(["trajectory_id,outcome", *labels]), "utf-8")


def inspect_log(folder: Path, runs: Sequence[Run]) -> None:
    samples = [
        {
            "id": run.task,
            "epoch": place % 5 + 1,
            "uuid": f"sample-{place}",
            "input": f"Question {run.task}",
            "target": "",
            "messages": [{"role": "assistant", "content": f"Answer {place}"}],
            "scores": {"judge": {"value": run.score}, "outcome": {"value": "CI"[not run.success]}},
        }
        for place, run in enumerate(runs)
    ]
    about = {"created": "2026-03-01T10:00:00+00:00", "task": "support", "model": "mockllm/model"}
    document = {
        "version": 2,
        "status": "success",
        "eval": {**about, "dataset": {}, "config": {"epochs": 5}},
        "results": {"total_samples": len(runs), "completed_samples": len(runs), "scores": []},
        "samples": samples,
    }
    (folder / "log.json").write_text(json.dumps(document), "utf-8")


def plain(folder: Path, runs: Sequence[Run]) -> None:
    (folder / "runs.json").write_text(json.dumps([run._asdict() for run in runs]), "utf-8")


def project(folder: Path, runs: Sequence[Run]) -> None:
    plain(folder, runs)
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


class Persona(NamedTuple):
    """Who waits: what they have, what they install, and what they type."""

    has: Callable[[Path, Sequence[Run]], None]
    commands: tuple[str, ...]
    #: installed before, for this is a user of it
    tools: tuple[str, ...] = ()
    extra: str = ""
    #: Python that makes what they have, with their tools
    made_by: str = ""


PERSONAS = {
    "csv": Persona(spreadsheet, ("certify doctor scores.csv",)),
    "log": Persona(langfuse, ("certify doctor traces.json --labels labels.csv",)),
    "inspect": Persona(
        inspect_log,
        (
            "certify certificate log.json --judge judge --truth outcome --out certificate.json",
            "inspect score log.json --scorer certify/certified -S certificate=certificate.json "
            "--action append --output-file decided.json --display plain",
        ),
        ("inspect-ai",),
        "[inspect]",
    ),
    "mlflow": Persona(
        plain,
        ("certify doctor traces.jsonl --judge correct --truth correct",),
        ("mlflow",),
        made_by=TRACES,
    ),
    "dagster": Persona(
        project,
        ("dagster asset materialize --select * -m mine.definitions",),
        ("dagster", "dagster-dg-cli", "pandas"),
    ),
}


def called(words: Sequence[object], folder: Path, *, answers: Sequence[int] = (0,)) -> str:
    """Run a command in a folder; return what it printed on stdout."""
    environment = os.environ | {"DAGSTER_HOME": str(folder), "HOME": str(folder)}
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in answers:
        said = " ".join(map(str, words))[:200]
        raise SystemExit(
            f"{said}: exit {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def installed(folder: Path, persona: Persona) -> tuple[Path, float]:
    """Make the environment of a persona; return its programs and what the package adds."""
    called([sys.executable, "-m", "venv", folder / "venv"], folder)
    pip = [folder / "venv" / "bin" / "pip", "install", "--quiet"]
    if persona.tools:
        called([*pip, *persona.tools], folder)
    before = megabytes(folder / "venv")
    called([*pip, f"{ROOT}{persona.extra}"], folder)
    return folder / "venv" / "bin", megabytes(folder / "venv") - before


def spent() -> float:
    """Return the CPU seconds of the commands until now."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def waited(programs: Path, folder: Path, persona: Persona) -> tuple[float, float, int]:
    """Return the seconds until a persona has its answer, those of CPU, and the lines it is given."""
    persona.has(folder, judged())
    if persona.made_by:
        called([programs / "python", "-c", persona.made_by], folder)
    started, before, lines = time.perf_counter(), spent(), 0
    for command in persona.commands:
        program, *words = command.split(" ")
        # 3: the answer is to label more
        lines += len(called([programs / program, *words], folder, answers=(0, 3)).splitlines())
    return time.perf_counter() - started, spent() - before, lines


def rows(names: Sequence[str], *, quick: bool) -> Iterator[tuple[str, str, float, float, int]]:
    for name in names:
        with tempfile.TemporaryDirectory() as made:
            folder, persona = Path(made), PERSONAS[name]
            added = "–"
            programs = Path(sys.executable).parent
            if not quick:
                programs, size = installed(folder, persona)
                added = f"{size:,.0f}"
            yield name, added, *waited(programs, folder, persona)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persona", action="append", choices=list(PERSONAS))
    parser.add_argument("--quick", action="store_true", help="install nothing")
    arguments = parser.parse_args()
    slowest = 0.0
    print(f"{'persona':10} {'added MB':>8} {'seconds':>8} {'CPU-s':>6} {'lines':>6}")
    for name, added, seconds, taken, lines in rows(
        arguments.persona or [*PERSONAS], quick=arguments.quick
    ):
        print(f"{name:10} {added:>8} {seconds:8.1f} {taken:6.1f} {lines:6}", flush=True)
        slowest = max(slowest, seconds)
    return int(slowest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
