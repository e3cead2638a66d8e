"""LangSmith: runs and feedback of its API and bulk export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Origin, Reading, corpus_format, words
from certify_assets.corpora.formats.export_records import (
    EXPORT_SUFFIXES,
    export_records,
    has_fields,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import messages_of, parsed
from certify_assets.corpora.formats.span_tree import (
    Span,
    TraceRecords,
    nanoseconds,
    span_kind,
    tool_messages,
)
from certify_assets.corpora.formats.spans import TRACE_OPTIONS, TraceDefaults, drafts_of_traces
from certify_assets.corpora.formats.texts import is_id, listed, mapping, objects, text_of

_RUN = frozenset(words("id run_type inputs"))
_FEEDBACK = frozenset(words("key run_id feedback_source"))
_KINDS = (_RUN | {"trace_id"}, _RUN | {"dotted_order"}, _FEEDBACK)
_PAGES = ("runs", "data", "feedback")
_SOURCES = {"app": "human", "model": "llm_judge", "auto_eval": "llm_judge"}
# <start>Z<id>, one part a level
_PART = re.compile(r"(\d{8}T\d{6})(\d{0,6})\d*Z([0-9a-fA-F-]{36})")
#: what frameworks do between models and tools, whose inputs and outputs repeat those
_PLUMBING = words("chain prompt parser embedding")
_DEFAULTS = TraceDefaults(
    task=words("metadata.task_id inputs.task_id reference_example_id"),
    attempt=words("metadata.attempt metadata.trial"),
    agent=words("metadata.agent metadata.agent_name metadata.ls_model_name session_name"),
    label_sources=("human",),
)


@corpus_format(
    title="LangSmith runs and feedback (API or bulk export: JSON, JSON lines, CSV, Parquet)",
    suffixes=EXPORT_SUFFIXES,
    fits=lambda file: has_fields(file, _KINDS),
    options={
        **TRACE_OPTIONS,
        "label_sources": "sources of feedback that count: human (app, the default), api, "
        "llm_judge (model, auto_eval) or any",
    },
    label_source="feedback on the trace",
)
def langsmith(files: FileSet, reading: Reading) -> Iterator[Draft]:
    """Read one run a trace."""
    export = _Export()
    for record, origin in export_records(files, reading, _PAGES, _KINDS):
        export.add(record, origin, reading)
    yield from drafts_of_traces(export.records(reading).trees(reading), reading, _DEFAULTS)


class _Node(NamedTuple):
    """A run with its place in its trace."""

    record: Record
    origin: Origin
    run_id: str
    trace_id: str
    # from the outermost to the parent, as far as they are known
    above: tuple[str, ...]
    start: int
    # whether the record says of which trace it is
    named: bool


class _Export:
    """Runs and feedback of all files, which are put together once all are read."""

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._feedback: list[tuple[str, Record]] = []

    def add(self, record: Record, origin: Origin, reading: Reading) -> None:
        """Add a run, with the runs inside it, or feedback."""
        if "run_type" not in record and is_id(record.get("key")):
            self._add_feedback(record, origin, reading)
            return
        node = _node(record, origin)
        if isinstance(node, str):
            reading.unusable(origin, node)
            return
        waiting = [node]
        # no recursion: runs may be nested deeper than Python allows
        while waiting:
            node = waiting.pop()
            self._nodes.append(node)
            for child in objects(node.record.get("child_runs")):
                above = {"parent_run_id": node.run_id}
                if node.named or not node.above:
                    above["trace_id"] = node.trace_id
                inner = _node({**above, **child}, origin)
                if isinstance(inner, str):
                    reading.drop("unreadable_record", f"{origin} has a child run: {inner}.")
                else:
                    waiting.append(inner)

    def _add_feedback(self, record: Record, origin: Origin, reading: Reading) -> None:
        of = next((record[key] for key in ("run_id", "trace_id") if is_id(record.get(key))), None)
        if of is None:
            reading.unusable(origin, "it has no run_id")
        else:
            self._feedback.append((str(of), record))

    def records(self, reading: Reading) -> TraceRecords:
        """Return the spans and labels of all traces."""
        made = TraceRecords()
        nodes = _placed(self._nodes)
        trace_of = {node.run_id: node.trace_id for node in nodes}
        for node in nodes:
            # a filter may have left out what is between: the nearest that is there keeps the order
            known = [name for name in node.above if trace_of.get(name) == node.trace_id]
            if node.above and known[-1:] != [node.above[-1]]:
                reading.notes["spans whose parent is not in the trace"] += 1
            made.add(_span(node, known[-1] if known else ""))
        for run_id, record in self._feedback:
            trace_id = str(record.get("trace_id") or trace_of.get(run_id, run_id))
            source = text_of(mapping(parsed(record.get("feedback_source"))).get("type")).lower()
            name, score, word = str(record["key"]), record.get("score"), record.get("value")
            made.assess(
                Assessment(
                    trace_id=trace_id,
                    name=name,
                    value=word if score in (None, "") else score,
                    word=word,
                    source=_SOURCES.get(source, source),
                    span_id="" if run_id == trace_id else run_id,
                )
            )
        return made


def _placed(nodes: list[_Node]) -> list[_Node]:
    """Return the runs with the trace of their outermost ancestor, where they do not name it."""
    parents = {node.run_id: node.above[-1] for node in nodes if node.above}
    traces = {node.run_id: node.trace_id for node in nodes if node.named}
    placed = []
    for node in nodes:
        top, seen = node.run_id, set[str]()
        while not node.named and top not in traces and top in parents and top not in seen:
            seen.add(top)
            top = parents[top]
        for name in (*seen, top):
            traces.setdefault(name, traces.get(top, top))
        placed.append(node if node.named else node._replace(trace_id=traces[node.run_id]))
    return placed


def _node(record: Record, origin: Origin) -> _Node | str:
    """Place a run by its ids, else by its dotted order."""
    if not is_id(record.get("id")):
        return "it has no id"
    run_id, parts = str(record["id"]), _PART.findall(text_of(record.get("dotted_order")))
    above = [str(part[2]) for part in parts[:-1]]
    above = above or list(map(str, listed(parsed(record.get("parent_run_ids")))))
    named = str(record.get("trace_id") or next(iter(above), ""))
    trace_id = named or run_id
    parent = str(record.get("parent_run_id") or (above[-1] if above else ""))
    ancestors = [name for name in dict.fromkeys((named, *above)) if name not in ("", parent)]
    start = nanoseconds(record.get("start_time"))
    if not start and parts:
        start = nanoseconds(f"{parts[-1][0]}.{parts[-1][1] or '0'}")
    order = (*ancestors, parent) if parent else ()
    return _Node(record, origin, run_id, trace_id, order, start, bool(named))


def _span(node: _Node, parent_id: str) -> Span:
    record, name = node.record, str(node.record.get("name") or "")
    kind = span_kind(record.get("run_type"))
    # an empty object says nothing; as text it would be something that was said
    asked, answered = parsed(record.get("inputs")) or None, parsed(record.get("outputs")) or None
    if kind == "tool":
        into, out = tool_messages(name, _only(asked, "input"), _only(answered, "output"))
    elif kind in _PLUMBING and node.above:
        into = out = ()
    else:
        into, out = messages_of(asked), messages_of(answered, "assistant")
    extra = mapping(parsed(record.get("extra")))
    return Span(
        trace_id=node.trace_id,
        span_id=node.run_id,
        origin=node.origin,
        parent_id=parent_id,
        name=name,
        kind=kind,
        start=node.start,
        asked=into,
        answered=out,
        attributes=_attributes(record, extra, root=not node.above),
        error=text_of(record.get("error")),
    )


def _attributes(record: Record, extra: Record, *, root: bool) -> Record:
    fields = ("name", "session_name", "session_id", "reference_example_id", "inputs", "thread_id")
    found = {key: record.get(key) for key in fields if root} | {"extra": extra}
    return found | {"metadata": extra.get("metadata") or parsed(record.get("metadata")) or {}}


def _only(value: Any, key: str) -> Any:
    """Return what LangChain wraps a tool's text in: an object with one key, or a message."""
    inner = mapping(value)
    if list(inner) != [key]:
        return value
    said = inner[key]
    if not isinstance(said, dict):
        return said
    messages = messages_of(said, "tool")
    return "\n".join(message.text for message in messages) if messages else said
