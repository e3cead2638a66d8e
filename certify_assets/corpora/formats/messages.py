"""Chat messages in the shapes that harnesses and tracing tools record, and their steps.

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
    listed,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.corpora.trajectory import Step

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
# items of OpenAI's Responses API that have no role
_ITEMS = ("function_call", "function_call_output", "reasoning")
_DEEPEST = 6


class Message(NamedTuple):
    """One message of a chat as text, with its calls written out."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    tool: str = ""


def joined(*texts: str) -> str:
    """Join the texts that are not empty, one on each line."""
    return "\n".join(filter(None, texts))


class Conversation:
    """Actions of an agent and their observations, gathered into steps."""

    def __init__(self) -> None:
        self._turns: list[tuple[str, list[str]]] = []

    def __bool__(self) -> bool:
        return bool(self._turns)

    def act(self, text: str, *seen: str) -> None:
        """Begin a step."""
        self._turns.append((text, [*seen]))

    def see(self, text: str) -> None:
        """Add an observation to the latest step; before the first action, to a step without one."""
        if not self._turns:
            self.act("")
        self._turns[-1][1].append(text)

    def steps(self) -> tuple[Step, ...]:
        """Return the actions and observations."""
        return tuple(Step(act, "\n".join(seen)) for act, seen in self._turns)


def turn_on_page(url: Any, error: Any, tree: str, *done: str) -> tuple[str, str]:
    """Return an observation, and the thought and action after it, for `steps_of_turns`."""
    place = f"url: {url}" if text_of(url) else ""
    failed = f"error: {error}" if text_of(error).strip() else ""
    return joined(place, failed, tree), joined(*done)


def steps_of_turns(turns: Iterable[tuple[str, str]]) -> tuple[Step, ...]:
    """Turn pages, each with the action on it, into steps with the action's result."""
    pages, actions = [], [""]
    for page, action in turns:
        pages.append(page)
        actions.append(action)
    while actions and not actions[-1]:
        actions.pop()
    pairs = zip(actions, [*pages, ""], strict=False)
    return tuple(Step(action, page) for action, page in pairs if action or page)


def steps_of_messages(messages: Iterable[Message], tally: Tally) -> tuple[Step, ...]:
    """Turn messages into steps: actions of the assistant, then answers of user and tools."""
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
    """Leave out the messages before the first one of the roles, which the harness wrote."""
    found = (number for number, message in enumerate(messages) if message.role in roles)
    return messages[next(found, len(messages)) :]


def first_prompt(messages: Iterable[Message]) -> str:
    """Return the first text of the user."""
    return next((message.text for message in messages if message.role == "user"), "")


