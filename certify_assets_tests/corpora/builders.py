"""Small corpora for the tests of this folder."""

import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from certify_assets.corpora.formats import ImportedCorpus, import_corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.trajectory import Step, Trajectory

WORDS = ("click", "open", "type", "scroll", "search", "wait", "select", "read", "close", "press")


def reader(format: str = "auto", **defaults: Any) -> Callable[..., ImportedCorpus]:
    """Return the import of a format, as a function of paths and options."""

    def read(path: Path | list[Path], **options: Any) -> ImportedCorpus:
        return import_corpus(path, format=format, name="c", options=defaults | options)

    return read


def trajectory(number: int = 0, **changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "corpus": "small",
        "task_id": f"task{number % 5}",
        "trajectory_id": f"run{number}",
        "agent": f"agent{number % 2}",
        "attempt": number // 10,
        "instruction": f"do thing {number % 5}",
        "steps": (Step(f"click {number}", "a page"), Step("done", "")),
        "outcome": number % 3 % 2,
    }
    return Trajectory(**(values | changes))


def from_frame(frame: pd.DataFrame) -> list[Trajectory]:
    """Turn a table of trajectories into objects, in the order of its rows."""
    return [
        Trajectory(
            **{
                **row,
                "steps": tuple(Step(**step) for step in row["steps"]),
                "outcome": None if pd.isna(row["outcome"]) else int(row["outcome"]),
            }
        )
        for row in frame.to_dict("records")
    ]


def corpus(tasks: int = 40, attempts: int = 6, seed: int = 0, name: str = "made") -> pd.DataFrame:
    """A corpus whose outcomes depend on the task and leave words in the steps."""
    generator = np.random.default_rng(seed)
    rows: list[Trajectory] = []
    for task in range(tasks):
        ease = generator.beta(1.0, 1.0)
        for attempt in range(attempts):
            outcome = int(generator.random() < ease)
            words = generator.choice(WORDS, size=6).tolist() + (
                ["granted"] if outcome and generator.random() < 0.8 else ["refused"]
            )
            rows.append(
                Trajectory(
                    corpus=name,
                    task_id=f"t{task:03d}",
                    trajectory_id=f"t{task:03d}-{attempt}",
                    agent=f"agent{attempt % 3}",
                    attempt=attempt // 3,
                    instruction=f"solve puzzle {task}",
                    steps=tuple(
                        Step(word, f"page {int(generator.integers(100))}") for word in words
                    ),
                    outcome=outcome,
                )
            )
    return to_frame(rows)


def tau_record(
    task: Any = 0, reward: Any = 1.0, trial: int = 0, text: str = "All set.", **changes: Any
) -> dict[str, Any]:
    """A τ-bench v1 record, written by hand."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_order_details", "arguments": '{"order_id": "#A1"}'},
    }
    record: dict[str, Any] = {
        "task_id": task,
        "reward": reward,
        "info": {
            "task": {
                "user_id": "u",
                "instruction": f"Return order {task}.",
                "actions": [{"name": "gold_action", "kwargs": {}}],
                "outputs": ["gold"],
            },
            "reward_info": {"reward": reward, "info": {"r_actions": reward}},
        },
        "traj": [
            {"role": "system", "content": "# Retail agent policy"},
            {"role": "user", "content": "I want to return my order."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "name": "get_order_details",
                "tool_call_id": "c1",
                "content": '{"status": "delivered"}',
            },
            {"role": "assistant", "content": text},
            {"role": "user", "content": "###STOP###"},
        ],
        "trial": trial,
    }
    return record | changes


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
    return path


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def write_tar(
    path: Path, members: dict[str, bytes], *, links: dict[str, str] | None = None
) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path
