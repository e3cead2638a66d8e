"""A certified scorer of MLflow: on any judge, and registered on a real server."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets import certify
from certify_assets.errors import InputError
from certify_assets.notebook import CertificatePair
from certify_assets.operations.scorer import certified_scorer, registrable_scorer
from certify_assets_tests.corpora.mlflow_server import mlflow_server, tracking_to

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::sqlalchemy.exc.SADeprecationWarning"
    ),
]
# beyond both thresholds, between them, and what is no score
SCORES = [-4.0, 0.9, 1.6, 9.0, None]


@pytest.fixture(scope="module")
def pair() -> CertificatePair:
    random = np.random.default_rng(3)
    task = np.repeat(np.arange(150), 4)
    success = random.random(600) < np.repeat(random.beta(0.7, 0.7, 150), 4)
    score = random.normal(3.0 * success)
    return certify(score, success.astype(int), [f"t{one}" for one in task], alpha=0.2)


def judge(value: Any = None) -> Any:
    """Return a scorer of MLflow that gives the outputs, or one value."""
    from mlflow.genai.scorers import scorer

    @scorer
    def judge(outputs: Any) -> Any:
        return outputs if value is None else value

    return judge


def said(assessments: Any) -> dict[str, Any]:
    return {one.name: one.value for one in assessments}


def test_a_judge_decides_within_its_certificate(pair: CertificatePair, tmp_path: Path) -> None:
    from mlflow.genai.scorers import Scorer

    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(pair.to_dict()), "utf-8")
    made = certified_scorer(judge(), path, name="good")
    assert isinstance(made, Scorer) and made.certificates == pair.certificates
    decided = pair.decide([np.nan if score is None else score for score in SCORES])
    assert {*decided} == {"reject", "release", "human"}
    for score, decision in zip(SCORES, decided, strict=True):
        found = said(made(outputs=score))
        assert found.pop("good_human") is (decision == "human")
        expected = {"good": decision == "release", "good_error_bound": 0.2}
        assert found == ({} if decision == "human" else expected)
    yes, no = (certified_scorer(judge(word), pair) for word in ("yes", "no"))
    for made, score in ((yes, 1.0), (no, 0.0)):
        assert (made(outputs="")[0].metadata or {})["score"] == str(score)


def test_what_cannot_decide_is_refused(pair: CertificatePair, tmp_path: Path) -> None:
    from mlflow.entities import Feedback

    with pytest.raises(InputError, match="holds no certificate"):
        certified_scorer(judge(), tmp_path / "none.json")
    with pytest.raises(InputError, match="one for each side"):
        certified_scorer(judge(), {"certificates": [pair.reject.to_dict()] * 2})
    several = certified_scorer(judge([Feedback(name="a", value=1)]), pair)
    with pytest.raises(InputError, match="gives several assessments"):
        several(outputs=1)


def test_a_server_keeps_a_scorer_that_carries_its_certificate(
    pair: CertificatePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.genai.scorers import get_scorer

    made = registrable_scorer(pair, judge="judge", name="good")
    with mlflow_server(tmp_path / "refusing") as address, tracking_to(address):
        experiment = mlflow.MlflowClient().create_experiment("agents")
        with pytest.raises(MlflowException, match="MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS"):
            made.register(experiment_id=experiment)
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS", "true")
    with mlflow_server(tmp_path / "allowing") as address, tracking_to(address):
        experiment = mlflow.MlflowClient().create_experiment("agents")
        made.register(experiment_id=experiment)
        kept = get_scorer(name="good", experiment_id=experiment)
        source = kept.model_dump()["call_source"]
        assert all(item.sha256 in source for item in pair.certificates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traces = _judged(experiment)
            direct = certified_scorer(judge(), pair, name="good")
            for score, one in zip(SCORES, traces, strict=True):
                assert said(kept(trace=one)) == said(direct(outputs=score)), score
            monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
            metrics = mlflow.genai.evaluate(data=traces, scorers=[kept]).metrics
        assert metrics["good_error_bound/mean"] == pytest.approx(0.2)
        decided = pair.decide([np.nan if score is None else score for score in SCORES])
        assert metrics["good_human/mean"] == pytest.approx(float(np.mean(decided == "human")))


def _judged(experiment: str) -> list[Any]:
    """Log a trace for each score, with the assessment of its judge; a person says otherwise."""
    import mlflow
    from mlflow.entities import AssessmentSource
    from mlflow.entities.trace_location import MlflowExperimentLocation

    ids = []
    for score in SCORES:
        place = MlflowExperimentLocation(experiment)
        with mlflow.start_span("run", trace_destination=place) as span:
            span.set_inputs({"question": str(score)})
        ids.append(span.trace_id)
    mlflow.flush_trace_async_logging()
    for trace_id, score in zip(ids, SCORES, strict=True):
        by_judge, by_person = (
            AssessmentSource(source_type=kind, source_id="someone")
            for kind in ("LLM_JUDGE", "HUMAN")
        )
        if score is not None:
            mlflow.log_feedback(trace_id=trace_id, name="judge", value=score, source=by_judge)
        mlflow.log_feedback(trace_id=trace_id, name="judge", value=-9.0, source=by_person)
    return [mlflow.get_trace(trace_id) for trace_id in ids]
