"""InterCode results: a JSON object of episodes, or one with ``meta`` and ``logs``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Origin,
    Reading,
    begins_with,
    corpus_format,
    excerpt,
    json_objects,
    usable,
)
from certify_assets.corpora.formats.records import iter_dict
from certify_assets.corpora.formats.texts import full_reward, is_id, mapping, text_of
from certify_assets.corpora.schema import Step

_REQUIRED = frozenset({"task_id", "query", "turn_history"})
_MARKS = (re.compile(rb'"turn_history"\s*:\s*\{'), re.compile(rb'"query"\s*:'))
_LOGS = re.compile(r'\s*\{\s*(?:"meta"\s*:\s*\{[^{}]*\}\s*,\s*)?"logs"\s*:\s*\{')
_DATA_FILE = re.compile(r"_fs_\d+$")


@corpus_format(
    title="InterCode results (JSON object of episodes)",
    suffixes=(".json",),
    domain="shell",
    fits=begins_with(*_MARKS),
    label_source="highest reward of the environment in the episode, success at 1",
    leak_fields=("turn_history.rewards", "turn_history.valid_action", "summary", "info"),
)
def intercode(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read the episodes of every result file."""
    # An episode ends when its reward reaches 1. That is in its length and cannot be hidden here;
    # the leak checks of the corpus measure it.
    what = "of episodes with query and turn_history"
    for file, text in json_objects(files, _MARKS, what, reading):
        reading.sha256(file)
        under = "logs" if _LOGS.match(text) else ""
        for row, _, found in iter_dict(text, _REQUIRED, under):
            where = f"{file.name} row {row}"
            record = usable(found, where, reading, _problem)
            if record and not record["turn_history"].get("actions"):
                reading.drop("no_trajectory", f"{where} has no action.")
            elif record:
                yield _draft(record, reading.origin(file, row))


def _draft(record: Mapping[str, Any], origin: Origin) -> Draft:
    agent = _agent(origin.file, str(record.get("environment") or ""))
    return Draft(
        task_id=_task(record),
        agent=agent,
        instruction=record["query"],
        steps=_steps(record["turn_history"]),
        outcome=full_reward(mapping(record.get("summary")).get("max_reward")),
        origin=origin,
        # two models that give the same one command are two runs
        named_agent=agent,
    )


def _problem(record: Mapping[str, Any]) -> str | None:
    if missing := sorted(_REQUIRED - record.keys()):
        return f"it lacks {', '.join(missing)}"
    task, history = record["task_id"], record["turn_history"]
    if not is_id(task):
        return f"its task_id is {task!r}"
    if not isinstance(record["query"], str) or not isinstance(history, Mapping):
        return "its query is not text or its turn_history is not an object"
    for name in ("actions", "observations", "thoughts", "steps"):
        if not isinstance(history.get(name, []), list) or not all(
            isinstance(item, str | None) for item in history.get(name, [])
        ):
            return f"its {name} are not a list of texts"
    return None


def _task(record: Mapping[str, Any]) -> str:
    # task ids count from 0 in every data file
    stem = text_of(record.get("dataset")).rsplit("/", 1)[-1].split(".", 1)[0]
    return f"{stem}/{record['task_id']}" if stem else str(record["task_id"])


def _steps(history: Mapping[str, Any]) -> tuple[Step, ...]:
    actions, thoughts, plan = (
        history["actions"],
        history.get("thoughts", []),
        history.get("steps", []),
    )
    observations = history.get("observations", [])[: len(actions)]
    steps = [
        Step(excerpt("\n".join(filter(None, (thought, action)))), excerpt(observation or ""))
        for action, observation, thought in zip_longest(
            actions, observations, thoughts[: len(actions)]
        )
    ]
    planned = "\n".join(filter(None, plan))
    return (*([Step(excerpt(f"plan: {planned}"), "")] if planned else []), *steps)


@lru_cache(maxsize=16)
def _agent(name: str, environment: str) -> str:
    """Name model and strategy: results/<environment>/<model>/ic_<environment>_<strategy>….json."""
    path, short = PurePosixPath(name), environment.removeprefix("ic_")
    strategy = _DATA_FILE.sub("", path.name.split(".json")[0])
    strategy = strategy.removeprefix(f"ic_{short}_") or strategy
    model = path.parent.name
    if path.parent.parent.name != short or not short or model in strategy:
        return strategy
    return f"{model}_{strategy}"
