"""A trace as a tree of spans, and its messages and actions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Reading
from certify_assets.corpora.formats.messages import Message
from certify_assets.corpora.formats.records import Record, parsed
from certify_assets.corpora.formats.spans import Assessment, Span

#: the kind of spans that judge the run: no judge may read them
JUDGING = "evaluator"
# what frameworks do between models and tools, whose inputs and outputs repeat those
_PLUMBING = frozenset({"llm", "chain", "prompt", "parser", "embedding"})
# characters from which on a text within another is hardly there by chance
_TELLING = 20
_MARKS = re.compile(r"[\"'\\\s]+")
_DEEPEST = 6


class Trace:
    """The spans of a trace below their parents, siblings by time, and its judgements.

    A span whose parent is missing is below the root; without a root, it is one. Spans that judge
    the run, and spans below them, are left out.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        assessments: Sequence[Assessment],
        about: Record,
        reading: Reading,
    ) -> None:
        self.assessments = assessments
        known: dict[str, Span] = {}
        for span in sorted(spans, key=lambda span: span.start):
            known.setdefault(span.span_id, span)
        first = next(iter(known.values()))
        self.trace_id, self.origin = first.trace_id, first.origin
        roots = [span.span_id for span in known.values() if not span.parent_id]
        below: dict[str, list[Span]] = {}
        for span in known.values():
            if span.parent_id and span.parent_id not in known:
                reading.notes["spans whose parent is not in the trace"] += 1
                span = replace(span, parent_id=roots[0] if len(roots) == 1 else "")
            if span.kind != JUDGING:
                below.setdefault(span.parent_id, []).append(span)
        self.roots = below.get("", [])
        #: the spans depth first, each once when it begins (True) and when it ends
        self.visits: list[tuple[Span, bool]] = []
        # no recursion: traces may be nested deeper than Python allows
        waiting = [(span, True) for span in reversed(self.roots)]
        while waiting:
            span, begins = waiting.pop()
            self.visits.append((span, begins))
            if begins:
                waiting.append((span, False))
                waiting += [(child, True) for child in reversed(below.get(span.span_id, ()))]
        #: attributes of the roots and of the trace, and of all spans
        self.whole = _flat(*(span.attributes for span in self.roots), about)
        self.inner = _flat(*(span.attributes for span, begins in self.visits if begins))


def _flat(*levels: Record, depth: int = 0) -> Record:
    """Merge attributes, the first of each name; objects, also in JSON, under their paths."""
    found: Record = {}
    for attributes in levels:
        held = {name: parsed(value) for name, value in attributes.items()}
        for name, value in attributes.items():
            if value not in (None, ""):
                found.setdefault(name, value)
        for name, value in held.items():
            if isinstance(value, dict) and depth < _DEEPEST:
                for key, item in _flat(value, depth=depth + 1).items():
                    found.setdefault(f"{name}.{key}", item)
    return found


def transcript(trace: Trace) -> list[Message]:
    """Return the messages and actions, each once, in the order of time.

    Every call of a model repeats the conversation before it, and a tool's output is in the next
    call's input. A span that only wraps others adds nothing.
    """
    return _Transcript(trace).messages


class _Key(NamedTuple):
    role: str
    text: str
    calls: str

    def nearly(self, other: _Key) -> bool:
        """Whether one text is the other with additions, such as thoughts or an envelope."""
        shorter, longer = sorted((self.text, other.text), key=len)
        if (self.role, self.calls) != (other.role, other.calls) or not (shorter or self.calls):
            return False
        return longer.endswith(shorter) or (len(shorter) >= _TELLING and shorter in longer)


