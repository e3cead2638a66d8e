"""OTLP JSON goes in as it was recorded: texts, tasks, attempts, agents and labels."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import from_frame, reader, write_json, write_lines
from certify_assets_tests.corpora.traces import GENERATIONS, Run, otlp_request, recorded, small_run

read = reader()


def assert_the_same(found: list[Any], runs: list[Run]) -> None:
    """Every run is there once, with nothing of it changed."""
    key = ["task_id", "agent", "attempt", "outcome", "instruction", "steps"]
    assert sorted([tuple(getattr(run, name) for name in key) for run in found]) == sorted(
        [
            (run.task, run.agent, run.attempt, run.outcome, run.instruction(), run.steps())
            for run in runs
        ]
    )


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_of_the_conventions(generation: str, tmp_path: Path) -> None:
    runs = [small_run(number, number % 2) for number in range(8)]
    path = write_json(tmp_path / "t.json", otlp_request(recorded(runs, generation)))
    imported = read(path)
    found = from_frame(imported.frame)
    assert imported.format == "otlp" and not imported.dropped
    assert imported.label_facts == {"labels_from_unknown": 8}
    # what the user said after the model's last word is in no span but a root that holds it all
    if generation == "messages":
        assert_the_same(found, runs)
    for run in found:
        assert run.steps[0] == Step(
            f"cancel({json.dumps({'order': int(run.instruction.split()[-1][:-1])})})",
            "tool cancel: done",
        )


def test_spans_of_a_trace_in_several_lines_and_files(tmp_path: Path) -> None:
    runs = [small_run(number, number % 2) for number in range(6)]
    spans = recorded(runs, "messages")
    for place in range(3):
        path = tmp_path / f"part{place}.jsonl"
        write_lines(path, [otlp_request([span]) for span in reversed(spans[place::3])])
        path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    imported = read(tmp_path)
    assert_the_same(from_frame(imported.frame), runs)
    assert len(imported.files) == 3


def test_messages_and_labels_in_logs(tmp_path: Path) -> None:
    ids = {"traceId": "a" * 32, "spanId": "b" * 16}
    said = json.dumps({"role": "assistant", "content": "hello"})
    result = {"gen_ai.evaluation.name": "good", "gen_ai.evaluation.score.label": "pass"}
    logs = [
        ids | _log("gen_ai.user.message", 1, {"content": "hi"}),
        ids | _log("gen_ai.choice", 3, {"message": said}),
        {"traceId": "a" * 32} | _log("gen_ai.evaluation.result", 2, {}, result),
    ]
    span = ids | {"name": "chat", "startTimeUnixNano": "1"}
    span |= {"attributes": _pairs({"task_id": "t", "gen_ai.operation.name": "chat"})}
    request = _request(span) | {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}
    (run,) = from_frame(read(write_json(tmp_path / "t.json", request)).frame)
    assert (run.instruction, run.steps, run.outcome) == ("hi", (Step("hello", ""),), 1)
    assert (run.agent, run.task_id) == ("unknown", "t")


def _pairs(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def _request(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def _log(
    name: str, time: int, body: dict[str, str], attributes: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "eventName": name,
        "timeUnixNano": str(time),
        "body": {"kvlistValue": {"values": _pairs(body)}},
        "attributes": _pairs(attributes or {}),
    }


def test_openinference_attributes_and_errors_in_otlp(tmp_path: Path) -> None:
    ids = {"traceId": "a" * 32, "spanId": "b" * 16, "startTimeUnixNano": "1"}
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "hello",
        "metadata": '{"task_id": "t", "gold": "yes"}',
    }
    failed = ids | {
        "spanId": "c" * 16,
        "parentSpanId": "b" * 16,
        "name": "lookup",
        "startTimeUnixNano": "2",
        "status": {"code": "STATUS_CODE_ERROR", "message": "no such order"},
    }
    request = _request(failed, ids | {"attributes": _pairs(attributes)})
    path = write_json(tmp_path / "t.json", request)
    (run,) = from_frame(read(path, label="metadata.gold").frame)
    assert run.steps == (Step("", "tool lookup: error: no such order"), Step("hello", ""))
    assert (run.task_id, run.outcome, run.instruction) == ("t", 1, "hi")


def test_what_the_recorder_left_out_is_counted(tmp_path: Path) -> None:
    spans = recorded([small_run()], "indexed")
    spans[1]["droppedAttributesCount"] = 16
    imported = read(write_json(tmp_path / "t.json", otlp_request(spans)))
    assert imported.notes["attributes that the recorder left out"] == 16
