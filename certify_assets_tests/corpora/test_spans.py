"""Traces become runs, whatever the order and damage of their spans and the shape of messages."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certify_assets.corpora.formats.base import Draft, Origin, Reading
from certify_assets.corpora.formats.messages import Message, messages_of
from certify_assets.corpora.formats.outcomes import Outcomes
from certify_assets.corpora.formats.spans import Assessment, Span, nanoseconds, tool_messages
from certify_assets.corpora.formats.traces import drafts_of_traces
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError

ORIGIN = Origin("traces.json", "0" * 64)
SYSTEM = {"role": "system", "content": "policy"}
ASK = {"role": "user", "content": "Cancel order 7."}
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "function": {"name": "cancel", "arguments": '{"order": 7}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"ok": true}'}
DONE = {"role": "assistant", "content": "Done."}
STEPS = (Step('cancel({"order": 7})', 'tool cancel: {"ok": true}'), Step("Done.", ""))


def span(number: int, parent: int | None = 0, **fields: Any) -> Span:
    values: dict[str, Any] = {
        "trace_id": "t1",
        "span_id": str(number),
        "parent_id": "" if parent is None else str(parent),
        "start": number,
        "origin": ORIGIN,
    }
    return Span(**(values | fields))


def a_run(**root: Any) -> list[Span]:
    asked, answered = tool_messages("cancel", {"order": 7}, {"ok": True})
    return [
        span(0, None, name="support", kind="agent", **({"attributes": {"task_id": "a"}} | root)),
        span(
            1, kind="llm", asked=messages_of([SYSTEM, ASK]), answered=messages_of(CALL, "assistant")
        ),
        span(2, kind="tool", name="cancel", asked=asked, answered=answered),
        span(
            3,
            kind="llm",
            asked=messages_of([SYSTEM, ASK, CALL, RESULT]),
            answered=messages_of(DONE, "assistant"),
        ),
    ]


def drafts(
    spans: list[Span], *assessments: Assessment, **options: Any
) -> tuple[list[Draft], Reading]:
    reading = Reading(options={"keep_unlabelled": True} | options)
    outcomes = Outcomes(reading)
    found = [*outcomes.read(drafts_of_traces([*spans, *assessments], reading), None)]
    outcomes.require_clear()
    return found, reading


def said(value: Any, source: str = "human", name: str = "correct", span_id: str = "") -> Assessment:
    return Assessment(trace_id="t1", name=name, values=(value,), source=source, span_id=span_id)


@given(st.permutations(a_run()))
def test_every_message_once_whatever_the_order_of_the_spans(spans: list[Span]) -> None:
    ((run,), reading) = drafts(spans)
    assert (run.task_id, run.instruction, run.steps) == ("a", "Cancel order 7.", STEPS)
    assert run.trajectory_id == "t1" and not reading.dropped and not reading.notes


def test_the_same_steps_without_tool_spans_or_without_histories() -> None:
    root, first, tool, last = a_run()
    memoryless = span(3, kind="llm", answered=messages_of(DONE, "assistant"))
    inner = span(4, 3, kind="llm", asked=last.asked, answered=last.answered)
    for spans in (
        [root, first, last],
        [root, first, tool, memoryless],
        # a model inside a model is one call
        [root, first, tool, last, inner],
    ):
        assert drafts(spans)[0][0].steps == STEPS


def test_a_root_alone_and_tools_without_a_model() -> None:
    asked, answered = messages_of({"question": "2+2?"}), messages_of("4", "assistant")
    root, _, tool, _ = a_run(asked=asked, answered=answered)
    x, y = messages_of("x"), messages_of("y")
    docs = span(5, kind="retriever", name="search", asked=x, answered=y)
    for spans, steps in (
        ([root], []),
        ([root, tool], [Step('cancel({"order": 7})', 'tool cancel: {"ok": true}')]),
        ([root, docs], [Step("search(x)", "tool search: y")]),
    ):
        (run,), _ = drafts(spans)
        assert (run.instruction, run.steps) == ("2+2?", (*steps, Step("4", "")))


def test_an_error_is_seen_once() -> None:
    root, first, _, _ = a_run(error="boom")
    failed = span(2, kind="tool", name="cancel", error="boom")
    (run,), _ = drafts([root, first, failed])
    assert run.steps == (Step('cancel({"order": 7})', "tool cancel: error: boom"),)


def test_orphans_are_counted_and_cycles_end() -> None:
    root, first, tool, last = a_run()
    spans = [root, first, tool, last, tool, span(7, 99, kind="agent"), span(8, 9), span(9, 8)]
    (run,), reading = drafts(spans)
    assert run.steps == STEPS and list(reading.notes.values()) == [1]


def test_a_deep_trace_needs_no_recursion() -> None:
    spans = [span(0, None, attributes={"task_id": "a"})]
    spans += [span(number, number - 1) for number in range(1, 5000)]
    spans.append(span(5000, 4999, kind="llm", answered=messages_of(DONE, "assistant")))
    assert drafts(spans)[0][0].steps == (Step("Done.", ""),)


def messages(key: str, *contents: Any, model: str = "assistant") -> list[dict[str, Any]]:
    """What the user asks, then turns of the model and the user."""
    roles = ("user", model, "user", model)
    return [
        SYSTEM,
        *({"role": role, key: what} for role, what in zip(roles, contents, strict=True)),
    ]


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words, "content": words}]


IDS = {"id": "c1", "name": "cancel"}
ARGUMENTS, ANSWER = {"order": 7}, '{"ok": true}'
LANGCHAIN = {"content": "", "tool_calls": [IDS | {"args": ARGUMENTS}]}
SHAPES: dict[str, list[Any]] = {
    "chat completions": [SYSTEM, ASK, CALL, RESULT, DONE],
    "OpenTelemetry": [
        SYSTEM,
        {"role": "user", "parts": text("Cancel order 7.")},
        {"role": "assistant", "parts": [IDS | {"type": "tool_call", "arguments": ARGUMENTS}]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": ANSWER}],
        },
        {"role": "assistant", "parts": text("Done.")},
    ],
    "Anthropic": messages(
        "content",
        "Cancel order 7.",
        [IDS | {"type": "tool_use", "input": ARGUMENTS}],
        [{"type": "tool_result", "tool_use_id": "c1", "content": ANSWER}],
        text("Done."),
    ),
    "Gemini": messages(
        "parts",
        [{"text": "Cancel order 7."}],
        [{"function_call": {"name": "cancel", "args": ARGUMENTS}}],
        [{"function_response": {"name": "cancel", "response": {"ok": True}}}],
        [{"text": "Done."}],
        model="model",
    ),
    "LangChain": [
        {"type": "system", "content": "policy"},
        {"type": "human", "content": "Cancel order 7."},
        {"lc": 1, "type": "constructor", "id": ["messages", "AIMessage"], "kwargs": LANGCHAIN},
        {"type": "tool", "tool_call_id": "c1", "content": ANSWER},
        {"type": "ai", "content": "Done."},
    ],
    "OpenInference": [
        {"message": {**CALL, "tool_calls": [{"tool_call": CALL["tool_calls"][0]}]}}
        if message is CALL
        else {"message": message}
        for message in (SYSTEM, ASK, CALL, RESULT, DONE)
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wrap", ["list", "object", "text"])
def test_messages_of_every_tool(shape: str, wrap: str) -> None:
    value: Any = SHAPES[shape]
    if wrap == "object":
        value = {"messages": value, "model": "m"}
    if wrap == "text":
        value = json.dumps(value)
    assert messages_of(value) == (
        Message("system", "policy"),
        Message("user", "Cancel order 7."),
        Message("assistant", "", ('cancel({"order": 7})',)),
        Message("tool", '{"ok": true}', (), "cancel"),
        Message("assistant", "Done."),
    )


@pytest.mark.parametrize(
    ("said_of_it", "options", "reason", "words"),
    [
        ([said(True), said(False)], {}, "contradictory_labels", "contradict each other"),
        ([said(True)], {"label": "other"}, "no_label", "only correct (human)"),
        ([said(True, "code")], {"label_sources": "human"}, "no_label", "only correct (code)"),
        ([said(None)], {}, "no_label", "without a value"),
        ([], {"task_attribute": "case"}, "no_task", "no attribute 'case', only task_id"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(
    said_of_it: list[Assessment], options: Mapping[str, Any], reason: str, words: str
) -> None:
    found, reading = drafts(a_run(), *said_of_it, keep_unlabelled=False, **options)
    assert not found and reading.dropped == {reason: 1}
    assert words in reading.examples[reason]


def test_several_labels_need_a_name() -> None:
    with pytest.raises(InputError, match=r"2 labels \(correct, kind\); .*label=NAME\.$"):
        drafts(a_run(), said(True), said(True, name="kind"), keep_unlabelled=False)


def test_an_attribute_is_the_label_where_nobody_assessed_under_its_name() -> None:
    own = a_run(attributes={"task_id": "a", "correct": True})
    ((run,), _) = drafts(own, label="correct")
    assert run.outcome == 1
    # an agent may write it about itself
    for judged in ("t1", "t2"):
        by_code = replace(said(False, "code"), trace_id=judged)
        ((run,), _) = drafts(own, by_code, label="correct", label_sources="human")
        assert run.outcome is None


def test_a_trace_without_a_task_names_its_attributes() -> None:
    spans = a_run(attributes={"case": "a", "metadata": '{"trial": 2, "who": "x"}'})
    _, reading = drafts(spans)
    assert "case, metadata.trial, metadata.who" in reading.examples["no_task"]
    (run,), _ = drafts(spans, task_attribute="case", agent_attribute="metadata.who")
    assert (run.task_id, run.agent, run.attempt) == ("a", "x", 2)
    (run,), _ = drafts(spans, task_attribute="input")
    assert run.task_id.startswith("input-") and run.agent == "unknown"


def test_labels_of_the_whole_go_before_those_of_a_part() -> None:
    ((run,), _) = drafts(a_run(), said(False, span_id="3"), said(True, span_id="0"))
    assert run.outcome == 1
    ((run,), _) = drafts(a_run(), said(False, span_id="3"))
    assert run.outcome == 0


def test_a_time_of_today_is_none() -> None:
    assert nanoseconds("now") == nanoseconds("12:00") == nanoseconds("9999-12-31") == 0
    assert nanoseconds("1970-01-01T00:00:01") == nanoseconds("1000000000") == 10**9
