"""OpenTelemetry traces of GenAI applications as OTLP JSON: requests, or lines of a collector."""

from __future__ import annotations

import re
from typing import Any

from certify_assets.corpora.formats.base import Drafts, Origin, Reading, corpus_format, records
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import HEAD, JSON, Record, begins_json
from certify_assets.corpora.formats.span_names import SpanEvent, evaluations, span_of
from certify_assets.corpora.formats.spans import Span, Traces, nanoseconds
from certify_assets.corpora.formats.texts import mapping, objects, text_of
from certify_assets.corpora.formats.traces import TRACE_OPTIONS, drafts_of_traces

_REQUEST = re.compile(rb'"resource(?:Spans|Logs)"\s*:\s*\[')
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_ERRORS = ("2", "status_code_error", "error")
_PLAIN = ("stringValue", "boolValue", "doubleValue", "bytesValue")
_DEEPEST = 50

_Ids = tuple[str, str]


def _fits(file: SourceFile) -> bool:
    head = file.head(HEAD)
    return begins_json(head) and bool(_REQUEST.search(head))


@corpus_format(
    title="OpenTelemetry GenAI traces (OTLP JSON, or JSON lines of a collector)",
    suffixes=JSON,
    fits=_fits,
    options=TRACE_OPTIONS,
    label_source="evaluations of the traces (gen_ai.evaluation.result), or an attribute",
)
def otlp(files: FileSet, reading: Reading) -> Drafts:
    """Read traces, whose spans may be in any number of requests, lines and files."""
    traces, spans = Traces(), list[tuple[_Ids, Record, Origin]]()
    logs: list[tuple[_Ids, Record]] = []
    for origin, request in records(files, reading, _is_request):
        for resource in _inner(request, "resourceSpans"):
            about = _pairs(mapping(resource.get("resource")).get("attributes"))
            for record in _inner(resource, "scopeSpans", "spans"):
                ids = _ids(record)
                if all(ids):
                    spans.append((ids, record, origin))
                    traces.describe(ids[0], about)
                else:
                    said = "cannot be used: it has a span without traceId or spanId."
                    reading.drop("unreadable_record", f"{origin} {said}")
        found = _inner(request, "resourceLogs", "scopeLogs", "logRecords")
        logs += ((_ids(record), record) for record in found if _ids(record)[0])
    logged: dict[_Ids, list[SpanEvent]] = {}
    for ids, record in sorted(logs, key=lambda item: _time(item[1])):
        attributes = _pairs(record.get("attributes"))
        name = text_of(record.get("eventName") or attributes.get("event.name"))
        event = SpanEvent(name, attributes, _value(record.get("body")))
        logged.setdefault(ids, []).append(event)
    for ids, record, origin in spans:
        own = [
            SpanEvent(text_of(event.get("name")), _pairs(event.get("attributes")))
            for event in sorted(objects(record.get("events")), key=_time)
        ]
        traces.add(_span(ids, record, [*own, *logged.get(ids, ())], origin))
        # a recorder keeps 128 attributes unless it is asked for more
        if lost := nanoseconds(record.get("droppedAttributesCount")):
            reading.notes["attributes that the recorder left out"] += lost
        logged.setdefault(ids, []).extend(own)
    for ids, events in logged.items():
        for assessment in evaluations(*ids, events):
            traces.assess(assessment)
    yield from drafts_of_traces(traces, reading)


def _is_request(record: Record) -> bool:
    return any(record.get(name) is not None for name in ("resourceSpans", "resourceLogs"))


def _inner(record: Record, *names: str) -> list[Record]:
    found = [record]
    for name in names:
        found = [inner for outer in found for inner in objects(outer.get(name))]
    return found


def _ids(record: Record) -> _Ids:
    return text_of(record.get("traceId")), text_of(record.get("spanId"))


def _time(record: Record) -> int:
    return nanoseconds(record.get("timeUnixNano"))


def _span(ids: _Ids, record: Record, events: list[SpanEvent], origin: Origin) -> Span:
    status = mapping(record.get("status"))
    failed = str(status.get("code", "")).lower() in _ERRORS
    return span_of(
        text_of(record.get("name")),
        _pairs(record.get("attributes")),
        events,
        error=(status.get("message") or True) if failed else None,
        trace_id=ids[0],
        span_id=ids[1],
        parent_id=text_of(record.get("parentSpanId")),
        start=nanoseconds(record.get("startTimeUnixNano")),
        origin=origin,
    )


def _pairs(pairs: Any, depth: int = 0) -> Record:
    return {text_of(pair.get("key")): _value(pair.get("value"), depth) for pair in objects(pairs)}


def _value(value: Any, depth: int = 0) -> Any:
    """Return the value of an attribute, which JSON holds with its type."""
    found = mapping(value)
    for name in _PLAIN:
        if (plain := found.get(name)) is not None:
            return plain
    if (number := found.get("intValue")) is not None:
        # 64 bits do not fit into a number of JSON, so it is text
        return int(number) if _INTEGER.fullmatch(str(number)) else number
    several, pairs = found.get("arrayValue"), found.get("kvlistValue")
    if depth > _DEEPEST or (several is None and pairs is None):
        return None
    if several is not None:
        return [_value(item, depth + 1) for item in objects(mapping(several).get("values"))]
    return _pairs(mapping(pairs).get("values"), depth + 1)
