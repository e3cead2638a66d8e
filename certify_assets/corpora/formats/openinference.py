"""OpenInference spans as Phoenix exports them: Parquet tables of spans and of annotations."""

from __future__ import annotations

from certify_assets.corpora.formats.base import Reading
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.records import (
    PARQUET,
    Record,
    has_fields,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.corpora.formats.spans import Assessment, SpanEvent, span_of, undotted
from certify_assets.corpora.formats.traces import Said, trace_format

_SPANS = ("context.trace_id", "context.span_id", "parent_id")


@trace_format(
    title="OpenInference spans of Phoenix (Parquet, with annotations in a table of their own)",
    suffixes=PARQUET,
    fits=lambda file: has_fields(file, _SPANS),
    label_source="annotations of the traces, or an attribute",
)
def openinference(files: FileSet, reading: Reading) -> Said:
    """Read spans, with the annotations of all files."""
    for origin, row in reading.records(files, _is_record):
        if "annotator_kind" in row:
            yield _assessment(row)
            continue
        # the messages keep their dots until they are read, other objects are paths to a name
        attributes = {
            name.removeprefix("attributes."): value
            for name, value in row.items()
            if name.startswith("attributes.") and value is not None
        }
        events = [
            SpanEvent(text_of(event.get("name")), mapping(undotted(event.get("attributes"))))
            for event in objects(parsed(row.get("events")))
        ]
        attributes["openinference.span.kind"] = row.get("span_kind")
        yield span_of(row, attributes, origin, events)


def _is_record(row: Record) -> bool:
    if "annotator_kind" in row:
        return bool(_first(row, "span_id", "trace_id") and _first(row, "annotation_name", "name"))
    return bool(_first(row, "context.span_id") and _first(row, "context.trace_id"))


def _first(row: Record, *names: str) -> str:
    """Return the first text in one of the columns."""
    return next(filter(None, (text_of(row.get(name)) for name in names)), "")


def _assessment(row: Record) -> Assessment:
    kind = text_of(row.get("annotator_kind")).lower()
    return Assessment(
        trace_id=_first(row, "trace_id"),
        span_id=_first(row, "span_id"),
        name=_first(row, "annotation_name", "name"),
        values=(
            row.get("result.label", row.get("label")),
            row.get("result.score", row.get("score")),
        ),
        source="llm_judge" if kind == "llm" else kind,
    )
