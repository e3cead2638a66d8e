"""MLflow traces: files in every shape, and a real server with real runs, out and back in."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.cli import main
from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts
from certify_assets.corpora.judged import read_judged
from certify_assets.errors import InputError
from certify_assets.storage.urls import file_system, local_copies
from certify_assets_tests.corpora.builders import from_frame, reader, write_json, write_lines
from certify_assets_tests.corpora.formats.mlflow import columns, feedback, row, trace
from certify_assets_tests.corpora.mlflow_server import log_runs, mlflow_server, tracking_to
from certify_assets_tests.corpora.test_otlp import assert_the_same
from certify_assets_tests.corpora.traces import small_run

read = reader()
RUNS = [small_run(number, number % 2) for number in range(4)]
TRACES = [trace(run, number) for number, run in enumerate(RUNS)]


def write(path: Path, shape: str) -> None:
    if shape == "list":
        write_json(path / "t.json", TRACES)
    elif shape == "lines":
        write_lines(path / "t.jsonl", TRACES)
    elif shape == "rows":
        write_json(path / "t.json", [row(one) for one in TRACES])
    else:
        make = columns if shape == "columns" else row
        path.mkdir()
        pq.write_table(pa.Table.from_pylist([make(one) for one in TRACES]), path / "t.parquet")


@pytest.mark.parametrize("shape", ["list", "lines", "rows", "table", "columns"])
def test_every_shape_of_an_export(shape: str, tmp_path: Path) -> None:
    write(tmp_path / "t", shape)
    imported = read(tmp_path / "t")
    assert imported.format == "mlflow" and not imported.dropped
    assert imported.label_facts == {"labels_from_human": 4}
    found = from_frame(imported.frame)
    assert_the_same(found, RUNS)
    ids = {one["info"]["trace_id"] for one in TRACES}
    assert {run.trajectory_id for run in found} == ids


def with_labels(path: Path, *labels: dict[str, Any]) -> Path:
    one = trace(RUNS[0], 0)
    one["info"]["assessments"] = list(labels)
    return write_json(path, one)


def test_overridden_failed_and_expected_values_are_no_labels(tmp_path: Path) -> None:
    expected = feedback("gold", None) | {"expectation": {"value": "yes"}}
    del expected["feedback"]
    broken = {"value": None, "error": {"error_code": "X"}}
    labels = feedback("ok", False, valid=False), feedback("ok", None) | {"feedback": broken}
    path = with_labels(tmp_path / "t.json", *labels, feedback("ok", True), expected)
    imported = read(path)
    assert from_frame(imported.frame)[0].outcome == 1
    assert imported.notes["assessments that others replace"] == 1
    assert imported.notes["assessments that ended in an error"] == 1
    with pytest.raises(InputError, match="has no label 'gold'"):
        read(path, label="gold")


def judged(path: Path, *, spans: bool = True, tag: str = "task_id") -> Path:
    """Write traces with a score of a judge and a label of a person under one name."""
    made = []
    for number, run in enumerate(RUNS):
        one = trace(run, number)
        tags = one["info"]["tags"]
        tags[tag] = tags.pop("task_id")
        by_judge = feedback("correct", number / 4, "LLM_JUDGE")
        by_code = feedback("length", number, "CODE")
        one["info"]["assessments"] = [by_judge, feedback("correct", number > 1), by_code]
        if not spans:
            one["data"]["spans"] = []
            one["info"]["request_preview"] = f"question {number // 2}"
        made.append(one)
    return write_lines(path, made)


@pytest.mark.parametrize("tag", ["task_id", "dataset_record_id", "note"])
@pytest.mark.parametrize("spans", [True, False])
def test_a_judge_and_people_under_one_name_are_score_and_truth(
    tag: str, spans: bool, tmp_path: Path
) -> None:
    runs = read_judged([judged(tmp_path / "t.jsonl", spans=spans, tag=tag)])
    score, truth = runs.named("judge", "correct"), runs.named("truth", "correct")
    assert (score, truth) == ("correct (judge)", "correct (human)")
    frame = runs.source.sort_values("trajectory_id")
    assert frame[score].tolist() == [0, 0.25, 0.5, 0.75]
    assert frame[truth].tolist() == [0, 0, 1, 1]
    if tag != "note":
        assert frame["task_id"].tolist() == [run.task for run in RUNS]
    elif not spans:
        # one record of a dataset has one input
        tasks = frame["task_id"].tolist()
        assert tasks[0] == tasks[1] != tasks[2] == tasks[3]


@pytest.mark.parametrize(
    ("url", "address", "name"),
    [
        ("mlflow+http://host:5000/agents", "http://host:5000", "agents"),
        ("mlflow+https://host/sub/my%2Fagents/", "https://host/sub", "my/agents"),
        ("mlflow+sqlite:////data/mlflow.db/agents", "sqlite:////data/mlflow.db", "agents"),
        ("mlflow://agents", "http://elsewhere", "agents"),
    ],
)
def test_urls_of_experiments(
    url: str, address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    system, root = file_system(url)
    assert (system.address, system.experiment, root) == (address, name, name)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mlflow+ftp://host/agents", "give a path or a URL that fsspec knows"),
        ("mlflow+http://host", "names no experiment"),
        ("mlflow://agents", "set MLFLOW_TRACKING_URI"),
    ],
)
def test_urls_that_name_nothing(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert_refused(url, words)


@pytest.mark.slow
@pytest.mark.smoke
def test_real_runs_of_a_real_server_come_back_and_are_assessed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = RUNS
    with mlflow_server(tmp_path / "mlflow") as address:
        ids = log_runs(address, "agents", runs)
        with local_copies([f"mlflow+{address}/agents"]) as folders:
            imported = read(list(folders), label="correct")
        assert imported.format == "mlflow" and not imported.dropped
        assert imported.label_facts == {"labels_from_human": len(runs)}
        assert_the_same(from_frame(imported.frame), runs)
        assert_refused(f"mlflow+{address}/others", "has no experiment 'others'")
        check_judged(address, tmp_path, capsys)
        check_verdicts(address, ids)
        check_decide(address, ids, tmp_path, capsys)
    gone = "does not answer. Check the address, and that the server runs"
    assert_refused(f"mlflow+{address}/agents", gone)


def check_judged(address: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Certify on an experiment by its URL: one name is that of a judge and of a person."""
    import mlflow
    from mlflow.entities import AssessmentSource
    from mlflow.entities.trace_location import MlflowExperimentLocation

    with tracking_to(address):
        place = MlflowExperimentLocation(mlflow.MlflowClient().create_experiment("judged"))
        ids = []
        for number in range(60):
            with mlflow.start_span("run", trace_destination=place) as span:
                mlflow.update_current_trace(tags={"task_id": f"t{number}"})
            ids.append(span.trace_id)
        mlflow.flush_trace_async_logging()
        for number, trace_id in enumerate(ids):
            for kind, value in (("LLM_JUDGE", number / 60), ("HUMAN", number >= 30)):
                source = AssessmentSource(source_type=kind, source_id="someone")
                mlflow.log_feedback(trace_id=trace_id, name="good", value=value, source=source)
    capsys.readouterr()
    url, out = f"mlflow+{address}/judged", folder / "judged.json"
    words = ("--judge", "good", "--truth", "good", "--procedure", "naive", "--side", "reject")
    assert run("certificate", url, *words, "--alpha", ".3", "--out", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["certified"] and found["tasks"] == 60 and 0.4 < found["threshold"] < 0.8
    assert run("verify", out, url) == 0
    assert run("audit", out, url, "--disagreements", folder / "wrong.csv") == 0
    page = f"{address}/#/experiments/{place.experiment_id}/traces?selectedEvaluationId="
    links = pd.read_csv(folder / "wrong.csv")["link"].tolist()
    assert links and {*links} <= {f"{page}{trace_id}" for trace_id in ids}
    capsys.readouterr()
    assert run("doctor", url) in (0, 3)
    shown = capsys.readouterr().out
    assert url in shown and str(folder) not in shown


def assert_refused(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words), local_copies([url]):
        pass


def run(*words: object) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def scored(path: Path, column: str = "trajectory_id", ids: Sequence[str] = ()) -> Path:
    """Write scores of 60 tasks, of which the lower half failed."""
    names = [*ids, *(f"other{number}" for number in range(60))][:60]
    rows = [f"t{n},{n / 60},{int(n >= 30)},{name}" for n, name in enumerate(names)]
    path.write_text("\n".join([f"task_id,score,outcome,{column}", *rows, ""]), "utf-8")
    return path


def certified(folder: Path, scores: Path) -> Path:
    document = folder / "certificate.json"
    made = ("certificate", scores, "--out", document, "--procedure", "naive", "--alpha", ".3")
    assert run(*made, "--side", "reject", "--json") == 0
    return document


def check_decide(
    address: str, ids: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = scored(folder / "scores.csv", ids=ids)
    certificate = certified(folder, scores)
    known = min(len(ids), 60)
    for counts in ((known, 0), (0, known)):
        capsys.readouterr()
        assert run("decide", certificate, scores, "--mlflow", address, "--json") == 0
        found = json.loads(capsys.readouterr().out)["mlflow"]
        assert (found["logged"], found["unchanged"]) == counts
        assert len(found["unknown"]) == 60 - known


def test_decisions_need_the_ids_of_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = scored(tmp_path / "scores.csv", "note")
    certificate = certified(tmp_path, scores)
    capsys.readouterr()
    assert run("decide", certificate, scores, "--mlflow", "http://127.0.0.1:1") == 2
    assert "has no trajectory_id" in " ".join(capsys.readouterr().err.split())


def check_verdicts(address: str, ids: list[str]) -> None:
    from mlflow.tracing.client import TracingClient

    def verdict(name: str, decision: str, certificate: str = "a") -> TraceVerdict:
        return TraceVerdict(name, decision, f"{decision}_region", certificate * 64)

    verdicts = [verdict(one, "reject") for one in ids]
    first = log_verdicts(address, [*verdicts, verdict("tr-0", "reject")])
    assert (first.logged, first.unchanged, first.unknown) == (len(ids), 0, ("tr-0",))
    second = log_verdicts(address, verdicts)
    assert (second.logged, second.unchanged, second.unknown) == (0, len(ids), ())
    changed = [verdict(ids[0], "human"), verdict(ids[0], "release", "b")]
    assert log_verdicts(address, changed).logged == 2
    found = [
        (one.value, one.valid, (one.metadata or {})["certificate_sha256"], one.source.source_type)
        for one in TracingClient(tracking_uri=address).get_trace(ids[0]).info.assessments
        if one.name == "certify_decision"
    ]
    assert found == [
        ("reject", False, "a" * 64, "CODE"),
        ("human", True, "a" * 64, "CODE"),
        ("release", True, "b" * 64, "CODE"),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
)
def test_an_evaluation_on_a_dataset_has_its_records_as_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.genai.datasets import create_dataset
    from mlflow.genai.scorers import scorer

    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path}/mlflow.db"
    records = [{"inputs": {"question": f"q{number}"}} for number in range(4)]
    for number in range(2):
        records[number]["tags"] = {"task_id": f"case{number}"}
    with tracking_to(address), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        experiment = mlflow.MlflowClient().create_experiment("agents")
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
        dataset = create_dataset(name="cases", experiment_id=[experiment])
        dataset.merge_records(records)
        good = scorer(lambda outputs: outputs.endswith("1"), name="good")
        # a default value would be an input of the trace
        for answer in (lambda question: "answer 0", lambda question: "answer 1"):
            mlflow.genai.evaluate(data=dataset, predict_fn=answer, scorers=[good])
    with local_copies([f"mlflow+{address}/agents"]) as folders:
        runs = read_judged(folders).source
    assert runs["task_id"].value_counts().tolist() == [2, 2, 2, 2]
    assert {"case0", "case1"} < {*runs["task_id"]}
    assert runs.groupby("task_id")["good"].sum().tolist() == [1, 1, 1, 1]
