"""Runs of an agent as real instrumentation would record them, for the tests of trace formats."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Tracer

from certify_assets.corpora.formats.base import Reading
from certify_assets.corpora.formats.messages import from_first, messages_of, steps_of_messages
from certify_assets.corpora.trajectory import Step

GENERATIONS = ("messages", "indexed", "events")


@dataclass(frozen=True)
class Run:
    """A chat of an agent with a user and tools, in the fields of chat completions."""

    task: str
    agent: str
    attempt: int
    outcome: int | None
    messages: tuple[dict[str, Any], ...]

    def steps(self) -> tuple[Step, ...]:
        """What every format makes of these messages."""
        messages = messages_of(list(self.messages))
        return steps_of_messages(from_first(messages, "assistant", "tool"), Reading())

    def instruction(self) -> str:
        first = next(
            place for place, one in enumerate(self.messages) if one["role"] in ("assistant", "tool")
        )
        asked = [one["content"] for one in self.messages[:first] if one["role"] == "user"]
        return "\n".join(asked)

    def calls(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]]:
        """Every call of the model: what it was given, what it said, what tools answered."""
        for place, message in enumerate(self.messages):
            if message["role"] == "assistant":
                after = self.messages[place + 1 :]
                end = next((k for k, one in enumerate(after) if one["role"] != "tool"), len(after))
                yield list(self.messages[:place]), message, list(after[:end])


def small_run(number: int = 0, outcome: int | None = 1) -> Run:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "cancel", "arguments": f'{{"order": {number}}}'},
    }
    return Run(
        task=f"task{number % 3}",
        agent=f"agent{number % 2}",
        attempt=number // 6,
        outcome=outcome,
        messages=(
            {"role": "system", "content": "policy"},
            {"role": "user", "content": f"Cancel order {number}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "name": "cancel", "content": "done"},
            {"role": "assistant", "content": f"Order {number} is cancelled."},
            {"role": "user", "content": "Thanks."},
        ),
    )


class _Ids(IdGenerator):
    """Ids that are the same every time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def generate_span_id(self) -> int:
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._random.getrandbits(128) or 1


def recorded(
    runs: Sequence[Run], generation: str, *, label: str = "correct", canary: str | None = None
) -> list[ReadableSpan]:
    """Record runs with the OpenTelemetry SDK in one generation of the GenAI conventions."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(
        id_generator=_Ids(len(generation)), resource=Resource({"service.name": "shop"})
    )
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("tests")
    for run in runs:
        about: dict[str, Any] = {"task_id": run.task, "attempt": run.attempt}
        about |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": run.agent}
        with tracer.start_as_current_span("agent", attributes=about) as root:
            for given, said, answers in run.calls():
                _model(tracer, generation, given, said)
                for answer in answers:
                    _tool(tracer, said, answer)
            if generation == "messages":
                rest = [dict(one) for one in run.messages]
                root.set_attribute("gen_ai.output.messages", json.dumps(_parts(rest)))
            if run.outcome is not None:
                root.add_event(
                    "gen_ai.evaluation.result",
                    {
                        "gen_ai.evaluation.name": label,
                        "gen_ai.evaluation.score.value": float(run.outcome),
                        "gen_ai.evaluation.score.label": "pass" if run.outcome else "fail",
                        "gen_ai.evaluation.explanation": canary or "",
                    },
                )
    return list(kept.get_finished_spans())


def _model(tracer: Tracer, generation: str, given: list[Any], said: dict[str, Any]) -> None:
    about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    with tracer.start_as_current_span("chat m", attributes=about) as span:
        if generation == "messages":
            span.set_attribute("gen_ai.input.messages", json.dumps(_parts(given)))
            span.set_attribute("gen_ai.output.messages", json.dumps(_parts([said])))
        elif generation == "indexed":
            for place, message in enumerate(given):
                span.set_attributes(_indexed(f"gen_ai.prompt.{place}", message))
            span.set_attributes(_indexed("gen_ai.completion.0", said))
        else:
            for message in given:
                span.add_event(f"gen_ai.{message['role']}.message", _event(message))
            span.add_event("gen_ai.choice", _event(said))


def _tool(tracer: Tracer, said: dict[str, Any], answer: dict[str, Any]) -> None:
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": answer.get("name", "")}
    with tracer.start_as_current_span("execute_tool", attributes=about) as span:
        for call in said.get("tool_calls") or ():
            if call["id"] == answer.get("tool_call_id"):
                span.set_attribute("gen_ai.tool.call.arguments", call["function"]["arguments"])
        span.set_attribute("gen_ai.tool.call.result", answer["content"])


def _parts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for message in messages:
        parts: list[dict[str, Any]] = []
        content = message.get("content")
        if message["role"] == "tool":
            answer = {"id": message.get("tool_call_id"), "response": content}
            parts.append({"type": "tool_call_response", **answer})
        elif content:
            parts.append({"type": "text", "content": content})
        for call in message.get("tool_calls") or ():
            parts.append({"type": "tool_call", "id": call["id"], **call["function"]})
        found.append({"role": message["role"], "parts": parts})
    return found


def _indexed(prefix: str, message: dict[str, Any]) -> dict[str, Any]:
    found = {f"{prefix}.role": message["role"], f"{prefix}.content": message.get("content") or ""}
    if message.get("tool_call_id"):
        found[f"{prefix}.tool_call_id"] = message["tool_call_id"]
    for place, call in enumerate(message.get("tool_calls") or ()):
        for name, value in {"id": call["id"], **call["function"]}.items():
            found[f"{prefix}.tool_calls.{place}.{name}"] = value
    return found


def _event(message: dict[str, Any]) -> dict[str, Any]:
    found = {"content": message.get("content") or ""}
    if message["role"] == "tool":
        found["id"] = message.get("tool_call_id") or ""
    if message.get("tool_calls"):
        found["tool_calls"] = json.dumps(message["tool_calls"])
    return found


def otlp_request(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Return OTLP JSON, in which ids are hexadecimal and integers are texts."""
    made = [
        {
            "traceId": f"{span.context.trace_id:032x}",
            "spanId": f"{span.context.span_id:016x}",
            "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
            "name": span.name,
            "startTimeUnixNano": str(span.start_time),
            "endTimeUnixNano": str(span.end_time),
            "attributes": _pairs(span.attributes),
            "droppedAttributesCount": span.dropped_attributes,
            "status": {"code": f"STATUS_CODE_{span.status.status_code.name}"},
            "events": [
                {
                    "name": event.name,
                    "timeUnixNano": str(event.timestamp),
                    "attributes": _pairs(event.attributes),
                }
                for event in span.events
            ],
        }
        for span in spans
        if span.context is not None
    ]
    resource = {"attributes": _pairs(spans[0].resource.attributes)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": made}]}]}


def _pairs(attributes: Any) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}
        for key, value in (attributes or {}).items()
    ]
