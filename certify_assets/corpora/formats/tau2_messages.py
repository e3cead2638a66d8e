"""What happened in a τ²-bench simulation, as chat messages: plain ones, replies to several calls at once, and the ticks of voice runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from certify_assets.corpora.formats.messages import arguments_text, mapping, message_text

__all__ = ["chat_messages", "instruction_text"]

_SCENARIO = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
_TICK = (("assistant", "agent"), ("user", "user"))


def chat_messages(simulation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Go through the messages of a simulation, or what its ticks say where it has none, with nothing but text, calls and their names.

    The calls of the simulated user are text of the user; the answers to them are answers of tools, marked as the user's.
    """
    names: dict[str, str] = {}
    for message in _flat(simulation.get("messages") or _spoken(simulation.get("ticks") or ())):
        role, calls = message.get("role"), _objects(message.get("tool_calls"))
        names |= {str(call.get("id")): str(call.get("name") or "") for call in calls}
        if role == "tool":
            name = names.get(str(message.get("id")), "")
            yield {
                "role": "tool",
                "name": f"{name} of the user" if message.get("requestor") == "user" else name,
                "content": message.get("content"),
            }
        elif role == "user":
            asked = [
                f"{call.get('name')}({arguments_text(call.get('arguments'))})" for call in calls
            ]
            yield {
                "role": "user",
                "content": "\n".join(filter(None, [message_text(message.get("content")), *asked])),
            }
        else:
            yield {"role": role, "content": _unwrapped(message.get("content")), "tool_calls": calls}


def instruction_text(task: Mapping[str, Any]) -> str:
    """What the simulated user wants, or the ticket where there is no user; never the task's evaluation criteria or notes."""
    instructions = mapping(task.get("user_scenario")).get("instructions")
    if isinstance(instructions, Mapping):
        return "\n".join(
            instructions[key] for key in _SCENARIO if isinstance(instructions.get(key), str)
        )
    if isinstance(instructions, str) and instructions:
        return instructions
    ticket = task.get("ticket")
    return ticket if isinstance(ticket, str) else ""


def _flat(messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        replies = _objects(message.get("tool_messages"))
        yield from replies or (message,)


def _spoken(ticks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Join the chunks of an utterance, which ends where its speaker is silent for a tick or calls a tool; both may speak at once."""
    said = {"assistant": "", "user": ""}
    for tick in ticks:
        for role, who in _TICK:
            heard = message_text(mapping(tick.get(f"{who}_chunk")).get("content"))
            calls = _objects(tick.get(f"{who}_tool_calls"))
            said[role] += heard
            if calls or (said[role] and not heard):
                yield {"role": role, "content": said[role].strip(), "tool_calls": calls}
                said[role] = ""
            for reply in _objects(tick.get(f"{who}_tool_results")):
                yield {**reply, "role": "tool"}
    for role, text in said.items():
        if text:
            yield {"role": role, "content": text.strip()}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _unwrapped(content: Any) -> Any:
    """Return the text of a reply that is a JSON object with one text, as some agents answer; any other reply as it is."""
    if not isinstance(content, str) or not content.startswith("{"):
        return content
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        return content
    texts = list(reply.values())
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else content
