"""MiniWoB++ demonstrations: one JSON object a run of a person, with the events in the browser and the page after each of them.

Events come twice, when they reach the page and when they leave it; the first of the two is read, the page is that before the next action. The file name
names task, person and number of the run: ``<task>_<assignment>_d<number>.json.gz``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import Adapter, Draft, Files, Reading, contents
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.json_records import HEAD, decode, is_object_with, one_object
from certify_assets.corpora.formats.miniwob_events import steps_of_states

__all__ = ["MINIWOB_DEMOS"]

_MARKS = (
    re.compile(rb'"states"\s*:\s*\[\s*(?:\]|\{\s*"(?:time|action|dom)"\s*:)'),
    re.compile(rb'"(?:utterance|taskName|dom)"\s*:'),
)
_NAME = re.compile(r"(?P<task>.+)_(?P<person>[^_]+)_d\d+")
_TOLERANCE = 1e-6


def _fits(file: SourceFile) -> bool:
    return is_object_with(file.head(HEAD), _MARKS)


def _read(files: Files, reading: Reading) -> Iterator[Draft]:
    for file, data in contents(files, reading):
        if not is_object_with(data[:HEAD], _MARKS):
            reading.tally.other(
                file.name, f"{file.name} is not a JSON object with utterance and states."
            )
            continue
        record = one_object(decode(data))
        problem = record if isinstance(record, str) else _problem(record)
        if problem or isinstance(record, str):
            reading.tally.drop("unreadable_record", f"{file.name} row 1 cannot be used: {problem}.")
        elif not (steps := steps_of_states(record["states"])):
            reading.tally.drop("no_trajectory", f"{file.name} row 1 has no recorded page.")
        else:
            task, person = _task_and_person(file, record)
            yield Draft(
                task_id=task,
                agent=person,
                instruction=record["utterance"],
                steps=steps,
                outcome=_outcome(record.get("rawReward")),
                source_file=file.name,
                source_sha256=reading.sha256(file),
                row=1,
                trajectory_id=_stem(file),
                named_agent=person,
            )


def _problem(record: Mapping[str, Any]) -> str | None:
    if not isinstance(record.get("utterance"), str):
        return "its utterance is not text"
    states = record.get("states")
    if not isinstance(states, list) or not all(isinstance(state, Mapping) for state in states):
        return "its states are not a list of objects"
    return None


def _stem(file: SourceFile) -> str:
    return PurePosixPath(file.plain_name).stem


def _task_and_person(file: SourceFile, record: Mapping[str, Any]) -> tuple[str, str]:
    named, task = _NAME.fullmatch(_stem(file)), record.get("taskName")
    if named:
        return named["task"], named["person"]
    return (
        task
        if isinstance(task, str) and task
        else PurePosixPath(file.name).parent.name or _stem(file)
    ), "person"


def _outcome(reward: Any) -> int | None:
    if isinstance(reward, bool) or not isinstance(reward, int | float) or math.isnan(reward):
        return None
    return int(abs(reward - 1.0) <= _TOLERANCE)


MINIWOB_DEMOS = Adapter(
    name="miniwob_demos",
    title="MiniWoB++ demonstrations of people (one JSON object a run)",
    suffixes=(".json",),
    fits=_fits,
    read=_read,
    label_source="reward of the page without its share for time, success at 1",
    leak_fields=("reward", "rawReward", "fields"),
)
