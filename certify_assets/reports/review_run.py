"""One run as a reviewer reads it: messages with speakers, JSON over lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from certify_assets.corpora.rendering import defuse
from certify_assets.reports.wording import count

if TYPE_CHECKING:
    from certify_assets.corpora.trajectory import Step, Trajectory

#: longest text of a run with few steps, in characters, and shortest one that is cut
_LONGEST, _SHORTEST = 20_000, 700
STEPS: Final = 200
_PAGE_CHARS = 1_000_000
#: JSON up to this length stays in its line of text
_IN_LINE = 80
_DEEPEST = 20
#: braces of one text that are tried as the beginning of JSON
_TRIES = 200
_SPEAKER = re.compile(r"(user|tool(?: [\w.\-]{1,64})?): ")
_OPENING = re.compile(r"[{\[]")


# of JSON: a text, a sign, or another value
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
# it finds where JSON ends; numbers of any length are of no interest
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)


class Text(NamedTuple):
    """A part of a message as it is shown."""

    text: str
    is_json: bool = False


class Bubble(NamedTuple):
    """What the agent did, or what user, tool or environment answered."""

    speaker: str
    kind: str  # agent, user or tool
    parts: Sequence[Text]


class ShownStep(NamedTuple):
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
    return max(_SHORTEST, min(_LONGEST, _PAGE_CHARS // (2 * max(1, len(run.steps)))))


def whole_text(run: Trajectory) -> str:
    """Return a run as plain text, nothing cut."""
    parts = [f"INSTRUCTION\n{defuse(run.instruction)}"]
    for number, step in enumerate(run.steps, 1):
        for name, text in (("ACTION", step.action), ("OBSERVATION", step.observation)):
            if text.strip():
                parts.append(f"STEP {number} {name}\n{defuse(text)}")
    return "\n\n".join(parts) + "\n"


def _messages(step: Step, limit: int) -> Iterator[Bubble]:
    if step.action.strip():
        yield Bubble("Agent", "agent", shown_parts(step.action, limit))
    if step.observation.strip():
        text = step.observation
        # the name at the beginning alone: later in a text anyone could have written it
        found = _SPEAKER.match(text)
        speaker = found[1] if found else "environment"
        kind = "user" if speaker == "user" else "tool"
        rest = text[found.end() :] if found else text
        yield Bubble(defuse(speaker).capitalize(), kind, shown_parts(rest, limit))


def shown_parts(raw: str, limit: int) -> list[Text]:
    """Split a text into what is JSON, which gets lines, and what is not."""
    text, parts, begin, place = raw.strip("\n"), list[Text](), 0, 0
    # to indent more takes seconds, and the page would cut nearly all of it
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
            parts.append(Text(_cut(text[begin : found.start()], limit)))
            parts.append(Text(_cut(_indented(text[found.start() : place]), limit), is_json=True))
            begin = place
    parts.append(Text(_cut(text[begin:], limit)))
    return [part for part in parts if part.text.strip()]


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


def _cut(raw: str, limit: int) -> str:
    """Return a text, or its two ends where it is too long for the page."""
    text, end = defuse(raw).strip("\n"), limit // 2
    if len(text) <= limit:
        return text
    return f"{text[:end]}\n\n[{count(len(text) - 2 * end)} characters cut]\n\n{text[-end:]}"
