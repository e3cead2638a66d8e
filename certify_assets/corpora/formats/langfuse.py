"""Langfuse: traces, observations and scores of its API, blob storage exports and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.export_records import (
    EXPORT_SUFFIXES,
    export_records,
    has_fields,
    snake,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.outcomes import Assessment, Unclear
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import messages_of, parsed
from certify_assets.corpora.formats.span_tree import (
    Span,
    TraceRecords,
    nanoseconds,
    span_kind,
    tool_messages,
)
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, TraceDefaults, drafts_of_traces
from certify_assets.corpora.formats.texts import is_id, objects, text_of

# A trace comes whole (GET /traces/ID), as a row of its own with observations and scores in other
# files (blob storage, GET /traces, /observations and /scores), as a row of the page's table, or
# only as what its observations repeat of it (enriched observations). Fields are camelCase in the
# API and snake_case in files.
_OBSERVATION = frozenset(words("trace_id start_time type parent_observation_id"))
_SCORE = frozenset(words("name source data_type value"))
_TRACE = frozenset(words("timestamp user_id session_id public"))
_KINDS = (_OBSERVATION, _SCORE, _TRACE | {"html_path"}, _TRACE | {"bookmarked"})
_PAGES = ("data", "traces", "observations", "scores")
_SOURCES = {"annotation": "human", "eval": "llm_judge"}
_NOT_NUMERIC = ("CATEGORICAL", "TEXT")
# they judge the run: no judge may read them
_JUDGING = "evaluator"
_TEXTS = frozenset(words("id input output observations scores"))
_OF_TRACE = words("trace_name user_id session_id release tags environment version")
_DEFAULTS = TraceDefaults(
    task=words("metadata.task_id task_id metadata.task metadata.dataset_item_id"),
    attempt=words("metadata.attempt attempt metadata.trial"),
    agent=words(
        "metadata.agent agent metadata.agent_name metadata.model provided_model_name model"
    ),
    label_sources=("human",),
)


class _Found(NamedTuple):
    """One record and where it was read."""

    record: Record
    origin: Origin


@corpus_format(
    title="Langfuse exports (API, blob storage or table: JSON, JSON lines, CSV, Parquet)",
    suffixes=EXPORT_SUFFIXES,
    fits=lambda file: has_fields(file, _KINDS),
    options={
        **TRACE_OPTIONS,
        "label_sources": "sources of scores that count: human (ANNOTATION, the default), api, "
        "llm_judge (EVAL) or any",
    },
    label_source="scores of the trace",
)
def langfuse(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read one run a trace."""
    export = _Export()
    for record, origin in export_records(files, reading, _PAGES, _KINDS):
        export.add(record, origin, reading)
    yield from drafts_of_traces(export.records(reading).trees(reading), reading, _DEFAULTS)


class _Export:
    """Records of all files, which are put together once all are read."""

    def __init__(self) -> None:
        self._traces: dict[str, _Found] = {}
        self._observations: dict[str, list[_Found]] = {}
        self._scores: list[Record] = []

    def add(self, record: Record, origin: Origin, reading: Reading) -> None:
        """Add a trace, an observation or a score."""
        trace_id = record.get("trace_id")
        if record.keys() >= _SCORE:
            self._scores.append(record)
        elif is_id(trace_id) and is_id(record.get("id")) and "start_time" in record:
            self._observations.setdefault(str(trace_id), []).append(_Found(record, origin))
        elif is_id(record.get("id")) and "timestamp" in record:
            self._add_trace(record, origin, reading)
        else:
            reading.unusable(origin, "it is neither a trace nor an observation nor a score")

    def _add_trace(self, record: Record, origin: Origin, reading: Reading) -> None:
        if str(record["id"]) in self._traces:
            reading.notes["traces exported twice, of which the first is read"] += 1
            return
        self._traces[str(record["id"])] = _Found(record, origin)
        for key in ("observations", "scores"):
            for inner in objects(record.get(key)):
                named = {snake(name): value for name, value in inner.items()}
                named.setdefault("trace_id", record["id"])
                if key == "scores":
                    self._scores.append(named)
                else:
                    self.add(named, origin, reading)

    def records(self, reading: Reading) -> TraceRecords:
        """Return the spans, attributes and labels of all traces."""
        made, outermost = TraceRecords(), set[str]()
        for trace_id in dict.fromkeys((*self._traces, *self._observations)):
            trace = self._traces.get(trace_id)
            found = _without_judges(self._observations.get(trace_id, ()), reading)
            roots = {str(item.record["id"]) for item in found if not _parent(item)}
            outermost |= roots
            if trace is not None:
                made.describe(trace_id, _attributes(trace.record))
            for item in found:
                made.describe(trace_id, {key: item.record.get(key) for key in _OF_TRACE})
            known = {str(item.record["id"]) for item in found}
            orphans = sum(bool(_parent(item)) and _parent(item) not in known for item in found)
            if orphans:
                reading.notes["spans whose parent is not in the trace"] += orphans
            for span in _spans(trace_id, trace, found, roots):
                made.add(span)
        for score in self._scores:
            _assess(score, outermost, made, reading)
        return made


