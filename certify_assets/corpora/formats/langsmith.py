"""LangSmith: runs and feedback of its API and bulk export."""

from __future__ import annotations

from collections.abc import Iterator

from certify_assets.corpora.formats.base import Reading, words
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.records import (
    EXPORTS,
    Record,
    has_fields,
    inside,
    is_id,
    mapping,
    objects,
    parsed,
    text_of,
)
from certify_assets.corpora.formats.spans import Assessment, span_of
from certify_assets.corpora.formats.traces import Said, trace_format

_KINDS = (words("id run_type inputs trace_id"), words("key run_id feedback_source"))
_PLACES = ("trace_id", "run_id")
_PAGES = ("runs", "data", "feedback")
_SOURCES = {"app": "human", "model": "llm_judge", "auto_eval": "llm_judge"}
_OF_ROOT = words("name session_name session_id reference_example_id inputs thread_id")


@trace_format(
    "human",
    title="LangSmith runs and feedback (API or bulk export: JSON, JSON lines, CSV, Parquet)",
    suffixes=EXPORTS,
    fits=lambda file: has_fields(file, *_KINDS),
    label_source="feedback on the trace",
)
def langsmith(files: FileSet, reading: Reading) -> Said:
    """Read one run for each trace."""
    for origin, record in reading.records(files, _is_record, under=_PAGES):
        if "run_type" not in record:
            yield _assessment(record)
            continue
        for run in _with_inner(record):
            extra, is_root = mapping(parsed(run.get("extra"))), not run.get("parent_run_id")
            attributes = {key: run.get(key) for key in _OF_ROOT if is_root}
            for key in ("inputs", "outputs"):
                # an empty object says nothing; as text it would be something that was said
                attributes[f"langsmith.{key}"] = parsed(run.get(key)) or None
            attributes["metadata"] = extra.get("metadata") or parsed(run.get("metadata"))
            attributes |= {"extra": extra, "langsmith.span.kind": run.get("run_type")}
            yield span_of(run, attributes, origin, link=text_of(run.get("url")))


def _is_record(record: Record) -> bool:
    if "run_type" in record:
        placed = record.get("trace_id") or not record.get("parent_run_id")
        return is_id(record.get("id")) and bool(placed)
    return is_id(record.get("key")) and any(is_id(record.get(key)) for key in _PLACES)


def _with_inner(run: Record) -> Iterator[Record]:
    """Return a run and the runs inside it."""
    waiting = [{**run, "trace_id": run.get("trace_id") or run["id"]}]
    # no recursion: runs may be nested deeper than Python allows
    while waiting:
        run = waiting.pop()
        yield run
        above = {"trace_id": run["trace_id"], "parent_run_id": run["id"]}
        below = ({**above, **child} for child in objects(run.get("child_runs")))
        waiting += filter(_is_record, below)


def _assessment(record: Record) -> Assessment:
    source = text_of(inside(parsed(record.get("feedback_source")), "type")).lower()
    trace_id, run_id = (str(record.get(key) or "") for key in _PLACES)
    return Assessment(
        trace_id=trace_id,
        span_id=run_id,
        name=str(record["key"]),
        values=(record.get("score"), record.get("value")),
        source=_SOURCES.get(source, source),
    )
