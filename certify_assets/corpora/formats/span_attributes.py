"""What attributes and events of a span mean: GenAI conventions, OpenLLMetry and OpenInference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from certify_assets.corpora.formats.outcomes import Assessment
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.span_messages import messages_of, parsed
from certify_assets.corpora.formats.span_tree import Span, span_kind, tool_messages
from certify_assets.corpora.formats.texts import Message, mapping, objects, text_of

#: where the kind of a span is, in order of preference
_KINDS = (
    "gen_ai.operation.name",
    "openinference.span.kind",
    "traceloop.span.kind",
    "mlflow.spanType",
    "llm.request.type",
)
# messages as a list, as its JSON text, or as one attribute for each field, numbered from 0: the
# present GenAI conventions, OpenLLMetry after the former ones, OpenInference
_ASKED = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages")
_ANSWERED = ("gen_ai.output.messages", "gen_ai.completion", "llm.output_messages")
# any value at all
_INPUTS = ("input.value", "traceloop.entity.input", "mlflow.spanInputs")
_OUTPUTS = ("output.value", "traceloop.entity.output", "mlflow.spanOutputs")
_INSTRUCTIONS = "gen_ai.system_instructions"
_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "tool_call.function.name", "traceloop.entity.name")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool.parameters", *_INPUTS)
_RESULTS = ("gen_ai.tool.call.result", *_OUTPUTS)
_CONTENT = (*_ASKED, *_ANSWERED, *_ARGUMENTS, *_RESULTS, _INSTRUCTIONS)
# events of the former conventions, one a message, on a span or in a log
_ROLE_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")
_CHOICE_EVENT = "gen_ai.choice"
_EVALUATION = "gen_ai.evaluation.result"
_NUMBERED = re.compile(r"\d{1,6}")
# levels of a message, far more than any convention has and far fewer than Python's limit
_DEEPEST = 64


class SpanEvent(NamedTuple):
    """An event of a span, or a record of a log that names the span."""

    name: str
    attributes: Record
    body: Any = None


def span_of(
    name: str,
    attributes: Record,
    events: Sequence[SpanEvent],
    *,
    failed: bool,
    status: Any,
    **places: Any,
) -> Span:
    """Return a span from what it says of itself; `places` are its other fields.

    Where it `failed`, its status says why.
    """
    kind = span_kind(_first(attributes, _KINDS))
    merged = dict(attributes)
    for event in events:
        # prompt and completion were attributes of an event before they were those of a span
        if event.name.startswith("gen_ai.") and event.name != _EVALUATION:
            merged = {**event.attributes, **merged}
    if kind == "tool" or (not kind and "gen_ai.tool.name" in attributes):
        kind, name = "tool", str(_first(attributes, _TOOL_NAMES) or name)
        asked, answered = tool_messages(name, _first(merged, _ARGUMENTS), _first(merged, _RESULTS))
    else:
        said, chosen = _event_messages(events)
        asked = said or _messages(merged, (*_ASKED, *_INPUTS), "user")
        answered = chosen or _messages(merged, (*_ANSWERED, *_OUTPUTS), "assistant")
        instructions = messages_of(
            {"role": "system", "parts": found}
            if isinstance(found := parsed(merged.get(_INSTRUCTIONS)), list)
            else found,
            "system",
        )
        asked = (*instructions, *asked)
        # a model's own attributes tell a call of it where no kind is written
        if not kind and any(key.startswith(("gen_ai.request.", "llm.model")) for key in attributes):
            kind = "llm"
    kept = {key: value for key, value in attributes.items() if not _is_content(key)}
    return Span(
        name=name,
        kind=kind,
        asked=asked,
        answered=answered,
        attributes=kept,
        error=_error(status, events) if failed else "",
        **places,
    )


def evaluations(
    trace_id: str, span_id: str, events: Iterable[SpanEvent], source: str = ""
) -> Iterator[Assessment]:
    """Return the results of evaluations among events."""
    for event in events:
        found = event.attributes
        if event.name == _EVALUATION and (named := text_of(found.get("gen_ai.evaluation.name"))):
            yield Assessment(
                trace_id=trace_id,
                span_id=span_id,
                name=named,
                value=found.get("gen_ai.evaluation.score.label"),
                score=found.get("gen_ai.evaluation.score.value"),
                source=text_of(found.get("gen_ai.evaluation.source")).lower() or source,
            )


def nested(attributes: Record, prefix: str) -> Any:
    """Return what is below a prefix as objects and lists: `prefix.0.message.role` and the like."""
    if prefix in attributes:
        return attributes[prefix]
    below = {
        key[len(prefix) + 1 :]: value
        for key, value in attributes.items()
        if key.startswith(f"{prefix}.") and key.count(".") <= _DEEPEST
    }
    return _listed(undotted(below)) or None


def undotted(value: Any, depth: int = 0) -> Any:
    """Turn keys with dots into objects, in a list of messages as Phoenix exports it."""
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


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(_NUMBERED.fullmatch(key) for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(value) for key, value in tree.items()}


def _first(attributes: Record, names: Iterable[str]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _messages(attributes: Record, names: Iterable[str], role: str) -> tuple[Message, ...]:
    for name in names:
        value = nested(attributes, name)
        value = parsed(value)
        if isinstance(value, list) and any("." in key for item in objects(value) for key in item):
            value = undotted(value)
        if value is not None and (found := messages_of(value, role)):
            return found
    return ()


def _event_messages(
    events: Iterable[SpanEvent],
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    asked: list[Any] = []
    answered: list[Any] = []
    for event in events:
        body = {**event.attributes, **mapping(parsed(event.body))}
        if match := _ROLE_EVENT.fullmatch(event.name):
            # roles of a tool's answer are named by the event, its call by the field id
            asked.append({"content": "", **body, "role": body.get("role") or match[1]})
        elif event.name == _CHOICE_EVENT:
            answered.append(
                {"content": "", **(mapping(parsed(body.get("message"))) or body)}
                | {"role": "assistant"}
            )
    for record in (*asked, *answered):
        if isinstance(record.get("tool_calls"), str):
            record["tool_calls"] = parsed(record["tool_calls"])
    return messages_of(asked), messages_of(answered, "assistant")


def _error(status: Any, events: Iterable[SpanEvent]) -> str:
    for event in events:
        if event.name == "exception" and (said := event.attributes.get("exception.message")):
            return str(said)
    return text_of(status) or "failed"


def _is_content(key: str) -> bool:
    return key.startswith(_CONTENT) and any(
        key == name or key.startswith(f"{name}.") for name in _CONTENT
    )
