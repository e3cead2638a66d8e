"""OpenInference spans as Phoenix exports them: Parquet tables of spans and of annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certify_assets.corpora.formats.base import Draft, Files, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.files import BrokenFileError, SourceFile
from certify_assets.corpora.formats.labelling import Assessment
from certify_assets.corpora.formats.records import Record, parquet_names, parquet_rows
from certify_assets.corpora.formats.span_attributes import SpanEvent, span_content, undotted
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


def _is_annotations(names: set[str]) -> bool:
    return "annotator_kind" in names and not names.isdisjoint(_TARGETS)


@corpus_format(
    title="OpenInference spans of Phoenix (Parquet, with annotations in a table of their own)",
    suffixes=(".parquet", ".pq"),
    fits=_fits,
    options=TRACE_OPTIONS,
    label_source="annotations of the traces, or an attribute",
)
def openinference(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read spans, with the annotations of all files."""
    traces, of_span = TraceRecords(), dict[str, str]()
    annotations: list[tuple[Origin, Record]] = []
    for file in files:
        try:
            names = parquet_names(file)
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
            continue
        if names is None:
            reading.drop("file_unreadable", f"{file.name} is not a Parquet file; write it again.")
        elif names >= _SPANS:
            chosen = [name for name in names if name.startswith("attributes.")]
            wanted = sorted({*chosen, *_SPANS, *(names & set(_COLUMNS))})
            for origin, row in _rows(file, wanted, reading):
                if span := _span(row, origin, reading):
                    of_span[span.span_id] = span.trace_id
                    traces.add(span)
        elif _is_annotations(names):
            wanted = sorted(names & {*_NAMES, *_TARGETS, *_VALUES})
            annotations += _rows(file, wanted, reading)
        else:
            reading.other(file, "has no columns context.trace_id, context.span_id and parent_id.")
    for origin, row in annotations:
        _annotate(traces, row, of_span, origin, reading)
    yield from drafts_of_traces(traces.trees(reading), reading)


def _rows(
    file: SourceFile, columns: list[str], reading: Reading
) -> Iterator[tuple[Origin, Record]]:
    for number, row in parquet_rows(file, columns, batch_rows=_BATCH_ROWS):
        if isinstance(row, str):
            reading.drop("file_ends_early", f"{file.name} row {number}: {row}.")
        else:
            yield reading.origin(file, number), row


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
    failed = text_of(row.get("status_code")).upper().endswith("ERROR")
    content = span_content(
        text_of(row.get("name")),
        attributes,
        [
            SpanEvent(text_of(event.get("name")), mapping(undotted(event.get("attributes"))))
            for event in objects(parsed(row.get("events")))
        ],
        failed=(text_of(row.get("status_message")) or "failed") if failed else "",
    )
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text_of(row.get("parent_id")),
        start=nanoseconds(row.get("start_time")),
        end=nanoseconds(row.get("end_time")),
        origin=origin,
        **content._asdict(),
    )


def _annotate(
    traces: TraceRecords,
    row: Mapping[str, Any],
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