class _Transcript:
    def __init__(self, trace: Trace) -> None:
        self.messages: list[Message] = []
        self._keys: dict[Message, _Key] = {}
        self._present: Counter[_Key] = Counter()
        # what models and tools gave and no later call has repeated yet
        self._unquoted: list[tuple[_Key, str]] = []
        self._errors: set[str] = set()
        self._speaking = _innermost_models(trace)
        # spans that show something or hold one that does
        self._shown: set[str] = set()
        for span, begins in trace.visits:
            if begins:
                self._begin(span)
            else:
                self._end(span)

    def _begin(self, span: Span) -> None:
        is_only_root = not span.parent_id and not self._speaking
        if span.kind == "tool":
            self._call(span)
        elif span.span_id in self._speaking or is_only_root:
            self._asked(span.asked)

    def _end(self, span: Span) -> None:
        speaks = span.span_id in self._speaking
        shows = speaks or span.kind == "tool"
        inside = span.span_id in self._shown
        if not shows and not inside and span.parent_id and span.kind not in _PLUMBING:
            # a retriever, say: what it was asked is an action, what it gave an observation
            shows = bool(span.asked or span.answered)
            if shows:
                self._call(span)
        if shows:
            role, name = ("assistant", "") if speaks else ("tool", span.name)
            for message in span.answered:
                self._say(message._replace(role=role, tool=message.tool or name))
        elif not span.parent_id:
            # the answer of an agent is that of its model, or the whole conversation with its end
            self._asked(span.answered)
        if span.error and span.error not in self._errors:
            self._errors.add(span.error)
            if not any(span.error in message.text for message in self.messages[-1:]):
                self._say(Message("tool", f"error: {span.error}", (), span.name))
        if shows or inside:
            self._shown.add(span.parent_id)

    def _call(self, span: Span) -> None:
        latest = next((said for said in reversed(self.messages) if said.role == "assistant"), None)
        if latest is None or not any(call.startswith(f"{span.name}(") for call in latest.calls):
            arguments = "\n".join(message.text for message in span.asked)
            self._say(Message("assistant", "", (f"{span.name}({arguments})",)))

    def _say(self, message: Message) -> None:
        key = self._key(message)
        self.messages.append(message)
        self._present[key] += 1
        if message.role in ("assistant", "tool"):
            self._unquoted.append((key, message.tool))

    def _asked(self, messages: Iterable[Message]) -> None:
        """Add the new messages of an input."""
        left = self._present.copy()
        for message in messages:
            key = self._key(message)
            if left[key] > 0:
                left[key] -= 1
                self._quote(message, key, exact=True)
            elif self._quote(message, key, exact=False):
                # in this wording it comes again in the calls that follow
                self._present[key] += 1
            else:
                self._say(message)

    def _key(self, message: Message) -> _Key:
        """Return a key of a message that is equal when another tool or call records it."""
        if message not in self._keys:
            calls = "".join(map(_bare_call, message.calls))
            # an answer of a tool is written by two who may order its fields differently
            text = _canonical(message.text) if message.role == "tool" else message.text
            self._keys[message] = _Key(message.role, _MARKS.sub("", text), calls)
        return self._keys[message]

    def _quote(self, message: Message, key: _Key, *, exact: bool) -> bool:
        """Remove a nearly equal text from the list of texts that were not repeated yet."""
        for place, (known, tool) in enumerate(self._unquoted):
            same_tool = not tool or not message.tool or tool == message.tool
            if key == known or (not exact and same_tool and key.nearly(known)):
                del self._unquoted[place]
                return True
        return False


def _innermost_models(trace: Trace) -> set[str]:
    """Return the calls of models with messages, except those that wrap another such call."""
    found: set[str] = set()
    holding: set[str] = set()
    for span, begins in trace.visits:
        speaks = span.kind == "llm" and bool(span.asked or span.answered)
        if not begins and (speaks or span.span_id in holding):
            if span.span_id not in holding:
                found.add(span.span_id)
            holding.add(span.parent_id)
    return found


def _bare_call(call: str) -> str:
    name, _, rest = call.partition("(")
    return f"{name}({_MARKS.sub('', _canonical(rest[:-1]))})"


def _canonical(text: str) -> str:
    """Return JSON with sorted keys, and other text unchanged."""
    value: Any = parsed(text)
    return text if value is text else str(json.dumps(value, sort_keys=True))
