"""MiniWoB++ demonstrations: one JSON object a run, with browser events and pages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    contents,
    corpus_format,
    excerpt,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import HEAD, decode, is_object_with, one_object
from certify_assets.corpora.formats.texts import mapping
from certify_assets.corpora.schema import Step

_MARKS = (
    re.compile(rb'"states"\s*:\s*\[\s*(?:\]|\{\s*"(?:time|action|dom)"\s*:)'),
    re.compile(rb'"(?:utterance|taskName|dom)"\s*:'),
)
_NAME = re.compile(r"(?P<task>.+)_(?P<person>[^_]+)_d\d+")
_TOLERANCE = 1e-6
_PAGE = 1_200
_DRAG = 5.0
_BUBBLING = 3
_KEYS = {
    8: "Backspace",
    9: "Tab",
    13: "Enter",
    27: "Escape",
    37: "Left",
    38: "Up",
    39: "Right",
    40: "Down",
    46: "Delete",
}
_PRINTED = range(32, 0x110000)


def _fits(file: SourceFile) -> bool:
    return is_object_with(file.head(HEAD), _MARKS)


@corpus_format(
    title="MiniWoB++ demonstrations by humans (one JSON object a run)",
    suffixes=(".json",),
    domain="web",
    fits=_fits,
    label_source="reward of the page without its share for time, success at 1",
    leak_fields=("reward", "rawReward", "fields"),
)
def miniwob_demos(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read one demonstration a file."""
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


def steps_of_states(states: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Turn the states of a demonstration into steps; none where no page was recorded."""
    opened: Any = {}
    steps: list[tuple[str, Any]] = []
    latest: Any = {}
    for action, before, keys in _actions(states):
        if not steps:
            opened = before
        else:
            steps[-1] = (steps[-1][0], before)
        if keys and steps and steps[-1][0].startswith("type "):
            steps[-1] = (steps[-1][0] + action, before)
        elif action:
            steps.append((f"type {action}" if keys else action, before))
        latest = before
    if not steps:
        # doing nothing is a failure before a page; without a page nothing was recorded
        return tuple(step for step in _described([("", latest)]) if step.observation)
    # what the last event leaves is the page at the end
    steps[-1] = (steps[-1][0], latest)
    return tuple(_described([("", opened), *steps]))


def _described(steps: list[tuple[str, Any]]) -> Iterator[Step]:
    shown = None
    for action, page in steps:
        text = page_text(page)
        yield Step(excerpt(action), "the page did not change" if text == shown else text)
        shown = text


def _actions(states: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any, bool]]:
    """Go through the actions, each with the page before it and whether it is a key."""
    page: Any = {}
    pressed = ""
    origin: Mapping[str, Any] = {}
    for state in states:
        event = mapping(state.get("action"))
        page = page or mapping(state.get("dom"))
        kind = event.get("type") if event.get("timing") != _BUBBLING else None
        if kind == "mousedown":
            if pressed:
                yield pressed, page, False
            pressed, origin = f"press {_target(page, event)}", event
        elif kind is not None:
            done = _done(str(kind), page, origin, event)
            # a page may be left, or the run end, between press and click
            pressed = "" if done.startswith(("click", "drag")) else pressed
            key = "" if done else _key(event)
            if done or key:
                yield done or key, page, bool(key)
        page = mapping(state.get("dom")) or page
    if pressed:
        yield pressed, page, False
    yield "", page, False


def _done(kind: str, page: Any, origin: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    """What the pointer did, if this event says it."""
    if kind == "mouseup":
        return (
            f"drag {_target(page, origin)} to {_target(page, event)}"
            if _distance(origin, event) > _DRAG
            else ""
        )
    if kind in ("click", "dblclick"):
        return f"{'click' if kind == 'click' else 'double-click'} {_target(page, event)}"
    return "scroll" if kind == "scroll" else ""


def _key(event: Mapping[str, Any]) -> str:
    """The character of a key that was pressed, or the name of one that has none."""
    if event.get("type") == "keypress":
        code = event.get("charCode")
        return chr(code) if isinstance(code, int) and code in _PRINTED else ""
    code = event.get("keyCode")
    return (
        f"[{_KEYS[code]}]"
        if event.get("type") == "keydown" and isinstance(code, int) and code in _KEYS
        else ""
    )


def page_text(page: Any) -> str:
    """The texts and values of a page, in its order."""
    parts = [part for node in _nodes(page) if (part := _shown(node))]
    return excerpt("\n".join(parts), _PAGE)


def _shown(node: Mapping[str, Any]) -> str:
    tag, text, value = str(node.get("tag") or ""), node.get("text"), node.get("value")
    words = text.strip() if isinstance(text, str) else ""
    filled = "" if value is None or value == "" else f"= {value}"
    kind = (
        tag.lower()
        if tag.startswith(("INPUT", "BUTTON", "A", "TEXTAREA", "SELECT")) and tag != "ARTICLE"
        else ""
    )
    return " ".join(filter(None, (kind, words, filled)))


def _target(page: Any, event: Mapping[str, Any]) -> str:
    """The innermost element with content at the place of an event, and the place."""
    x, y = event.get("x"), event.get("y")
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        return "somewhere"
    hit = [node for node in _nodes(page) if _covers(node, x, y)]
    named = [shown for node in hit if (shown := _shown(node))]
    if named:
        return f"{named[-1]!r} at ({x:g}, {y:g})"
    return f"{str(hit[-1].get('tag') or 'page').lower() if hit else 'page'} at ({x:g}, {y:g})"


def _covers(node: Mapping[str, Any], x: float, y: float) -> bool:
    box = [node.get(key) for key in ("left", "top", "width", "height")]
    if not all(isinstance(value, int | float) for value in box):
        return False
    left, top, width, height = (float(value) for value in box if value is not None)
    return left <= x <= left + width and top <= y <= top + height


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    places = [event.get(key) for key in ("x", "y") for event in (one, other)]
    if not all(isinstance(value, int | float) for value in places):
        return 0.0
    from_x, to_x, from_y, to_y = (float(value) for value in places if value is not None)
    return max(abs(from_x - to_x), abs(from_y - to_y))


def _nodes(page: Any) -> Iterator[Mapping[str, Any]]:
    """Go through the elements in the order of the page."""
    waiting = [page]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
            children = node.get("children")
            waiting.extend(reversed(children) if isinstance(children, list) else ())
