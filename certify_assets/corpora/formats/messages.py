"""Chat messages in every shape in which harnesses and tracing tools record them, and their steps.

`messages_of` reads chat completions, the OpenTelemetry GenAI conventions (`parts`), Anthropic
(content blocks), Gemini, LangChain (also serialised) and OpenInference (`message`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from certify_assets.corpora.formats.files import Tally
from certify_assets.corpora.formats.records import (
    Record,
    inside,
    is_list_of_objects,
    listed,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.corpora.schema import Step

_CALLS = ("tool_call", "tool_use", "function_call")
_RESULTS = ("tool_call_response", "tool_result", "function_response")
_BLOCKS = ("parts", "contents", "content")
_TEXTS = ("text", "content", "thinking", "reasoning", "summary")
_LISTS = ("messages", "choices", "generations", "input")
# what tools call those who speak
_ROLES = {
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
_DEEPEST = 6


class Message(NamedTuple):
    """One message of a chat as text, with its calls written out."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    tool: str = ""


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


def turn_on_page(url: Any, error: Any, tree: str, *done: str) -> tuple[str, str]:
    """Return what an agent saw, and what it then thought and did, for `steps_of_turns`."""
    place = f"url: {url}" if text_of(url) else ""
    failed = f"error: {error}" if text_of(error).strip() else ""
    return joined(place, failed, tree), joined(*done)


def steps_of_turns(turns: Iterable[tuple[str, str]]) -> tuple[Step, ...]:
    """Turn pages, each with what was done on it, into steps that show what came of it."""
    pages, actions = [], [""]
    for page, action in turns:
        pages.append(page)
        actions.append(action)
    while actions and not actions[-1]:
        actions.pop()
    pairs = zip(actions, [*pages, ""], strict=False)
    return tuple(Step(action, page) for action, page in pairs if action or page)


def steps_of_messages(messages: Iterable[Message], tally: Tally) -> tuple[Step, ...]:
    """Turn messages into steps: what the assistant did, then what user and tools answered."""
    chat = Conversation()
    for message in messages:
        said = joined(message.text, *message.calls)
        if message.role == "assistant":
            chat.act(said)
        elif message.role in ("user", "tool"):
            chat.see(f"{f'{message.role} {message.tool}'.strip()}: {said}")
        # system messages hold the same policy in every run
        elif message.role not in ("system", "developer"):
            tally.notes["messages of another role left out"] += 1
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


