"""Chat messages, as most harnesses store them, turned into steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from certify_assets.corpora.formats.base import Reading, excerpt
from certify_assets.corpora.schema import Step

__all__ = ["arguments_text", "mapping", "message_text", "steps_of_messages"]


def steps_of_messages(messages: Iterable[Mapping[str, Any]], reading: Reading) -> tuple[Step, ...]:
    """Turn messages into steps: what the assistant said and called, then what user and tools answered.

    System messages hold the same policy in every run and are left out; so are messages of roles that chats do not have, which are counted in
    the notes of the tally.

    Parameters
    ----------
    messages : iterable of mapping
        ``role``, ``content`` (text, or a list of parts whose ``text`` counts), on the assistant's ``tool_calls`` (``function.name`` and
        ``function.arguments``, or ``name`` and ``arguments``), on a tool's ``name``.
    """
    steps: list[tuple[str, list[str]]] = []
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            steps.append((_action(message), []))
        elif role in ("user", "tool", "function"):
            if not steps:
                steps.append(("", []))
            speaker = "user" if role == "user" else f"tool {message.get('name') or ''}".strip()
            steps[-1][1].append(f"{speaker}: {message_text(message.get('content'))}")
        elif role not in ("system", "developer"):
            reading.tally.notes["messages of another role left out"] += 1
    return tuple(
        Step(excerpt(action), excerpt("\n".join(observations))) for action, observations in steps
    )


def message_text(content: Any) -> str:
    """Return the text of a message: a string, or the text parts of a list of parts."""
    if isinstance(content, list):
        return "\n".join(
            part["text"]
            for part in content
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as text: as they are, or as JSON with sorted keys."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value where it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _action(message: Mapping[str, Any]) -> str:
    parts = [message_text(message.get("content"))]
    calls = message.get("tool_calls")
    functions = [_function(call) for call in calls] if isinstance(calls, list) else []
    for function in functions or [mapping(message.get("function_call"))]:
        if name := function.get("name"):
            parts.append(f"{name}({arguments_text(function.get('arguments'))})")
    return "\n".join(part for part in parts if part)


def _function(call: Any) -> Mapping[str, Any]:
    """What a tool call calls; τ²-bench and others leave out the level ``function``."""
    inner = mapping(call).get("function")
    if isinstance(inner, str):
        return {"name": inner, "arguments": mapping(call).get("arguments")}
    return mapping(inner) or mapping(call)
