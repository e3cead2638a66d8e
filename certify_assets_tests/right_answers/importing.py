"""Importing small files by the command, as their formats have them."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from certify_assets_tests.cli.calling import Answer, Call

Import = Callable[..., Answer]


@pytest.fixture
def imported(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Import files as a corpus of their own; Dagster's partitions are another test's matter."""
    from certify_assets.cli import launching

    monkeypatch.setattr(launching, "change_partition", lambda *_, **__: None)
    names = map("c{}".format, count(1))

    def run(*arguments: object) -> Answer:
        asked = ("--name", next(names), "--root", tmp_path / "root", "--json")
        return call("corpus", "import", *asked, *arguments)

    return run


def inspect_log(path: Path, *values: Any, **about: Any) -> Path:
    """Write a log of one sample a value; a sample's id and question are its number."""
    samples = [
        {
            "id": number,
            "epoch": 1,
            "input": f"What is {number} + 1?",
            "target": "",
            "messages": [{"role": "assistant", "content": f"I say {number} and {value}."}],
            "output": {},
            "scores": {"judge": {"value": value}},
        }
        for number, value in enumerate(values, 1)
    ]
    header = {"eval_id": "e", "run_id": "r", "task_id": "t", "task": "sums", "model": "m"}
    document = {
        "version": 2,
        "status": "success",
        "eval": {**header, "dataset": {}, "config": {}, **about},
        "samples": samples,
    }
    path.write_text(json.dumps(document), "utf-8")
    return path


def langfuse_traces(path: Path, *scores: dict[str, Any]) -> Path:
    """Write one trace a score."""
    time = "2026-01-01T00:00:00Z"
    traces = [
        {
            "id": f"t{number}",
            "timestamp": time,
            "metadata": {"task_id": f"k{number}"},
            "input": f"q{number}",
            "output": f"a{number}",
            "observations": [],
            "scores": [
                {"id": f"s{number}", "traceId": f"t{number}", "name": "verdict", "timestamp": time}
                | {"source": "ANNOTATION"}
                | score
            ],
        }
        for number, score in enumerate(scores)
    ]
    path.write_text(json.dumps({"data": traces}), "utf-8")
    return path


def categories(*words: str) -> list[dict[str, Any]]:
    """Return scores of Langfuse whose number is no more than a place in a list."""
    return [{"dataType": "CATEGORICAL", "value": 0, "stringValue": word} for word in words]
