import json
from pathlib import Path

import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.formats.terminal_text import plain_text, steps_of_terminal
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import from_frame, reader, write_json
from certify_assets_tests.corpora.formats.terminal_bench import PROMPT, pane, put, trial, write
from certify_assets_tests.paths import shared_data

read = reader("terminal_bench")


def put_trial(folder: Path, name: str) -> None:
    screen = {"panes/post-agent.txt": pane(("ls", name))}
    put(folder / name, trial(f"{name}.1-of-1.r", name, True), screen)


def test_layouts_agents_and_attempts(tmp_path: Path) -> None:
    write(tmp_path / "runs")
    imported = read(tmp_path / "runs")
    runs = {(run.agent, run.task_id): run for run in from_frame(imported.frame)}
    hand, other, third = "hand_model-x", "other_model-y", "third_model-z"
    assert sorted(runs) == [
        *((hand, "key"), (hand, "sort"), (other, "sort"), (other, "zip")),
        *((third, "key"), (third, "sort")),
    ]
    first = runs[hand, "sort"]
    assert first.instruction == "Please do sort." and first.trajectory_id == "id-sort.1-of-1.run-1"
    assert first.steps == (Step("sort names.txt > out.txt", ""), Step("cat out.txt", "a\nb"))
    # the session's log where the pane is empty, the recording, and the results of the run
    assert runs[hand, "key"].steps == (Step("touch key", ""), Step("ls", "key"))
    assert runs[other, "zip"].steps == (Step("zip -r all.zip .", "adding: a"),)
    assert runs[third, "key"].outcome == 0
    said = "an outcome, but nothing was recorded of the trial zip.1-of-1.run-1"
    assert said in imported.examples["no_trajectory"]
    assert "both have the same id" in imported.examples["duplicate"]


def test_the_agent_of_runs_that_nobody_submitted(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "2025-01-01__10-00-00"
    put_trial(folder, "sort")
    assert read(tmp_path / "runs").frame["agent"].tolist() == ["unknown"]
    about = {"agent_name": "hand", "model_name": "maker/model-x"}
    write_json(folder / "run_metadata.json", about)
    assert read(tmp_path / "runs").frame["agent"].tolist() == ["hand_maker-model-x"]
    assert read(tmp_path / "runs", agent="mine").frame["agent"].tolist() == ["mine"]


@pytest.mark.parametrize(
    ("recorded", "plain"),
    [
        ("\x1b[1;32mgo\x1b[0m\x1b]0;title\x07\x1b(B", "go"),
        ("10%\r20%\rdone\r\nnext\r\n", "done\nnext\n"),
        ("lss\b\n\b\bx", "ls\nx"),
        ("\x1b[?2004h$ \x1b[K\x1b", "$ \x1b"),
    ],
)
def test_what_steers_a_terminal_is_removed(recorded: str, plain: str) -> None:
    assert plain_text(recorded) == plain


def test_prompts_begin_steps() -> None:
    text = (
        f"welcome\n(venv) {PROMPT}echo 'a\n> b'\na\nb\nbash-5.1$ id\nroot\n{PROMPT}clear\n{PROMPT}"
    )
    assert steps_of_terminal(text) == (
        Step("", "welcome"),
        Step("echo 'a\n> b'", "a\nb"),
        Step("id", "root"),
    )
    assert steps_of_terminal(f"{PROMPT}clear\n{PROMPT}\n\n") == ()


def test_long_output_is_several_steps() -> None:
    lines = [f"line {number:04d} of the output" for number in range(900)]
    steps = steps_of_terminal(f"{PROMPT}make\n" + "\n".join(lines) + f"\n{PROMPT}")
    assert steps[0].action == "make" and {step.action for step in steps[1:]} == {""}
    assert all(len(step.observation) <= 1100 for step in steps)
    assert "\n".join(step.observation for step in steps).split("\n") == lines


def test_the_installation_is_no_step_unless_nothing_else_happened() -> None:
    install = "source /installed-agent/install.sh"
    waiting = "source /installed-agent/setup-env.sh; tmux wait -S done"
    setup = pane((waiting, ""), (install, "E: no network"))
    assert steps_of_terminal(setup) == (Step(install, "E: no network"),)
    run = pane(("hand --task x; tmux wait -S done", "did x"))
    assert steps_of_terminal(setup + run) == (Step("hand --task x", "did x"),)


def test_nothing_after_the_start_of_the_tests_is_read() -> None:
    text = pane(("ls", "a"), ("bash /tests/run-tests.sh", "1 passed"), ("ls", "b"))
    assert steps_of_terminal(text) == (Step("ls", "a"),)


@pytest.mark.slow
def test_the_published_runs() -> None:
    imported = import_corpus(
        sorted(shared_data("terminal_bench_core").glob("*.tar.gz")), name="terminal"
    )
    frame = imported.frame
    assert len(frame) == 633
    assert frame["task_id"].nunique() == 80
    assert round(float(frame["outcome"].mean()), 3) == 0.341
    # rendering 60 MB is another test's business
    assert round(profile_corpus(frame, outlines=[]).icc, 2) == 0.52
    assert imported.format == "terminal_bench"
    # 43 trials lie in two runs; 167 trials ended without a result
    assert imported.dropped == {"duplicate": 43, "no_label": 167, "file_other_format": 11}
    assert frame.groupby("agent").size().to_dict() == {
        "openhands_claude-4-sonnet": 383,
        "swe-agent-mini_claude-4-sonnet": 250,
    }
    assert not frame["steps"].map(lambda steps: "run-tests.sh" in json.dumps(steps)).any()
