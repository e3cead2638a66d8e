"""What was said and done in a trace, put together from its spans."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from certify_assets.corpora.formats.messages import Message
from certify_assets.corpora.formats.spans import Span, SpanTree
from certify_assets.corpora.formats.texts import parsed

# what frameworks do between models and tools, whose inputs and outputs repeat those
_PLUMBING = frozenset({"chain", "prompt", "parser", "embedding"})
# characters from which on a text within another is hardly there by chance
_TELLING = 20
_MARKS = re.compile(r"[\"'\\\s]+")


def transcript(tree: SpanTree) -> tuple[Message, ...]:
    """Return what was said and done, each message once, in the order of time.

    Every call of a model repeats the conversation before it, and what a tool gave comes back in the
    next call; a span that only wraps others shows nothing of its own.
    """
    return tuple(_Transcript(tree).messages)


class _Key(NamedTuple):
    role: str
    text: str
    calls: str

    def nearly(self, other: _Key) -> bool:
        """Whether one is the other with more around it, such as thoughts or an envelope."""
        shorter, longer = sorted((self.text, other.text), key=len)
        if (self.role, self.calls) != (other.role, other.calls) or not (shorter or self.calls):
            return False
        return longer.endswith(shorter) or (len(shorter) >= _TELLING and shorter in longer)


class _Transcript:
    def __init__(self, tree: SpanTree) -> None:
        self.messages: list[Message] = []
        self._keys: dict[Message, _Key] = {}
        self._present: Counter[_Key] = Counter()
        # what models and tools gave and no later call has repeated yet
        self._unquoted: list[tuple[_Key, str]] = []
        self._errors: set[str] = set()
        self._speaking = _innermost_models(tree)
        # spans that show something or hold one that does
        self._shown: set[str] = set()
        for span, entering in tree.visits():
            if entering:
                self._begin(span)
            else:
                self._end(span)

    def _begin(self, span: Span) -> None:
        if span.span_id in self._speaking:
            self._asked(span.asked)
        elif span.kind == "tool":
            self._call(span)
        elif not span.parent_id and not self._speaking:
            self._asked(span.asked)

    def _end(self, span: Span) -> None:
        shows = span.span_id in self._speaking or span.kind == "tool"
        shown = shows or span.span_id in self._shown
        if not (shown or span.kind in ("llm", *_PLUMBING)) and span.parent_id:
            # a retriever, say: what it was asked is an action, what it gave an observation
            shows = shown = bool(span.asked or span.answered)
            if shows:
                self._call(span)
        if shows:
            role = "assistant" if span.span_id in self._speaking else "tool"
            for message in span.answered:
                tool = message.tool or (span.name if role == "tool" else "")
                self._say(message._replace(role=role, tool=tool))
        elif not span.parent_id:
            # the answer of an agent is that of its model, or the whole conversation with its end
            self._asked(span.answered)
        if span.error and span.error not in self._errors:
            self._errors.add(span.error)
            if not any(span.error in message.text for message in self.messages[-1:]):
                self._say(Message("tool", f"error: {span.error}", (), span.name))
        if shown:
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
        """Add what is new in what was given."""
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
        """Return what a message has in common with itself as another tool or call writes it."""
        if message not in self._keys:
            calls = "".join(map(_bare_call, message.calls))
            # an answer of a tool is written by two who may order its fields differently
            text = _canonical(message.text) if message.role == "tool" else message.text
            self._keys[message] = _Key(message.role, _MARKS.sub("", text), calls)
        return self._keys[message]

    def _quote(self, message: Message, key: _Key, *, exact: bool) -> bool:
        """Take what was given in nearly these words off the list of what was not repeated yet."""
        for place, (known, tool) in enumerate(self._unquoted):
            same_tool = not tool or not message.tool or tool == message.tool
            if key == known or (not exact and same_tool and key.nearly(known)):
                del self._unquoted[place]
                return True
        return False


def _innermost_models(tree: SpanTree) -> set[str]:
    """Return the calls of models with messages, but for those that wrap another such call."""
    found: set[str] = set()
    holding: set[str] = set()
    for span, entering in tree.visits():
        if entering:
            continue
        speaks = span.kind == "llm" and bool(span.asked or span.answered)
        if speaks and span.span_id not in holding:
            found.add(span.span_id)
        if speaks or span.span_id in holding:
            holding.add(span.parent_id)
    return found


def _bare_call(call: str) -> str:
    name, _, rest = call.partition("(")
    return f"{name}({_MARKS.sub('', _canonical(rest[:-1]))})"


def _canonical(text: str) -> str:
    """Return JSON with its keys in order, and other text as it is."""
    value = parsed(text)
    return text if value is text else str(json.dumps(value, sort_keys=True))
