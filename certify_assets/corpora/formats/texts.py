"""Steps and texts from what formats share: chat messages and pages of browsers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Reading, excerpt
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

THRESHOLD_HELP = "smallest cum_reward that is a success (a number above 0; 1 where it is not given)"
_TOLERANCE = 1e-6


def steps_of_messages(messages: Iterable[Mapping[str, Any]], reading: Reading) -> tuple[Step, ...]:
    """Turn messages into steps: what the assistant did, then what user and tools answered."""
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
        actions.append("\n".join(part for part in (turn.thought, turn.action) if part))
    while actions and not actions[-1]:
        actions.pop()
    pages += [""] * (len(actions) - len(pages))
    pairs = zip(actions, pages[: len(actions)], strict=True)
    return tuple(Step(excerpt(action), excerpt(page)) for action, page in pairs if action or page)


def page_text(url: Any, error: Any, tree: str) -> str:
    """Write down what an agent saw."""
    lines = [
        f"url: {url}" if isinstance(url, str) and url else "",
        f"error: {error}" if isinstance(error, str) and error.strip() else "",
        tree,
    ]
    return "\n".join(line for line in lines if line)


def text_of(value: Any) -> str:
    """Return the value where it is text, otherwise ""."""
    return value if isinstance(value, str) else ""


def json_value(data: bytes) -> Any:
    """Parse a whole file."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON in UTF-8") from None


def threshold_of(options: Mapping[str, Any]) -> float:
    """Return the option success_threshold."""
    value = options.get("success_threshold", 1)
    try:
        threshold = float(value)
    except (TypeError, ValueError):
        threshold = math.nan
    if isinstance(value, bool) or not math.isfinite(threshold) or threshold <= 0:
        raise InputError(f"the option success_threshold is {value!r}; give a number above 0.")
    return threshold


def reward_outcome(summary: Mapping[str, Any], threshold: float) -> int | str | None:
    """Return whether cum_reward reaches the threshold, None without one, words if no number."""
    reward = summary.get("cum_reward")
    if reward is None or (isinstance(reward, float) and math.isnan(reward)):
        return None
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return f"its cum_reward is {str(reward)[:40]!r}, not a number"
    return int(reward >= threshold - _TOLERANCE)


def switch(options: Mapping[str, Any], name: str) -> bool:
    """Return an option that is true or false, false where it is not given."""
    value = str(options.get(name, False)).lower()
    if value not in ("true", "false"):
        raise InputError(f"the option {name} is {options[name]!r}; give true or false.")
    return value == "true"
