"""Langfuse and LangSmith exports: every shape of a trace gives one run, in whatever order."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.corpora.formats import ImportedCorpus, detect_format, import_corpus
from certify_assets.corpora.judged import read_judged
from certify_assets.doctor import diagnose
from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats.langfuse import exported, trace
from certify_assets_tests.corpora.formats.langsmith import feedback, run_id, runs
from certify_assets_tests.corpora.formats.mlflow import trace as mlflow_trace
from certify_assets_tests.corpora.traces import small_run

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


def flat(rows: Rows) -> pd.DataFrame:
    """The rows with texts of JSON where a cell cannot hold a list or an object."""
    nested = (dict, list)
    return pd.DataFrame(
        [
            {
                key: json.dumps(cell) if isinstance(cell, nested) else cell
                for key, cell in row.items()
            }
            for row in rows
        ],
        dtype=object,
    )


def write_csv(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flat(rows).to_csv(path, index=False)


def write_parquet(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flat(rows).to_parquet(path, index=False)


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Rows, ImportedCorpus]:
    """Four Langfuse traces as the API gives them, and the runs that they are."""
    traces = [trace(f"t{n}", "ab"[n % 2], n // 2, int(n != 1)) for n in range(4)]
    return traces, read(write_json(tmp_path / "api.json", traces))


def blob(traces: Rows) -> dict[str, Rows]:
    parts = [exported(item) for item in traces]
    return {name: [row for part in parts for row in part[name]] for name in parts[0]}


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(write_lines, ".jsonl"), (write_csv, ".csv"), (write_parquet, ".parquet")],
)
def test_a_langfuse_trace_is_one_run_in_every_export(
    whole: tuple[Rows, ImportedCorpus], write: Callable[..., Any], suffix: str, tmp_path: Path
) -> None:
    traces, wanted = whole
    for seed, (name, rows) in enumerate(blob(traces).items()):
        write(tmp_path / "blob" / f"{name}{suffix}", shuffled(rows, seed))
    assert detect_format([tmp_path / "blob"]) == "langfuse"
    assert_same(tmp_path / "blob", wanted)
    (first,) = wanted.frame.query("trajectory_id == 't0'").to_dict("records")
    assert first["instruction"] == "Cancel booking a." and first["agent"] == "model-x"
    said = ['I look first.\nfind({"id": "a"})', "Cancelled a in attempt 0."]
    assert [step["action"] for step in first["steps"]] == said


def links(path: Path) -> list[str]:
    return list(read_judged([path]).source["link"])


def test_a_run_links_to_its_page_where_the_source_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [trace(f"t{n}", "a", n) | {"htmlPath": f"/project/p/traces/t{n}"} for n in range(2)]
    path = write_json(tmp_path / "t.json", traces)
    assert links(path) == ["t.json row 1", "t.json row 2"]
    monkeypatch.setenv("LANGFUSE_HOST", "https://langfuse.example/")
    assert links(path)[1] == "https://langfuse.example/project/p/traces/t1"
    monkeypatch.setenv("LANGFUSE_HOST", "javascript:alert(1)//")
    assert links(path)[0] == "t.json row 1"
    rows = [
        run | {"url": f"https://smith.example/{run['id']}"}
        for number in range(2)
        for run in runs(f"r{number}", "a")
    ]
    roots = [row["url"] for row in rows if row["id"] == row["trace_id"]]
    assert sorted(links(write_lines(tmp_path / "ls.jsonl", rows))) == sorted(roots)


def test_no_attribute_of_a_run_is_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_HOST", "https://langfuse.example")
    address = "https://evil.example"
    forged: Rows = [{"trace.link": address}, {"trace": {"link": address}}, {"htmlPath": "/evil"}]
    traces = [trace(f"t{n}", "a", n) | {"htmlPath": f"/traces/t{n}"} for n in range(len(forged))]
    for one, more in zip(traces, forged, strict=True):
        for observation in one["observations"]:
            observation |= more
    pages = [f"https://langfuse.example/traces/t{n}" for n in range(len(forged))]
    assert links(write_json(tmp_path / "langfuse.json", traces)) == pages
    run = mlflow_trace(small_run(0, 1), 0)
    for span in run["data"]["spans"]:
        span["attributes"]["trace.link"] = json.dumps(address)
    run["info"]["tags"]["trace.link"] = address
    assert links(write_json(tmp_path / "mlflow.json", run)) == ["mlflow.json row 1"]


def test_labels_come_from_the_source_that_is_asked_for(tmp_path: Path) -> None:
    traces = [trace(f"t{n}", "a", n, 1 if n else None) for n in range(3)]
    path = write_json(tmp_path / "t.json", traces)
    found = read(path)
    assert found.frame["outcome"].tolist() == [1, 1] and found.dropped == {"no_label": 1}
    assert found.label_facts == {"labels_from_human": 2}
    assert read(path, label_sources="llm_judge").frame["outcome"].tolist() == [1, 0, 0]
    assert read(path, label_sources="any").dropped == {"contradictory_labels": 2}


def test_of_two_scores_the_first_counts_and_of_several_labels_the_majority(tmp_path: Path) -> None:
    traces = [trace(f"t{n}", f"task{n}", 0) for n in range(60)]
    for n, item in enumerate(traces):
        labels = [n >= 30, n >= 30, n % 5 == 0][: 2 + (n != 7)]
        labels[1] ^= n == 7
        item["scores"] = [
            {"name": "helpful", "source": "EVAL", "dataType": "NUMERIC", "value": value}
            for value in (n / 60, n / 60 if n else 0.9)
        ] + [
            {"name": "good", "source": "ANNOTATION", "dataType": "BOOLEAN", "value": int(value)}
            for value in labels
        ]
    path = write_json(tmp_path / "t.json", traces)
    report = diagnose([path])
    assert report.best is not None and report.best.table.outcomes is not None
    assert [*np.bincount(report.best.table.outcomes + 1)] == [1, 29, 30]
    assert any("good: Reviewers agree on" in note for note in report.notes)
    certificate = report.best.issued[1].certificates[0]
    (flips,) = [one for one in certificate.findings if one["code"] == "judge_flickers"]
    assert "decision of 1 of them" in flips["message"]
    imported = read(path, label="good")
    assert imported.frame["outcome"].sum() == 30
    assert imported.dropped == {"contradictory_labels": 1}


def test_scores_of_parts_are_one_score_of_the_trace(tmp_path: Path) -> None:
    item = trace("t", "a")
    parts = [one["id"] for one in item["observations"]][-2:]
    item["scores"] = [
        {"name": "good", "source": "EVAL", "dataType": "NUMERIC", "value": v, "observationId": part}
        for v, part in zip((0.25, 0.75), parts, strict=True)
    ]
    judged = read_judged([write_json(tmp_path / "t.json", [item])])
    assert judged.source["good"].tolist() == [0.5] and "good_again" not in judged.source


def test_categories_numbers_and_columns_of_the_table_are_labels(tmp_path: Path) -> None:
    item = trace("t", "a")
    item["scores"] = [
        {"name": "verdict", "source": "ANNOTATION", "dataType": "CATEGORICAL", "value": 1}
        | {"stringValue": "good enough", "observationId": "t-root"},
        {"name": "rating", "source": "API", "dataType": "NUMERIC", "value": 0.4},
    ]
    path = write_json(tmp_path / "t.json", item)
    assert read(path, success="good enough").frame["outcome"].tolist() == [1]
    rated = read(path, label="rating", label_sources="api", threshold=0.5)
    assert rated.frame["outcome"].tolist() == [0]
    del item["observations"], item["scores"]
    write_csv(tmp_path / "table.csv", [item | {"bookmarked": False, "solved": [1]}])
    table = read(tmp_path / "table.csv", label="solved")
    assert table.format == "langfuse" and table.frame["outcome"].tolist() == [1]
    assert table.frame["instruction"].tolist() == ["Cancel booking a."]


def test_langsmith_places_runs_by_what_there_is(tmp_path: Path) -> None:
    some, said = [*runs("x", "a"), *runs("y", "b")], [feedback("x", 1), feedback("y", 0)]
    wanted = read(write_lines(tmp_path / "whole.jsonl", [*some, *said]))
    assert set(wanted.frame["trajectory_id"]) == {run_id("x/root"), run_id("y/root")}
    bare = [{key: run[key] for key in run if key != "session_id"} for run in some]
    assert_same(write_lines(tmp_path / "bare.jsonl", shuffled([*bare, *said], 4)), wanted)
    write_parquet(tmp_path / "bulk" / "runs.parquet", some)
    write_lines(tmp_path / "bulk" / "feedback.jsonl", said)
    assert detect_format([tmp_path / "bulk"]) == "langsmith"
    assert_same(tmp_path / "bulk", wanted)


def test_what_cannot_be_read_is_counted_with_its_place(tmp_path: Path) -> None:
    page = {"data": [trace("t", "a"), 7, {"id": "no-trace"}, trace("t", "a")], "meta": {}}
    found = read(write_json(tmp_path / "page.json", page))
    assert found.dropped == {"unreadable_record": 2} and len(found.frame) == 1
    assert found.notes["traces exported twice, and read once"] == 1
    assert "page.json row 2" in found.examples["unreadable_record"]
    broken = runs("x", "a")
    broken[3] |= {"error": "the booking system is down", "outputs": None}
    path = write_lines(tmp_path / "x.jsonl", [*broken, feedback("x", 0), {"key": "k", "score": 1}])
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"id": "cut')
    found = read(path)
    assert found.dropped == {"unreadable_record": 2}
    assert "error: the booking system is down" in found.frame["steps"].iloc[0][0]["observation"]
