"""MLflow traces with their assessments: JSON of traces, and tables that search_traces returns."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Origin,
    Reading,
    contents,
    corpus_format,
    parquet_columns,
    parquet_records,
    usable,
    words,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    begins_json,
    json_records,
    parquet_names,
)
from certify_assets.corpora.formats.span_attributes import SpanEvent, span_of
from certify_assets.corpora.formats.span_messages import parsed
from certify_assets.corpora.formats.span_tree import Span, TraceRecords, nanoseconds
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, TraceDefaults, drafts_of_traces
from certify_assets.corpora.formats.texts import listed, mapping, objects, text_of

_PARQUET = (".parquet", ".pq")
# of a trace, a row of a table, or the spans alone, which name their trace; in a table the trace is
# JSON within JSON
_MARK = re.compile(
    rb'\\?"(?:trace_location|trace_metadata|request_metadata|mlflow\.traceRequestId)\\?"\s*:'
)
_TABLE = frozenset({"trace_id", "trace_metadata"})
_CONTENT = frozenset({"trace", "spans"})
_COLUMNS = words("trace_id trace spans assessments tags trace_metadata")
_REQUEST_ID = "mlflow.traceRequestId"
_CONTENT_ATTRIBUTES = ("mlflow.spanInputs", "mlflow.spanOutputs")
# characters that eight bytes become
_BASE64_ID = 12
_BATCH_ROWS = 64
_DEFAULTS = TraceDefaults(
    agent=(*TraceDefaults.agent[:-1], "mlflow.llm.model"), label_sources=("human",)
)


def _fits(file: SourceFile) -> bool:
    if file.suffix in _PARQUET:
        names = parquet_names(file)
        return names is not None and names >= _TABLE and not names.isdisjoint(_CONTENT)
    head = file.head(HEAD)
    return begins_json(head) and bool(_MARK.search(head))


@corpus_format(
    title="MLflow traces with assessments (JSON of traces, tables of search_traces, a server)",
    suffixes=(".json", ".jsonl", ".ndjson", *_PARQUET),
    fits=_fits,
    options=TRACE_OPTIONS,
    label_source="assessments of the traces, by default those of people",
)
def mlflow(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read traces with their spans and assessments."""
    traces = TraceRecords()
    for origin, record in _records(files, reading):
        trace = _trace(record)
        info = mapping(trace.get("info"))
        spans = objects(mapping(trace.get("data")).get("spans"))
        trace_id = _trace_id(info, spans)
        if not trace_id:
            reading.drop(
                "unreadable_record",
                f"{origin} is a trace without trace_id; export it with Trace.to_json().",
            )
            continue
        if not spans:
            reading.drop(
                "no_trajectory",
                f"{origin} trace {trace_id} has no spans; export traces with include_spans=True.",
            )
            continue
        if info.get("state") == "IN_PROGRESS":
            reading.notes["traces still in progress"] += 1
        for span in spans:
            traces.add(_span(span, trace_id, origin))
        for place in ("tags", "trace_metadata", "request_metadata"):
            traces.describe(trace_id, mapping(info.get(place)))
        for found in _assessments(info, trace_id, reading):
            traces.assess(found)
    yield from drafts_of_traces(traces.trees(reading), reading, _DEFAULTS)


def _records(files: FileSet, reading: Reading) -> Iterator[tuple[Origin, Record]]:
    for file in files:
        if file.suffix in _PARQUET:
            names = parquet_columns(file, reading)
            if names >= {"trace_id"} and not names.isdisjoint(_CONTENT):
                wanted = names & {*_COLUMNS}
                yield from parquet_records(file, wanted, reading, batch_rows=_BATCH_ROWS)
            elif names:
                reading.other(file, "has no columns trace_id and trace or spans.")
            continue
        for _, data in contents([file], reading):
            if not _MARK.search(data):
                reading.other(file, "holds no MLflow trace.")
                continue
            for row, found in json_records(data):
                record = usable(found, f"{file.name} row {row}", reading, lambda _: None)
                if record is not None:
                    yield reading.origin(file, row), record


def _trace(record: Record) -> Record:
    """Bring a trace, a row of search_traces or an artifact of spans alone to one shape."""
    whole = parsed(record.get("trace"))
    if isinstance(whole, dict):
        return whole
    if "info" in record:
        return record
    # Parquet keeps an object of varying keys as a list of pairs
    info = {
        name: _paired(value) if isinstance(value, list) and name != "assessments" else value
        for name, value in ((name, parsed(record.get(name))) for name in _COLUMNS)
        if name not in ("trace", "spans")
    }
    return {"info": info, "data": {"spans": parsed(record.get("spans"))}}


def _paired(items: list[Any]) -> Record:
    pairs = (item for item in items if isinstance(item, list | tuple) and len(item) == 2)
    return {text_of(name): value for name, value in pairs if text_of(name)}


def _trace_id(info: Record, spans: list[Record]) -> str:
    named = text_of(info.get("trace_id") or info.get("request_id"))
    if named or not spans:
        return named
    return text_of(_decoded(mapping(spans[0].get("attributes"))).get(_REQUEST_ID))


def _span(record: Record, trace_id: str, origin: Origin) -> Span:
    context = mapping(record.get("context"))
    status = record.get("status")
    code = mapping(status).get("code") or status or record.get("status_code")
    return span_of(
        text_of(record.get("name")),
        _decoded(mapping(record.get("attributes"))),
        [
            SpanEvent(text_of(event.get("name")), mapping(event.get("attributes")))
            for event in objects(record.get("events"))
        ],
        failed=str(code).upper().endswith("ERROR"),
        status=mapping(status).get("message") or record.get("status_message"),
        trace_id=trace_id,
        span_id=_span_id(record.get("span_id") or context.get("span_id")),
        parent_id=_span_id(record.get("parent_span_id") or record.get("parent_id")),
        start=nanoseconds(record.get("start_time_unix_nano") or record.get("start_time")),
        origin=origin,
    )


def _span_id(value: Any) -> str:
    """Return a span's id as assessments name it; in a trace it is base64, elsewhere hexadecimal."""
    said = text_of(value)
    try:
        return b64decode(said, validate=True).hex() if len(said) == _BASE64_ID else said
    except ValueError:
        return said


def _decoded(attributes: Record) -> Record:
    """Return attributes as they were set; MLflow stores each as JSON."""
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


def _assessments(info: Record, trace_id: str, reading: Reading) -> Iterator[Assessment]:
    for record in objects(listed(parsed(info.get("assessments")))):
        source = mapping(record.get("source"))
        kind = text_of(source.get("source_type")).lower()
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
                value=feedback.get("value"),
                source="llm_judge" if kind == "ai_judge" else kind,
            )
