import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from certify_assets.cli import main
from certify_assets.corpora.schema import read_trajectories
from certify_assets.errors import InputError, MissingToolError
from certify_assets.research.miniwob import browser, generate, list_tasks, read_episodes
from certify_assets.research.miniwob.generate import Episode, content_sha256, write_corpora
from certify_assets_tests.killing import left_by_a_kill
from certify_assets_tests.research.miniwob_endpoint import serve

pytestmark = pytest.mark.slow

TASKS = ["click-button", "enter-password"]
AGENTS = ["scripted-careful", "scripted-optimist"]


def missing_tools() -> str:
    try:
        browser.require_tools()
    except MissingToolError as error:
        return str(error)
    return ""


needs_browser = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "here")


def episode(number: int = 0, **changes: Any) -> Episode:
    values: dict[str, Any] = {
        "corpus": "miniwob_weak",
        "task_id": "enter-text",
        "trajectory_id": f"miniwob_weak/enter-text/a/{number}",
        "agent": "a",
        "attempt": number,
        "instruction": 'Enter "Tora"',
        "steps": (("open the page", "field is empty"), ('claim("done")', "")),
        "outcome": number % 2,
        "seed": 42,
    }
    return Episode(**(values | changes))


def _command(*arguments: str) -> object:
    with pytest.raises(SystemExit) as end:
        main(["research", "generate-miniwob", *arguments])
    return end.value.code


def lines(*episodes: Episode) -> bytes:
    return b"".join(json.dumps(asdict(e)).encode() + b"\n" for e in episodes)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(lines(episode(0), episode(1)) + lines(episode(2))[:40])
    assert read_episodes(path) == [episode(0), episode(1)]
    assert read_episodes(tmp_path / "none.jsonl") == []


def test_the_tasks_with_differing_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, outcome in (("one", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        runs = lines(episode(0), episode(2, outcome=outcome))
        (tmp_path / name / "episodes.jsonl").write_bytes(runs)
    for other, words in (("one", "no task differs"), ("other", "enter-text")):
        shown = _command("--out", str(tmp_path / other), "--compare", str(tmp_path / "one"))
        assert shown == 0 and capsys.readouterr().out.strip() == words


def test_a_broken_line_before_the_last_is_named(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(lines(episode(0)) + b'{"corpus": 1}\n' + lines(episode(1)))
    with pytest.raises(InputError, match="line 2 is not an episode"):
        read_episodes(path)


def test_tables_do_not_depend_on_the_order_of_episodes(tmp_path: Path) -> None:
    episodes = [
        episode(0),
        episode(1),
        episode(0, corpus="miniwob_mixed", trajectory_id="miniwob_mixed/enter-text/a/0"),
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = (
        write_corpora(episodes, tmp_path / "a"),
        write_corpora(episodes[::-1], tmp_path / "b"),
    )
    assert sorted(one) == ["miniwob_mixed", "miniwob_weak"]
    assert [p.read_bytes() for p in one.values()] == [p.read_bytes() for p in two.values()]
    frame = read_trajectories(one["miniwob_weak"])
    assert frame["source_sha256"].unique().tolist() == [content_sha256(episodes[:2])]
    assert frame["steps"][0][1]["action"] == 'claim("done")'


@needs_browser
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ["no-task"]}, "no task"),
        ({"agents": ["nobody"]}, "no agent"),
        ({"corpora": ["other"]}, "no corpus"),
    ],
)
def test_unknown_names_are_refused_before_any_work(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        generate(tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


def test_a_missing_chromium_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingToolError, match="apt-get install chromium"):
        browser.find_chromium()
    assert _command("--out", str(tmp_path / "runs")) == 2
    assert "install" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["playwright", "miniwob"])
def test_a_missing_package_is_said_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    find = browser.importlib.util.find_spec
    monkeypatch.setattr(
        browser.importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(MissingToolError, match=r"certify_assets\[miniwob\]"):
        browser.require_tools()


@needs_browser
def test_the_registered_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _command("--list") == 0
    assert capsys.readouterr().out.split() == list_tasks()
    assert len(list_tasks()) == 125


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Episode]:
    """The runs of two tasks and two agents, uninterrupted, by one worker."""
    done: list[tuple[int, int]] = []
    folder = tmp_path_factory.mktemp("whole")
    result = generate(
        folder,
        tasks=TASKS,
        agents=AGENTS,
        attempts=3,
        workers=1,
        progress=lambda n, total: done.append((n, total)),
    )
    assert (result.episodes, result.kept, result.retries, result.failed) == (12, 0, 0, {})
    assert done[-1] == (12, 12)
    assert sorted(result.tables) == ["miniwob_mixed", "miniwob_weak"]
    again = generate(folder, tasks=TASKS, agents=AGENTS, attempts=3)
    assert (again.episodes, again.kept) == (0, 12)
    return {e.trajectory_id: e for e in read_episodes(folder / "episodes.jsonl")}


