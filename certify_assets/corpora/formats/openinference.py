"""OpenInference spans as Phoenix exports them: Parquet tables of spans and of annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from certify_assets.corpora.formats.base import (
    Draft,
    Origin,
    Reading,
    corpus_format,
    parquet_columns,
    parquet_records,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record, parquet_names
from certify_assets.corpora.formats.span_attributes import SpanEvent, span_of, undotted
from certify_assets.corpora.formats.span_messages import parsed
from certify_assets.corpora.formats.span_tree import Span, TraceRecords, nanoseconds
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, drafts_of_traces
from certify_assets.corpora.formats.texts import mapping, objects, text_of

_SPANS = frozenset({"context.trace_id", "context.span_id", "parent_id"})
_COLUMNS = words("name span_kind start_time end_time status_code status_message events")
_NAMES = ("annotation_name", "name")
_TARGETS = ("span_id", "context.span_id", "trace_id", "context.trace_id")
_VALUES = words("annotator_kind result.label result.score label score")
_BATCH_ROWS = 256


def _fits(file: SourceFile) -> bool:
    names = parquet_names(file)
    return names is not None and names >= _SPANS


@corpus_format(
    title="OpenInference spans of Phoenix (Parquet, with annotations in a table of their own)",
    suffixes=(".parquet", ".pq"),
    fits=_fits,
    options=TRACE_OPTIONS,
    label_source="annotations of the traces, or an attribute",
)
def openinference(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read spans, with the annotations of all files."""
    traces, of_span = TraceRecords(), dict[str, str]()
    annotations: list[tuple[Origin, Record]] = []
    for file in files:
        names = parquet_columns(file, reading)
        if names >= _SPANS:
            chosen = [name for name in names if name.startswith("attributes.")]
            wanted = {*chosen, *_SPANS, *(names & set(_COLUMNS))}
            for origin, row in parquet_records(file, wanted, reading, batch_rows=_BATCH_ROWS):
                if span := _span(row, origin, reading):
                    of_span[span.span_id] = span.trace_id
                    traces.add(span)
        elif "annotator_kind" in names and not names.isdisjoint(_TARGETS):
            wanted = names & {*_NAMES, *_TARGETS, *_VALUES}
            annotations += parquet_records(file, wanted, reading, batch_rows=_BATCH_ROWS)
        elif names:
            reading.other(file, "has no columns context.trace_id, context.span_id and parent_id.")
    for origin, row in annotations:
        _annotate(traces, row, of_span, origin, reading)
    yield from drafts_of_traces(traces.trees(reading), reading)


def _span(row: Record, origin: Origin, reading: Reading) -> Span | None:
    trace_id, span_id = (text_of(row.get(f"context.{name}_id")) for name in ("trace", "span"))
    if not trace_id or not span_id:
        reading.drop(
            "unreadable_record",
            f"{origin} has no context.{'span' if trace_id else 'trace'}_id; export spans whole.",
        )
        return None
    # the messages keep their dots until they are read, other objects are paths to a name
    attributes = {
        name.removeprefix("attributes."): value
        for name, value in row.items()
        if name.startswith("attributes.") and value is not None
    }
    if kind := text_of(row.get("span_kind")):
        attributes["openinference.span.kind"] = kind
    return span_of(
        text_of(row.get("name")),
        attributes,
        [
            SpanEvent(text_of(event.get("name")), mapping(undotted(event.get("attributes"))))
            for event in objects(parsed(row.get("events")))
        ],
        failed=text_of(row.get("status_code")).upper().endswith("ERROR"),
        status=row.get("status_message"),
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text_of(row.get("parent_id")),
        start=nanoseconds(row.get("start_time")),
        origin=origin,
    )


def _annotate(
    traces: TraceRecords,
    row: Record,
    of_span: Mapping[str, str],
    origin: Origin,
    reading: Reading,
) -> None:
    name = next((text_of(row.get(key)) for key in _NAMES if row.get(key)), "")
    span_id = text_of(row.get("span_id") or row.get("context.span_id"))
    trace_id = text_of(row.get("trace_id") or row.get("context.trace_id")) or of_span.get(span_id)
    if not name or not trace_id:
        words = (
            f"of the span {span_id!r}, which is not in these files" if name else "without a name"
        )
        reading.drop(
            "label_without_trace", f"{origin} is an annotation {words}; export the spans too."
        )
        return
    label, score = (
        next((row[key] for key in (f"result.{field}", field) if row.get(key) is not None), None)
        for field in ("label", "score")
    )
    kind = text_of(row.get("annotator_kind")).lower()
    traces.assess(
        Assessment(
            trace_id=trace_id,
            span_id=span_id,
            name=name,
            value=label,
            score=score,
            source="llm_judge" if kind == "llm" else kind,
        )
    )
