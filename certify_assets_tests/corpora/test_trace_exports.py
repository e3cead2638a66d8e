"""Langfuse and LangSmith exports: every shape of a trace gives one run, in whatever order."""

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.formats import ImportedCorpus, detect_format, import_corpus
from certify_assets.errors import InputError
from certify_assets_tests.corpora.builders import write_lines
from certify_assets_tests.corpora.formats import langfuse, langsmith
from certify_assets_tests.corpora.formats.langfuse import exported, trace
from certify_assets_tests.corpora.formats.langsmith import feedback, run_id, runs

COLUMNS = ["task_id", "trajectory_id", "agent", "attempt", "instruction", "steps", "outcome"]
Rows = list[dict[str, Any]]


def read(path: Path, **options: Any) -> ImportedCorpus:
    return import_corpus(path, name="c", options=options)


def assert_same(path: Path, wanted: ImportedCorpus, **options: Any) -> None:
    found = read(path, **options)
    assert found.format == wanted.format
    pd.testing.assert_frame_equal(found.frame[COLUMNS], wanted.frame[COLUMNS])


def shuffled(rows: Rows, seed: int) -> Rows:
    """The rows in another order, the fields of each in another order as well."""
    chance = random.Random(seed)
    mixed = [dict(chance.sample(sorted(row.items()), len(row))) for row in rows]
    chance.shuffle(mixed)
    return mixed


