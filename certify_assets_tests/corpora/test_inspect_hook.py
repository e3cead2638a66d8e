"""The Inspect AI hook in real evaluations: a model of this package, an inbox, and what fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.corpora.formats import detect_format, import_corpus
from certify_assets.judges.lm.compact import compact_model_path
from certify_assets_tests.corpora.builders import write_json

LOGGED = ("--display", "plain", "--log-format", "json", "--log-dir", "logs")
TASKS = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, solver

@task
def buttons():
    samples = [Sample(id=f"press/{n}", input=f"Press button {n}.", target="solution7") for n in range(2)]
    config = GenerateConfig(max_tokens=8)
    return Task(dataset=samples, solver=generate(), scorer=includes(), epochs=2, config=config)

@solver
def without_model():
    async def solve(state, generate):
        if state.sample_id == 2:
            raise RuntimeError("the sandbox is gone")
        from inspect_ai.model import ChatMessageAssistant
        state.messages.append(ChatMessageAssistant(content="solution7 \\ud800"))
        state.output.completion = "solution7"
        return state
    return solve

@task
def fixed():
    samples = [Sample(id=n, input="Go.", target="solution7") for n in range(1, 4)]
    return Task(dataset=samples, solver=without_model(), scorer=includes(), fail_on_error=False)
"""


def evaluate(
    folder: Path, task: str, *arguments: str, inbox: Path | None = None
) -> tuple[str, dict[str, object]]:
    """Run `inspect eval`; return what it printed and its log."""
    (folder / "tasks.py").write_text(TASKS, "utf-8")
    given = {"CERTIFY_INBOX": str(inbox)} if inbox else {}
    done = subprocess.run(
        [sys.executable, "-m", "inspect_ai", "eval", f"tasks.py@{task}", *LOGGED, *arguments],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(folder), "COLUMNS": "400", **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    (log,) = (folder / "logs").glob("*.json")
    document = json.loads(log.read_text("utf-8", "surrogatepass"))
    log.unlink()
    return done.stdout + done.stderr, document


@pytest.mark.slow
def test_a_model_that_runs_here_fills_the_inbox(tmp_path: Path) -> None:
    inbox = tmp_path / "root" / "inbox" / "buttons"
    inbox.parent.mkdir(parents=True)
    weights = f"model_path={compact_model_path()}"
    model = ("--model", "hf/compact", "-M", weights, "-M", "device=cpu")
    printed, log = evaluate(tmp_path, "buttons", *model, inbox=inbox)
    assert "certify_assets/inbox" in printed and log["status"] == "success"
    files = sorted(inbox.iterdir())
    assert len(files) == 4 and all(path.name.startswith("buttons_press-") for path in files)
    assert not any("solution7" in path.read_text("ascii") for path in files)
    assert detect_format([inbox]) == "inspect"
    # the inbox gives what the log of the evaluation gives, ids included
    logged = import_corpus(write_json(tmp_path / "log.json", log), name="c").frame
    ours = import_corpus(inbox, name="c").frame
    columns = ["task_id", "trajectory_id", "agent", "instruction", "steps", "outcome"]
    assert ours[columns].equals(logged[columns])
    assert sorted(ours["task_id"].unique()) == ["buttons/press/0", "buttons/press/1"]


@pytest.mark.slow
def test_it_is_off_by_default_and_an_error_is_one_warning(tmp_path: Path) -> None:
    model = ("--model", "none/none")
    printed, log = evaluate(tmp_path, "fixed", *model)
    assert "certify_assets" not in printed and log["status"] == "success"
    inbox = tmp_path / "mistyped" / "inbox"
    printed, log = evaluate(tmp_path, "fixed", *model, inbox=inbox)
    assert printed.count("was not written to the inbox") == 1, printed
    assert "is not a folder. Make it first" in printed and not inbox.parent.exists()
    assert log["status"] == "success"
    # a sample that failed is there too: the import counts it, and texts that are no UTF-8 stay
    inbox = tmp_path / "inbox"
    evaluate(tmp_path, "fixed", *model, inbox=inbox)
    imported = import_corpus(inbox, format="inspect", name="c")
    assert (len(imported.frame), imported.dropped) == (2, {"infrastructure_error": 1})
    assert all(path.suffix == ".json" for path in inbox.iterdir()), "no part of a file"
