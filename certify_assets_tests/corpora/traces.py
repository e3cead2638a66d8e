"""Runs of an agent as instrumentation records them, for the tests of trace formats."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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


def recorded(
    runs: Sequence[Run], generation: str, *, canary: str | None = None
) -> list[dict[str, Any]]:
    """Return spans as OTLP JSON has them, in one generation of the GenAI conventions."""
    spans = []
    for number, run in enumerate(runs, 1):
        about: dict[str, Any] = {"task_id": run.task, "attempt": run.attempt}
        about |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": run.agent}
        if generation == "messages":
            about["gen_ai.output.messages"] = json.dumps(_parts([*run.messages]))
        said_of_it = {
            "gen_ai.evaluation.name": "correct",
            "gen_ai.evaluation.score.value": float(run.outcome or 0),
            "gen_ai.evaluation.score.label": "pass" if run.outcome else "fail",
            "gen_ai.evaluation.explanation": canary or "",
        }
        labels = [("gen_ai.evaluation.result", said_of_it)] if run.outcome is not None else []
        made = [_span("agent", about, *labels)]
        for given, said, answers in run.calls():
            made.append(_model(generation, given, said))
            made += [_tool(said, answer) for answer in answers]
        trace = f"{GENERATIONS.index(generation):04x}{number:04x}"
        for place, span in enumerate(made, 1):
            span |= {"traceId": trace * 4, "spanId": f"{trace}{place:08x}"}
            span |= {"parentSpanId": f"{trace}{1:08x}" if place > 1 else ""}
            span["startTimeUnixNano"] = str(place)
        spans += made
    return spans


def _span(name: str, attributes: dict[str, Any], *events: tuple[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": _pairs(attributes),
        "status": {"code": "STATUS_CODE_UNSET"},
        "events": [
            {"name": event, "timeUnixNano": str(place), "attributes": _pairs(about)}
            for place, (event, about) in enumerate(events)
        ],
    }


def _model(generation: str, given: list[Any], said: dict[str, Any]) -> dict[str, Any]:
    about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    if generation == "messages":
        about["gen_ai.input.messages"] = json.dumps(_parts(given))
        about["gen_ai.output.messages"] = json.dumps(_parts([said]))
    elif generation == "indexed":
        for place, message in enumerate(given):
            about |= _indexed(f"gen_ai.prompt.{place}", message)
        about |= _indexed("gen_ai.completion.0", said)
    else:
        asked = [(f"gen_ai.{message['role']}.message", _event(message)) for message in given]
        return _span("chat m", about, *asked, ("gen_ai.choice", _event(said)))
    return _span("chat m", about)


def _tool(said: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": answer.get("name", "")}
    for call in said.get("tool_calls") or ():
        if call["id"] == answer.get("tool_call_id"):
            about["gen_ai.tool.call.arguments"] = call["function"]["arguments"]
    return _span("execute_tool", about | {"gen_ai.tool.call.result": answer["content"]})


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


def otlp_request(spans: Sequence[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": _pairs({"service.name": "shop"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [*spans]}]}]}


def _pairs(attributes: Any) -> list[dict[str, Any]]:
    # in OTLP integers are texts
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}
        for key, value in (attributes or {}).items()
    ]
