"""LangSmith: runs and feedback of its API and bulk export."""

from __future__ import annotations

from collections.abc import Iterator

from certify_assets.corpora.formats.base import Draft, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.export_records import (
    EXPORT_SUFFIXES,
    export_records,
    has_fields,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import parsed
from certify_assets.corpora.formats.span_names import span_of
from certify_assets.corpora.formats.span_tree import Span, Traces, nanoseconds
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, drafts_of_traces
from certify_assets.corpora.formats.texts import is_id, mapping, objects, text_of

_RUN = frozenset(words("id run_type inputs"))
_KINDS = (
    _RUN | {"trace_id"},
    _RUN | {"dotted_order"},
    frozenset(words("key run_id feedback_source")),
)
_PAGES = ("runs", "data", "feedback")
_SOURCES = {"app": "human", "model": "llm_judge", "auto_eval": "llm_judge"}
_OF_ROOT = words("name session_name session_id reference_example_id inputs thread_id")


@corpus_format(
    title="LangSmith runs and feedback (API or bulk export: JSON, JSON lines, CSV, Parquet)",
    suffixes=EXPORT_SUFFIXES,
    fits=lambda file: has_fields(file, *_KINDS),
    options={
        **TRACE_OPTIONS,
        "label_sources": "sources of feedback that count: human (app, the default), api, "
        "llm_judge (model, auto_eval) or any",
    },
    label_source="feedback on the trace",
)
def langsmith(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read one run a trace."""
    traces = Traces()
    for origin, record in export_records(files, reading, _is_record, _PAGES):
        for found in _unfolded(record):
            if "run_type" in found:
                traces.add(_span(found, origin))
            else:
                _assess(found, traces)
    yield from drafts_of_traces(traces, reading, "human")


def _is_record(record: Record) -> bool:
    if is_id(record.get("key")) and "run_type" not in record:
        return is_id(record.get("run_id")) or is_id(record.get("trace_id"))
    placed = record.get("trace_id") or record.get("dotted_order") or not record.get("parent_run_id")
    return is_id(record.get("id")) and "run_type" in record and bool(placed)


def _unfolded(record: Record) -> Iterator[Record]:
    """Return a run and the runs inside it."""
    waiting = [record]
    # no recursion: runs may be nested deeper than Python allows
    while waiting:
        run = waiting.pop()
        yield run
        above = {"trace_id": _trace_id(run), "parent_run_id": run.get("id")}
        below = ({**above, **child} for child in objects(run.get("child_runs")))
        waiting += filter(_is_record, below)


def _ancestors(run: Record) -> list[str]:
    """Return the ids above a run from its dotted order, <start>Z<id> a level."""
    parts = text_of(run.get("dotted_order")).split(".")
    return [part.partition("Z")[2] for part in parts[:-1]]


def _trace_id(run: Record) -> str:
    return str(run.get("trace_id") or next(iter(_ancestors(run)), run.get("id")))


def _assess(record: Record, traces: Traces) -> None:
    source = text_of(mapping(parsed(record.get("feedback_source"))).get("type")).lower()
    score, word = record.get("score"), record.get("value")
    traces.assess(
        Assessment(
            trace_id=str(record.get("trace_id") or ""),
            span_id=str(record.get("run_id") or ""),
            name=str(record["key"]),
            value=word if score in (None, "") else score,
            word=word,
            source=_SOURCES.get(source, source),
        )
    )


def _span(run: Record, origin: Origin) -> Span:
    above, extra = _ancestors(run), mapping(parsed(run.get("extra")))
    parent = str(run.get("parent_run_id") or next(reversed(above), ""))
    about = {key: run.get(key) for key in _OF_ROOT if not parent}
    about["metadata"] = extra.get("metadata") or parsed(run.get("metadata")) or {}
    # an empty object says nothing; as text it would be something that was said
    said = {f"langsmith.{key}": parsed(run.get(key)) or None for key in ("inputs", "outputs")}
    return span_of(
        str(run.get("name") or ""),
        {**about, **said, "extra": extra, "langsmith.span.kind": run.get("run_type")},
        error=run.get("error"),
        trace_id=_trace_id(run),
        span_id=str(run["id"]),
        parent_id=parent,
        start=nanoseconds(run.get("start_time")),
        origin=origin,
    )
