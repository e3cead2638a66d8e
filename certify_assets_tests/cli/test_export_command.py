"""``certify ops export``: from traces to decisions and back into the tool, by its own schema."""

import json
from pathlib import Path

import pytest

from certify_assets.corpora.formats import import_corpus
from certify_assets.storage.tracking import mlflow_client
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.corpora.builders import write_lines
from certify_assets_tests.corpora.formats import langfuse, langsmith
from certify_assets_tests.corpora.formats.langfuse import trace
from certify_assets_tests.corpora.formats.langsmith import run_id, runs
from certify_assets_tests.corpora.mlflow_server import log_runs
from certify_assets_tests.corpora.traces import small_run


def imported(call: Call, folder: Path, tool: str) -> tuple[object, ...]:
    """Make a corpus of a tool's traces, and ingest two more; return --root."""
    root = ("--root", folder / "root")
    form, new = {
        "langfuse": (langfuse, [trace("n1", "new"), trace("n2", "new", 1)]),
        "langsmith": (langsmith, [*runs("n1", "new"), *runs("n2", "new", 1)]),
    }[tool]
    form.write(folder / "first")
    write_lines(folder / "new" / "new.jsonl", new)
    made = call("corpus", "import", folder / "first", "--name", tool, *root)
    assert made.code == 0, made.err
    early = call("ops", "export", tool, folder / "early", "--format", tool, *root)
    assert early.code == 2 and "no decision is final" in early.err
    assert not (folder / "early").exists()
    assert call("ops", "ingest", tool, folder / "new", *root).code in (0, 3)
    return root


@pytest.mark.slow
def test_langfuse_traces_come_back_as_scores(call: Call, tmp_path: Path) -> None:
    root, out = imported(call, tmp_path, "langfuse"), tmp_path / "scores.json"
    made = call("ops", "export", "langfuse", out, "--format", "langfuse", "--json", *root)
    assert made.code == 0, made.err
    assert made.json == {
        "files": [str(out)],
        "written": 2,
        "provisional": 0,
        "foreign": 0,
    }
    document = json.loads(out.read_text("utf-8"))
    # POST /api/public/ingestion takes events
    assert {event["type"] for event in document["batch"]} == {"score-create"}
    bodies = [event["body"] for event in document["batch"]]
    assert {(body["traceId"], body["value"]) for body in bodies} == {
        ("n1", "human"),
        ("n2", "human"),
    }
    assert {body["metadata"]["reason"] for body in bodies} == {"not_deployed"}
    # once more is the same bytes, so the same scores
    before = out.read_bytes()
    assert call("ops", "export", "langfuse", out, "--format", "langfuse", *root).code == 0
    assert out.read_bytes() == before
    # in the tool they are scores of the API, which are nobody's label of the next corpus
    scored = [
        {**trace(body["traceId"], "new"), "scores": [body | {"source": "API"}]} for body in bodies
    ]
    (tmp_path / "again.json").write_text(json.dumps(scored), "utf-8")
    again = import_corpus(tmp_path / "again.json", name="c", options={"keep_unlabelled": True})
    assert again.frame["outcome"].isna().all() and len(again.frame) == 2
    # what cannot be written is one sentence
    for arguments, words in (
        ((tmp_path / "x", "--format", "langsmith"), "do not come from langsmith"),
        ((tmp_path / "x", "--format", "langfuse", "--batch", "b9"), "no decided batch"),
        ((tmp_path / "x", "--format", "mail"), "Invalid value for '--format'"),
        ((tmp_path / "scores.json" / "x", "--format", "langfuse"), "cannot be written"),
    ):
        answer = call("ops", "export", "langfuse", *arguments, *root)
        assert answer.code == 2 and words in answer.err and "Traceback" not in answer.err


def test_langsmith_runs_come_back_as_feedback(call: Call, tmp_path: Path) -> None:
    root, out = imported(call, tmp_path, "langsmith"), tmp_path / "feedback.jsonl"
    made = call("ops", "export", "langsmith", out, "--format", "langsmith", *root)
    assert made.code == 0 and "2 decisions for langsmith" in made.out, made.err
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert {record["run_id"] for record in records} == {run_id("n1/root"), run_id("n2/root")}
    assert all(record["score"] is None and record["value"] == "human" for record in records)
    write_lines(tmp_path / "again" / "runs.jsonl", [*runs("n1", "new"), *records[:1]])
    options = {"keep_unlabelled": True}
    again = import_corpus(tmp_path / "again", name="c", options=options)
    assert again.format == "langsmith" and again.frame["outcome"].isna().all()


@pytest.mark.slow
def test_mlflow_traces_get_assessments_once(call: Call, tmp_path: Path) -> None:
    address, root = f"sqlite:///{tmp_path}/mlflow.db", ("--root", tmp_path / "root")
    found = [small_run(number, number % 2) for number in range(8)]
    log_runs(address, "agents", found[:6])
    later = log_runs(address, "later", found[6:])
    made = call(
        *("corpus", "import", f"mlflow+{address}/agents", "--name", "traced"),
        *("--option", "label=correct", *root),
    )
    assert made.code == 0, made.err
    export = ("ops", "export", "traced", address, "--format", "mlflow")
    early = call(*export, *root)
    assert early.code == 2 and "no decision is final" in early.err
    assert call("ops", "ingest", "traced", f"mlflow+{address}/later", *root).code in (0, 3)
    for written, unchanged in ((2, 0), (0, 2)):
        answer = call(*export, "--json", *root)
        assert answer.code == 0, answer.err
        assert answer.json == {
            "files": [],
            "written": written,
            "provisional": 0,
            "foreign": 0,
            "unchanged": unchanged,
        }
    client = mlflow_client(address)
    for name in later:
        (said,) = [
            one
            for one in client.get_trace(name).info.assessments
            if one.name == "certify_decision" and one.source.source_type == "CODE"
        ]
        assert said.feedback.value == "human" and said.metadata["reason"] == "not_deployed"
