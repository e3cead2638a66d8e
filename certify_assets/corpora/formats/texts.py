"""Values of records read with care, and steps from what formats share: turns and pages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.schema import Step


def text_of(value: Any) -> str:
    """Return the value where it is text, otherwise ""."""
    return value if isinstance(value, str) else ""


def name_of(value: Any) -> str | None:
    """Return the value where it is text that can name something."""
    return text_of(value) if text_of(value).strip() else None


def is_id(value: Any) -> bool:
    """Whether a value can identify a record: a number or text, not empty."""
    return isinstance(value, int | str) and not isinstance(value, bool) and value != ""


def mapping(value: Any) -> Record:
    """Return the value where it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return the value where it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[Record]:
    """Return the objects of a list."""
    return [item for item in listed(value) if isinstance(item, dict)]


def is_list_of_objects(value: Any) -> bool:
    """Whether a value is a list of nothing but objects."""
    return isinstance(value, list) and len(objects(value)) == len(value)


def inside(value: Any, *path: str) -> Any:
    """Return what is at a path of keys, None where there is nothing."""
    for key in path:
        value = mapping(value).get(key)
    return value


def parsed(value: Any) -> Any:
    """Return what JSON text of an object or list holds, and any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def joined(*texts: str) -> str:
    """Join the texts that are not empty, one a line."""
    return "\n".join(filter(None, texts))


class Conversation:
    """What an agent did and what it saw in return, gathered into steps."""

    def __init__(self) -> None:
        self._turns: list[tuple[str, list[str]]] = []

    def __bool__(self) -> bool:
        return bool(self._turns)

    def act(self, text: str, *seen: str) -> None:
        """Begin a step."""
        self._turns.append((text, [*seen]))

    def see(self, text: str) -> None:
        """Add to the latest step; what precedes the first action is a step without one."""
        if not self._turns:
            self.act("")
        self._turns[-1][1].append(text)

    def steps(self) -> tuple[Step, ...]:
        """Return what was done and seen."""
        return tuple(Step(act, "\n".join(seen)) for act, seen in self._turns)


class Turn(NamedTuple):
    """What the agent saw, and what it then thought and did ("" where it did nothing)."""

    seen: str
    thought: str
    action: str


def steps_of_turns(turns: Iterable[Turn]) -> tuple[Step, ...]:
    """Turn what was seen before every action into steps that show what came of it."""
    actions, pages = [""], []
    for turn in turns:
        pages.append(turn.seen)
        actions.append(joined(turn.thought, turn.action))
    while actions and not actions[-1]:
        actions.pop()
    pages += [""] * (len(actions) - len(pages))
    pairs = zip(actions, pages[: len(actions)], strict=True)
    return tuple(Step(action, page) for action, page in pairs if action or page)


def page_text(url: Any, error: Any, tree: str) -> str:
    """Write down what an agent saw."""
    return joined(
        f"url: {url}" if text_of(url) else "", f"error: {error}" if name_of(error) else "", tree
    )
