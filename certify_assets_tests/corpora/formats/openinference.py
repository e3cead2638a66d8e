"""Spans and annotations as Phoenix's client exports them; one trace has no annotation."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.traces import Run, small_run

COUNTS = Counts(trajectories=5, tasks=3, successes=2, dropped={"no_label": 1})
_START = datetime(2026, 1, 1, tzinfo=UTC)


def write(root: Path, canary: str | None = None) -> None:
    runs = [small_run(number, number % 2) for number in range(6)]
    write_phoenix(root, runs, labelled=runs[:5], explanation=canary)


def write_phoenix(
    root: Path,
    runs: Sequence[Run],
    *,
    labelled: Sequence[Run] | None = None,
    explanation: str | None = None,
) -> None:
    """Write ``get_spans_dataframe`` and ``get_span_annotations_dataframe`` as Parquet."""
    root.mkdir(parents=True, exist_ok=True)
    spans: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        trace = f"{number:032x}"
        rows = list(_rows(run, trace))
        spans += reversed(rows)
        if run in (runs if labelled is None else labelled):
            annotations.append(
                {
                    "span_id": rows[0]["context.span_id"],
                    "annotation_name": "correctness",
                    "annotator_kind": "HUMAN",
                    "result.label": "correct" if run.outcome else "incorrect",
                    "result.score": float(run.outcome or 0),
                    "result.explanation": explanation,
                    "metadata": json.dumps({"note": explanation}),
                }
            )
    pq.write_table(pa.Table.from_pylist(spans, schema=_schema(spans)), root / "spans.parquet")
    pq.write_table(pa.Table.from_pylist(annotations), root / "annotations.parquet")


def _schema(rows: Sequence[dict[str, Any]]) -> pa.Schema:
    names = list(dict.fromkeys(name for row in rows for name in row))
    whole = [{name: row.get(name) for name in names} for row in rows]
    return pa.Table.from_pylist(whole).schema


def _rows(run: Run, trace: str) -> Any:
    moment = _START

    def row(place: int, kind: str, name: str, **attributes: Any) -> dict[str, Any]:
        nonlocal moment
        moment += timedelta(seconds=1)
        return {
            "name": name,
            "span_kind": kind,
            "parent_id": f"{trace[-12:]}0000" if place else None,
            "start_time": moment,
            "end_time": moment,
            "status_code": "OK",
            "status_message": "",
            "context.span_id": f"{trace[-12:]}{place:04x}",
            "context.trace_id": trace,
            **{f"attributes.{key}": value for key, value in attributes.items()},
        }

    yield row(
        0,
        "AGENT",
        "support",
        **{
            "metadata": {"task_id": run.task, "attempt": run.attempt, "agent": run.agent},
            "input.value": run.instruction(),
            "output.value": json.dumps({"messages": run.messages}),
        },
    )
    place = 0
    for given, said, answers in run.calls():
        place += 1
        yield row(
            place,
            "LLM",
            "ChatCompletion",
            **{
                "llm.model_name": "m",
                "llm.input_messages": [_message(one) for one in given],
                "llm.output_messages": [_message(said)],
            },
        )
        for answer in answers:
            place += 1
            yield row(place, "TOOL", answer["name"], **{"output.value": answer["content"]})


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "tool_call.id": call["id"],
            "tool_call.function.name": call["function"]["name"],
            "tool_call.function.arguments": call["function"]["arguments"],
        }
        for call in message.get("tool_calls") or ()
    ]
    return {
        "message.role": message["role"],
        "message.content": message.get("content"),
        "message.tool_call_id": message.get("tool_call_id"),
        "message.tool_calls": calls or None,
    }
