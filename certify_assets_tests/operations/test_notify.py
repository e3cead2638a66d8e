"""Notifications: to a real server and a real program, once each, and never in the way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations import notifications
from certify_assets.operations.notifications import (
    VARIABLE,
    DeliveryAttempt,
    NotifiedEvent,
    deliver,
    read_notifications,
)
from certify_assets.storage.store import Store

EVENT = NotifiedEvent("alarm", "c", "lexical", "abc", "the error is above the budget.")


class Receiver(ThreadingHTTPServer):
    """A server that answers as it is told and keeps what it got."""

    got: list[tuple[dict[str, str], bytes]]
    answers: list[int]
    delay: float = 0.0


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((dict(self.headers), body))
        server.released.wait(server.delay)
        status = server.answers.pop(0) if server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{server.server_address[1]}/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    made: Any = Receiver(("127.0.0.1", 0), _Handler)
    made.got, made.answers, made.delay, made.released = [], [], 0.0, threading.Event()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


def configure(store: Store, *targets: dict[str, Any], **others: Any) -> None:
    store.folder.write(
        "notifications.yaml", json.dumps({"targets": list(targets), **others}).encode()
    )


def url(server: Any) -> str:
    return f"json://127.0.0.1:{server.server_address[1]}/confidential"


@pytest.fixture
def on_call(server: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("ON_CALL", url(server))
    return {"name": "channel", "apprise": "ON_CALL"}


def test_a_server_that_is_slow_or_points_elsewhere_is_a_failure(
    store: Store, server: Any, on_call: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_TIMEOUT_S", 0.2)
    configure(store, on_call)
    server.delay = 5.0
    assert "refused it" in deliver(Corpus(store, "c"), [EVENT])[0]
    server.delay, server.answers = 0.0, [302]
    assert "refused it" in deliver(Corpus(store, "c"), [EVENT])[0]
    assert len(server.got) == 2, "it is not followed"


def test_a_service_of_apprise_gets_the_message_once_and_its_address_is_kept_nowhere(
    store: Store,
    server: Any,
    on_call: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(0)
    configure(store, on_call)
    server.answers = [500]
    (sentence,) = deliver(Corpus(store, "c"), [EVENT])
    assert "the service refused it" in sentence and "127.0.0.1" not in sentence
    for _ in range(2):
        assert deliver(Corpus(store, "c"), [EVENT, EVENT]) == []
    found = [item.content for item in Corpus(store, "c").events(DeliveryAttempt)]
    assert [(item.sent, bool(item.why)) for item in found] == [(False, True), (True, False)]
    assert len(server.got) == 2, "the first is refused, the second taken, and none is sent again"
    message = json.loads(server.got[1][1])
    assert message["title"] == "alarm: c" and message["type"] == "failure"
    assert message["message"] == f"{EVENT.message}\n\nEvent {EVENT.id}"
    journal = "".join(
        item.content.model_dump_json() for item in Corpus(store, "c").events(DeliveryAttempt)
    )
    kept = [journal, caplog.text, *capfd.readouterr()]
    assert all("confidential" not in text for text in kept)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (None, "no address in the environment"),
        ("nothing://confidential", "no address that Apprise knows"),
        ("json://example.org/confidential", "not encrypted"),
        ("json://127.0.0.1:9/confidential", "the service refused it"),
    ],
)
def test_an_address_of_apprise_that_cannot_be_used_is_said_without_it(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str | None,
    why: str,
) -> None:
    if address is not None:
        monkeypatch.setenv("ON_CALL", address)
    configure(store, {"name": "chat", "apprise": "ON_CALL"})
    (sentence,) = deliver(Corpus(store, "c"), [EVENT])
    assert why in sentence
    journal = "".join(
        item.content.model_dump_json() for item in Corpus(store, "c").events(DeliveryAttempt)
    )
    assert all("confidential" not in text for text in (sentence, journal, caplog.text))


@pytest.mark.parametrize(
    "target",
    [
        {"name": "x", "apprise": "slack://user:pass@TOKEN/#channel"},
        {"name": "x", "apprise": "ON_CALL", "events": ["weather"]},
        {"name": "x", "apprise": "ON_CALL", "secret": "in the file"},
        "x",
    ],
)
def test_a_document_that_cannot_be_used_is_said_and_stops_nothing(
    store: Store, target: Any
) -> None:
    configure(store, target)
    with pytest.raises(InputError):
        read_notifications(store)
    (sentence,) = deliver(Corpus(store, "c"), [EVENT])
    assert sentence.startswith("no notification was sent") and "pass@" not in sentence


def test_without_a_document_nobody_is_told_and_the_environment_may_name_one(
    store: Store, server: Any, on_call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        deliver(Corpus(store, "c"), [EVENT]) == []
        and Corpus(store, "c").events(DeliveryAttempt) == []
    )
    path = tmp_path / "n.yaml"
    path.write_text("certificate_days: 30\ntargets: [{name: a, apprise: ON_CALL}]\n", "utf-8")
    monkeypatch.setenv(VARIABLE, str(path))
    assert read_notifications(store).certificate_days == 30
    assert deliver(Corpus(store, "c"), [EVENT]) == [] and len(server.got) == 1


def test_an_old_deployment_expires_once(
    corpora: Store, server: Any, on_call: dict[str, Any]
) -> None:
    from certify_assets.operations.audit_sample import SamplingPlan
    from certify_assets.operations.notifications import gather_events, notify
    from certify_assets_tests.operations_builders import put_deployment
    from certify_assets_tests.recertification_builders import deploy_by_hand

    made = datetime.now(UTC)
    deploy_by_hand(corpora, "one", SamplingPlan(0.2, 7))
    configure(corpora, {**on_call, "events": ["expiry"]})
    assert notify(Corpus(corpora, "one"), now=made + timedelta(days=80)) == [] and server.got == []
    for _ in range(2):
        assert notify(Corpus(corpora, "one"), now=made + timedelta(days=100, hours=1)) == []
    assert len(server.got) == 1 and "100 days old" in json.loads(server.got[0][1])["message"]
    # its certificates were never read on TEST
    later = made + timedelta(days=101)
    found = {event.kind for event in gather_events(Corpus(corpora, "one"), now=later)}
    assert found == {"expiry", "failed_audit"}
    put_deployment(corpora, "one", certificates=("0" * 64,))
    found = {event.kind for event in gather_events(Corpus(corpora, "one"))}
    assert "closed_gate" in found, "a deployment of certificates that are not there decides nothing"
    assert [*gather_events(Corpus(corpora, "two"))] == []
