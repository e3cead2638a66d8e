"""Traces of an MLflow server: an experiment as a folder of files, and assessments to log there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from fsspec.spec import AbstractFileSystem

from certify_assets.corpora.formats.mlflow import LINK
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.tracking import mlflow_client, said_by, without_credentials
from certify_assets.storage.urls import FILES

_SUFFIX: Final = ".json"
_PAGE: Final = 100


class MlflowExperiment(AbstractFileSystem):  # type: ignore[misc]
    """A file for each trace of an experiment.

    Its URL is mlflow+http://HOST:PORT/NAME, mlflow+sqlite:///FILE/NAME, or mlflow://NAME, which
    asks the server of MLFLOW_TRACKING_URI.
    """

    cachable = False

    def __init__(self, address: str, experiment: str) -> None:
        super().__init__()
        self.address = address
        self.experiment = experiment

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, str]:
        scheme, _, rest = url.partition("://")
        place, _, name = rest.rstrip("/").rpartition("/")
        kind = scheme.partition("+")[2]
        address = f"{kind}://{place}" if kind else os.environ.get("MLFLOW_TRACKING_URI", "")
        if not name or not address or bool(place.strip("/")) != bool(kind):
            raise InputError(
                f"{without_credentials(url)} names no experiment of MLflow; give "
                "mlflow+http://HOST:PORT/EXPERIMENT, mlflow+sqlite:///FILE/EXPERIMENT, or set "
                "MLFLOW_TRACKING_URI and give mlflow://EXPERIMENT."
            )
        return {"address": address, "experiment": unquote(name)}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return cls._get_kwargs_from_urls(path)["experiment"] if "://" in path else path

    def isfile(self, path: str) -> bool:
        """Whether the experiment is a file; it is a folder."""
        return False

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return a file for each trace; its stamp changes with its assessments and tags."""
        found: list[Any] = []
        with asking(self.address):
            client, token = _client(self.address), None
            experiment = client.get_experiment_by_name(self.experiment)
            if experiment is None:
                raise InputError(
                    f"MLflow at {without_credentials(self.address)} has no experiment "
                    f"{self.experiment!r}; check the name."
                )
            # what is too much is refused by its number
            while len(found) <= FILES:
                page = client.search_traces(
                    locations=[experiment.experiment_id],
                    max_results=_PAGE,
                    page_token=token,
                    include_spans=False,
                )
                for trace in page:
                    name = f"{path}/{trace.info.trace_id}{_SUFFIX}"
                    stamp = sha256_bytes(canonical_json(trace.info.to_dict()))
                    found.append({"name": name, "type": "file", "size": None, "etag": stamp})
                if not (token := page.token):
                    break
        return found if detail else [file["name"] for file in found]

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        """Write one trace as JSON."""
        trace_id = rpath.rpartition("/")[2].removesuffix(_SUFFIX)
        with asking(self.address):
            trace = _client(self.address).get_trace(trace_id, display=False)
        found = json.loads(trace.to_json())
        if self.address.startswith("http"):
            where = f"experiments/{quote(trace.info.experiment_id)}/traces"
            page = f"{without_credentials(self.address).rstrip('/')}/#/{where}"
            found[LINK] = f"{page}?selectedEvaluationId={quote(trace_id)}"
        Path(lpath).write_text(json.dumps(found), "utf-8")


def _client(address: str) -> Any:
    """Return the client of a server or an existing database; MLflow would make a missing one."""
    scheme, _, file = address.partition(":///")
    if scheme == "sqlite" and not Path(file.partition("?")[0]).is_file():
        raise InputError(f"there is no database {file}; check the path.")
    return mlflow_client(address)


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Turn errors of MLflow or the network into one sentence without credentials."""
    from mlflow.exceptions import MlflowException

    # what the network says is an OSError
    try:
        yield
    except (MlflowException, OSError) as error:
        # MLflow repeats in its own words what the network said
        if isinstance(error, OSError) or isinstance(error.__context__, OSError):
            raise InputError(
                f"MLflow at {without_credentials(address)} does not answer. Check the address, "
                "and that the server runs."
            ) from None
        raise InputError(
            f"MLflow at {without_credentials(address)} did not answer as it should "
            f"({said_by(error)}); check the address, and MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN where it asks for them."
        ) from None


class TraceVerdict(NamedTuple):
    """The decision on one trace."""

    trace_id: str
    decision: str
    reason: str
    certificate_sha256: str


class VerdictCounts(NamedTuple):
    """Numbers of assessments logged and of those that existed already, and the missing traces."""

    logged: int
    unchanged: int
    unknown: tuple[str, ...]


_NAME: Final = "certify_decision"
_SOURCE: Final = {"source_type": "CODE", "source_id": "certify_assets"}
# ids become a part of an address, and come from tables of others
_TRACE_ID: Final = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:/-]*")


def _assessing(address: str) -> Any:
    # sets the limits on waiting; only this client logs assessments without MLflow's global state
    _client(address)
    from mlflow.tracing.client import TracingClient

    return TracingClient(tracking_uri=address)


def log_verdicts(address: str, verdicts: Iterable[TraceVerdict]) -> VerdictCounts:
    """Log decisions as feedback of source CODE, once for each certificate.

    A repetition logs nothing. Another decision under the same certificate replaces the former one.
    The metadata holds the certificate's hash.
    """
    from mlflow.entities import AssessmentSource, Feedback
    from mlflow.exceptions import MlflowException

    source = AssessmentSource(**_SOURCE)
    logged = unchanged = 0
    unknown: list[str] = []
    with asking(address):
        client = _assessing(address)
        for trace_id, decision, reason, certificate in verdicts:
            try:
                trace = client.get_trace(trace_id) if _TRACE_ID.fullmatch(trace_id) else None
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
                    raise
                trace = None
            if trace is None:
                unknown.append(trace_id)
                continue
            metadata = {"certificate_sha256": certificate, "reason": reason}
            earlier, same = None, False
            for one in trace.info.assessments:
                about = one.metadata or {}
                ours = (one.source.source_type, one.source.source_id) == (*_SOURCE.values(),)
                theirs = one.name != _NAME or not ours or one.valid is False
                if not theirs and about.get("certificate_sha256") == certificate:
                    earlier = one.assessment_id
                    same |= one.feedback.value == decision and metadata.items() <= about.items()
            if same:
                unchanged += 1
                continue
            said = Feedback(
                name=_NAME, value=decision, source=source, metadata=metadata, overrides=earlier
            )
            client.log_assessment(trace_id, said)
            logged += 1
    return VerdictCounts(logged, unchanged, tuple(unknown))
