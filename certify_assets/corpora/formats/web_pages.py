"""What the formats of web agents share: pages as text, turns as steps, and the harness's reward as an outcome.

A harness stores the page that the agent saw *before* an action beside that action; a step pairs an action with the page after it.
Chat messages are never read: some benchmarks write their verdict into the chat when the last action has been evaluated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import excerpt
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

__all__ = [
    "THRESHOLD_HELP",
    "Turn",
    "json_value",
    "page_text",
    "reward_outcome",
    "steps_of_turns",
    "switch",
    "text_of",
    "threshold_of",
]

THRESHOLD_HELP = "smallest cum_reward that is a success (a number above 0; 1 where it is not given)"

_TOLERANCE = 1e-6


class Turn(NamedTuple):
    """What the agent saw, and what it then thought and did ("" where it did nothing)."""

    seen: str
    thought: str
    action: str


def steps_of_turns(turns: Iterable[Turn]) -> tuple[Step, ...]:
    """Turn what was seen before every action into steps that show what came of it; none where the agent did nothing at all."""
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
    """Write down what an agent saw: the address, the error of its last action, and the page as text."""
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
    """Parse a whole file.

    Raises
    ------
    ValueError
        If it is not JSON; the text says why.
    """
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON in UTF-8") from None


def threshold_of(options: Mapping[str, Any]) -> float:
    """Return the option success_threshold.

    Raises
    ------
    InputError
        If it is not a number above 0.
    """
    value = options.get("success_threshold", 1)
    try:
        threshold = float(value)
    except (TypeError, ValueError):
        threshold = math.nan
    if isinstance(value, bool) or not math.isfinite(threshold) or threshold <= 0:
        raise InputError(f"the option success_threshold is {value!r}; give a number above 0.")
    return threshold


def reward_outcome(summary: Mapping[str, Any], threshold: float) -> int | str | None:
    """Return 1 where cum_reward reaches the threshold, 0 where not, None where there is none, words where it is not a number."""
    reward = summary.get("cum_reward")
    if reward is None or (isinstance(reward, float) and math.isnan(reward)):
        return None
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        return f"its cum_reward is {str(reward)[:40]!r}, not a number"
    return int(reward >= threshold - _TOLERANCE)


def switch(options: Mapping[str, Any], name: str) -> bool:
    """Return an option that is true or false, false where it is not given.

    Raises
    ------
    InputError
        If it is neither.
    """
    value = str(options.get(name, False)).lower()
    if value not in ("true", "false"):
        raise InputError(f"the option {name} is {options[name]!r}; give true or false.")
    return value == "true"
