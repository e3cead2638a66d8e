"""One run as a reviewer reads it: messages with speakers, folded texts, JSON as a tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from certify_assets.corpora.rendering import defuse
from certify_assets.reports.wording import count

if TYPE_CHECKING:
    from certify_assets.corpora.schema import Step, Trajectory

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
#: entries of one object or array before the others are folded
_ENTRIES = 20
_DEEPEST = 20
#: deeper nested JSON is shown as the text that it is
_NESTED = 100
#: braces of one text that are tried as the beginning of JSON
_TRIES = 200
#: what the markup of a value costs of the page's characters
_MARKUP = 60
_SPEAKER = re.compile(r"(user|tool(?: [\w.\-]{1,64})?): ")
#: a fence, an indented line, a line that calls something
_CODE = re.compile(r"```|^(?: {2,}|\t)\S|^[\w.]+\(", re.MULTILINE)
_OPENING = re.compile(r"[{\[]")


class _Number(str):
    """A number or constant of JSON as it was written."""


@dataclass(frozen=True)
class _Object:
    """An object of JSON with all of its keys, repeated ones too."""

    pairs: list[tuple[str, Value]]


Value: TypeAlias = str | bool | list["Value"] | _Object | None

_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_Number
)


def _is_shallow(value: Value) -> bool:
    """Whether values are nested so little that a page can show them as a tree."""
    level: list[Value] = [value]
    for _ in range(_NESTED):
        level = [inner for outer in level for _, inner in _entries(outer) or ()]
        if not level:
            return True
    return False


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


class Size(NamedTuple):
    """How much JSON there is."""

    entries: int
    chars: int


@dataclass(frozen=True)
class Node:
    """A value of JSON: its key and its text, or its entries between brackets."""

    key: str = ""
    text: Text | None = None
    #: whether the text has lines of its own, shown as a block
    block: bool = False
    brackets: str = ""
    entries: Sequence[Node] = ()
    #: entries beyond the first ones, folded
    others: Sequence[Node] = ()
    closed: bool = False
    # of all entries, of those beyond the first ones, and of those that are not in the page
    size: Size | None = None
    others_size: Size | None = None
    left_out: Size | None = None


@dataclass(frozen=True)
class Bubble:
    """What the agent did, or what user, tool or environment answered."""

    speaker: str
    kind: str  # agent, user or tool
    code: bool  # whether columns may matter
    parts: Sequence[Text | Node]


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


def shown_parts(raw: str, limit: int) -> list[Text | Node]:
    """Split a text into what is JSON and what is not."""
    if len(raw) > _PAGE_CHARS:
        # a tree of so much JSON takes seconds, and the page would fold nearly all of it
        return [folded_text(raw, limit)]
    parts: list[Text | Node] = []
    for piece in _pieces(raw.strip("\n")):
        if isinstance(piece, str):
            if piece.strip():
                parts.append(folded_text(piece, limit))
        else:
            parts.append(_node(piece, _Room(limit)))
    return parts


def _pieces(text: str) -> Iterator[str | Value]:
    """Yield texts and the values of JSON between them, in their order."""
    begin = place = 0
    for _ in range(_TRIES):
        found = _OPENING.search(text, place)
        if found is None:
            break
        try:
            value, end = _DECODER.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            place = found.end()
            continue
        if end - found.start() > _IN_LINE and _is_shallow(value):
            yield text[begin : found.start()]
            yield value
            begin = end
        place = end
    yield text[begin:]


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


class _Room:
    """Characters of the page that are left for one value of JSON."""

    def __init__(self, chars: int) -> None:
        self.chars = chars

    def take(self, chars: int) -> None:
        self.chars -= chars + _MARKUP


def _node(value: Value, room: _Room, key: str = "", depth: int = 0) -> Node:
    written = _written(value)
    entries = _entries(value)
    if entries is None or len(written) <= _IN_LINE or depth >= _DEEPEST:
        room.take(min(len(written), max(room.chars, SHOWN_CHARS)) + len(key))
        block = isinstance(value, str) and not isinstance(value, _Number) and "\n" in value
        # lines of a text are readable in a box of their own, which no text can draw
        text = value if block and isinstance(value, str) else written
        return Node(key, folded_text(text, max(room.chars, SHOWN_CHARS)), block)
    made: list[Node] = []
    for name, entry in entries:
        if room.chars <= 0:
            break
        made.append(_node(entry, room, name, depth + 1))
    first = made if len(made) <= _ENTRIES + 1 else made[:_ENTRIES]
    return Node(
        key,
        brackets="{}" if isinstance(value, _Object) else "[]",
        entries=first,
        others=made[len(first) :],
        closed=depth > 0 and len(written) > SHOWN_CHARS,
        size=Size(len(entries), len(written)),
        others_size=_size(entries[len(first) :]),
        left_out=_size(entries[len(made) :]),
    )


def _size(entries: Sequence[tuple[str, Value]]) -> Size | None:
    chars = sum(len(key) + len(_written(value)) for key, value in entries)
    return Size(len(entries), chars) if entries else None


def _entries(value: Value) -> list[tuple[str, Value]] | None:
    if isinstance(value, _Object):
        return [(_quoted(key) + ": ", entry) for key, entry in value.pairs]
    return [("", entry) for entry in value] if isinstance(value, list) else None


def _quoted(text: str) -> str:
    return defuse(json.dumps(text, ensure_ascii=False))


def _written(value: Value) -> str:
    """Return a value in one line, numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        items = (f"{_quoted(key)}: {_written(item)}" for key, item in value.pairs)
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class CriterionLine:
    """A line of success criteria: a heading, an item or text, without markup."""

    kind: str  # h, li, n (numbered) or p
    text: str


def criterion_lines(text: str) -> list[CriterionLine]:
    """Read headings and items of Markdown; anything else is text as it stands."""
    lines: list[CriterionLine] = []
    for block in re.split(r"\n(?=\s*(?:[#*\-]|\d+\.) )|\n\s*\n", defuse(text)):
        marked = re.match(r"\s*(#{1,6}|[*\-]|\d+\.) +", block)
        if not block.strip():
            continue
        if marked is None or marked[1][0].isdigit():
            lines.append(CriterionLine("p" if marked is None else "n", block.strip()))
        else:
            kind = "h" if marked[1].startswith("#") else "li"
            lines.append(CriterionLine(kind, block[marked.end() :].strip()))
    return lines
