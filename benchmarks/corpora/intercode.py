"""Convert InterCode results (JSON objects of episodes) to a table of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import PurePosixPath

from converting import Row, convert

from certify_assets.corpora.formats.files import FileSet


def rows(files: FileSet) -> Iterator[Row]:
    """Go through the episodes of every file; some files keep them under `logs`."""
    for file in files:
        document = json.loads(file.read())
        for episode in document.get("logs", document).values():
            yield row(episode, PurePosixPath(file.name))


def row(episode: Row, path: PurePosixPath) -> Row:
    """Read an episode without its rewards; that it ends at a reward of 1 stays in its length."""
    history = episode["turn_history"]
    count = len(history["actions"])
    turns = zip_longest(
        history["actions"], history["observations"][:count], history.get("thoughts", [])[:count]
    )
    steps = [
        ["\n".join(filter(None, (thought, action))), seen or ""] for action, seen, thought in turns
    ]
    if plan := "\n".join(filter(None, history.get("steps", []))):
        steps.insert(0, [f"plan: {plan}", ""])
    # task ids count from 0 in every data file
    data = PurePosixPath(episode["dataset"]).name.split(".")[0]
    return {
        "task_id": f"{data}/{episode['task_id']}",
        "agent": agent(path, episode["environment"].removeprefix("ic_")),
        "instruction": episode["query"],
        "steps": steps,
        "outcome": int(abs(episode["summary"]["max_reward"] - 1) <= 1e-6),
    }


def agent(path: PurePosixPath, environment: str) -> str:
    """Name model and strategy: results/<environment>/<model>/ic_<environment>_<strategy>….json."""
    strategy = re.sub(r"_fs_\d+$", "", path.name.split(".json")[0])
    strategy = strategy.removeprefix(f"ic_{environment}_")
    model = path.parent.name
    return strategy if model in strategy else f"{model}_{strategy}"


if __name__ == "__main__":
    convert(rows, (".json",), __doc__)
