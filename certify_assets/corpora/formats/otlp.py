"""OpenTelemetry traces of GenAI applications as OTLP JSON: requests, or lines of a collector."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from certify_assets.corpora.formats.base import Origin, Reading
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    JSON,
    Record,
    begins,
    inside,
    mapping,
    objects,
    text_of,
)
from certify_assets.corpora.formats.spans import SpanEvent, evaluations, nanoseconds, span_of
from certify_assets.corpora.formats.traces import Said, trace_format

_REQUEST = rb'"resource(?:Spans|Logs)"\s*:\s*\['
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_PLAIN = ("stringValue", "boolValue", "doubleValue", "bytesValue")
_DEEPEST = 50


def _fits(file: SourceFile) -> bool:
    return begins(file, b"{[", _REQUEST)


@trace_format(
    title="OpenTelemetry GenAI traces (OTLP JSON, or JSON lines of a collector)",
    suffixes=JSON,
    fits=_fits,
    label_source="evaluations of the traces (gen_ai.evaluation.result), or an attribute",
)
def otlp(files: FileSet, reading: Reading) -> Said:
    """Read traces; their spans may be in several requests, lines and files."""
    spans: list[tuple[Record, Record, Origin]] = []
    logs: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for origin, request in reading.records(files, _is_request):
        for resource in _inner(request, "resourceSpans"):
            about = _pairs(inside(resource, "resource", "attributes"))
            for record in _inner(resource, "scopeSpans", "spans"):
                if all(_ids(record)):
                    spans.append((record, about, origin))
                else:
                    reading.unusable(origin, "it has a span without traceId or spanId")
        for record in _inner(request, "resourceLogs", "scopeLogs", "logRecords"):
            logs[_ids(record)].append(record)
    for record, about, origin in spans:
        trace_id, span_id = _ids(record)
        given = [*objects(record.get("events")), *logs.pop((trace_id, span_id), ())]
        events = [_event(event) for event in sorted(given, key=_time)]
        yield span_of({}, about, origin, trace_id=trace_id)
        yield span_of(record, _pairs(record.get("attributes")), origin, events)
        yield from evaluations(trace_id, span_id, events)
        # a recorder keeps 128 attributes unless it is asked for more
        if lost := nanoseconds(record.get("droppedAttributesCount")):
            reading.notes["attributes that the recorder left out"] += lost
    for (trace_id, span_id), rest in logs.items():
        yield from evaluations(trace_id, span_id, map(_event, rest))


def _is_request(record: Record) -> bool:
    return any(record.get(name) is not None for name in ("resourceSpans", "resourceLogs"))


def _inner(record: Record, *names: str) -> list[Record]:
    found = [record]
    for name in names:
        found = [inner for outer in found for inner in objects(outer.get(name))]
    return found


def _ids(record: Record) -> tuple[str, str]:
    return text_of(record.get("traceId")), text_of(record.get("spanId"))


def _time(record: Record) -> int:
    return nanoseconds(record.get("timeUnixNano"))


def _event(record: Record) -> SpanEvent:
    """Read an event of a span, or a record of a log."""
    attributes = _pairs(record.get("attributes"))
    names = (record.get("name"), record.get("eventName"), attributes.get("event.name"))
    name = next(filter(None, names), "")
    return SpanEvent(text_of(name), attributes, _value(record.get("body")))


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
    if depth > _DEEPEST:
        return None
    if (several := found.get("arrayValue")) is not None:
        return [_value(item, depth + 1) for item in objects(inside(several, "values"))]
    if (pairs := found.get("kvlistValue")) is not None:
        return _pairs(inside(pairs, "values"), depth + 1)
    return None