def _assess(score: Record, outermost: set[str], made: TraceRecords, reading: Reading) -> None:
    if not is_id(score.get("trace_id")):
        reading.notes["scores of sessions and dataset runs, which are of no one trace"] += 1
        return
    kind = text_of(score.get("data_type"))
    source = text_of(score.get("source")).lower()
    observation = str(score.get("observation_id") or "")
    said = score.get("value")
    # the number next to a category is its place in a list that the export lacks
    if kind in _NOT_NUMERIC:
        said = score.get("string_value") or Unclear(
            "its category is not in the export. Export the scores with stringValue."
        )
    made.assess(
        Assessment(
            trace_id=str(score["trace_id"]),
            name=str(score.get("name")),
            value=said,
            source=_SOURCES.get(source, source),
            # what is said of the only outermost observation is said of the trace
            span_id="" if observation in outermost else observation,
        )
    )


def _without_judges(found: Iterable[_Found], reading: Reading) -> list[_Found]:
    """Leave out evaluators of the run and what they called."""
    everything, below = [*found], dict[str, list[str]]()
    waiting = []
    for item in everything:
        below.setdefault(_parent(item), []).append(str(item.record["id"]))
        if span_kind(item.record.get("type")) == _JUDGING:
            waiting.append(str(item.record["id"]))
    left = set[str]()
    # once each, however deep they are nested
    while waiting:
        if (name := waiting.pop()) not in left:
            left.add(name)
            waiting += below.get(name, ())
    if left:
        reading.notes["observations of evaluators, left out"] += len(left)
    return [item for item in everything if str(item.record["id"]) not in left]


def _said(value: Any) -> Any:
    """Return what was recorded; an empty object says nothing, and as text it would."""
    return None if parsed(value) in (None, "", {}, []) else value


def _parent(found: _Found) -> str:
    return str(found.record.get("parent_observation_id") or "")


def _attributes(record: Record) -> Record:
    """Return what describes a trace; columns of scores in a table hold lists of one value."""
    values = {key: parsed(value) for key, value in record.items() if key not in _TEXTS}
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in values.items()
    }


def _spans(
    trace_id: str, trace: _Found | None, found: list[_Found], roots: set[str]
) -> Iterator[Span]:
    """Return the spans of a trace, whose own input and output are those of its outermost span."""
    alone = next(iter(roots)) if len(roots) == 1 else ""
    known = {str(item.record["id"]) for item in found}
    # what has no parent here is below the outermost span, which keeps it in the order of time
    top = alone or (trace_id if trace is not None else "")
    given = (
        (None, None) if trace is None else (trace.record.get("input"), trace.record.get("output"))
    )
    if trace is not None and not alone:
        yield Span(
            trace_id=trace_id,
            span_id=trace_id,
            origin=trace.origin,
            name=str(trace.record.get("name") or ""),
            kind="agent",
            start=nanoseconds(trace.record.get("timestamp")),
            asked=messages_of(given[0]),
            answered=messages_of(given[1], "assistant"),
        )
    for item in found:
        record, identity = item.record, str(item.record["id"])
        kind, name = span_kind(record.get("type")), str(record.get("name") or "")
        asked, answered = _said(record.get("input")), _said(record.get("output"))
        if identity == alone and kind not in ("llm", "tool"):
            asked = given[0] if asked is None else asked
            answered = given[1] if answered is None else answered
        into, out = (
            tool_messages(name, asked, answered)
            if kind == "tool"
            else (messages_of(asked), messages_of(answered, "assistant"))
        )
        if kind == "chain" and identity not in roots:
            # a step of a framework repeats what the models and tools below it were given
            into = out = ()
        error = text_of(record.get("level")) == "ERROR"
        yield Span(
            trace_id=trace_id,
            span_id=identity,
            origin=item.origin,
            parent_id=_parent(item) if _parent(item) in known else top if identity != top else "",
            name=name,
            kind=kind,
            start=nanoseconds(record.get("start_time")),
            asked=into,
            answered=out,
            attributes=_attributes(record),
            error=(text_of(record.get("status_message")) or "failed") if error else "",
        )
