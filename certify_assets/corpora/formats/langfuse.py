"""Langfuse: traces, observations and scores of its API, blob storage exports and tables.

A trace is given whole (GET /traces/ID), as a row with observations and scores in other files, or as
a row of the page's table. Otherwise it is known only from its observations. Fields are camelCase in
the API and snake_case in files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from certify_assets.corpora.formats.base import Origin, Reading, words
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.outcomes import Unclear
from certify_assets.corpora.formats.records import (
    EXPORTS,
    Record,
    has_fields,
    is_id,
    objects,
    parsed,
    snake,
    text_of,
)
from certify_assets.corpora.formats.spans import Assessment, Span, span_of
from certify_assets.corpora.formats.traces import Said, trace_format
from certify_assets.corpora.formats.transcript import JUDGING

_SCORE = frozenset(words("name source data_type value"))
_KINDS = (
    words("trace_id start_time type parent_observation_id"),
    _SCORE,
    words("timestamp user_id session_id public html_path"),
    words("timestamp user_id session_id public bookmarked"),
)
_PAGES = ("data", "traces", "observations", "scores")
_SOURCES = {"annotation": "human", "eval": "llm_judge"}
_NOT_NUMERIC = ("CATEGORICAL", "TEXT")
_TEXTS = frozenset(words("id type input output observations scores"))
_OF_TRACE = words("trace_name user_id session_id release tags environment version")


@trace_format(
    "human",
    title="Langfuse exports (API, blob storage or table: JSON, JSON lines, CSV, Parquet)",
    suffixes=EXPORTS,
    fits=lambda file: has_fields(file, *_KINDS),
    label_source="scores of the trace",
)
def langfuse(files: FileSet, reading: Reading) -> Said:
    """Read one run for each trace."""
    wholes: dict[str, tuple[Record, Origin]] = {}
    observations: dict[str, list[Span]] = {}
    for origin, record in reading.records(files, _is_record, under=_PAGES):
        for found in _unfolded(snake(record)):
            trace_id, identity = str(found.get("trace_id")), str(found.get("id"))
            if found.keys() >= _SCORE:
                yield from _assessments(found, reading)
            elif "start_time" in found:
                observations.setdefault(trace_id, []).append(_span(found, trace_id, origin))
                about = {key: found.get(key) for key in _OF_TRACE}
                yield span_of({}, about, origin, trace_id=trace_id)
            elif wholes.setdefault(identity, (found, origin))[0] is not found:
                reading.notes["traces exported twice, and read once"] += 1
    for trace_id, (record, origin) in wholes.items():
        whole = _span({**record, "type": "AGENT"}, trace_id, origin)
        yield replace(whole, span_id="", link=_page(record))
        observations[trace_id] = _with_whole(whole, observations.get(trace_id, []))
    for spans in observations.values():
        yield from spans


def _is_record(record: Record) -> bool:
    found = snake(record)
    is_observation = is_id(found.get("trace_id")) and "start_time" in found
    is_part = is_observation or "timestamp" in found
    return found.keys() >= _SCORE or (is_part and is_id(found.get("id")))


def _unfolded(record: Record) -> Iterator[Record]:
    """Return a record, and the observations and scores inside a whole trace."""
    yield record
    for inner in (*objects(record.get("observations")), *objects(record.get("scores"))):
        found = {"trace_id": record.get("id"), **snake(inner)}
        if _is_record(found):
            yield found


def _assessments(score: Record, reading: Reading) -> Iterator[Assessment]:
    if not is_id(score.get("trace_id")):
        reading.notes["scores of sessions and dataset runs, which are of no one trace"] += 1
        return
    said, source = score.get("value"), text_of(score.get("source")).lower()
    # the number next to a category is its place in a list that the export lacks
    if score.get("data_type") in _NOT_NUMERIC:
        said = score.get("string_value") or Unclear(
            "its category is not in the export. Export the scores with stringValue."
        )
    yield Assessment(
        trace_id=str(score["trace_id"]),
        span_id=str(score.get("observation_id") or ""),
        name=str(score.get("name")),
        values=(said,),
        source=_SOURCES.get(source, source),
    )


def _span(record: Record, trace_id: str, origin: Origin) -> Span:
    # columns of scores in a table hold lists of one value
    attributes = {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in ((key, parsed(value)) for key, value in record.items())
        if key not in _TEXTS
    }
    attributes["langfuse.observation.type"] = record.get("type")
    for key in ("input", "output"):
        # an empty object says nothing; as text it would be something that was said
        is_empty = parsed(record.get(key)) in (None, "", {}, [])
        attributes[f"langfuse.observation.{key}"] = None if is_empty else record[key]
    return span_of(record, attributes, origin, trace_id=trace_id)


def _page(trace: Record) -> str:
    """Return the address of a trace's web page, "" if it is unknown."""
    host, path = os.environ.get("LANGFUSE_HOST"), text_of(trace.get("html_path"))
    return f"{host.rstrip('/')}/{path.lstrip('/')}" if host and path else ""


def _with_whole(whole: Span, spans: list[Span]) -> list[Span]:
    """Add the trace's own fields to its outermost span, or above several outermost spans."""
    tops = [span for span in spans if not span.parent_id and span.kind != JUDGING]
    if len(tops) != 1:
        below = (replace(span, parent_id=span.parent_id or whole.span_id) for span in spans)
        return [whole, *below]
    (top,) = tops
    if top.kind in ("llm", "tool"):
        return spans
    merged = replace(top, asked=top.asked or whole.asked, answered=top.answered or whole.answered)
    return [merged if span is top else span for span in spans]