def value_text(value: Any) -> str:
    """Return any value as text: text as it is, the only text of an object, else JSON."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.values()
        return only if isinstance(only, str) else arguments_text(value)
    return arguments_text(value)


def calls_text(calls: Any) -> tuple[str, ...]:
    """Write out the calls of a message."""
    found = (_function(mapping(call)) for call in listed(calls))
    return tuple(f"{name}({arguments_text(arguments)})" for name, arguments in found if name)


def _function(call: Record) -> tuple[Any, Any]:
    """Return name and arguments of a call, at whatever level and under whatever key they are."""
    for level in ("tool_call", "function_call"):
        call = mapping(call.get(level)) or call
    function = call.get("function")
    if isinstance(function, str):
        return function, call.get("arguments")
    found = mapping(function) or call
    given = (found[key] for key in ("arguments", "args", "input") if key in found)
    return found.get("name"), next(given, None)


def messages_of(
    value: Any, role: str = "user", *, tools_by_call: bool = True
) -> tuple[Message, ...]:
    """Read messages, in whatever shape they are recorded.

    Parameters
    ----------
    value : JSON value
        A list of messages, an object that holds one (`messages`, `choices`), one message, the JSON
        text of any of these, or plain text.
    role : str
        Who speaks where the value does not say it.
    tools_by_call : bool
        Whether an answer of a tool that names none gets the name that its call has.

    Returns
    -------
    tuple of Message
        In their order. The result of a tool inside another message is a message of its own, with
        the name of the tool where the list holds the call.
    """
    return tuple(_Reader(role, tools_by_call).read(value, 0))


class _Reader:
    def __init__(self, role: str, tools_by_call: bool) -> None:
        self._role, self._tools_by_call = role, tools_by_call
        # results name the call that they answer, and only the call names its tool
        self._tools: dict[str, str] = {}

    def read(self, value: Any, depth: int) -> Iterator[Message]:
        if isinstance(value, str):
            found = parsed(value)
            # JSON that holds no message is the text of a message as it is; an input is an
            # object, and its only text is what was asked
            asked = self._role == "user" and isinstance(found, dict) and len(found) == 1
            value = found if asked or _speaks(found) else value
        if value in (None, "", [], {}) or depth > _DEEPEST:
            return
        if isinstance(value, list) and (depth or _speaks(value)):
            for item in value:
                yield from self.read(item, depth + 1)
        elif isinstance(value, dict) and (wrapped := _wrapped(value)):
            yield from self.read(wrapped, depth + 1)
        elif isinstance(value, dict) and _is_message(value):
            yield from self._message(value)
        else:
            yield Message(self._role, value_text(value))

    def _message(self, record: Record) -> Iterator[Message]:
        said = text_of(record.get("role") or record.get("type") or self._role).strip().lower()
        role = _ROLES.get(said, said)
        blocks: list[Any] = next(filter(None, (listed(record.get(key)) for key in _BLOCKS)), [])
        calls = [*listed(record.get("tool_calls")), record.get("function_call")]
        calls += (part for part in objects(blocks) if _kind(part) in _CALLS)
        for call in map(mapping, calls):
            identity = inside(call, "tool_call", "id") or call.get("id")
            if identity and self._tools_by_call:
                self._tools[str(identity)] = str(_function(call)[0] or "")
        text = _joined(blocks) if blocks else value_text(record.get("content", record.get("text")))
        results = [part for part in objects(blocks) if _kind(part) in _RESULTS]
        written = calls_text(calls)
        if text or written or not results:
            tool = str(record.get("name") or self._named(record)) if role == "tool" else ""
            yield Message(role, text, written, tool)
        for part in results:
            result = mapping(part.get(_kind(part))) or part
            answers = (result[key] for key in ("response", "result", "content") if key in result)
            answer = next(answers, None)
            text = message_text(answer) or value_text(answer)
            yield Message("tool", text, (), str(result.get("name") or self._named(part)))

    def _named(self, record: Record) -> str:
        keys = ("tool_call_id", "tool_use_id", "id")
        return next((self._tools.get(str(record[key]), "") for key in keys if record.get(key)), "")


def _wrapped(value: Record) -> Any:
    """Return what an object wraps: one message, or a list of them."""
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        kind = text_of((listed(value.get("id")) or [""])[-1])
        return {"type": kind, **value["kwargs"]}
    if isinstance(value.get("message"), dict):
        return value["message"]
    if "role" in value or "content" in value:
        return None
    for key in _LISTS:
        found = _conversation(parsed(value.get(key)))
        if is_list_of_objects(found) and any(map(_speaks, found)):
            return found
    return None


def _conversation(value: Any) -> Any:
    """Return a list of messages; LangChain records it as the only one of a list."""
    several = isinstance(value, list) and len(value) == 1 and isinstance(value[0], list)
    return value[0] if several else value


def _speaks(value: Any) -> bool:
    """Whether a value holds messages, as opposed to other data."""
    if isinstance(value, list):
        return any(map(_speaks, objects(_conversation(value))))
    return isinstance(value, dict) and (_is_message(value) or _wrapped(value) is not None)


def _is_message(value: Record) -> bool:
    has_text = not value.keys().isdisjoint(("content", "contents", "parts", "tool_calls"))
    return isinstance(value.get("role"), str) or (has_text and isinstance(value.get("type"), str))


def _kind(part: Record) -> str:
    """Return the type of a part; Gemini names the type by a key."""
    said = part.get("type")
    if isinstance(said, str):
        return said
    return next((key for key in (*_CALLS, *_RESULTS) if key in part), "")


def _joined(parts: list[Any]) -> str:
    """Return the text of parts; pictures and what is sealed have none."""
    texts = []
    for part in parts:
        record = mapping(inside(part, "message_content")) or mapping(part)
        if isinstance(part, str):
            texts.append(part)
        elif _kind(record) not in (*_CALLS, *_RESULTS):
            texts.append(next((record[key] for key in _TEXTS if text_of(record.get(key))), ""))
    return joined(*texts)
