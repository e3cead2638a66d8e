"""Terminal-Bench: a submission with runs, one without that level, and one with results alone."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=6,
    tasks=3,
    successes=3,
    dropped={"duplicate": 1, "no_label": 2, "no_trajectory": 1},
)

PROMPT = "root@3f2a:/app# "


def trial(
    name: str, task: str, resolved: Any, canary: str | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "id": f"id-{name}",
        "trial_name": name,
        "task_id": task,
        "instruction": f"Please do {task}.",
        "is_resolved": resolved,
        "failure_mode": canary or "unset",
        "parser_results": {canary or "test_one": canary or "passed"},
        "recording_path": None,
    } | more


def pane(*typed: tuple[str, str]) -> str:
    return (
        "".join(f"{PROMPT}{command}\n{output}\n" for command, output in typed) + PROMPT + "\n" * 8
    )


def put(
    folder: Path, record: dict[str, Any] | None, files: dict[str, str], canary: str | None = None
) -> None:
    """Write a trial, always with what its tests left behind."""
    left = {
        "panes/post-test.txt": "tests ran",
        "sessions/tests.log": "tests ran",
        "commands.txt": "['bash ', '/tests/run-tests.sh', 'Enter']",
    }
    texts = files | {name: f"{text} {canary or ''}" for name, text in left.items()}
    if record is not None:
        texts["results.json"] = json.dumps(record)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")


def cast(*events: str) -> str:
    lines = [
        '{"version": 2, "width": 80, "height": 24}',
        *(json.dumps([0.5 * number, "o", text]) for number, text in enumerate(events)),
    ]
    return "\n".join([*lines, '[9.0, "i", "typed only"]', "broken line"])


def write(root: Path, canary: str | None = None) -> None:
    def run(folder: Path, name: str, resolved: Any, files: dict[str, str], task: str = "") -> None:
        task = task or name.partition(".")[0]
        put(
            folder / task / name,
            trial(name, name.partition(".")[0], resolved, canary),
            files,
            canary,
        )

    screen = "panes/post-agent.txt"
    core = root / "results" / "demo-core@0.1"
    first = core / "20250101_hand_model-x" / "run-1"
    install, sort = ("source /installed-agent/setup.sh", "ok"), ("sort names.txt > out.txt", "")
    panes = {screen: pane(install, sort, ("cat out.txt", "a\nb"))}
    typed = f"\x1b[32m{PROMPT}\x1b[0mtouch kk\bey\r\n{PROMPT}ls\r\n10%\rkey\r\n"
    run(first, "sort.1-of-1.run-1", True, panes)
    run(first, "key.1-of-1.run-1", False, {screen: " \n", "sessions/agent.log": typed})
    run(first, "zip.1-of-1.run-1", True, {})
    # a run that somebody copied into another one, without its panes
    run(first, "sort.1-of-1.run-1", True, {}, task="old")
    run(first, "key.2-of-2.run-1", None, {screen: pane(("make", "compiling"))})

    second = core.with_name("demo-core:0.1") / "20250202_other_model-y"
    recording = cast(PROMPT, "zip -r all", ".zip .\r\n", "adding: a\r\n", PROMPT)
    run(second, "zip.3-of-5", True, {"sessions/agent.cast": recording})
    run(second, "sort.3-of-5", False, panes)

    third = core / "20250303_third_model-z" / "run-9"
    rows = [
        trial(f"{task}.1-of-1.run-9", task, resolved, canary)
        for task, resolved in (("sort", True), ("key", False), ("zip", None))
    ]
    put(third, {"id": "run-9", "results": rows, "accuracy": canary or 0.5}, {})
    for task in ("sort", "key"):
        files = {screen: pane((f"echo {task}", task))}
        put(third / task / f"{task}.1-of-1.run-9", None, files, canary)