@pytest.mark.browser
@needs_browser
def test_real_episodes_succeed_and_fail_and_show_nothing_of_the_harness(
    whole: dict[str, Episode],
) -> None:
    assert len(whole) == 12
    assert {e.outcome for e in whole.values()} == {0, 1}
    text = json.dumps([asdict(e) for e in whole.values()]).lower()
    assert not [
        word for word in ("reward", "time left", "episodes done", "last 10") if word in text
    ]
    assert len({e.instruction for e in whole.values() if e.task_id == "enter-password"}) > 3
    assert all(e.steps[-1][0].startswith("claim(") for e in whole.values())


@pytest.mark.browser
@needs_browser
def test_a_killed_generation_resumes_to_the_same_runs(
    whole: dict[str, Episode], tmp_path: Path
) -> None:
    options = [
        f"--{kind}={name}" for kind, names in (("task", TASKS), ("agent", AGENTS)) for name in names
    ]
    shell = [
        sys.executable,
        "-m",
        "certify_assets.cli",
        "research",
        "generate-miniwob",
        "--out",
        str(tmp_path),
        "--attempts=3",
        "--workers=2",
        *options,
    ]
    path = tmp_path / "episodes.jsonl"
    with subprocess.Popen(shell, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    # workers end by themselves when the process that fed them is gone
    wait_until(lambda: not group_lives(process.pid))
    kept = len(read_episodes(path))
    assert 3 <= kept < 12
    with path.open("ab") as stream:
        stream.write(b'{"corpus":"miniwob_weak","task')
    result = generate(tmp_path, tasks=TASKS, agents=AGENTS, attempts=3, workers=2)
    assert (result.kept, result.episodes, result.failed) == (kept, 12 - kept, {})
    assert {e.trajectory_id: e for e in read_episodes(path)} == whole
    assert all(table.exists() for table in result.tables.values())


@pytest.mark.browser
@needs_browser
def test_neither_worker_nor_browser_waits_for_a_model_once_the_command_was_killed(
    tmp_path: Path,
) -> None:
    # it takes what it is asked and answers nothing
    with socket.create_server(("127.0.0.1", 0)) as model:
        left = left_by_a_kill(
            [
                *(sys.executable, "-m", "certify_assets.cli", "research", "generate-miniwob"),
                *(f"--out={tmp_path}", "--attempts=1", "--workers=1", "--agent=model"),
                *("--task=click-test-2", "--corpus=miniwob_weak"),
            ],
            lambda children: any("--type=renderer" in one for one in children),
            settle=5,
            CERTIFY_MODEL_URL=f"http://127.0.0.1:{model.getsockname()[1]}/v1",
            CERTIFY_MODEL_NAME="small-model",
        )
    assert left == []


@pytest.mark.browser
@needs_browser
def test_a_worker_that_dies_is_replaced_and_its_run_repeated(
    whole: dict[str, Episode], tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_once(done: int, total: int) -> None:
        if not killed:
            worker = multiprocessing.active_children()[0]
            worker.kill()
            killed.append(worker.pid or 0)

    result = generate(
        tmp_path, tasks=TASKS[:1], agents=AGENTS, attempts=3, workers=1, progress=kill_once
    )
    assert (result.episodes, result.retries, result.failed) == (6, 1, {})
    assert {e.trajectory_id: e for e in read_episodes(result.path)} == {
        k: e for k, e in whole.items() if e.task_id == TASKS[0]
    }


@pytest.mark.browser
@needs_browser
def test_a_model_runs_through_the_same_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as endpoint:
        monkeypatch.setenv("CERTIFY_MODEL_URL", f"http://127.0.0.1:{endpoint.server_port}/v1")
        monkeypatch.setenv("CERTIFY_MODEL_NAME", "small-model")
        endpoint.replies = ["click 0", 'claim "pressed ONE"']
        result = generate(
            tmp_path,
            tasks=["click-test-2"],
            corpora=["miniwob_weak"],
            agents=["model"],
            attempts=1,
            workers=1,
        )
    assert (result.episodes, result.failed) == (1, {})
    run = read_episodes(result.path)[0]
    assert run.agent == "model:small-model"
    assert run.outcome == 1
    assert run.steps[-1] == ('claim("pressed ONE")', "")
    assert '0. button "ONE"' in endpoint.asked[0][2]["messages"][-1]["content"]


@pytest.mark.browser
@needs_browser
def test_the_drivers_clock_moves_only_by_the_driver() -> None:
    with browser.Browser() as open_browser:
        page = open_browser.open("stock-market", "1")
        prices = [
            [e.text for e in page.look(wait) if e.id == "stock-price"] for wait in (0, 0, 500)
        ]
        assert prices[0] == prices[1] != prices[2]
        assert not page.ended
        assert page.raw_reward() is None


def wait_until(condition: Any, seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
