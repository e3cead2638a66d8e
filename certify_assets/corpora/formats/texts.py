"""Steps and texts from what formats share: chat messages, pages of browsers, values of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Reading
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError


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


#: what tools call those who speak
ROLES = {
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "bot": "assistant",
    "gpt": "assistant",
    "human": "user",
    "humanmessage": "user",
    "systemmessage": "system",
    "toolmessage": "tool",
    "function": "tool",
    "functionmessage": "tool",
}


class Message(NamedTuple):
    """One message of a chat as text, with its calls written out."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    tool: str = ""

    @classmethod
    def of(cls, record: Record) -> Message:
        """Read a message in the fields of chat completions, old or new."""
        calls = listed(record.get("tool_calls")) or [record.get("function_call")]
        role = text_of(record.get("role")).strip().lower()
        return cls(
            ROLES.get(role, role),
            message_text(record.get("content")),
            calls_text(calls),
            str(record.get("name") or ""),
        )


def steps_of_messages(messages: Iterable[Message], reading: Reading) -> tuple[Step, ...]:
    """Turn messages into steps: what the assistant did, then what user and tools answered."""
    chat = Conversation()
    for message in messages:
        if message.role == "assistant":
            chat.act("\n".join(filter(None, (message.text, *message.calls))))
        elif message.role in ("user", "tool", "function"):
            speaker = "user" if message.role == "user" else f"tool {message.tool}".strip()
            chat.see(f"{speaker}: {message.text}")
        # system messages hold the same policy in every run
        elif message.role not in ("system", "developer"):
            reading.notes["messages of another role left out"] += 1
    return chat.steps()


def from_first(messages: Sequence[Message], *roles: str) -> Sequence[Message]:
    """Leave out the messages before the first of one of the roles: what the harness asked."""
    found = (number for number, message in enumerate(messages) if message.role in roles)
    return messages[next(found, len(messages)) :]


def first_prompt(messages: Iterable[Message]) -> str:
    """Return what the user said first."""
    return next((message.text for message in messages if message.role == "user"), "")


def message_text(content: Any) -> str:
    """Return the text of a message: a string, or the text parts of a list of parts."""
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in objects(content) if isinstance(part.get("text"), str)
        )
    return text_of(content)


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as text: as they are, or as JSON with sorted keys."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def calls_text(calls: Any) -> tuple[str, ...]:
    """Write out the calls of a message."""
    functions = map(function_of, listed(calls))
    return tuple(
        f"{function['name']}({arguments_text(function['arguments'])})"
        for function in functions
        if function["name"]
    )


def function_of(call: Any) -> Record:
    """Return name and arguments of a call, at whatever level and under whatever key they are."""
    record = mapping(call)
    for level in ("tool_call", "function_call"):
        record = mapping(record.get(level)) or record
    function = record.get("function")
    if isinstance(function, str):
        return {"name": function, "arguments": record.get("arguments")}
    found = mapping(function) or record
    given = (found[key] for key in ("arguments", "args", "input") if key in found)
    return {"name": found.get("name"), "arguments": next(given, None)}


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
        actions.append("\n".join(filter(None, (turn.thought, turn.action))))
    while actions and not actions[-1]:
        actions.pop()
    pages += [""] * (len(actions) - len(pages))
    pairs = zip(actions, pages[: len(actions)], strict=True)
    return tuple(Step(action, page) for action, page in pairs if action or page)


def page_text(url: Any, error: Any, tree: str) -> str:
    """Write down what an agent saw."""
    lines = (
        f"url: {url}" if text_of(url) else "",
        f"error: {error}" if text_of(error).strip() else "",
        tree,
    )
    return "\n".join(filter(None, lines))


def switch(options: Mapping[str, Any], name: str) -> bool:
    """Return an option that is true or false, false where it is not given."""
    value = str(options.get(name, False)).lower()
    if value not in ("true", "false"):
        raise InputError(f"the option {name} is {options[name]!r}; give true or false.")
    return value == "true"
