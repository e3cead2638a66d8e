"""Traces as trees of spans, whatever tool recorded them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import parsed
from certify_assets.corpora.formats.texts import Message

#: the kind of spans that judge the run: no judge may read them
JUDGING = "evaluator"
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
    So is the earliest span of a cycle. Spans that judge the run, and what is below them, are left
    out. All of these are counted in the notes of the reading.
    """

    def __init__(
        self,
        spans: Iterable[Span],
        reading: Reading,
        assessments: Sequence[Assessment] = (),
        attributes: Record | None = None,
    ) -> None:
        everything = sorted(spans, key=lambda span: span.start)
        self.trace_id, self.origin = everything[0].trace_id, everything[0].origin
        self.assessments, self._attributes = assessments, attributes or {}
        known: dict[str, Span] = {}
        for span in everything:
            known.setdefault(span.span_id, span)
        tops = [span.span_id for span in known.values() if not span.parent_id]
        foster = tops[0] if len(tops) == 1 else ""
        orphans = 0
        self._below: dict[str, list[Span]] = {}
        for span in known.values():
            if span.parent_id and span.parent_id not in known:
                orphans += 1
                span = replace(span, parent_id=foster)
            self._below.setdefault(span.parent_id, []).append(span)
        reached = {span.span_id for span, _ in self._visits("")}
        cycles = 0
        for span in known.values():
            if span.span_id not in reached:
                cycles += 1
                self._below[span.parent_id].remove(span)
                self._below.setdefault("", []).append(replace(span, parent_id=""))
                reached.update(found.span_id for found, _ in self._visits(span.span_id))
        self.spans = [span for span, entering in self.visits() if entering]
        for number, note in (
            (orphans, "spans whose parent is not in the trace"),
            (cycles, "spans among their own parents"),
            (len(everything) - len(known), "spans recorded twice"),
            (len(known) - len(self.spans), "spans of evaluators, left out"),
        ):
            if number:
                reading.notes[note] += number

    def visits(self) -> Iterator[tuple[Span, bool]]:
        """Go through the spans depth first, each once when it begins (True) and when it ends."""
        return self._visits("", JUDGING)

    def _visits(self, parent_id: str, left_out: str = "") -> Iterator[tuple[Span, bool]]:
        # no recursion: traces may be nested deeper than Python allows
        waiting = [(span, True) for span in reversed(self._below.get(parent_id, ()))]
        while waiting:
            span, entering = waiting.pop()
            if left_out and span.kind == left_out:
                continue
            yield span, entering
            if entering:
                waiting.append((span, False))
                below = self._below.get(span.span_id, ())
                waiting += [(child, True) for child in reversed(below)]

    @property
    def roots(self) -> Sequence[Span]:
        """The spans that have no parent in the trace."""
        return [span for span in self._below.get("", ()) if span.kind != JUDGING]

    def attribute(self, *names: str, of_whole: bool = False) -> Any:
        """Return the first attribute of one of the names: of a root, the trace, or any span.

        With `of_whole` under any of the names of a root or the trace before under one of a span.
        """
        whole = [*(span.attributes for span in self.roots), self._attributes]
        inner = [span.attributes for span in self.spans]
        for places in (whole, inner) if of_whole else (whole + inner,):
            for name in names:
                for attributes in places:
                    if (value := looked_up(attributes, name)) not in (None, ""):
                        return value
        return None

    def attribute_names(self) -> str:
        """Name the attributes of the roots and of the trace, for a sentence."""
        places = [*(span.attributes for span in self.roots), self._attributes]
        found = sorted({path for attributes in places for path in _paths(attributes)})
        rest = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return (", ".join(found[:_NAMED]) + rest) or "no attribute"


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
            about = self._attributes.get(trace_id)
            yield SpanTree(spans, reading, said.get(trace_id, ()), about)
