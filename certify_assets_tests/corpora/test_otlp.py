"""OTLP JSON goes in as it was recorded: texts, tasks, attempts, agents and labels."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from certify_assets.cli import main
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader, write_json, write_lines
from certify_assets_tests.corpora.traces import (
    GENERATIONS,
    Run,
    otlp_request,
    published_runs,
    recorded,
    small_run,
)

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
    spans = recorded([small_run(number, number % 2) for number in range(6)], "messages")
    whole = read(write_lines(tmp_path / "a" / "t.jsonl", [otlp_request(spans)]))
    for place in range(3):
        path = tmp_path / "b" / f"part{place}.jsonl"
        write_lines(path, [otlp_request([span]) for span in reversed(spans[place::3])])
        packed = path.with_suffix(".jsonl.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    parts = read(tmp_path / "b")
    columns = ["task_id", "trajectory_id", "agent", "attempt", "instruction", "steps", "outcome"]
    assert parts.frame[columns].equals(whole.frame[columns]) and len(parts.files) == 3


def test_messages_and_labels_in_logs(tmp_path: Path) -> None:
    ids = {"traceId": "a" * 32, "spanId": "b" * 16}
    span = ids | {
        "name": "chat",
        "startTimeUnixNano": "1",
        "attributes": [_pair("task_id", "t"), _pair("gen_ai.operation.name", "chat")],
    }
    logs = [
        _log(ids, "gen_ai.user.message", 1, content="hi"),
        _log(ids, "gen_ai.choice", 3, message={"role": "assistant", "content": "hello"}),
        _log({"traceId": "a" * 32}, "gen_ai.evaluation.result", 2)
        | {
            "attributes": [
                _pair("gen_ai.evaluation.name", "good"),
                _pair("gen_ai.evaluation.score.label", "pass"),
            ]
        },
    ]
    request = {
        "resourceSpans": [{"scopeSpans": [{"spans": [span]}]}],
        "resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}],
    }
    (run,) = from_frame(read(write_json(tmp_path / "t.json", request)).frame)
    assert (run.instruction, run.steps, run.outcome) == ("hi", (Step("hello", ""),), 1)
    assert run.agent == "unknown" and run.task_id == "t"


def _pair(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _log(ids: dict[str, str], name: str, time: int, **body: Any) -> dict[str, Any]:
    pairs = [
        {"key": key, "value": {"stringValue": json.dumps(value) if key == "message" else value}}
        for key, value in body.items()
    ]
    body_value = {"body": {"kvlistValue": {"values": pairs}}}
    return ids | {"eventName": name, "timeUnixNano": str(time)} | body_value


def test_openinference_attributes_and_errors_in_otlp(tmp_path: Path) -> None:
    ids = {"traceId": "a" * 32, "spanId": "b" * 16, "startTimeUnixNano": "1"}
    model = ids | {
        "attributes": [
            _pair("openinference.span.kind", "LLM"),
            _pair("llm.input_messages.0.message.role", "user"),
            _pair("llm.input_messages.0.message.content", "hi"),
            _pair("llm.output_messages.0.message.role", "assistant"),
            _pair("llm.output_messages.0.message.content", "hello"),
            _pair("metadata", '{"task_id": "t", "gold": "yes"}'),
        ],
    }
    failed = ids | {
        "spanId": "c" * 16,
        "parentSpanId": "b" * 16,
        "name": "lookup",
        "startTimeUnixNano": "2",
        "status": {"code": "STATUS_CODE_ERROR", "message": "no such order"},
    }
    request = {"resourceSpans": [{"scopeSpans": [{"spans": [failed, model]}]}]}
    path = write_json(tmp_path / "t.json", request)
    (run,) = from_frame(read(path, label_attribute="metadata.gold").frame)
    assert run.steps == (Step("", "tool lookup: error: no such order"), Step("hello", ""))
    assert (run.task_id, run.outcome, run.instruction) == ("t", 1, "hi")


def test_contradictory_and_absent_labels_are_counted(tmp_path: Path) -> None:
    spans = recorded([small_run(number, 1) for number in range(4)], "messages")
    request = otlp_request(spans)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        if span.get("events") and "task1" in json.dumps(span):
            again = json.loads(json.dumps(span["events"][0]).replace('"pass"', '"fail"'))
            span["events"].append(again)
    path = write_json(tmp_path / "t.json", request)
    assert read(path).dropped == {"contradictory_labels": 1}
    with pytest.raises(InputError, match=r"no label 'other', only correct \(source unknown\)"):
        read(path, label="other")


def test_a_task_that_is_named_by_nothing_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_json(tmp_path / "t.json", otlp_request(recorded([small_run()], "messages")))
    command = ["corpus", "import", str(path), "--name", "c", "--root", str(tmp_path / "root")]
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--option", "task_attribute=case"])
    said = capsys.readouterr().err
    assert "it has no attribute 'case', only attempt, gen_ai.agent.name" in " ".join(said.split())
    assert "--option task_attribute=NAME" in " ".join(said.split())


def test_what_the_recorder_left_out_is_counted(tmp_path: Path) -> None:
    asked = tuple({"role": "user", "content": f"question {number}"} for number in range(70))
    answer = {"role": "assistant", "content": "yes"}
    run = Run("t", "a", 0, 1, (*asked, answer))
    imported = read(write_json(tmp_path / "t.json", otlp_request(recorded([run], "indexed"))))
    assert imported.notes["attributes that the recorder left out"] == 16


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_published_runs_are_read_as_they_were_recorded(generation: str, tmp_path: Path) -> None:
    """Real τ-bench runs, recorded by the OpenTelemetry SDK: what comes back is what went in."""
    runs = published_runs(15)
    spans = recorded(runs, generation)
    imported = read(write_json(tmp_path / "t.json", otlp_request(spans)))
    assert not imported.dropped and len(imported.frame) == len(runs)
    if generation == "messages":
        assert_the_same(from_frame(imported.frame), runs)
