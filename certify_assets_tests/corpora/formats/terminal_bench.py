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
    core = root / "results" / "demo-core@0.1"
    first = core / "20250101_hand_model-x" / "run-1"
    panes = {
        "panes/post-agent.txt": pane(
            ("source /installed-agent/setup.sh", "ok"),
            ("sort names.txt > out.txt", ""),
            ("cat out.txt", "a\nb"),
        )
    }
    put(
        first / "sort" / "sort.1-of-1.run-1",
        trial("sort.1-of-1.run-1", "sort", True, canary),
        panes,
        canary,
    )
    log = {
        "panes/post-agent.txt": " \n",
        "sessions/agent.log": f"\x1b[32m{PROMPT}\x1b[0mtouch kk\bey\r\n{PROMPT}ls\r\n10%\rkey\r\n",
    }
    put(
        first / "key" / "key.1-of-1.run-1",
        trial("key.1-of-1.run-1", "key", False, canary),
        log,
        canary,
    )
    put(
        first / "zip" / "zip.1-of-1.run-1",
        trial("zip.1-of-1.run-1", "zip", True, canary),
        {},
        canary,
    )
    # a run that somebody copied into another one, without its panes
    put(
        first / "old" / "sort.1-of-1.run-1",
        trial("sort.1-of-1.run-1", "sort", True, canary),
        {},
        canary,
    )
    unlabelled = {"panes/post-agent.txt": pane(("make", "compiling"))}
    put(
        first / "key" / "key.2-of-2.run-1",
        trial("key.2-of-2.run-1", "key", None, canary),
        unlabelled,
        canary,
    )

    second = core.with_name("demo-core:0.1") / "20250202_other_model-y"
    recording = {
        "sessions/agent.cast": cast(PROMPT, "zip -r all", ".zip .\r\n", "adding: a\r\n", PROMPT)
    }
    put(second / "zip" / "zip.3-of-5", trial("zip.3-of-5", "zip", True, canary), recording, canary)
    put(second / "sort" / "sort.3-of-5", trial("sort.3-of-5", "sort", False, canary), panes, canary)

    third = core / "20250303_third_model-z" / "run-9"
    names = [
        ("sort.1-of-1.run-9", "sort", True),
        ("key.1-of-1.run-9", "key", False),
        ("zip.1-of-1.run-9", "zip", None),
    ]
    put(
        third,
        {
            "id": "run-9",
            "results": [trial(*row, canary) for row in names],
            "accuracy": canary or 0.5,
        },
        {},
    )
    for name, task, _ in names[:2]:
        put(
            third / task / name,
            None,
            {"panes/post-agent.txt": pane((f"echo {task}", task))},
            canary,
        )
