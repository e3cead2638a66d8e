"""The client of an MLflow server or database, and its address without secrets."""

from __future__ import annotations

import os
import re
from typing import Any

# up to the last @ before the path: a password may hold one, as clients read it
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")
_SETTINGS = {
    # MLflow's own limits let one step wait for a quarter of an hour on a server that hangs
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # its progress bars would be printed between the lines of a command
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def without_credentials(text: str) -> str:
    """Take user and password out of every URL in a text."""
    return _CREDENTIALS.sub("", text)


def said_by(error: Exception) -> str:
    """Return the beginning of what MLflow or the network says, in one line."""
    return without_credentials(" ".join(str(error).split()))[:200]


def mlflow_client(uri: str) -> Any:
    """Return MLflow's client of a server or database, which does not wait long for an answer."""
    # imported here: MLflow costs about two CPU seconds, and only steps that record pay them
    import logging

    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    # the error comes back and is said in a sentence; MLflow would print its traceback as well
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return MlflowClient(tracking_uri=uri)
