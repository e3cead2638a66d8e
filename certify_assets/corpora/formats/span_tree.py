"""Traces as trees of spans, whatever tool recorded them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import parsed, value_text
from certify_assets.corpora.formats.texts import Message, arguments_text

_KINDS = {
    "chat": "llm",
    "chat_model": "llm",
    "chatmodel": "llm",
    "completion": "llm",
    "generation": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "execute_tool": "tool",
    "function": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "workflow": "chain",
}
_NAMED = 30
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
        Kind of operation as `span_kind` returns it: "llm", "tool", "agent", "chain", ...
    start : int
        Nanoseconds; siblings are ordered by start, then as they were read.
    asked, answered : tuple of Message
        What went in and came out, as `messages_of` reads it; for a tool as `tool_messages` does.
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


def span_kind(said: Any) -> str:
    """Return a tool's word for the kind of a span as one word that all tools share."""
    word = str(said or "").strip().lower()
    return _KINDS.get(word, word)


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


def tool_messages(
    name: str, arguments: Any, result: Any
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return what went into a tool and what came out of it, for `Span.asked` and `answered`."""
    shown = () if result is None else (Message("tool", value_text(result), (), name),)
    return (Message("user", arguments_text(arguments)),), shown


@dataclass(frozen=True, kw_only=True)
class SpanTree:
    """A trace: its spans with parents before children, siblings by time.

    Parameters
    ----------
    trace_id : str
        Identity of the trace.
    spans : tuple of Span
        All spans, depth first.
    depths : tuple of int
        Depth of every span, 0 for a root.
    assessments : tuple of Assessment
        What was said of the trace or of one of its spans.
    attributes : mapping
        Attributes of the trace as a whole, such as tags and those of its resource.
    orphans, cycles, repeated : int
        Spans that became roots because their parent is missing, or is below them, and spans left
        out because their id was there already.
    """

    trace_id: str
    spans: tuple[Span, ...]
    depths: tuple[int, ...]
    assessments: tuple[Assessment, ...] = ()
    attributes: Record = field(default_factory=dict)
    orphans: int = 0
    cycles: int = 0
    repeated: int = 0

    @classmethod
    def of(
        cls,
        spans: Iterable[Span],
        assessments: Iterable[Assessment] = (),
        attributes: Record | None = None,
    ) -> SpanTree:
        """Build the tree of one trace from its spans in any order, of which there is one or more.

        Orphans and the earliest span of a cycle become roots; all are counted.
        """
        everything = sorted(spans, key=lambda span: span.start)
        known: dict[str, Span] = {}
        for span in everything:
            known.setdefault(span.span_id, span)
        below: dict[str, list[Span]] = {}
        for span in known.values():
            below.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
        ordered: list[tuple[Span, int]] = []
        seen: set[str] = set()
        _walk(below.get("", []), below, seen, ordered)
        cycles = 0
        for span in known.values():
            if span.span_id not in seen:
                cycles += 1
                _walk([span], below, seen, ordered)
        return cls(
            trace_id=everything[0].trace_id,
            spans=tuple(span for span, _ in ordered),
            depths=tuple(depth for _, depth in ordered),
            assessments=tuple(assessments),
            attributes=attributes or {},
            orphans=sum(bool(span.parent_id) for span in below.get("", [])),
            cycles=cycles,
            repeated=len(everything) - len(known),
        )

    @property
    def origin(self) -> Origin:
        """Where its first span was read."""
        return self.spans[0].origin

    @property
    def roots(self) -> tuple[Span, ...]:
        """The spans that have no parent in the trace."""
        return tuple(span for span, depth in zip(self.spans, self.depths, strict=True) if not depth)

    def attribute(self, *names: str, of_whole: bool = False) -> Any:
        """Return the first attribute of one of the names: of a root, the trace, or any span.

        With `of_whole` under any of the names of a root or the trace before under one of a span.
        """
        whole = [*(span.attributes for span in self.roots), self.attributes]
        inner = [span.attributes for span in self.spans]
        for places in (whole, inner) if of_whole else (whole + inner,):
            if (value := _first(places, names)) is not None:
                return value
        return None

    def attribute_names(self) -> str:
        """Name the attributes of the roots and of the trace, for a sentence."""
        names = {name for span in self.roots for name in _paths(span.attributes)}
        found = sorted(names | set(_paths(self.attributes)))
        rest = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return (", ".join(found[:_NAMED]) + rest) or "no attribute"


def _walk(
    first: list[Span],
    below: Mapping[str, list[Span]],
    seen: set[str],
    ordered: list[tuple[Span, int]],
) -> None:
    # no recursion: traces may be nested deeper than Python allows
    waiting = [(span, 0) for span in reversed(first)]
    while waiting:
        span, depth = waiting.pop()
        if span.span_id in seen:
            continue
        seen.add(span.span_id)
        ordered.append((span, depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(span.span_id, []))]


def _first(places: Sequence[Record], names: Iterable[str]) -> Any:
    for name in names:
        for attributes in places:
            if (value := looked_up(attributes, name)) not in (None, ""):
                return value
    return None


def looked_up(attributes: Record, name: str) -> Any:
    """Return an attribute by its name, or by its path where attributes hold objects or JSON."""
    if name in attributes:
        return attributes[name]
    for place, char in enumerate(name):
        if char == "." and name[:place] in attributes:
            inner = parsed(attributes[name[:place]])
            if isinstance(inner, dict):
                return looked_up(inner, name[place + 1 :])
    return None


def _paths(attributes: Record) -> Iterator[str]:
    for name, value in attributes.items():
        inner = parsed(value)
        if isinstance(inner, dict):
            yield from (f"{name}.{key}" for key in inner)
        else:
            yield name


class TraceRecords:
    """Spans and assessments in the order in which they are read, put together by trace."""

    def __init__(self) -> None:
        self._spans: dict[str, list[Span]] = {}
        self._assessments: dict[str, list[Assessment]] = {}
        self._attributes: dict[str, Record] = {}

    def add(self, span: Span) -> None:
        """Add a span."""
        self._spans.setdefault(span.trace_id, []).append(span)

    def assess(self, assessment: Assessment) -> None:
        """Add an assessment of a trace that may be read later."""
        self._assessments.setdefault(assessment.trace_id, []).append(assessment)

    def describe(self, trace_id: str, attributes: Record) -> None:
        """Add attributes of a trace as a whole; the first value of a name is kept."""
        known = self._attributes.setdefault(trace_id, {})
        for name, value in attributes.items():
            known.setdefault(name, value)

    def trees(self, reading: Reading) -> Iterator[SpanTree]:
        """Return the traces in the order of their first spans."""
        for trace_id, found in self._assessments.items():
            if trace_id not in self._spans:
                reading.drop(
                    "label_without_trace",
                    f"the assessment {found[0].name!r} is of the trace {trace_id}, which is not "
                    "in these files; export its spans too.",
                )
        for trace_id, spans in self._spans.items():
            yield SpanTree.of(
                spans, self._assessments.get(trace_id, ()), self._attributes.get(trace_id, {})
            )
