"""Convert AutoCodeRover results, and the SWE-agent runs published with them, to a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from converting import Row, Steps, convert

from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.swe_reports import issue_text

_CONVERSATION = re.compile(r"conversation_round_(\d+)\.json")
_PATCH = re.compile(r"agent_patch_raw_(\d+)")


def rows(files: FileSet) -> Iterator[Row]:
    """Go through the last conversation of every run of AutoCodeRover, then the SWE-agent runs.

    Buckets, meta.json and developer_patch.diff hold the solution or tell the outcome: no column
    is made of them.
    """
    talks: dict[PurePosixPath, tuple[int, list[Row]]] = {}
    patches: dict[PurePosixPath, dict[int, str]] = {}
    trajectories: dict[PurePosixPath, Row] = {}
    resolved: dict[str, list[str]] = {}
    model = ""
    for file in files:
        path = PurePosixPath(file.name)
        folder = path.parent
        if match := _CONVERSATION.fullmatch(path.name):
            talk = int(match[1]), json.loads(file.read())
            talks[folder] = max(talks.get(folder, talk), talk, key=lambda known: known[0])
        elif match := _PATCH.fullmatch(path.name):
            patches.setdefault(folder, {})[int(match[1])] = file.read().decode()
        elif path.suffix == ".traj":
            trajectories[path] = json.loads(file.read())
        elif path.name == "all_preds.jsonl":
            model = json.loads(file.read().partition(b"\n")[0])["model_name_or_path"]
        elif path.parts[-2:] == ("new_eval_results", "report.json"):
            resolved[folder.parent.name] = json.loads(file.read())["resolved"]
        elif path.name == "final_report.json":
            resolved[folder.name] = json.loads(file.read())["resolved"]
    for folder, (_, messages) in talks.items():
        run, task = folder.parents[1].name, folder.name.rsplit("_", 2)[0]
        steps = _conversation(messages)
        for _, patch in sorted(patches.get(folder, {}).items()):
            if patch.strip():
                steps.act(patch)
        # folders that end in run and a number are attempts of one agent
        agent = re.sub(r"-run-\d+$", "", run)
        yield _row(task, agent, messages, steps, resolved[run])
    for path, record in trajectories.items():
        steps = Steps()
        for step in record["trajectory"]:
            said = filter(None, (step[name].strip() for name in ("thought", "action")))
            steps.act("\n".join(said) or step["response"])
            steps.see(step["observation"] or "")
        asked = [
            item for item in record["history"] if "--- DEMONSTRATION ---" not in item["content"]
        ]
        yield _row(path.stem, model, asked, steps, resolved[path.parent.name])


def _row(task: str, agent: str, asked: list[Row], steps: Steps, resolved: list[str]) -> Row:
    first = next(message["content"] for message in asked if message["role"] == "user")
    return {
        "task_id": task,
        "agent": agent,
        "instruction": issue_text(first),
        "steps": steps.pairs,
        "outcome": int(task in resolved),
    }


def _conversation(messages: list[Row]) -> Steps:
    """Read a conversation from the agent's first word on."""
    steps = Steps()
    for message in messages:
        if message["role"] == "assistant":
            steps.act(message["content"])
        elif message["role"] == "user" and steps.pairs:
            steps.see(f"user: {message['content']}")
    return steps


if __name__ == "__main__":
    convert(rows, (".json", ".traj", ".jsonl", ""), __doc__)
