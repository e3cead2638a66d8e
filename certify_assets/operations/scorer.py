"""A certified judge as a scorer of MLflow, which abstains where the certificate does not decide.

It is the judge of a deployment, or any scorer of MLflow with a certificate on its scores.
"""

from __future__ import annotations

import json
import linecache
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import PrivateAttr

from certify_assets.certificates import Certificate, decide
from certify_assets.errors import InputError
from certify_assets.tables.settings import PERCENT, reading_of

with warnings.catch_warnings():
    # of MLflow's own annotations
    warnings.simplefilter("ignore")
    from mlflow import pyfunc
    from mlflow.entities import AssessmentSource, AssessmentSourceType, Feedback, Trace
    from mlflow.genai.scorers import Scorer, scorer

_SIDES: Final = {"reject": False, "release": True}
# copied into the registered scorer, so that it needs nothing but MLflow where it runs
_CODE: Final = Path(__file__).parent / "registered_scorer_code.py"
_RUN: Final = ("task_id", "agent", "instruction")


class _Answer(NamedTuple):
    decision: str
    reason: str
    score: float | None


class CertifiedScorer(Scorer):
    """A scorer that decides a run where its certificates do, and leaves the rest to people.

    Every run gets the assessment ``NAME_human``, true where it goes to review. A decided run gets
    ``NAME``, true for a success, and ``NAME_error_bound``, the share of such decisions that may be
    wrong. So an evaluation reports three means: of the decided runs alone, of their bound, and the
    share that is left to people. The first is no success rate of all runs.

    Attributes
    ----------
    name : str
        Name of the assessments.
    certificates : tuple of Certificate
        At most one a side.
    model : str
        Address of a deployed judge; empty where `judge` gives the scores.
    judge : Scorer or None
        A scorer of MLflow whose value is the score that was certified.
    """

    certificates: tuple[Certificate, ...]
    model: str = ""
    judge: Any = None
    _served: Any = PrivateAttr(default=None)

    def __call__(  # type: ignore[override]
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        expectations: dict[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> list[Feedback]:
        """Decide one run.

        Parameters
        ----------
        inputs, outputs
            As the judge takes them. A deployed judge takes task_id, agent and instruction, and the
            steps of the run: objects with action and observation.
        expectations
            Of no use to a deployed judge.
        trace
            The run as it was traced. A deployed judge reads it where the inputs name no task.
        """
        if self._served is not None:
            row = _row(inputs, outputs, trace)
            found = self._served.predict(row).iloc[0]
            answer = _Answer(found["decision"], found["reason"], float(found["score"]))
        else:
            said = self.judge.run(
                inputs=inputs, outputs=outputs, expectations=expectations, trace=trace
            )
            answer = self._decided(_score(said, self.judge.name))
        return self._feedback(answer)

    def _decided(self, score: float | None) -> _Answer:
        value = np.nan if score is None else score * score_factor(self.certificates)
        decisions, reasons = decide(self.certificates, [value])
        return _Answer(str(decisions[0]), str(reasons[0]), score)

    def _feedback(self, answer: _Answer) -> list[Feedback]:
        source = AssessmentSource(AssessmentSourceType.CODE, self.model or "certify_assets")
        by_side = {item.side: item for item in self.certificates}
        about = {
            "decision": answer.decision,
            "reason": answer.reason,
            "score": str(answer.score),
            "certificate_sha256": ";".join(item.sha256 for item in self.certificates),
        }
        item = by_side.get(answer.decision)
        said = [(f"{self.name}_human", item is None, f"{answer.decision}: {answer.reason}")]
        values: list[tuple[str, Any, str]] = [*said]
        if item is not None:
            values += [
                (self.name, _SIDES[item.side], f"decided under {item.sha256}"),
                (f"{self.name}_error_bound", item.alpha, item.statement),
            ]
        return [
            Feedback(name=name, value=value, rationale=why, source=source, metadata=about)
            for name, value, why in values
        ]


def certified_scorer(
    judge: str | Scorer, certificate: Any = None, *, name: str = "certified_judge"
) -> CertifiedScorer:
    """Return a scorer for ``mlflow.genai.evaluate``.

    Parameters
    ----------
    judge
        A scorer of MLflow, such as ``make_judge`` returns; or the address of a deployed judge, such
        as ``models:/certify-mine@deployed``, or its folder. A deployed judge is verified as
        `ServedJudge.open` does.
    certificate
        What ``certify certificate --out`` wrote for the scores of the judge, as a path, or what
        ``certify`` returned. A deployed judge has its own.
    name
        Name of the assessments.

    Returns
    -------
    CertifiedScorer

    Raises
    ------
    IntegrityError
        Where a deployed judge is not what was deployed.
    InputError
        Where the certificate is missing, or is no certificate.
    """
    if not isinstance(judge, str):
        if certificate is None:
            raise InputError(f"the scorer {judge.name!r} has no certificate. Give one with it.")
        return CertifiedScorer(name=name, judge=judge, certificates=certificates_of(certificate))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        served = pyfunc.load_model(judge)
    certificates = served.unwrap_python_model().judge.certificates
    made = CertifiedScorer(name=name, model=judge, certificates=certificates)
    made._served = served
    return made


def registrable_scorer(certificate: Any, *, judge: str, name: str = "certified_judge") -> Scorer:
    """Return a scorer that a server of MLflow can keep: its source carries the certificate.

    It decides traces by the assessment that a judge left on them, and answers as `CertifiedScorer`
    does. Where it runs, only MLflow has to be installed.

    Parameters
    ----------
    certificate
        As for `certified_scorer`.
    judge
        Name of the assessment that is the score: a number, a truth value, or yes or no.
    name
        Name of the assessments.

    Returns
    -------
    Scorer
        ``register()`` it. MLflow refuses that on a server that does not set
        MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS, since it would run the code of others.
    """
    certificates = certificates_of(certificate)
    told = {
        "name": name,
        "judge": judge,
        "factor": score_factor(certificates),
        "certificates": [item.to_dict() | {"sha256": item.sha256} for item in certificates],
    }
    text = _CODE.read_text("utf-8").replace('"TOLD"', repr(json.dumps(told)))
    # MLflow takes the source of a function from its file
    file = f"<certified scorer {certificates[0].sha256}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made: dict[str, Any] = {}
    exec(compile(text, file, "exec"), made)
    kept: Scorer = scorer(made["certified"], name=name)
    return kept


def certificates_of(given: Any) -> tuple[Certificate, ...]:
    """Return certificates, at most one a side, of a file, of a document or of `certify`."""
    if isinstance(given, Certificate):
        return (given,)
    if (held := getattr(given, "certificates", None)) is not None:
        return tuple(held)
    try:
        document = given if isinstance(given, Mapping) else json.loads(Path(given).read_bytes())
        items = document.get("certificates", [document])
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{given} holds no certificate ({error}). Give what certify certificate wrote."
        ) from None
    found = tuple(Certificate.from_dict(item) for item in items)
    # refuses two of one side
    decide(found, [])
    return found


def score_factor(certificates: Sequence[Certificate]) -> float:
    """Return what scores are multiplied by to be those that were certified."""
    reading = reading_of(certificates[0].provenance)
    percent = 0.01 if reading.get("score_scale") == PERCENT else 1.0
    return -percent if reading.get("lower_is_better") == "true" else percent


def _score(said: Any, judge: str) -> float | None:
    """Return the value of a judge as a score; None where it gave none."""
    value = said.value if isinstance(said, Feedback) else said
    if isinstance(value, list):
        raise InputError(
            f"the scorer {judge!r} gives several assessments, and one is certified. Give a scorer "
            "of one."
        )
    if isinstance(value, str):
        return {"yes": 1.0, "no": 0.0}.get(value.lower())
    return float(value) if isinstance(value, bool | int | float) else None


def _row(inputs: Any, outputs: Any, trace: Trace | None) -> Any:
    """Return a run as a deployed judge takes it, of inputs and outputs or of its trace."""
    import pandas as pd

    given = inputs if isinstance(inputs, dict) else {}
    missing = [name for name in _RUN if name not in given]
    if missing and trace is not None:
        from certify_assets.corpora.formats.mlflow import run_of_trace

        draft = run_of_trace(trace.to_dict())
        given = {name: getattr(draft, name) for name in _RUN}
        outputs = [{"action": one.action, "observation": one.observation} for one in draft.steps]
    elif missing:
        raise InputError(
            f"the inputs lack {', '.join(missing)}; give {', '.join(_RUN)} of every run, or its "
            "trace."
        )
    steps = outputs.get("steps") if isinstance(outputs, dict) else outputs
    return pd.DataFrame({**{name: [given[name]] for name in _RUN}, "steps": [steps]})
