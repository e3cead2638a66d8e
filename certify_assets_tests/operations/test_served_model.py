"""A registered judge in MLflow's own server: a real one, asked by a real request."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from certify_assets.certificates import decide
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.rollout import deploy
from certify_assets.operations.scorer import certified_scorer
from certify_assets.operations.served import COLUMNS
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.conftest import platform_environment
from certify_assets_tests.corpora.formats.mlflow import trace
from certify_assets_tests.corpora.traces import small_run
from certify_assets_tests.faults.servers import running
from certify_assets_tests.services import free_port

# MLflow's server takes ten seconds to start
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
    ),
]
_MODEL = "models:/certify-c@deployed"


class Registered(NamedTuple):
    """A deployment in MLflow, with new runs, what the platform decides of them, and the model."""

    store: Store
    uri: str
    runs: list[dict[str, Any]]
    scores: list[float]
    decisions: list[str]
    named: str
    model: Path


@pytest.fixture
def registered(operated: Store, monkeypatch: pytest.MonkeyPatch) -> Registered:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = deploy(judged(operated))
    assert made.mlflow is not None and "error" not in made.mlflow, made.mlflow
    found = Deployment.of(Corpus(operated, "c"))
    assert found.judge is not None
    runs = found.corpus.split("test").head(40)
    runs = runs.assign(task_id="new " + runs["task_id"])
    scores = found.judge.score_runs(runs)[0]["score"]
    uri = f"sqlite:///{operated.local_path('mlflow/mlflow.db')}"
    (model,) = (path.parent for path in Path(operated.root).rglob("MLmodel"))
    # MLflow's own function would set it for the rest of the process
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return Registered(
        operated,
        uri,
        _records(runs),
        list(scores),
        list(decide(list(found.certificates), scores)[0]),
        ";".join(item.sha256 for item in found.certificates),
        model,
    )


def _records(runs: pd.DataFrame) -> list[dict[str, Any]]:
    records = runs[list(COLUMNS)].to_dict("records")
    return [{**record, "steps": [dict(step) for step in record["steps"]]} for record in records]


def _asked(address: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{address}/invocations",
        json.dumps({"dataframe_records": runs}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["predictions"]
    return found


def test_mlflow_serves_score_decision_and_certificate(
    registered: Registered, tmp_path: Path
) -> None:
    port = free_port()
    environment = platform_environment(tmp_path / "elsewhere")
    environment["MLFLOW_TRACKING_URI"] = registered.uri
    # it starts uvicorn by name
    programs = Path(sys.executable).parent
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    command = [str(programs / "mlflow"), "models", "serve", "-m", _MODEL, "--env-manager", "local"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with running(command, environment, tmp_path / "serve.log", f"{address}/ping"):
        answers = _asked(address, registered.runs)
        (seen,) = _asked(address, [{**registered.runs[0], "agent": "somebody else"}])
    assert [row["score"] for row in answers] == pytest.approx(registered.scores, rel=1e-12)
    assert [row["decision"] for row in answers] == registered.decisions
    assert {*registered.decisions} == {"reject", "human"}
    assert {row["certificate_sha256"] for row in answers} == {registered.named}
    assert (seen["decision"], seen["reason"]) == ("human", "new_agent")


def test_a_model_that_was_altered_is_not_loaded(registered: Registered) -> None:
    from mlflow import pyfunc

    assert pyfunc.load_model(_MODEL).metadata.signature.inputs.input_names() == [*COLUMNS]
    names = {path.name for path in registered.model.rglob("*") if path.is_file()}
    assert not {name for name in names if name.endswith((".pkl", ".bin", ".pt"))}, names
    (path,) = registered.model.rglob(registered.named)
    path.write_bytes(path.read_bytes().replace(b'"coverage":0', b'"coverage":1'))
    with pytest.raises(IntegrityError, match="was altered"):
        pyfunc.load_model(_MODEL)


def test_the_scorer_of_a_deployed_judge_abstains(registered: Registered) -> None:
    import mlflow

    scorer = certified_scorer(_MODEL)
    rows = [{**row} for row in registered.runs[:8]]
    rows.append({**rows[0], "agent": "somebody else"})
    data = [{"inputs": row, "outputs": {"steps": row.pop("steps")}} for row in rows]
    found = mlflow.genai.evaluate(data=data, scorers=[scorer])
    decisions = [*registered.decisions[:8], "human"]
    decided = [decision != "human" for decision in decisions]
    assert 0 < sum(decided) < len(decided) - 1
    assert found.metrics["certified_judge_human/mean"] == pytest.approx(1 - sum(decided) / 9)
    assert found.metrics["certified_judge/mean"] == 0.0
    bound = {item.side: item.alpha for item in scorer.certificates}["reject"]
    assert found.metrics["certified_judge_error_bound/mean"] == pytest.approx(bound)
    table = found.result_df
    assert table is not None and int(table["certified_judge/value"].notna().sum()) == sum(decided)
    with pytest.raises(InputError, match="the inputs lack agent"):
        scorer(inputs={"task_id": "t", "instruction": "i"}, outputs=[])


def test_the_scorer_of_a_deployed_judge_reads_traces(registered: Registered) -> None:
    from mlflow.entities import Trace

    scorer = certified_scorer(_MODEL)
    logged = trace(small_run(0, 1), 0)
    logged["info"] |= {"execution_duration_ms": 1, "assessments": []}
    (said,) = scorer(trace=Trace.from_dict(logged))
    assert (said.name, said.value) == ("certified_judge_human", True)
    assert said.rationale == "human: new_agent"
    logged["info"]["tags"] = {}
    with pytest.raises(InputError, match="names no task"):
        scorer(trace=Trace.from_dict(logged))
