"""One run as a reviewer reads it: messages with speakers, folded texts, JSON over lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from certify_assets.corpora.rendering import defuse
from certify_assets.reports.wording import count

if TYPE_CHECKING:
    from certify_assets.corpora.trajectory import Step, Trajectory

SHOWN_CHARS: Final = 700
WHOLE_CHARS: Final = 20_000
STEPS: Final = 200
_HEAD, _TAIL = 420, 200
_SHOWN_LINES = 20
_PAGE_CHARS = 1_000_000
#: how far back a fold looks for the end of a line or of a word
_REACH = 80
#: JSON up to this length stays in its line of text
_IN_LINE = 80
_DEEPEST = 20
#: braces of one text that are tried as the beginning of JSON
_TRIES = 200
_SPEAKER = re.compile(r"(user|tool(?: [\w.\-]{1,64})?): ")
#: a fence, an indented line, a line that calls something
_CODE = re.compile(r"```|^(?: {2,}|\t)\S|^[\w.]+\(", re.MULTILINE)
_OPENING = re.compile(r"[{\[]")


# of JSON: a text, a sign, or another value
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
# it finds where JSON ends; numbers of any length are of no interest
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)


@dataclass(frozen=True)
class Text:
    """A text as it is shown: whole, or its two ends with the rest folded."""

    head: str
    tail: str = ""
    whole: str = ""
    # characters of all of it, of what is folded, and of what is cut even from the whole
    chars: int = 0
    folded: int = 0
    cut: int = 0
    is_json: bool = False


@dataclass(frozen=True)
class Bubble:
    """What the agent did, or what user, tool or environment answered."""

    speaker: str
    kind: str  # agent, user or tool
    code: bool  # whether columns may matter
    parts: Sequence[Text]


@dataclass(frozen=True)
class ShownStep:
    """One step of a run."""

    number: int
    messages: Sequence[Bubble]


def shown_steps(run: Trajectory) -> list[ShownStep]:
    """Return the steps that are shown: all, or as many from either end."""
    limit = share_of_page(run)
    numbered = list(enumerate(run.steps, 1))
    if len(numbered) > STEPS:
        numbered = numbered[: STEPS // 2] + numbered[-STEPS // 2 :]
    return [ShownStep(number, list(_messages(step, limit))) for number, step in numbered]


def share_of_page(run: Trajectory) -> int:
    """Return how many characters one text of a run may have in the page."""
    return max(SHOWN_CHARS, min(WHOLE_CHARS, _PAGE_CHARS // (2 * max(1, len(run.steps)))))


def whole_text(run: Trajectory) -> str:
    """Return a run as plain text, nothing folded and nothing cut."""
    parts = [f"INSTRUCTION\n{defuse(run.instruction)}"]
    for number, step in enumerate(run.steps, 1):
        for name, text in (("ACTION", step.action), ("OBSERVATION", step.observation)):
            if text.strip():
                parts.append(f"STEP {number} {name}\n{defuse(text)}")
    return "\n\n".join(parts) + "\n"


def _messages(step: Step, limit: int) -> Iterator[Bubble]:
    if step.action.strip():
        code = _CODE.search(step.action) is not None
        yield Bubble("Agent", "agent", code, shown_parts(step.action, limit))
    if step.observation.strip():
        text = step.observation
        # the name at the beginning alone: later in a text anyone could have written it
        found = _SPEAKER.match(text)
        speaker = found[1] if found else "environment"
        kind = "user" if speaker == "user" else "tool"
        rest = text[found.end() :] if found else text
        parts = shown_parts(rest, limit)
        yield Bubble(defuse(speaker).capitalize(), kind, kind == "tool", parts)


def shown_parts(raw: str, limit: int) -> list[Text]:
    """Split a text into what is JSON, which gets lines, and what is not."""
    text, parts, begin, place = raw.strip("\n"), list[Text](), 0, 0
    # to indent more takes seconds, and the page would fold nearly all of it
    for _ in range(_TRIES if len(raw) <= _PAGE_CHARS else 0):
        found = _OPENING.search(text, place)
        if found is None:
            break
        try:
            _, place = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            place = found.end()
            continue
        if place - found.start() > _IN_LINE:
            parts.append(folded_text(text[begin : found.start()], limit))
            lines = _indented(text[found.start() : place])
            parts.append(replace(folded_text(lines, limit), is_json=True))
            begin = place
    parts.append(folded_text(text[begin:], limit))
    return [part for part in parts if part.head.strip()]


def _indented(text: str) -> str:
    """Return JSON over lines: numbers as they were written, line ends of texts as line ends."""
    lines, depth = [""], 0
    for token in _TOKEN.findall(text):
        shown = token
        if token in ("}", "]"):
            depth -= 1
            lines.append(_margin(depth))
        elif token.startswith('"'):
            inner = str(json.loads(token)).split("\n")
            written = (json.dumps(line, ensure_ascii=False)[1:-1] for line in inner)
            shown = f'"{f"{chr(10)}{_margin(depth)} ".join(written)}"'
        elif token == ":":
            shown = ": "
        lines[-1] += shown
        if token in ("{", "["):
            depth += 1
        if token in ("{", "[", ","):
            lines.append(_margin(depth))
    return "\n".join(lines)


def _margin(depth: int) -> str:
    return "  " * min(depth, _DEEPEST)


def folded_text(raw: str, limit: int) -> Text:
    """Return a text whole, or its two ends, which end where a line or a word does."""
    text = defuse(raw).strip("\n")
    lines = text.split("\n")
    if len(text) <= SHOWN_CHARS and len(lines) <= _SHOWN_LINES:
        return Text(text)
    head = _beginning("\n".join(lines[: 2 * _SHOWN_LINES // 3]), _HEAD)
    tail = _beginning("\n".join(lines[-_SHOWN_LINES // 3 :])[::-1], _TAIL)[::-1]
    folded, cut = len(text) - len(head) - len(tail), max(0, len(text) - limit)
    if folded <= 0:
        return Text(text)
    whole = text
    if cut:
        first = _beginning(text, limit // 2)
        last = _beginning(text[::-1], limit // 2)[::-1]
        cut = len(text) - len(first) - len(last)
        whole = f"{first}\n\n[{count(cut)} characters cut]\n\n{last}"
    return Text(head, tail, whole, len(text), folded, cut)


def _beginning(text: str, most: int) -> str:
    """Return the beginning of a text, up to the end of a line or word where one is near."""
    if len(text) <= most:
        return text
    near = text[: most + 1]
    places = (near.rfind("\n", most - 4 * _REACH), near.rfind(" ", most - _REACH))
    end = next((place for place in places if place > 0), most)
    return text[:end]
