"""A deployed judge as a model of MLflow, which ``mlflow models serve`` loads."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets._version import __version__
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.served import export_judge

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

#: folder of the model among the artifacts of its run
MODEL_FOLDER: Final = "model"
#: artifact of the model, and the key of its configuration that has the hash of the artifact
JUDGE_FILES: Final = "judge"
JUDGE_HASH: Final = "served_sha256"
# copied into the model, and run by MLflow where it is loaded: nothing is pickled
_CODE = Path(__file__).parent / "served_model_code.py"


def log_model(
    uri: str,
    run: str,
    judge: JudgedCorpus,
    certificates: Sequence[Certificate],
    *,
    deployment: int,
) -> None:
    """Log a judge with its certificates as a model of a run."""
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / MODEL_FOLDER
        save_model(model, judge, certificates, deployment=deployment)
        MlflowClient(tracking_uri=uri).log_artifacts(run, str(model), MODEL_FOLDER)


def save_model(
    path: Path, judge: JudgedCorpus, certificates: Sequence[Certificate], *, deployment: int = 0
) -> None:
    """Write a judge with its certificates as a model of MLflow into a folder."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # MLflow warns of the annotations of its own models, and of deprecated calls of its own
        warnings.simplefilter("ignore")
        from mlflow import pyfunc

        files = Path(folder) / JUDGE_FILES
        sha256 = export_judge(judge, certificates, files, deployment=deployment)
        pyfunc.save_model(
            path=str(path),
            python_model=str(_CODE),
            artifacts={JUDGE_FILES: str(files)},
            model_config={JUDGE_HASH: sha256},
            signature=_signature(),
            pip_requirements=[f"certify_assets=={__version__}"],
        )


def _signature() -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, DataType, Object, Property, Schema

    texts = [Property(name, DataType.string) for name in ("action", "observation")]
    asked = [ColSpec(DataType.string, name) for name in ("task_id", "agent", "instruction")]
    answered = [
        ColSpec(DataType.string, name) for name in ("decision", "reason", "certificate_sha256")
    ]
    return ModelSignature(
        inputs=Schema([*asked, ColSpec(Array(Object(texts)), "steps")]),
        outputs=Schema([ColSpec(DataType.double, "score"), *answered]),
    )
