"""A scorer of MLflow with a certificate on its scores, which abstains where it does not decide."""

from __future__ import annotations

import json
import linecache
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from certify_assets.certificates import Certificate, decide
from certify_assets.errors import InputError
from certify_assets.tables.settings import PERCENT, reading_of

with warnings.catch_warnings():
    # of MLflow's own annotations
    warnings.simplefilter("ignore")
    from mlflow.entities import AssessmentSource, AssessmentSourceType, Feedback, Trace
    from mlflow.genai.scorers import Scorer, scorer

_SIDES: Final = {"reject": False, "release": True}
# copied into the registered scorer, so that it needs nothing but MLflow where it runs
_CODE: Final = Path(__file__).parent / "registered_scorer_code.py"


class CertifiedScorer(Scorer):
    """A scorer that decides the runs that its certificates cover, and leaves the rest to people.

    Every run gets the assessment ``NAME_human``, true if it goes to review. A decided run gets
    ``NAME``, true for a success, and ``NAME_error_bound``, the share of such decisions that may be
    wrong. An evaluation reports the mean of each. The mean of ``NAME`` is the success rate of the
    decided runs only, not of all runs.

    Attributes
    ----------
    name : str
        Name of the assessments.
    certificates : tuple of Certificate
        At most one a side.
    judge : Scorer
        A scorer of MLflow whose value is the score that was certified.
    """

    certificates: tuple[Certificate, ...]
    judge: Any

    def __call__(  # type: ignore[override]
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        expectations: dict[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> list[Feedback]:
        """Decide one run, given as the judge takes it."""
        said = self.judge.run(
            inputs=inputs, outputs=outputs, expectations=expectations, trace=trace
        )
        score = _score(said, self.judge.name)
        value = np.nan if score is None else score * score_factor(self.certificates)
        (decision,), (reason,) = decide(self.certificates, [value])
        item = next((one for one in self.certificates if one.side == decision), None)
        values: list[tuple[str, Any, str]] = [
            (f"{self.name}_human", item is None, f"{decision}: {reason}")
        ]
        if item is not None:
            values += [
                (self.name, _SIDES[item.side], f"decided under {item.sha256}"),
                (f"{self.name}_error_bound", item.alpha, item.statement),
            ]
        source = AssessmentSource(AssessmentSourceType.CODE, "certify_assets")
        about = {
            "decision": str(decision),
            "reason": str(reason),
            "score": str(score),
            "certificate_sha256": ";".join(one.sha256 for one in self.certificates),
        }
        return [
            Feedback(name=name, value=value, rationale=why, source=source, metadata=about)
            for name, value, why in values
        ]


def certified_scorer(
    judge: Scorer, certificate: Any, *, name: str = "certified_judge"
) -> CertifiedScorer:
    """Return a scorer for ``mlflow.genai.evaluate``.

    Parameters
    ----------
    judge
        A scorer of MLflow, such as ``make_judge`` returns.
    certificate
        Path of a file that ``certify certificate --out`` wrote for the scores of the judge, or
        certificates that ``certify`` returned.
    name
        Name of the assessments.

    Raises
    ------
    InputError
        If `certificate` holds no certificate.
    """
    return CertifiedScorer(name=name, judge=judge, certificates=certificates_of(certificate))


def registrable_scorer(certificate: Any, *, judge: str, name: str = "certified_judge") -> Scorer:
    """Return a scorer that a server of MLflow can keep: its source carries the certificate.

    It decides traces by the assessment that a judge left on them, and gives the assessments of
    `CertifiedScorer`. The server needs only MLflow.

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
        Call ``register()`` on it. A server of MLflow refuses unless it sets
        MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS, because it would run foreign code.
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
            f"{given} holds no certificate ({error}). Give a file that certify certificate wrote."
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
            f"the scorer {judge!r} gives several assessments. Give a scorer with one, the "
            "certified score."
        )
    if isinstance(value, str):
        return {"yes": 1.0, "no": 0.0}.get(value.lower())
    return float(value) if isinstance(value, bool | int | float) else None
