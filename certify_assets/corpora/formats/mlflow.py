"""MLflow traces with their assessments: JSON of traces, and tables that search_traces returns."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    JSON,
    PARQUET,
    Record,
    begins,
    has_fields,
    inside,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.corpora.formats.spans import Assessment, SpanEvent, span_of
from certify_assets.corpora.formats.traces import Said, trace_format

#: key of a trace from a server that holds its web page
LINK = "trace.link"
# of a trace, or of a row of a table; in a table the trace is JSON within JSON
_MARK = rb'\\?"(?:trace_location|trace_metadata|request_metadata)\\?"\s*:'
_TABLES = tuple(("trace_id", "trace_metadata", name) for name in ("trace", "spans"))
_ABOUT = ("tags", "trace_metadata", "request_metadata")
_CONTENT_ATTRIBUTES = ("mlflow.spanInputs", "mlflow.spanOutputs")
# characters that eight bytes become
_BASE64_ID = 12


def _fits(file: SourceFile) -> bool:
    if file.suffix in PARQUET:
        return has_fields(file, *_TABLES)
    return begins(file, b"{[", _MARK)


@trace_format(
    "human",
    title="MLflow traces",
    suffixes=(*JSON, *PARQUET),
    fits=_fits,
    label_source="assessments of the traces, by default those of people",
)
def mlflow(files: FileSet, reading: Reading) -> Said:
    """Read traces with their spans and assessments."""
    for origin, record in reading.records(files, _is_trace):
        yield from _said(record, origin, reading)


def _said(record: Record, origin: Origin, reading: Reading) -> Said:
    info, spans = _trace(record)
    trace_id = text_of(info.get("trace_id") or info.get("request_id"))
    if not trace_id:
        reading.unusable(origin, "it is a trace without trace_id")
        return
    if not spans and reading.judged:
        # assessments are enough to certify; what was asked may be a task
        asked = {"mlflow.spanInputs": info.get("request_preview") or info.get("request")}
        spans = [{"span_id": trace_id, "name": "run", "attributes": asked}]
    elif not spans:
        said = f"trace {trace_id} has no spans; export traces with include_spans=True."
        reading.drop("no_trajectory", f"{origin} {said}")
        return
    link = text_of(record.get(LINK))
    for place in _ABOUT:
        yield span_of({}, mapping(info.get(place)), origin, link=link, trace_id=trace_id)
    for span in spans:
        events = [
            SpanEvent(text_of(event.get("name")), mapping(event.get("attributes")))
            for event in objects(span.get("events"))
        ]
        above = span.get("parent_span_id") or span.get("parent_id")
        yield span_of(
            span,
            _decoded(mapping(span.get("attributes"))),
            origin,
            events,
            trace_id=trace_id,
            span_id=_span_id(span.get("span_id") or inside(span, "context", "span_id")),
            parent_span_id=_span_id(above),
        )
    for found in objects(parsed(info.get("assessments"))):
        yield from _assessments(found, trace_id, reading)


def _is_trace(record: Record) -> bool:
    return not record.keys().isdisjoint(("info", "trace", "spans"))


def _trace(record: Record) -> tuple[Record, list[Record]]:
    """Return the facts about a trace, and its spans, from a trace or a row of a table."""
    whole = mapping(parsed(record.get("trace"))) or record
    if "info" in whole:
        return mapping(whole["info"]), objects(inside(whole, "data", "spans"))
    row = {name: parsed(value) for name, value in record.items()}
    # Parquet keeps an object of varying keys as a list of pairs
    for name in _ABOUT:
        if isinstance(row.get(name), list):
            row[name] = dict(pair for pair in row[name] if isinstance(pair, tuple))
    return row, objects(row.get("spans"))


def _span_id(value: Any) -> str:
    """Return a span's id in the form that assessments use; a trace has it in base64."""
    said = text_of(value)
    try:
        return b64decode(said, validate=True).hex() if len(said) == _BASE64_ID else said
    except ValueError:
        return said


def _decoded(attributes: Record) -> Record:
    """Return attributes as they were set; MLflow stores each one as JSON."""
    found: Record = {}
    for name, value in attributes.items():
        try:
            found[name] = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            found[name] = value
        # MLflow makes an object of text that is JSON, so what was said to the letter is the JSON
        if name in _CONTENT_ATTRIBUTES and not isinstance(found[name], str):
            found[name] = value
    return found


def _assessments(record: Record, trace_id: str, reading: Reading) -> Iterator[Assessment]:
    kind = text_of(inside(record, "source", "source_type")).lower()
    feedback = mapping(record.get("feedback"))
    if record.get("valid") is False:
        reading.notes["assessments that others replace"] += 1
    elif feedback.get("error") is not None:
        reading.notes["assessments that ended in an error"] += 1
    # what was expected is no judgement of the run
    elif feedback:
        yield Assessment(
            trace_id=trace_id,
            span_id=text_of(record.get("span_id")),
            name=text_of(record.get("assessment_name") or record.get("name")),
            values=(feedback.get("value"),),
            source="llm_judge" if kind == "ai_judge" else kind,
        )
