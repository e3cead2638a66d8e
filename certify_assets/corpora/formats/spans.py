"""Spans of traces of any tool, and one table of the names of their attributes.

OpenTelemetry's GenAI conventions, OpenLLMetry, OpenInference, MLflow and Langfuse have different
names for the same things. A new convention adds names to the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Origin
from certify_assets.corpora.formats.messages import Message, arguments_text, messages_of, value_text
from certify_assets.corpora.formats.records import Record, mapping, objects, parsed, snake, text_of

# of what goes in and comes out: messages as a list, as its JSON text, or as one attribute for each
# field, numbered from 0; then any value at all
_INPUTS = (
    "input.value",
    "traceloop.entity.input",
    "mlflow.spanInputs",
    "langfuse.observation.input",
    "langsmith.inputs",
)
_OUTPUTS = (
    "output.value",
    "traceloop.entity.output",
    "mlflow.spanOutputs",
    "langfuse.observation.output",
    "langsmith.outputs",
)
#: what each thing is called, in order of preference
NAMES: dict[str, tuple[str, ...]] = {
    "kind": (
        "gen_ai.operation.name",
        "openinference.span.kind",
        "traceloop.span.kind",
        "mlflow.spanType",
        "langfuse.observation.type",
        "langsmith.span.kind",
        "llm.request.type",
    ),
    "asked": ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages", *_INPUTS),
    "answered": ("gen_ai.output.messages", "gen_ai.completion", "llm.output_messages", *_OUTPUTS),
    # the same policy in every run, which no judge reads
    "instructions": ("gen_ai.system_instructions",),
    "tool": (
        "gen_ai.tool.name",
        "tool.name",
        "tool_call.function.name",
        "traceloop.entity.name",
    ),
    "arguments": ("gen_ai.tool.call.arguments", "tool.parameters", *_INPUTS),
    "result": ("gen_ai.tool.call.result", *_OUTPUTS),
    "task": (
        "task_id",
        "task.id",
        "metadata.task_id",
        "inputs.task_id",
        "metadata.task",
        "metadata.dataset_item_id",
        "dataset_record_id",
        "reference_example_id",
    ),
    "attempt": ("attempt", "metadata.attempt", "trial", "metadata.trial"),
    "agent": (
        "agent",
        "agent.name",
        "agent_name",
        "metadata.agent",
        "metadata.agent_name",
        "gen_ai.agent.name",
        "gen_ai.request.model",
        "llm.model_name",
        "mlflow.llm.model",
        "metadata.ls_model_name",
        "metadata.model",
        "provided_model_name",
        "model",
        "session_name",
        "service.name",
    ),
}
_CONTENT = tuple(
    name
    for thing in ("asked", "answered", "instructions", "arguments", "result")
    for name in NAMES[thing]
)
#: words of tools for kinds of spans that have another word here
_KINDS = {
    "chat": "llm",
    "chat_model": "llm",
    "chatmodel": "llm",
    "completion": "llm",
    "generation": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "execute_tool": "tool",
    "function": "tool",
    "invoke_agent": "agent",
    "create_agent": "agent",
    "workflow": "chain",
}
# a model's own attributes tell a call of it where no kind is written
_OF_MODELS = ("gen_ai.request.", "llm.model")
# events of the former conventions, one a message, on a span or in a log
_ROLE_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_CHOICE_EVENT = "gen_ai.choice"
_EVALUATION = "gen_ai.evaluation.result"
_NUMBERED = re.compile(r"\d{1,6}")
# fields of a span: its trace, itself and what is above it; and when it began
_IDS = (
    ("trace_id", "context.trace_id"),
    ("span_id", "context.span_id", "id"),
    ("parent_span_id", "parent_id", "parent_run_id", "parent_observation_id"),
)
_STARTS = ("start_time_unix_nano", "start_time", "timestamp")
# ends of a status, of which OpenTelemetry also has numbers
_FAILED = ("ERROR", "2")
# levels of a message, far more than any convention has and far fewer than Python's limit
_DEEPEST = 64


class SpanEvent(NamedTuple):
    """An event of a span, or a record of a log that names the span."""

    name: str
    attributes: Record
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One operation within a trace.

    Parameters
    ----------
    trace_id, span_id, parent_id : str
        Identity; an empty parent_id is that of a root, and an empty span_id the trace as a whole.
    name : str
        Name of the operation, or of the tool.
    kind : str
        Kind of operation: "llm", "tool", "agent", "chain", ...
    start : int
        Nanoseconds; siblings are ordered by start, then as they were read.
    asked, answered : tuple of Message
        Input and output.
    attributes : mapping
        Other attributes, to name task, attempt, agent and outcome by.
    error : str
        The error; "" without one.
    link : str
        Web page of the trace. Only a format sets it, because attributes come from the run itself.
    origin : Origin
        Where it was read.
    """

    trace_id: str
    span_id: str
    origin: Origin
    parent_id: str = ""
    name: str = ""
    kind: str = ""
    start: int = 0
    asked: tuple[Message, ...] = ()
    answered: tuple[Message, ...] = ()
    attributes: Record = field(default_factory=dict)
    error: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Assessment:
    """A judgement of a trace by a person, a program or a model.

    Parameters
    ----------
    trace_id, span_id : str
        Its subject; an empty span_id means the whole trace, an empty trace_id the trace of the
        span.
    name : str
        Name of the assessment, score or feedback.
    values : tuple
        The judgement as a word, a number or both. The first one present counts. With the option
        threshold a number counts, with success or failure a word.
    source : str
        "human", "code", "llm_judge" or another word of the tool, in lower case; "" if unknown.
    """

    trace_id: str
    name: str
    values: tuple[Any, ...]
    source: str = ""
    span_id: str = ""


