"""OpenInference spans as Phoenix exports them: Parquet tables of spans and of annotations."""

from __future__ import annotations

from collections.abc import Iterator

from certify_assets.corpora.formats.base import Draft, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.export_records import PARQUET, export_records, has_fields
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import parsed
from certify_assets.corpora.formats.span_names import SpanEvent, span_of, undotted
from certify_assets.corpora.formats.span_tree import Span, Traces, nanoseconds
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, drafts_of_traces
from certify_assets.corpora.formats.texts import mapping, objects, text_of

_SPANS = frozenset(words("context.trace_id context.span_id parent_id"))


@corpus_format(
    title="OpenInference spans of Phoenix (Parquet, with annotations in a table of their own)",
    suffixes=PARQUET,
    fits=lambda file: has_fields(file, _SPANS),
    options=TRACE_OPTIONS,
    label_source="annotations of the traces, or an attribute",
)
def openinference(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read spans, with the annotations of all files."""
    traces = Traces()
    for origin, row in export_records(files, reading, _is_record):
        if "annotator_kind" in row:
            _annotate(row, traces)
        else:
            traces.add(_span(row, origin))
    yield from drafts_of_traces(traces, reading)


def _is_record(row: Record) -> bool:
    if "annotator_kind" in row:
        return bool(_id(row, "span") or _id(row, "trace")) and bool(_named(row))
    return bool(_id(row, "span") and _id(row, "trace"))


def _id(row: Record, of: str) -> str:
    return text_of(row.get(f"context.{of}_id") or row.get(f"{of}_id"))


def _named(row: Record) -> str:
    return text_of(row.get("annotation_name") or row.get("name"))


def _span(row: Record, origin: Origin) -> Span:
    # the messages keep their dots until they are read, other objects are paths to a name
    attributes = {
        name.removeprefix("attributes."): value
        for name, value in row.items()
        if name.startswith("attributes.") and value is not None
    }
    if kind := text_of(row.get("span_kind")):
        attributes["openinference.span.kind"] = kind
    events = [
        SpanEvent(text_of(event.get("name")), mapping(undotted(event.get("attributes"))))
        for event in objects(parsed(row.get("events")))
    ]
    failed = text_of(row.get("status_code")).upper().endswith("ERROR")
    return span_of(
        text_of(row.get("name")),
        attributes,
        events,
        error=(row.get("status_message") or True) if failed else None,
        trace_id=_id(row, "trace"),
        span_id=_id(row, "span"),
        parent_id=text_of(row.get("parent_id")),
        start=nanoseconds(row.get("start_time")),
        origin=origin,
    )


def _annotate(row: Record, traces: Traces) -> None:
    label, score = (
        next((row[key] for key in (f"result.{field}", field) if row.get(key) is not None), None)
        for field in ("label", "score")
    )
    kind = text_of(row.get("annotator_kind")).lower()
    traces.assess(
        Assessment(
            trace_id=_id(row, "trace"),
            span_id=_id(row, "span"),
            name=_named(row),
            value=label,
            score=score,
            source="llm_judge" if kind == "llm" else kind,
        )
    )
