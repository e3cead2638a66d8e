"""MiniWoB++ demonstrations: one JSON object a run, with browser events and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    begins_with,
    corpus_format,
    excerpt,
    json_objects,
    usable,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import one_object
from certify_assets.corpora.formats.texts import (
    full_reward,
    is_list_of_objects,
    listed,
    mapping,
    text_of,
)
from certify_assets.corpora.schema import Step

_MARKS = (
    re.compile(rb'"states"\s*:\s*\[\s*(?:\]|\{\s*"(?:time|action|dom)"\s*:)'),
    re.compile(rb'"(?:utterance|taskName|dom)"\s*:'),
)
# <task>_<assignment>_d<number>.json.gz; the assignment stands for its worker
_NAME = re.compile(r"(?P<task>.+)_(?P<person>[^_]+)_d\d+")
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


@corpus_format(
    title="MiniWoB++ demonstrations by humans (one JSON object a run)",
    suffixes=(".json",),
    domain="web",
    fits=begins_with(*_MARKS),
    label_source="reward of the page without its share for time, success at 1",
    leak_fields=("reward", "rawReward", "fields"),
)
def miniwob_demos(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read one demonstration a file."""
    for file, text in json_objects(files, _MARKS, "with utterance and states", reading):
        record = usable(one_object(text), f"{file.name} row 1", reading, _problem)
        if record is None:
            continue
        if not (steps := steps_of_states(record["states"])):
            reading.drop("no_trajectory", f"{file.name} row 1 has no recorded page.")
        else:
            task, person = _task_and_person(file, record)
            yield Draft(
                task_id=task,
                agent=person,
                instruction=record["utterance"],
                steps=steps,
                outcome=full_reward(record.get("rawReward")),
                origin=reading.origin(file),
                trajectory_id=_stem(file),
                named_agent=person,
            )


def _problem(record: Mapping[str, Any]) -> str | None:
    if not isinstance(record.get("utterance"), str):
        return "its utterance is not text"
    if not is_list_of_objects(record.get("states")):
        return "its states are not a list of objects"
    return None


def _stem(file: SourceFile) -> str:
    return PurePosixPath(file.plain_name).stem


def _task_and_person(file: SourceFile, record: Mapping[str, Any]) -> tuple[str, str]:
    if named := _NAME.fullmatch(_stem(file)):
        return named["task"], named["person"]
    task = text_of(record.get("taskName")) or PurePosixPath(file.name).parent.name
    return task or _stem(file), "person"


def steps_of_states(states: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Turn the states of a demonstration into steps; none where no page was recorded."""
    # The first step has no action and shows the page as it was; keys that follow each other are one
    # action, and a page that did not change is said to be so.
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
    page: Any = {}
    pressed = ""
    origin: Mapping[str, Any] = {}
    for state in states:
        event = mapping(state.get("action"))
        page = page or mapping(state.get("dom"))
        # events come twice, when they reach the page and when they leave it: the first is read
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
    words = text_of(text).strip()
    filled = "" if value is None or value == "" else f"= {value}"
    is_control = tag.startswith(("INPUT", "BUTTON", "A", "TEXTAREA", "SELECT")) and tag != "ARTICLE"
    return " ".join(filter(None, (tag.lower() if is_control else "", words, filled)))


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
    waiting = [page]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
            waiting.extend(reversed(listed(node.get("children"))))