def nanoseconds(value: Any) -> int:
    """Return a time in nanoseconds, from a number (also as text), a datetime, or ISO 8601.

    A time without a zone is UTC; 0 for other values.
    """
    import pandas as pd

    if str(value).isdecimal():
        return int(str(value)[:24])
    # "now" and "12:00" are of today
    if isinstance(value, str) and not value[:4].isdecimal():
        return 0
    try:
        return int(max(0, pd.Timestamp(value).value))
    except (TypeError, ValueError, OverflowError):
        return 0


def span_of(
    record: Record,
    attributes: Record,
    origin: Origin,
    events: Sequence[SpanEvent] = (),
    *,
    link: str = "",
    **given: str,
) -> Span:
    """Return a span from a record with the field names of any tool, and its attributes.

    Values in `given` take precedence over the record.
    """
    found = {**snake(record), **given}
    merged = dict(attributes)
    for event in events:
        # prompt and completion were attributes of an event before they were those of a span
        if event.name.startswith("gen_ai.") and event.name != _EVALUATION:
            merged = {**event.attributes, **merged}
    word = str(_first(attributes, NAMES["kind"]) or "").strip().lower()
    kind, name = _KINDS.get(word, word), str(found.get("name") or "")
    if not kind and "gen_ai.tool.name" in attributes:
        kind = "tool"
    elif not kind and any(key.startswith(_OF_MODELS) for key in attributes):
        kind = "llm"
    if kind == "tool":
        name = str(_first(attributes, NAMES["tool"]) or name)
        arguments, result = (_first(merged, NAMES[thing]) for thing in ("arguments", "result"))
        asked, answered = tool_messages(name, arguments, result)
    else:
        said, chosen = _event_messages(events)
        asked = said or _messages(merged, "asked", "user")
        answered = chosen or _messages(merged, "answered", "assistant")
    trace_id, span_id, parent_id = (str(_first(found, names) or "") for names in _IDS)
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id,
        start=nanoseconds(_first(found, _STARTS)),
        name=name,
        kind=kind,
        asked=asked,
        answered=answered,
        attributes={key: value for key, value in attributes.items() if not _is_content(key)},
        error=_error(found, events),
        link=link,
        origin=origin,
    )


