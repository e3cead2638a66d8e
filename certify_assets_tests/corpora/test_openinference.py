"""Parquet exports of Phoenix: spans with nested messages, annotations in a table of their own."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.formats.openinference import write_phoenix
from certify_assets_tests.corpora.test_otlp import assert_the_same
from certify_assets_tests.corpora.traces import small_run

read = reader()


def test_spans_with_their_annotations(tmp_path: Path) -> None:
    runs = [small_run(number, number % 2) for number in range(8)]
    write_phoenix(tmp_path, runs)
    imported = read(tmp_path)
    assert imported.format == "openinference" and not imported.dropped
    assert imported.label_facts == {"labels_from_human": 8} and len(imported.files) == 2
    assert_the_same(from_frame(imported.frame), runs)


def span(number: int, **columns: Any) -> dict[str, Any]:
    return {
        "context.trace_id": "t",
        "context.span_id": f"s{number}",
        "parent_id": "s0" if number else None,
        "name": "x",
        "start_time": f"2026-01-01T00:00:0{number}+00:00",
        "attributes.metadata": '{"task_id": 7}',
    } | columns


def write(path: Path, *rows: dict[str, Any]) -> Path:
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.Table.from_pylist([{n: row.get(n) for n in names} for row in rows]), path)
    return path


MESSAGES = '[{"message.role": "user", "message.content": "hi"}]'
ANSWER = '[{"message.role": "assistant", "message.content": "hello"}]'
LLM = {
    "span_kind": "LLM",
    "attributes.llm.input_messages": MESSAGES,
    "attributes.llm.output_messages": ANSWER,
}


def test_columns_that_hold_json_and_scores_with_a_threshold(tmp_path: Path) -> None:
    write(tmp_path / "spans.parquet", span(0), span(1, **LLM))
    noted = {"trace_id": "t", "name": "quality", "annotator_kind": "LLM", "label": "so", "score": 4}
    write(tmp_path / "notes.parquet", noted)
    imported = read(tmp_path, threshold=3)
    (run,) = from_frame(imported.frame)
    assert (run.task_id, run.instruction, run.steps) == ("7", "hi", (Step("hello", ""),))
    assert run.outcome == 1 and imported.label_facts == {"labels_from_llm_judge": 1}
    with pytest.raises(InputError, match=r"only quality \(llm_judge\)"):
        read(tmp_path, label_sources="human")


def test_an_error_and_a_retriever(tmp_path: Path) -> None:
    search = {"span_kind": "RETRIEVER", "name": "search", "attributes.input.value": "tea"}
    failed = {"status_code": "ERROR", "status_message": "timeout", "name": "pay"}
    path = write(
        tmp_path / "spans.parquet",
        span(0, **{"attributes.input.value": "q", "attributes.output.value": "a"}),
        span(1, **search, **{"attributes.output.value": "green"}),
        span(2, span_kind="TOOL", **failed),
    )
    (run,) = from_frame(read(path, keep_unlabelled=True).frame)
    seen = [("search(tea)", "tool search: green"), ("pay()", "tool pay: error: timeout"), ("a", "")]
    assert (run.instruction, run.steps) == ("q", tuple(Step(*step) for step in seen))
