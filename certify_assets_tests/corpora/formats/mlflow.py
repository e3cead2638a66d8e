"""Traces as MLflow exports them: one a file, one a line, a table of them; one has no label."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.traces import Run, small_run

COUNTS = Counts(
    trajectories=6, tasks=3, successes=3, dropped={"no_label": 1, "unreadable_record": 1}
)


def write(root: Path, canary: str | None = None) -> None:
    traces = [trace(small_run(number, number % 2), number, note=canary) for number in range(6)]
    traces.append(trace(small_run(6, None), 6, note=canary))
    write_json(root / "trace.json", traces[0])
    lost = {"info": {"trace_location": {}}, "data": {"spans": [{}]}}
    write_lines(root / "traces.jsonl", [*traces[1:4], lost])
    pq.write_table(
        pa.Table.from_pylist([columns(one) for one in traces[4:]]), root / "search.parquet"
    )


def trace(run: Run, number: int, *, note: str | None = None) -> dict[str, Any]:
    """Return what ``Trace.to_dict`` gives."""
    trace_id = f"tr-{number:032x}"
    spans = [_span(trace_id, number, 0, "support", "AGENT", None, {"messages": run.messages})]
    for given, said, answers in run.calls():
        asked, answered = {"messages": given}, {"choices": [{"index": 0, "message": said}]}
        place = len(spans)
        spans.append(_span(trace_id, number, place, "model", "CHAT_MODEL", asked, answered))
        for answer in answers:
            spans.append(
                _span(trace_id, number, len(spans), answer["name"], "TOOL", None, answer["content"])
            )
    labels = [] if run.outcome is None else [feedback("correct", bool(run.outcome), note=note)]
    info = {
        "trace_id": trace_id,
        "trace_location": {
            "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": {"experiment_id": "1"},
        },
        "request_time": "2026-01-01T00:00:00Z",
        "state": "OK",
        "trace_metadata": {"mlflow.user": "me"},
        "tags": {"task_id": run.task, "attempt": str(run.attempt), "agent": run.agent},
        "assessments": [*labels, feedback("correct", "unsure", "LLM_JUDGE", note=note)],
    }
    return {"info": info, "data": {"spans": list(reversed(spans))}}


def row(one: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of ``search_traces`` that Parquet can hold."""
    info = one["info"]
    return {
        "trace_id": info["trace_id"],
        "trace": json.dumps(one),
        "state": "OK",
        "trace_metadata": json.dumps(info["trace_metadata"]),
        "tags": json.dumps(info["tags"]),
    }


def columns(one: dict[str, Any]) -> dict[str, Any]:
    """Return the same with spans and assessments in columns of their own."""
    values = row(one)
    del values["trace"]
    values["spans"] = json.dumps(one["data"]["spans"])
    values["assessments"] = json.dumps(one["info"]["assessments"])
    return values


def feedback(
    name: str, value: Any, source: str = "HUMAN", *, note: str | None = None, **fields: Any
) -> dict[str, Any]:
    return {
        "assessment_name": name,
        "source": {"source_type": source, "source_id": "someone"},
        "feedback": {"value": value},
        "rationale": note or "",
        "valid": True,
    } | fields


def _span(
    trace_id: str, number: int, place: int, name: str, kind: str, asked: Any, answered: Any
) -> dict[str, Any]:
    def identity(at: int) -> str:
        return b64encode(bytes([number, at, 1, 2, 3, 4, 5, 6])).decode()

    attributes = {"mlflow.traceRequestId": trace_id, "mlflow.spanType": kind}
    content = {"mlflow.spanInputs": asked, "mlflow.spanOutputs": answered}
    return {
        "trace_id": "AAAA",
        "span_id": identity(place),
        "parent_span_id": identity(0) if place else None,
        "name": name,
        "start_time_unix_nano": 1_000 + place,
        "end_time_unix_nano": 1_000 + place,
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "events": [],
        "attributes": {
            key: json.dumps(value)
            for key, value in {**attributes, **content}.items()
            if value is not None
        },
    }
