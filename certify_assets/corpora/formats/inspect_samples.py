"""Samples of Inspect AI logs: attachments resolved, messages turned into steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from certify_assets.corpora.formats.base import Reading
from certify_assets.corpora.formats.messages import (
    arguments_text,
    mapping,
    message_text,
    steps_of_messages,
)
from certify_assets.corpora.schema import Step

__all__ = ["resolved", "run_of_sample"]

_ATTACHMENT = re.compile(r"attachment://(\w{1,64})")
_DEEPEST = 100
_HOPS = 8


def resolved(value: Any, attachments: Mapping[str, Any] | Sequence[Any], depth: int = 0) -> Any:
    """Replace every text that is a reference to an attachment by the attachment, which may itself be a reference."""
    if isinstance(value, str):
        return _text(value, attachments)
    if depth < _DEEPEST and isinstance(value, list):
        return [resolved(item, attachments, depth + 1) for item in value]
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {key: resolved(item, attachments, depth + 1) for key, item in value.items()}
    return value


def run_of_sample(sample: Mapping[str, Any], reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return what the sample asked and the steps of the run; targets, scores, metadata, store and events are not looked at."""
    attachments = sample.get("attachments")
    known = attachments if isinstance(attachments, Mapping | list) else {}
    asked = _asked(resolved(sample.get("input"), known), resolved(sample.get("choices"), known))
    listed = sample.get("messages")
    messages = (
        [resolved(message, known) for message in listed if isinstance(message, Mapping)]
        if isinstance(listed, list)
        else []
    )
    spoken = [_message(message) for message in _after_input(messages)]
    if not any(message["role"] == "assistant" for message in spoken):
        spoken += _outputs(resolved(sample.get("output"), known))
    return asked, steps_of_messages(spoken, reading)


def _text(value: str, attachments: Mapping[str, Any] | Sequence[Any]) -> str:
    for _ in range(_HOPS):
        match = _ATTACHMENT.fullmatch(value)
        if match is None:
            break
        found = _attachment(match[1], attachments)
        if not isinstance(found, str):
            break
        value = found
    return value


def _attachment(name: str, attachments: Mapping[str, Any] | Sequence[Any]) -> Any:
    if isinstance(attachments, Mapping):
        return attachments.get(name)
    return attachments[int(name)] if name.isdecimal() and int(name) < len(attachments) else None


def _asked(asked: Any, choices: Any) -> str:
    """Return the input as text, with the choices of a question that has some."""
    if isinstance(asked, list):
        said = [mapping(message) for message in asked]
        asked = "\n".join(
            message_text(message.get("content"))
            for message in said
            if message.get("role") == "user"
        )
    text = asked if isinstance(asked, str) else ""
    options = (
        [choice for choice in choices if isinstance(choice, str)]
        if isinstance(choices, list)
        else []
    )
    return "\n".join(
        [
            text,
            *(f"({chr(ord('A') + number)}) {choice}" for number, choice in enumerate(options[:26])),
        ]
    )


def _after_input(messages: list[Any]) -> list[Mapping[str, Any]]:
    """Leave out what came before the agent's first word: it is the input, or a prompt made of it."""
    spoke = (
        number
        for number, message in enumerate(messages)
        if message.get("role") in ("assistant", "tool")
    )
    return messages[next(spoke, len(messages)) :]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Put a message into the form of other chats: thoughts as text, the called function as name, a tool's error behind its output."""
    content = message.get("content")
    parts = [{"text": _part(part)} for part in content] if isinstance(content, list) else content
    error = mapping(message.get("error")).get("message")
    if isinstance(error, str) and error and error not in message_text(parts):
        parts = "\n".join(filter(None, [message_text(parts), f"error: {error}"]))
    return {
        "role": message.get("role"),
        "content": parts,
        "tool_calls": message.get("tool_calls"),
        "name": message.get("function"),
    }


def _part(part: Any) -> str:
    """Return the text of one part of a message; pictures and sealed thoughts have none."""
    kind = mapping(part).get("type")
    if kind == "reasoning":
        text = part.get("summary") if part.get("redacted") else part.get("reasoning")
    elif kind == "tool_use":
        text = f"{part.get('name')}({arguments_text(part.get('arguments'))})\n{message_text(part.get('result'))}"
    else:
        text = part if isinstance(part, str) else mapping(part).get("text")
    return text if isinstance(text, str) else ""


def _outputs(output: Any) -> list[dict[str, Any]]:
    """Return the answer of a sample without messages."""
    choices = mapping(output).get("choices")
    first = (
        mapping(mapping(choices[0]).get("message")) if isinstance(choices, list) and choices else {}
    )
    return [_message({**first, "role": "assistant"})] if first else []
