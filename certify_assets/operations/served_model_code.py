"""What MLflow runs to load the model of a deployed judge: a copy of this file is in the model."""

# MLflow reads the annotations of predict as they are, so none is a string

from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from certify_assets.operations.served import JUDGE_FILES, JUDGE_HASH, ServedJudge


class CertifiedJudge(PythonModel):
    """A deployed judge, which decides alone where its certificates say so."""

    def load_context(self, context: Any) -> None:
        """Verify every file, the certificates among them; what is not as deployed is not loaded."""
        folder = Path(context.artifacts[JUDGE_FILES])
        self.judge = ServedJudge.open(folder, context.model_config[JUDGE_HASH])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Decide runs: score, decision, its reason, and the certificates that it rests on."""
        return self.judge.decide(model_input)


set_model(CertifiedJudge())