def write_csv(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(
            {
                key: value if isinstance(value, str | int | None) else json.dumps(value)
                for key, value in row.items()
            }
            for row in rows
        )


def write_parquet(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [
        {
            key: json.dumps(value) if isinstance(value, dict | list) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    pd.DataFrame(plain).to_parquet(path, index=False)


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Rows, ImportedCorpus]:
    """Four Langfuse traces as the API gives them, and the runs that they are."""
    traces = [trace(f"t{n}", "ab"[n % 2], n // 2, int(n != 1)) for n in range(4)]
    (tmp_path / "api.json").write_text(json.dumps(traces), "utf-8")
    return traces, read(tmp_path / "api.json")


def blob(traces: Rows) -> dict[str, Rows]:
    parts = [exported(item) for item in traces]
    return {name: [row for part in parts for row in part[name]] for name in parts[0]}


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(write_lines, ".jsonl"), (write_csv, ".csv"), (write_parquet, ".parquet")],
)
def test_a_langfuse_trace_is_one_run_in_every_export(
    whole: tuple[Rows, ImportedCorpus],
    write: Callable[[Path, Rows], None],
    suffix: str,
    tmp_path: Path,
) -> None:
    traces, wanted = whole
    for seed, (name, rows) in enumerate(blob(traces).items()):
        write(tmp_path / "blob" / f"{name}{suffix}", shuffled(rows, seed))
    assert detect_format([tmp_path / "blob"]) == "langfuse"
    assert_same(tmp_path / "blob", wanted)
    (first,) = wanted.frame.query("trajectory_id == 't0'").to_dict("records")
    assert first["instruction"] == "Cancel booking a." and first["agent"] == "model-x"
    assert [step["action"] for step in first["steps"]] == [
        'I look first.\nfind({"id": "a"})',
        "Cancelled a in attempt 0.",
    ]


def test_order_of_records_and_fields_does_not_matter(
    whole: tuple[Rows, ImportedCorpus], tmp_path: Path
) -> None:
    traces, wanted = whole
    for seed in range(5):
        mixed = shuffled(traces, seed)
        for item in mixed:
            item["observations"] = shuffled(item["observations"], seed)
        path = tmp_path / str(seed) / "page.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"meta": {}, "data": mixed}), "utf-8")
        assert_same(path, wanted)
    some = [row for n in range(3) for row in runs(f"x{n}", "ab"[n % 2], n)]
    said = [feedback(f"x{n}", n % 2) for n in range(3)]
    write_lines(tmp_path / "plain" / "runs.jsonl", [*some, *said])
    plain = read(tmp_path / "plain")
    for seed in range(5):
        path = tmp_path / "mixed" / f"{seed}.jsonl"
        write_lines(path, shuffled([*some, *said], seed))
        assert_same(path, plain)


def test_missing_parents_cost_no_step_and_are_counted(tmp_path: Path) -> None:
    item = trace("t", "a")
    item["observations"] = item["observations"][1:]
    (tmp_path / "t.json").write_text(json.dumps(item), "utf-8")
    found = read(tmp_path / "t.json")
    assert found.notes["spans whose parent is not in the trace"] == 3
    assert len(found.frame["steps"].iloc[0]) == 2
    some = [run for run in runs("x", "a") if run["name"] != "agent"]
    write_lines(tmp_path / "x.jsonl", [*some, feedback("x", 1)])
    found = read(tmp_path / "x.jsonl")
    assert found.notes == {"spans whose parent is not in the trace": 1}
    assert len(found.frame["steps"].iloc[0]) == 2


def test_labels_come_from_the_source_that_is_asked_for(tmp_path: Path) -> None:
    traces = [trace(f"t{n}", "a", n, 1 if n else None) for n in range(3)]
    (tmp_path / "t.json").write_text(json.dumps(traces), "utf-8")
    found = read(tmp_path / "t.json")
    assert found.frame["outcome"].tolist() == [1, 1] and found.dropped == {"no_label": 1}
    assert found.label_facts == {"labels_from_human": 2}
    judged = read(tmp_path / "t.json", label_sources="llm_judge")
    assert judged.frame["outcome"].tolist() == [1, 0, 0]
    both = read(tmp_path / "t.json", label_sources="any")
    assert both.dropped == {"contradictory_labels": 2}


def test_categories_numbers_and_columns_of_the_table_are_labels(tmp_path: Path) -> None:
    item = trace("t", "a")
    item["scores"] = [
        {"name": "verdict", "source": "ANNOTATION", "dataType": "CATEGORICAL", "value": 1}
        | {"stringValue": "good enough", "observationId": "t-root"},
        {"name": "rating", "source": "API", "dataType": "NUMERIC", "value": 0.4},
    ]
    (tmp_path / "t.json").write_text(json.dumps(item), "utf-8")
    good = read(tmp_path / "t.json", success="good enough")
    assert good.frame["outcome"].tolist() == [1]
    rated = read(tmp_path / "t.json", label="rating", label_sources="api", threshold=0.5)
    assert rated.frame["outcome"].tolist() == [0]
    row = {key: value for key, value in item.items() if key not in ("observations", "scores")}
    write_csv(tmp_path / "table.csv", [row | {"bookmarked": False, "solved": [1]}])
    table = read(tmp_path / "table.csv", label_attribute="solved")
    assert table.format == "langfuse" and table.frame["outcome"].tolist() == [1]
    assert table.frame["instruction"].tolist() == ["Cancel booking a."]


def test_langsmith_places_runs_by_ids_by_dotted_order_and_by_nesting(tmp_path: Path) -> None:
    some, said = [*runs("x", "a"), *runs("y", "b")], [feedback("x", 1), feedback("y", 0)]
    write_lines(tmp_path / "ids" / "runs.jsonl", [*some, *said])
    wanted = read(tmp_path / "ids")
    dotted = [
        {key: value for key, value in run.items() if key not in ("trace_id", "parent_run_id")}
        | {"start_time": None}
        for run in some
    ]
    write_lines(tmp_path / "dotted" / "runs.jsonl", [*reversed(dotted), *said])
    assert_same(tmp_path / "dotted", wanted)
    write_parquet(tmp_path / "bulk" / "runs.parquet", some)
    write_lines(tmp_path / "bulk" / "feedback.jsonl", said)
    assert detect_format([tmp_path / "bulk"]) == "langsmith"
    assert_same(tmp_path / "bulk", wanted)
    assert set(wanted.frame["trajectory_id"]) == {run_id("x/root"), run_id("y/root")}


def test_what_cannot_be_read_is_counted_with_its_place(tmp_path: Path) -> None:
    page = {"data": [trace("t", "a"), 7, {"id": "no-trace"}, trace("t", "a")], "meta": {}}
    (tmp_path / "page.json").write_text(json.dumps(page), "utf-8")
    found = read(tmp_path / "page.json")
    assert found.dropped == {"unreadable_record": 2} and len(found.frame) == 1
    assert found.notes["traces exported twice, of which the first is read"] == 1
    assert "page.json row 2" in found.examples["unreadable_record"]
    broken = runs("x", "a")
    broken[3]["error"] = "the booking system is down"
    broken[3]["outputs"] = None
    write_lines(tmp_path / "x.jsonl", [*broken, feedback("x", 0), {"key": "k", "score": 1}])
    with (tmp_path / "x.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"id": "cut')
    found = read(tmp_path / "x.jsonl")
    assert found.dropped == {"unreadable_record": 2}
    assert "error: the booking system is down" in found.frame["steps"].iloc[0][0]["observation"]


def test_every_kind_of_export_is_told_from_the_other(tmp_path: Path) -> None:
    langfuse.write(tmp_path / "fuse")
    langsmith.write(tmp_path / "smith")
    for path in (tmp_path / "fuse").rglob("*.json*"):
        assert detect_format([path]) == "langfuse", path
    for path in (tmp_path / "smith").rglob("*.json*"):
        assert detect_format([path]) == "langsmith", path
    with pytest.raises(InputError, match="more than one format fits"):
        detect_format([tmp_path])


@pytest.mark.parametrize(
    "missing", [(), ("session_id", "session_name"), ("trace_id", "dotted_order")]
)
def test_langsmith_runs_are_placed_by_what_there_is(
    missing: tuple[str, ...], tmp_path: Path
) -> None:
    rows = [row for n in range(3) for row in [*runs(f"t{n}", "a", n), feedback(f"t{n}", n % 2)]]
    write_lines(tmp_path / "whole.jsonl", rows)
    wanted = read(tmp_path / "whole.jsonl")
    assert len(wanted.frame) == 3
    bare = [{key: value for key, value in row.items() if key not in missing} for row in rows]
    write_lines(tmp_path / "bare.jsonl", shuffled(bare, 4))
    assert_same(tmp_path / "bare.jsonl", wanted)