def _error(found: Record, events: Sequence[SpanEvent]) -> str:
    status = found.get("status")
    if not isinstance(status, dict):
        status = {"code": status or found.get("status_code") or found.get("level")}
    said = text_of(status.get("message") or found.get("status_message") or found.get("error"))
    if not str(status.get("code")).upper().endswith(_FAILED):
        return text_of(found.get("error"))
    thrown = (event.attributes.get("exception.message") for event in events)
    return str(next(filter(None, thrown), "") or said or "failed")


def tool_messages(
    name: str, arguments: Any, result: Any
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the input and the output of a tool, for `Span.asked` and `answered`."""
    asked, shown = _unwrapped(arguments, "input"), _unwrapped(result, "output")
    if isinstance(shown, dict) and shown:
        shown = "\n".join(message.text for message in messages_of(shown, "tool"))
    answered = () if shown is None else (Message("tool", value_text(shown), (), name),)
    return (Message("user", arguments_text(asked)),), answered


def _unwrapped(value: Any, key: str) -> Any:
    """Return the value that LangChain wraps in an object with one key."""
    return value[key] if isinstance(value, dict) and list(value) == [key] else value


def evaluations(trace_id: str, span_id: str, events: Iterable[SpanEvent]) -> Iterator[Assessment]:
    """Return the results of evaluations among events."""
    for event in events:
        found = event.attributes
        if event.name == _EVALUATION and (named := text_of(found.get("gen_ai.evaluation.name"))):
            yield Assessment(
                trace_id=trace_id,
                span_id=span_id,
                name=named,
                values=(
                    found.get("gen_ai.evaluation.score.label"),
                    found.get("gen_ai.evaluation.score.value"),
                ),
                source=text_of(found.get("gen_ai.evaluation.source")).lower(),
            )


def undotted(value: Any, depth: int = 0) -> Any:
    """Turn keys with dots into objects, as in a list of messages that Phoenix exports."""
    # what is nested deeper than any message is an argument or an answer, to the letter
    if depth > _DEEPEST:
        return value
    if isinstance(value, list | tuple):
        return [undotted(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    found: Record = {}
    for key, item in value.items():
        # Parquet gives every object the fields of all of them
        if item is not None:
            *path, last = str(key).split(".")
            place = found
            for name in path:
                inner = place.setdefault(name, {})
                place = inner if isinstance(inner, dict) else {}
            place.setdefault(last, undotted(item, depth + 1))
    return found


def _first(record: Record, names: Iterable[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _messages(attributes: Record, thing: str, role: str) -> tuple[Message, ...]:
    for name in NAMES[thing]:
        value = parsed(attributes[name] if name in attributes else _numbered(attributes, name))
        if isinstance(value, list) and any("." in key for item in objects(value) for key in item):
            value = undotted(value)
        if value is not None and (found := messages_of(value, role)):
            return found
    return ()


def _numbered(attributes: Record, prefix: str) -> Any:
    """Return the values below a prefix, such as `prefix.0.message.role`, as objects and lists."""
    below = {
        key[len(prefix) + 1 :]: value
        for key, value in attributes.items()
        if key.startswith(f"{prefix}.") and key.count(".") <= _DEEPEST
    }
    return _listed(undotted(below)) or None


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(_NUMBERED.fullmatch(key) for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(value) for key, value in tree.items()}


def _event_messages(
    events: Iterable[SpanEvent],
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    asked: list[Any] = []
    answered: list[Any] = []
    for event in events:
        body = {"content": "", **event.attributes, **mapping(parsed(event.body))}
        if match := _ROLE_EVENT.fullmatch(event.name):
            # roles of a tool's answer are named by the event, its call by the field id
            asked.append({**body, "role": body.get("role") or match[1]})
        elif event.name == _CHOICE_EVENT:
            said = {"content": "", **mapping(parsed(body.get("message")))}
            answered.append({**(said if "message" in body else body), "role": "assistant"})
    for record in (*asked, *answered):
        record["tool_calls"] = parsed(record.get("tool_calls"))
    return messages_of(asked), messages_of(answered, "assistant")


def _is_content(key: str) -> bool:
    return key.startswith(_CONTENT) and any(
        key == name or key.startswith(f"{name}.") for name in _CONTENT
    )
