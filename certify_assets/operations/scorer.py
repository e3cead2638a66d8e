"""A deployed judge as a scorer of MLflow's evaluation, which abstains where it may not decide."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError

if TYPE_CHECKING:
    from mlflow.entities import Feedback
    from mlflow.genai.scorers import Scorer


def certified_scorer(model: str, *, name: str = "certified_judge") -> Scorer:
    """Return a scorer for ``mlflow.genai.evaluate``.

    Every run gets the assessment ``NAME_decided``, true where the certificates decide it. Only such
    a run gets the assessment ``NAME``, true for a success, so that its mean is over decided runs
    alone: it is no success rate of all of them.

    Parameters
    ----------
    model
        Address of a deployed judge, such as ``models:/certify-mine@deployed``, or its folder. It is
        verified as `ServedJudge.open` does.
    name
        Name of the assessments.

    Returns
    -------
    Scorer
        Takes inputs with task_id, agent and instruction, and outputs that are the steps of the run,
        objects with action and observation, or an object with them under steps.

    Raises
    ------
    IntegrityError
        Where the model is not what was deployed.
    """
    with warnings.catch_warnings():
        # of MLflow's own annotations
        warnings.simplefilter("ignore")
        from mlflow import pyfunc
        from mlflow.entities import AssessmentSource, AssessmentSourceType, Feedback
        from mlflow.genai.scorers import scorer

        loaded = pyfunc.load_model(model)
    source = AssessmentSource(AssessmentSourceType.CODE, model)

    def judged(inputs: dict[str, Any], outputs: Any) -> list[Feedback]:
        answer = loaded.predict(_row(inputs, outputs)).iloc[0]
        decided = answer["decision"] != "human"
        about: dict[str, Any] = {
            "source": source,
            "metadata": {column: str(value) for column, value in answer.items()},
        }
        said = {f"{name}_decided": (decided, f"{answer['decision']}: {answer['reason']}")}
        if decided:
            accepted = answer["decision"] == "release"
            said[name] = (accepted, f"decided under {answer['certificate_sha256']}")
        return [
            Feedback(name=which, value=bool(value), rationale=why, **about)
            for which, (value, why) in said.items()
        ]

    return scorer(judged, name=name)


def _row(inputs: dict[str, Any], outputs: Any) -> Any:
    import pandas as pd

    names = ("task_id", "agent", "instruction")
    if missing := [name for name in names if name not in inputs]:
        raise InputError(
            f"the inputs lack {', '.join(missing)}; give {', '.join(names)} of every run."
        )
    steps = outputs.get("steps") if isinstance(outputs, dict) else outputs
    return pd.DataFrame({**{name: [inputs[name]] for name in names}, "steps": [steps]})
