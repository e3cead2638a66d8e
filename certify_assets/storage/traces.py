"""Traces of an MLflow server: an experiment as a folder of files, and assessments that go back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.mlflow_server import mlflow_client, said_by, without_credentials

# what follows mlflow+ in a URL; mlflow://NAME asks MLFLOW_TRACKING_URI
_KINDS = ("", "http", "https", "sqlite")
_SUFFIX = ".json"
_PAGE = 100
# more than `urls.FILES`, so that what is too much is refused by its number
_MOST = 100_000


@dataclass(frozen=True)
class MlflowExperiment:
    """One experiment, in the methods of a file system that `RemoteFiles` asks for."""

    address: str
    name: str

    @classmethod
    def of(cls, url: str) -> MlflowExperiment:
        """Read mlflow+http://HOST:PORT/NAME, mlflow+sqlite:///FILE/NAME, or mlflow://NAME."""
        scheme, _, rest = url.partition("://")
        place, _, name = rest.rstrip("/").rpartition("/")
        kind = scheme.removeprefix("mlflow").removeprefix("+")
        address = f"{kind}://{place}" if kind else os.environ.get("MLFLOW_TRACKING_URI", "")
        has_place = bool(place.strip("/"))
        if kind not in _KINDS or not name or not address or has_place != bool(kind):
            raise InputError(
                f"{without_credentials(url)} names no experiment of MLflow; give "
                "mlflow+http://HOST:PORT/EXPERIMENT, mlflow+sqlite:///FILE/EXPERIMENT, or set "
                "MLFLOW_TRACKING_URI and give mlflow://EXPERIMENT."
            )
        return cls(address, unquote(name))

    def invalidate_cache(self) -> None:
        """Forget nothing: every call asks the server."""

    def isfile(self, root: str) -> bool:
        """Whether the experiment is a file; it is a folder."""
        return False

    def find(self, root: str, detail: bool = True) -> dict[str, Mapping[str, Any]]:
        """Return a file for each trace, with a stamp that its assessments and tags change."""
        found: dict[str, Mapping[str, Any]] = {}
        with asking(self.address):
            client, token = _client(self.address), None
            experiment = client.get_experiment_by_name(self.name)
            if experiment is None:
                raise InputError(
                    f"MLflow at {without_credentials(self.address)} has no experiment "
                    f"{self.name!r}; check the name."
                )
            while True:
                page = client.search_traces(
                    locations=[experiment.experiment_id],
                    max_results=_PAGE,
                    page_token=token,
                    include_spans=False,
                )
                for trace in page:
                    stamp = sha256_bytes(canonical_json(trace.info.to_dict()))
                    found[f"{root}/{trace.info.trace_id}{_SUFFIX}"] = {"etag": stamp}
                if not (token := page.token) or len(found) > _MOST:
                    return found

    def get_file(self, name: str, path: str) -> None:
        """Write one trace as JSON."""
        trace_id = name.rpartition("/")[2].removesuffix(_SUFFIX)
        with asking(self.address):
            trace = _client(self.address).get_trace(trace_id, display=False)
            Path(path).write_text(trace.to_json(), "utf-8")


def _client(address: str) -> Any:
    """Return the client of a server, or of a database that is there: MLflow would make one."""
    scheme, _, file = address.partition(":///")
    if scheme == "sqlite" and not Path(file.partition("?")[0]).is_file():
        raise InputError(f"there is no database {file}; check the path.")
    return mlflow_client(address)


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Turn what MLflow or the network says into one sentence without credentials."""
    from mlflow.exceptions import MlflowException

    # what the network says is an OSError
    try:
        yield
    except (MlflowException, OSError) as error:
        raise InputError(
            f"MLflow at {without_credentials(address)} did not answer as it should "
            f"({said_by(error)}); check the address, and MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN where it asks for them."
        ) from None


@dataclass(frozen=True)
class TraceVerdict:
    """What was decided of one trace."""

    trace_id: str
    decision: str
    reason: str
    certificate_sha256: str


@dataclass(frozen=True)
class VerdictCounts:
    """Assessments that were logged, those that were there already, and traces that are not."""

    logged: int
    unchanged: int
    unknown: tuple[str, ...]


NAME: Final = "certify_decision"
SOURCE: Final = "certify_assets"
# ids become a part of an address, and come from tables of others
_TRACE_ID: Final = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:/-]*")


def _assessing(address: str) -> Any:
    # sets the limits on waiting; only this client logs assessments without MLflow's global state
    _client(address)
    from mlflow.tracing.client import TracingClient

    return TracingClient(tracking_uri=address)


def log_verdicts(address: str, verdicts: Iterable[TraceVerdict]) -> VerdictCounts:
    """Log decisions as feedback of source CODE, each once for a certificate.

    A repetition logs nothing; another decision under the same certificate replaces the former, and
    the certificate's hash is in the metadata.
    """
    from mlflow.entities import AssessmentSource, Feedback
    from mlflow.exceptions import MlflowException

    logged = unchanged = 0
    unknown: list[str] = []
    with asking(address):
        client = _assessing(address)
        for verdict in verdicts:
            if not _TRACE_ID.fullmatch(verdict.trace_id):
                unknown.append(verdict.trace_id)
                continue
            try:
                trace = client.get_trace(verdict.trace_id)
            except MlflowException as error:
                if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
                    raise
                unknown.append(verdict.trace_id)
                continue
            metadata = {
                "certificate_sha256": verdict.certificate_sha256,
                "reason": verdict.reason,
            }
            earlier = [
                one
                for one in trace.info.assessments
                if one.name == NAME
                and (one.source.source_type, one.source.source_id) == ("CODE", SOURCE)
                and one.valid is not False
                and (one.metadata or {}).get("certificate_sha256") == verdict.certificate_sha256
            ]
            if any(
                one.feedback is not None
                and one.feedback.value == verdict.decision
                and metadata.items() <= one.metadata.items()
                for one in earlier
            ):
                unchanged += 1
                continue
            client.log_assessment(
                verdict.trace_id,
                Feedback(
                    name=NAME,
                    value=verdict.decision,
                    source=AssessmentSource(source_type="CODE", source_id=SOURCE),
                    metadata=metadata,
                    overrides=earlier[-1].assessment_id if earlier else None,
                ),
            )
            logged += 1
    return VerdictCounts(logged, unchanged, tuple(unknown))
