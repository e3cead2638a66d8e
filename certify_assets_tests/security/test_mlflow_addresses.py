"""MLflow addresses and ids of traces: no secret in a sentence, no file made, nobody overwritten."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from certify_assets.corpora.formats import mlflow_server
from certify_assets.corpora.formats.mlflow_server import TraceVerdict, log_verdicts
from certify_assets.errors import InputError
from certify_assets.storage.tracking import without_credentials
from certify_assets.storage.urls import local_copies

VERDICT = TraceVerdict("tr-1", "reject", "reject_region", "a" * 64)


@pytest.mark.parametrize("password", ["secret", "se@cret", "@secret@", "se:cret", "se%40cret"])
def test_no_part_of_a_password_is_left(password: str) -> None:
    said = without_credentials(f"no answer of http://me:{password}@host:1/a and https://k@b/c@d")
    assert said == "no answer of http://host:1/a and https://b/c@d"


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    place = tmp_path / "there" / "mlflow.db"
    place.parent.mkdir()
    with (
        pytest.raises(InputError, match="there is no database"),
        local_copies([f"mlflow+sqlite:///{place}/agents"]),
    ):
        pass
    with pytest.raises(InputError, match="there is no database"):
        log_verdicts(f"sqlite:///{place}", [VERDICT])
    assert not list(place.parent.iterdir())


class Client:
    """Traces with one assessment each, in place of a server."""

    def __init__(self, **source: str) -> None:
        self.asked: list[str] = []
        self.logged: list[Any] = []
        self._assessment = SimpleNamespace(
            name="certify_decision",
            assessment_id="theirs",
            valid=True,
            metadata={"certificate_sha256": "a" * 64, "reason": "reject_region"},
            source=SimpleNamespace(**source),
            feedback=SimpleNamespace(value="release"),
        )

    def get_trace(self, trace_id: str) -> Any:
        self.asked.append(trace_id)
        return SimpleNamespace(info=SimpleNamespace(assessments=[self._assessment]))

    def log_assessment(self, trace_id: str, feedback: Any) -> None:
        self.logged.append((trace_id, feedback.overrides))


@pytest.mark.parametrize(
    ("kind", "who", "overrides"),
    [
        ("HUMAN", "ann", None),
        ("HUMAN", "certify_assets", None),
        ("CODE", "another_tool", None),
        ("CODE", "certify_assets", "theirs"),
    ],
)
def test_only_decisions_of_our_own_are_replaced(
    kind: str, who: str, overrides: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(source_type=kind, source_id=who)
    monkeypatch.setattr(mlflow_server, "_assessing", lambda address: client)
    assert log_verdicts("http://host", [VERDICT]).logged == 1
    assert client.logged == [("tr-1", overrides)]


def test_ids_of_a_table_lead_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(source_type="HUMAN", source_id="ann")
    monkeypatch.setattr(mlflow_server, "_assessing", lambda address: client)
    hostile = ["../experiments/get", "tr-1?a=b", "tr-1#", "%2e%2e/x", "", "/", "a/../../b", "a\nb"]
    verdicts = [TraceVerdict(one, "reject", "", "a" * 64) for one in (*hostile, "trace:/c.s/1")]
    counts = log_verdicts("http://host", verdicts)
    assert (counts.logged, counts.unknown) == (1, tuple(hostile))
    assert client.asked == ["trace:/c.s/1"]