def message_text(content: Any) -> str:
    """Return the text of a message: a string, or the text parts of a list of parts."""
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in objects(content) if isinstance(part.get("text"), str)
        )
    return text_of(content)


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as text: unchanged, or as JSON with sorted keys."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def value_text(value: Any) -> str:
    """Return any value as text: text unchanged, the only text of an object, or else JSON."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.values()
        return only if isinstance(only, str) else arguments_text(value)
    return arguments_text(value)


def calls_text(calls: Any) -> tuple[str, ...]:
    """Write out the calls of a message."""
    found = (_function(mapping(call)) for call in listed(calls))
    return tuple(f"{name}({arguments_text(arguments)})" for name, arguments in found if name)


def _function(call: Record) -> tuple[Any, Any]:
    """Return name and arguments of a call, at any level and under any known key."""
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
    """Read messages in any of the known shapes.

    Parameters
    ----------
    value : JSON value
        A list of messages, an object that holds one (`messages`, `choices`), one message, the JSON
        text of any of these, or plain text.
    role : str
        The role, if the value does not state one.
    tools_by_call : bool
        Whether a tool's answer without a name gets the name of its call.

    Returns
    -------
    tuple of Message
        In their order. The result of a tool inside another message becomes a separate message, with
        the name of the tool if the list holds the call.
    """
    records = _messages_in(value)
    if not records:
        held = parsed(value)
        # an input is an object, and its only text is what was asked; other JSON is text as it is
        is_input = role == "user" and isinstance(held, dict) and len(held) == 1
        given = held if is_input else value
        return (Message(role, value_text(given)),) if given not in (None, "", [], {}) else ()
    # results name the call that they answer, and only the call names its tool
    tools: dict[str, str] = {}
    found: list[Message] = []
    for record in records:
        found += _read(record, role, tools)
        if not tools_by_call:
            tools.clear()
    return tuple(found)


def chat_of_items(items: list[Record]) -> list[Record]:
    """Return items of OpenAI's Responses API as chat messages, and other objects unchanged.

    A turn of the agent is several items, and becomes one message. Other items, and reasoning
    without text, have their type as role.
    """
    bare = {str(item.get("type")) for item in items if not item.get("role")}
    if bare.isdisjoint(_ITEMS) or "None" in bare:
        return items
    found: list[Record] = []
    turn: Record | None = None
    for item in items:
        kind, said = item.get("role") or item["type"], item.get("content") or item.get("summary")
        if kind in ("assistant", "function_call") or (kind == "reasoning" and said):
            if turn is None:
                found.append(turn := {"role": "assistant", "content": [], "tool_calls": []})
            turn["content"] += listed(said) or [said or ""]
            calls = [item] if kind == "function_call" else listed(item.get("tool_calls"))
            turn["tool_calls"] += calls
            continue
        turn = None
        answer = {"role": "tool", "content": item.get("output")}
        found.append(answer if kind == "function_call_output" else {**item, "role": kind})
    return found


def _messages_in(value: Any, depth: int = 0) -> list[Record]:
    """Return the messages that a value holds, unwrapped; empty for other data."""
    value = parsed(value)
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return []
    if isinstance(value, list):
        held = [(item, _messages_in(item, depth + 1)) for item in value]
        if not any(records for _, records in held):
            return []
        # among messages other data is said too
        return [
            record
            for item, records in held
            for record in records or [{"content": value_text(item)}]
        ]
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        kind = text_of((listed(value.get("id")) or [""])[-1])
        return [{"type": kind, **value["kwargs"]}]
    if isinstance(value.get("message"), dict):
        inner = value["message"]
        return _messages_in(inner, depth + 1) or [{"content": value_text(inner)}]
    has_text = not value.keys().isdisjoint(("content", "contents", "parts", "tool_calls"))
    if isinstance(value.get("role"), str) or (has_text and isinstance(value.get("type"), str)):
        return [value]
    keys = () if "content" in value else _LISTS
    given = (value.get(key) for key in keys if isinstance(parsed(value.get(key)), list))
    lists = (_messages_in(each, depth + 1) for each in given)
    return next(filter(None, lists), [])


def _read(record: Record, default: str, tools: dict[str, str]) -> Iterator[Message]:
    """Read one message, and the results inside it as separate messages."""
    said = text_of(record.get("role") or record.get("type") or default).strip().lower()
    role = _ROLES.get(said, said)
    blocks: list[Any] = next(filter(None, (listed(record.get(key)) for key in _BLOCKS)), [])
    calls = [*listed(record.get("tool_calls")), record.get("function_call")]
    calls += (part for part in objects(blocks) if _kind(part) in _CALLS)
    for call in map(mapping, calls):
        if identity := inside(call, "tool_call", "id") or call.get("id"):
            tools[str(identity)] = str(_function(call)[0] or "")

    def tool(answer: Record) -> str:
        ids = (answer.get(key) for key in ("tool_call_id", "tool_use_id", "id"))
        known = next((tools.get(str(one), "") for one in ids if one), "")
        return str(answer.get("name") or text_of(answer.get("function")) or known)

    text = _joined(blocks) if blocks else value_text(record.get("content", record.get("text")))
    error = text_of(inside(record, "error", "message"))
    if error and error not in text:
        text = joined(text, f"error: {error}")
    # a model's own tools answer within the call
    results = [
        part
        for part in objects(blocks)
        if _kind(part) in _RESULTS or (_kind(part) in _CALLS and "result" in part)
    ]
    written = calls_text(calls)
    if text or written or not results:
        yield Message(role, text, written, tool(record) if role == "tool" else "")
    for part in results:
        result = mapping(part.get(_kind(part))) or part
        answers = (result[key] for key in ("response", "result", "content") if key in result)
        answer = next(answers, None)
        text = message_text(answer) or value_text(answer)
        yield Message("tool", text, (), tool({**part, **result}))


def _kind(part: Record) -> str:
    """Return the type of a part; Gemini names the type by a key."""
    said = part.get("type")
    if isinstance(said, str):
        return said
    return next((key for key in (*_CALLS, *_RESULTS) if key in part), "")


def _joined(parts: list[Any]) -> str:
    """Return the text of parts; pictures and encrypted parts have none."""
    texts = []
    for part in parts:
        record = mapping(inside(part, "message_content")) or mapping(part)
        if isinstance(part, str):
            texts.append(part)
        elif _kind(record) not in (*_CALLS, *_RESULTS):
            texts.append(next((record[key] for key in _TEXTS if text_of(record.get(key))), ""))
    return joined(*texts)
