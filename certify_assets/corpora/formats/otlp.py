"""OpenTelemetry traces of GenAI applications as OTLP JSON: requests, or lines of a collector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Origin,
    Reading,
    contents,
    corpus_format,
    usable,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile, Tally
from certify_assets.corpora.formats.records import HEAD, Record, begins_json, json_records
from certify_assets.corpora.formats.span_attributes import SpanEvent, evaluations, span_of
from certify_assets.corpora.formats.span_tree import Span, TraceRecords, nanoseconds
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, drafts_of_traces
from certify_assets.corpora.formats.texts import mapping, objects, text_of

_REQUEST = re.compile(rb'"resource_?(?:[sS]pans|[lL]ogs)"\s*:\s*\[')
_LOGS = re.compile(rb'"resource_?[lL]ogs"\s*:')
_CAPITAL = re.compile("[A-Z]")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_ERRORS = ("2", "status_code_error", "error")
_DEEPEST = 50


def _fits(file: SourceFile) -> bool:
    head = file.head(HEAD)
    return begins_json(head) and bool(_REQUEST.search(head))


@corpus_format(
    title="OpenTelemetry GenAI traces (OTLP JSON, or JSON lines of a collector)",
    suffixes=(".json", ".jsonl", ".ndjson"),
    fits=_fits,
    options=TRACE_OPTIONS,
    label_source="evaluations of the traces (gen_ai.evaluation.result), or an attribute",
)
def otlp(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read traces, whose spans may be in any number of requests, lines and files."""
    traces, logs = TraceRecords(), _logs(files)
    for file, data in contents(files, reading):
        if not _REQUEST.search(data):
            reading.other(file, "has no resourceSpans.")
            continue
        for row, read in json_records(data):
            request = usable(read, f"{file.name} row {row}", reading, lambda _: None)
            for resource, record in _spans(request or {}):
                origin = reading.origin(file, row)
                ids = _ids(record)
                if not all(ids):
                    reading.drop(
                        "unreadable_record",
                        f"{origin} has a span without {'spanId' if ids[0] else 'traceId'}; export "
                        "spans whole.",
                    )
                    continue
                events = [*_events(record), *logs.get(ids, ())]
                traces.add(_span(record, events, origin))
                traces.describe(ids[0], resource)
                # a recorder keeps 128 attributes unless it is asked for more
                if lost := nanoseconds(_field(record, "droppedAttributesCount")):
                    reading.notes["attributes that the recorder left out"] += lost
                for found in evaluations(*ids, _events(record)):
                    traces.assess(found)
    for (trace_id, span_id), events in logs.items():
        for found in evaluations(trace_id, span_id, events):
            traces.assess(found)
    yield from drafts_of_traces(traces.trees(reading), reading)


def _logs(files: FileSet) -> dict[tuple[str, str], list[SpanEvent]]:
    """Return the events that are records of logs, by trace and span, in the order of time."""
    found: list[tuple[int, tuple[str, str], SpanEvent]] = []
    # what cannot be read is counted with the spans
    for _, data in contents(files, Reading({}, Tally())):
        if not _LOGS.search(data):
            continue
        for _, request in json_records(data):
            for record in _inner(mapping(request), "resourceLogs", "scopeLogs", "logRecords"):
                attributes = _attributes(record)
                name = text_of(_field(record, "eventName") or attributes.get("event.name"))
                if name and _ids(record)[0]:
                    event = SpanEvent(name, attributes, _value(record.get("body")))
                    found.append((nanoseconds(_field(record, "timeUnixNano")), _ids(record), event))
    events: dict[tuple[str, str], list[SpanEvent]] = {}
    for _, ids, event in sorted(found, key=lambda item: item[0]):
        events.setdefault(ids, []).append(event)
    return events


def _spans(request: Record) -> Iterator[tuple[Record, Record]]:
    for resource in objects(_field(request, "resourceSpans")):
        for span in _inner(resource, "scopeSpans", "spans"):
            yield _attributes(mapping(resource.get("resource"))), span


def _inner(record: Record, *names: str) -> Iterator[Record]:
    found = [record]
    for name in names:
        found = [inner for outer in found for inner in objects(_field(outer, name))]
    yield from found


def _ids(record: Record) -> tuple[str, str]:
    return text_of(_field(record, "traceId")), text_of(_field(record, "spanId"))


def _events(record: Record) -> list[SpanEvent]:
    ordered = sorted(
        objects(record.get("events")), key=lambda event: nanoseconds(_field(event, "timeUnixNano"))
    )
    return [SpanEvent(text_of(event.get("name")), _attributes(event)) for event in ordered]


def _span(record: Record, events: list[SpanEvent], origin: Origin) -> Span:
    trace_id, span_id = _ids(record)
    status = mapping(record.get("status"))
    return span_of(
        text_of(record.get("name")),
        _attributes(record),
        events,
        failed=str(status.get("code", "")).lower() in _ERRORS,
        status=status.get("message"),
        trace_id=trace_id,
        span_id=span_id,
        parent_id=text_of(_field(record, "parentSpanId")),
        start=nanoseconds(_field(record, "startTimeUnixNano")),
        origin=origin,
    )


def _field(record: Record, name: str) -> Any:
    """Return a field, also under the name that it has in protocol buffers."""
    if name in record:
        return record[name]
    return record.get(_CAPITAL.sub(lambda match: f"_{match[0].lower()}", name))


def _attributes(record: Record) -> Record:
    return {
        text_of(pair.get("key")): _value(pair.get("value"))
        for pair in objects(record.get("attributes"))
    }


def _value(value: Any, depth: int = 0) -> Any:
    """Return the value of an attribute, which JSON holds with its type."""
    found = mapping(value)
    if depth > _DEEPEST:
        return None
    for name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if (plain := _field(found, name)) is not None:
            return plain
    if (number := _field(found, "intValue")) is not None:
        # 64 bits do not fit into a number of JSON, so it is text
        return int(number) if _INTEGER.fullmatch(str(number)) else number
    if (several := _field(found, "arrayValue")) is not None:
        return [_value(item, depth + 1) for item in objects(mapping(several).get("values"))]
    if (pairs := _field(found, "kvlistValue")) is not None:
        return {
            text_of(pair.get("key")): _value(pair.get("value"), depth + 1)
            for pair in objects(mapping(pairs).get("values"))
        }
    return None
