"""Logs that Inspect AI itself wrote, with its mock model: a judge's score and a known outcome."""

import os
import subprocess
import sys
from pathlib import Path

SAMPLES = 120
#: sum-N is right where N does not end in 0 to 3, and the judge mistakes those that end in 9
TASKS = f"""
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant
from inspect_ai.scorer import Score, includes, mean, scorer
from inspect_ai.solver import solver

@solver
def answer():
    async def solve(state, generate):
        state.output.completion = "right" if int(state.sample_id[4:]) % 10 > 3 else "wrong"
        state.messages.append(ChatMessageAssistant(content=state.output.completion))
        return state
    return solve

@scorer(metrics=[mean()])
def judge():
    async def score(state, target):
        number = int(state.sample_id[4:])
        sure = number % 10 > 3
        return Score(value=(0.8 if sure else 0.1) + number / 1000 + state.epoch / 10_000)
    return score

@task
def sums():
    samples = [Sample(id=f"sum-{{n}}", input=f"What is {{n}} + 1?", target="right") for n in range({SAMPLES})]
    return Task(dataset=samples, solver=answer(), scorer=[includes(), judge()], epochs=2)
"""


def inspect(folder: Path, *arguments: object) -> str:
    """Run a command of Inspect AI in a folder; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", *map(str, arguments), "--display", "plain"],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def evaluate(folder: Path) -> Path:
    """Evaluate the mock model; return the log."""
    (folder / "tasks.py").write_text(TASKS, "utf-8")
    inspect(folder, "eval", "tasks.py", "--model", "mockllm/model", "--log-dir", "logs")
    (log,) = (folder / "logs").iterdir()
    return log
