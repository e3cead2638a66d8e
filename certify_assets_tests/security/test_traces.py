"""Hostile traces: one of them is dropped or read, and neither the others nor their tasks change."""

import json
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests.corpora.builders import reader, write_json, write_lines
from certify_assets_tests.corpora.formats import langsmith, mlflow
from certify_assets_tests.corpora.traces import otlp_request, recorded, small_run

read = reader()
RUNS = [small_run(number, number % 2) for number in range(3)]


def otlp(path: Path, *attributes: tuple[str, dict[str, Any]]) -> Path:
    """Write three traces, the first with further attributes on every span."""
    request = otlp_request(recorded(RUNS, "messages"))
    spans = [
        span
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    for span in spans:
        if span["traceId"] == spans[0]["traceId"]:
            span["attributes"] += [{"key": key, "value": value} for key, value in attributes]
    return write_lines(path, [request])


@pytest.mark.parametrize("levels", [60, 900, 5_000])
def test_messages_nested_deeper_than_python_allows(levels: int, tmp_path: Path) -> None:
    deep = '[{"role": "user", "a.b": ' + "[" * levels + "]" * levels + "}]"
    for name, value in (
        ("gen_ai.input.messages", deep),
        ("gen_ai.input.messages." + "a." * levels + "b", "x"),
        ("input.value", deep),
    ):
        path = otlp(tmp_path / "t.jsonl", (name, {"stringValue": value}))
        assert len(read(path).frame) == 3


def test_a_call_of_a_tool_does_not_name_the_task(tmp_path: Path) -> None:
    """One task that becomes many would make a certificate of fewer tasks than it counts."""
    rows = []
    for number in range(4):
        (root, *_) = made = langsmith.runs(f"run-{number}", "the-task", number)
        inner = {**made[-1], "id": langsmith.run_id(f"inner-{number}"), "run_type": "tool"}
        inner["extra"] = {"metadata": {"task_id": f"other-{number}", "attempt": 9}}
        assert root["extra"]["metadata"]["task_id"] == "the-task"
        rows += [*made, inner]
    write_lines(tmp_path / "t.jsonl", rows)
    imported = read(tmp_path / "t.jsonl", keep_unlabelled=True)
    assert set(imported.frame["task_id"]) == {"the-task"}
    assert sorted(imported.frame["attempt"]) == [0, 1, 2, 3]


def test_a_tool_of_an_mlflow_trace_does_not_name_the_task(tmp_path: Path) -> None:
    traces = [mlflow.trace(run, number) for number, run in enumerate(RUNS)]
    for number, trace in enumerate(traces):
        trace["info"]["tags"] = {"metadata.task_id": "the-task"}
        inner = next(span for span in trace["data"]["spans"] if span["parent_span_id"])
        inner["attributes"]["task_id"] = json.dumps(f"other-{number}")
    imported = read(write_json(tmp_path / "t.json", traces))
    assert set(imported.frame["task_id"]) == {"the-task"}
