"""Chat messages in the shapes in which tracing tools record them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.texts import (
    ROLES,
    Message,
    arguments_text,
    calls_text,
    function_of,
    is_list_of_objects,
    listed,
    mapping,
    message_text,
    objects,
    text_of,
)

_CALL_PARTS = ("tool_call", "tool_use", "function_call")
_RESULT_PARTS = ("tool_call_response", "tool_result", "function_response")
_BLOCKS = ("parts", "contents", "content")
_TEXTS = ("text", "content", "thinking", "reasoning", "summary")
_LISTS = ("messages", "choices", "generations", "input")
_DEEPEST = 6


def messages_of(value: Any, role: str = "user") -> tuple[Message, ...]:
    """Read what a span says that a model was given or gave, in whatever shape a tool records it.

    Parameters
    ----------
    value : JSON value
        A list of messages, an object that holds one (`messages`, `choices`), one message, the JSON
        text of any of these, or plain text. Messages may be those of chat completions, of the
        OpenTelemetry GenAI conventions (`parts`), of Anthropic (content blocks), of Gemini, of
        LangChain (also serialised, with `kwargs`) or of OpenInference (`message.role`, ...).
    role : str
        Who speaks where the value does not say it.

    Returns
    -------
    tuple of Message
        In their order. The result of a tool inside another message is a message of its own, with
        the name of the tool where the list holds the call.
    """
    return tuple(_Reader(role).read(value, 0))


def value_text(value: Any) -> str:
    """Return any value of a span as text: text as it is, one text of an object, else JSON."""
    if isinstance(value, dict) and len(value) == 1:
        only = next(iter(value.values()))
        return only if isinstance(only, str) else arguments_text(value)
    return arguments_text(value)


def parsed(value: Any) -> Any:
    """Return what JSON text of an object or list holds, and any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


class _Reader:
    def __init__(self, role: str) -> None:
        self._role = role
        # results name the call that they answer, and only the call names its tool
        self._tools: dict[str, str] = {}

    def read(self, value: Any, depth: int) -> Iterator[Message]:
        if isinstance(value, str):
            inner = parsed(value)
            # JSON that holds no message is the text of a message as it is; an input is an
            # object, and its only text is what was asked
            asked = self._role == "user" and isinstance(inner, dict) and len(inner) == 1
            value = inner if asked or _speaks(inner) else value
        if value in (None, "", [], {}) or depth > _DEEPEST:
            return
        if isinstance(value, list) and (depth or _speaks(value)):
            for item in value:
                yield from self.read(item, depth + 1)
        elif isinstance(value, dict) and (inner := _inside(value)):
            yield from self.read(inner, depth + 1)
        elif isinstance(value, dict) and _is_message(value):
            yield from self._message(value)
        else:
            yield Message(self._role, value_text(value))

    def _message(self, record: Record) -> Iterator[Message]:
        said = text_of(record.get("role") or record.get("type") or self._role).lower()
        role = ROLES.get(said, said)
        blocks: list[Any] = next(filter(None, (listed(record.get(key)) for key in _BLOCKS)), [])
        calls = [*listed(record.get("tool_calls")), record.get("function_call")]
        calls += (part for part in objects(blocks) if _kind(part) in _CALL_PARTS)
        for call in calls:
            self._remember(mapping(call))
        text = _joined(blocks) if blocks else value_text(record.get("content"))
        results = [part for part in objects(blocks) if _kind(part) in _RESULT_PARTS]
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

    def _remember(self, call: Record) -> None:
        if identity := mapping(call.get("tool_call")).get("id") or call.get("id"):
            self._tools[str(identity)] = str(function_of(call)["name"] or "")

    def _named(self, record: Record) -> str:
        keys = ("tool_call_id", "tool_use_id", "id")
        return next((self._tools.get(str(record[key]), "") for key in keys if record.get(key)), "")


def _inside(value: Record) -> Any:
    """Return what an object wraps: one message, or a list of them."""
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        kind = text_of((listed(value.get("id")) or [""])[-1])
        return {"type": kind.lower(), **value["kwargs"]}
    if isinstance(value.get("message"), dict):
        return value["message"]
    if "role" in value or "content" in value:
        return None
    for key in _LISTS:
        inner = _conversation(parsed(value.get(key)))
        if is_list_of_objects(inner) and any(map(_may_speak, inner)):
            return inner
    return None


def _conversation(value: Any) -> Any:
    """Return a list of messages; LangChain records it as the only one of a list."""
    several = isinstance(value, list) and len(value) == 1 and isinstance(value[0], list)
    return value[0] if several else value


def _speaks(value: Any) -> bool:
    """Whether a value holds messages, as opposed to other data."""
    if isinstance(value, list):
        return any(map(_may_speak, objects(_conversation(value))))
    return isinstance(value, dict) and _may_speak(value)


def _may_speak(value: Record) -> bool:
    return _is_message(value) or _inside(value) is not None


def _is_message(value: Record) -> bool:
    has_text = not value.keys().isdisjoint(("content", "contents", "parts", "tool_calls"))
    return isinstance(value.get("role"), str) or (has_text and isinstance(value.get("type"), str))


def _kind(part: Record) -> str:
    """Return the type of a part; Gemini names the type by a key."""
    said = part.get("type")
    if isinstance(said, str):
        return said
    return next((key for key in (*_CALL_PARTS, *_RESULT_PARTS) if key in part), "")


def _joined(parts: list[Any]) -> str:
    """Return the text of parts; pictures and what is sealed have none."""
    texts = []
    for part in parts:
        record = mapping(mapping(part).get("message_content")) or mapping(part)
        if isinstance(part, str):
            texts.append(part)
        elif _kind(record) not in (*_CALL_PARTS, *_RESULT_PARTS):
            texts.append(next((record[key] for key in _TEXTS if text_of(record.get(key))), ""))
    return "\n".join(filter(None, texts))
