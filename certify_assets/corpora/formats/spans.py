"""Traces as trees of spans, whatever tool recorded them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading
from certify_assets.corpora.formats.messages import Message
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.texts import parsed

#: the kind of spans that judge the run: no judge may read them
JUDGING = "evaluator"
_NAMED = 30
_DEEPEST = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation within a trace.

    Parameters
    ----------
    trace_id, span_id, parent_id : str
        Identity; an empty parent_id is that of a root.
    name : str
        Name of the operation, for a tool the tool's.
    kind : str
        Kind of operation: "llm", "tool", "agent", "chain", ...
    start : int
        Nanoseconds; siblings are ordered by start, then as they were read.
    asked, answered : tuple of Message
        What went in and came out.
    attributes : mapping
        Other attributes, to name task, attempt, agent and outcome by.
    error : str
        What went wrong, "" where nothing did.
    origin : Origin
        Where it was read.
    """

    trace_id: str
    span_id: str
    origin: Origin
    parent_id: str = ""
    name: str = ""
    kind: str = ""
    start: int = 0
    asked: tuple[Message, ...] = ()
    answered: tuple[Message, ...] = ()
    attributes: Record = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What someone or something said of a trace.

    Parameters
    ----------
    trace_id, span_id : str
        What it is of; an empty span_id is the trace as a whole, an empty trace_id that of the span.
    name : str
        Name of the assessment, score or feedback.
    values : tuple
        What was said, as a word, a number or both. The first that is there counts, but a number
        where the option threshold is given, and a word where success or failure name words.
    source : str
        "human", "code", "llm_judge" or what else the tool calls it, in lower case; "" unknown.
    """

    trace_id: str
    name: str
    values: tuple[Any, ...]
    source: str = ""
    span_id: str = ""


def nanoseconds(value: Any) -> int:
    """Return a time as nanoseconds: such a number, also as text, a datetime, or ISO 8601.

    A time without a zone is UTC; what is no time is 0.
    """
    if isinstance(value, str) and not value.isdecimal():
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return 0
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return int(value) if str(value).isdecimal() and len(str(value)) < 25 else 0


class SpanTree:
    """A trace: its spans below their parents, siblings by time.

    A span whose parent is missing is below the root, where there is one, and else a root itself.
    Spans that judge the run, and what is below them, are left out.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        reading: Reading,
        assessments: Sequence[Assessment],
        attributes: Record,
    ) -> None:
        self.assessments = assessments
        known: dict[str, Span] = {}
        for span in sorted(spans, key=lambda span: span.start):
            known.setdefault(span.span_id, span)
        first = next(iter(known.values()))
        self.trace_id, self.origin = first.trace_id, first.origin
        tops = [span.span_id for span in known.values() if not span.parent_id]
        self._below: dict[str, list[Span]] = {}
        lost = Counter[str]()
        for span in known.values():
            if span.parent_id and span.parent_id not in known:
                lost["spans whose parent is not in the trace"] += 1
                span = replace(span, parent_id=tops[0] if len(tops) == 1 else "")
            self._below.setdefault(span.parent_id, []).append(span)
        reached = sum(entering for _, entering in self.visits(left_out=""))
        lost["spans among their own parents, left out"] += len(known) - reached
        reading.notes.update(+lost)
        self.roots = [span for span in self._below.get("", ()) if span.kind != JUDGING]
        self._whole = [*(_flat(span.attributes) for span in self.roots), _flat(attributes)]
        self._inner = [_flat(span.attributes) for span, entering in self.visits() if entering]

    def visits(self, left_out: str = JUDGING) -> Iterator[tuple[Span, bool]]:
        """Go through the spans depth first, each once when it begins (True) and when it ends."""
        # no recursion: traces may be nested deeper than Python allows
        waiting = [(span, True) for span in reversed(self._below.get("", ()))]
        while waiting:
            span, entering = waiting.pop()
            if left_out and span.kind == left_out:
                continue
            yield span, entering
            if entering:
                waiting.append((span, False))
                below = self._below.get(span.span_id, ())
                waiting += [(child, True) for child in reversed(below)]

    def attribute(self, *names: str, whole_first: bool = False) -> Any:
        """Return the first attribute of one of the names: of a root, the trace, or any span.

        With `whole_first` under any of the names of a root or the trace before under one of a span.
        """
        levels = (self._whole, self._inner) if whole_first else ([*self._whole, *self._inner],)
        for level in levels:
            for name in names:
                for attributes in level:
                    if attributes.get(name) not in (None, ""):
                        return attributes[name]
        return None

    def attribute_names(self) -> str:
        """Name the attributes of the roots and of the trace, for a sentence."""
        found = sorted(
            {
                name
                for attributes in self._whole
                for name, value in attributes.items()
                if not isinstance(parsed(value), dict)
            }
        )
        rest = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return (", ".join(found[:_NAMED]) + rest) or "no attribute"


def _flat(attributes: Record, depth: int = 0) -> Record:
    """Add what attributes hold as objects, or as JSON of them, under their paths."""
    found = dict(attributes)
    for name, value in attributes.items():
        held = parsed(value)
        if isinstance(held, dict) and depth < _DEEPEST:
            for key, item in _flat(held, depth + 1).items():
                found.setdefault(f"{name}.{key}", item)
    return found


class Traces:
    """Spans and assessments in the order in which they are read, put together by trace."""

    def __init__(self) -> None:
        self._spans: dict[str, list[Span]] = {}
        self._trace_of: dict[str, str] = {}
        self._assessments: list[Assessment] = []
        self._attributes: dict[str, Record] = {}

    def add(self, span: Span) -> None:
        """Add a span."""
        self._spans.setdefault(span.trace_id, []).append(span)
        self._trace_of[span.span_id] = span.trace_id

    def assess(self, assessment: Assessment) -> None:
        """Add an assessment of a trace, or of a span alone, that may be read later."""
        self._assessments.append(assessment)

    def describe(self, trace_id: str, attributes: Record) -> None:
        """Add attributes of a trace as a whole; the first value of a name is kept."""
        known = self._attributes.setdefault(trace_id, {})
        for name, value in attributes.items():
            known.setdefault(name, value)

    def trees(self, reading: Reading) -> Iterator[SpanTree]:
        """Return the traces in the order of their first spans."""
        said: dict[str, list[Assessment]] = {}
        for one in self._assessments:
            trace_id = one.trace_id or self._trace_of.get(one.span_id, "")
            if trace_id not in self._spans:
                place = f"trace {trace_id}" if trace_id else f"span {one.span_id}"
                reading.drop(
                    "label_without_trace",
                    f"the assessment {one.name!r} is of the {place}, which is not in these "
                    "files; export its spans too.",
                )
            said.setdefault(trace_id, []).append(one)
        for trace_id, spans in self._spans.items():
            about = self._attributes.get(trace_id, {})
            yield SpanTree(spans, reading, said.get(trace_id, []), about)
