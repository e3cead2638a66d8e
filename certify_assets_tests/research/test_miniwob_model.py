from collections.abc import Iterator
from typing import Any

import pytest

from certify_assets.errors import CertifyError, InputError
from certify_assets.judges.endpoint.settings import Server
from certify_assets.research.miniwob.agents import ModelAgent, parse_reply
from certify_assets_tests.research.miniwob_endpoint import Endpoint, serve
from certify_assets_tests.research.miniwob_page import boxes_page, login_page


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as server:
        yield server


def agent(endpoint: Endpoint, key: str | None = None) -> ModelAgent:
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    return ModelAgent(Server(url, "small-model", key_variable=key, attempts=1))


@pytest.mark.parametrize(
    ("reply", "parsed"),
    [
        ("click 3", ("click", 3, "")),
        ('I will type.\ntype 0 "Tora"', ("type", 0, "Tora")),
        ('claim "done"', ("claim", None, "done")),
        ("Submit", ("submit", None, "")),
        ("let me think", ("claim", None, "not done: no readable action")),
    ],
)
def test_replies(reply: str, parsed: tuple[str, int | None, str]) -> None:
    assert parse_reply(reply) == parsed


def test_a_model_acts_until_it_claims(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTIFY_MODEL_KEY", "k-1")
    endpoint.replies = ['type 0 "keli"', 'type 1 "3hI"', "click 99", "submit", 'claim "logged in"']
    page = login_page()
    steps = agent(endpoint, "CERTIFY_MODEL_KEY").attempt(page, "login-user", 0)
    assert [e.value for e in page.elements[:2]] == ["keli", "3hI"]
    assert page.ended
    assert ("click 99", "no element matches") in steps
    assert steps[-1] == ('claim("logged in")', "")
    path, headers, body = endpoint.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer k-1"
    assert (body["model"], body["temperature"]) == ("small-model", 0)
    assert "0. field" in body["messages"][-1]["content"]


def test_a_model_that_repeats_itself_is_stuck(endpoint: Endpoint) -> None:
    endpoint.replies = ["click 99"] * 12
    steps = agent(endpoint).attempt(boxes_page(), "click-checkboxes", 0)
    # the first time the page was just opened; then three times the same
    assert [action for action, _ in steps].count("click 99") == 3
    assert steps[-1][0] == 'claim("not done: the same action on the same page, three times")'
    assert len(endpoint.asked) == 4


def test_without_a_key_none_is_sent(endpoint: Endpoint) -> None:
    endpoint.replies = ['claim "done"']
    agent(endpoint).attempt(boxes_page(), "click-checkboxes", 0)
    assert "Authorization" not in endpoint.asked[0][1]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((401, {}), "status 401"),
        ((200, {"error": 1}), "status 200 with an error"),
        ((200, b"<html>"), "a body that is no JSON object"),
    ],
)
def test_an_endpoint_that_fails_is_named(endpoint: Endpoint, reply: Any, words: str) -> None:
    endpoint.replies = [reply]
    with pytest.raises(CertifyError, match=words):
        agent(endpoint).ask([])


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with pytest.raises(CertifyError, match=r"http://127\.0\.0\.1:9/v1 did not answer"):
        ModelAgent(Server("http://127.0.0.1:9/v1", "m", attempts=1)).ask([])


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTIFY_MODEL_URL", raising=False)
    with pytest.raises(InputError, match="CERTIFY_MODEL_URL"):
        ModelAgent.from_environment()
    monkeypatch.setenv("CERTIFY_MODEL_URL", "http://127.0.0.1:1/v1/")
    monkeypatch.setenv("CERTIFY_MODEL_NAME", "m")
    assert (ModelAgent.from_environment().server.plain_url, ModelAgent.from_environment().name) == (
        "http://127.0.0.1:1/v1",
        "model:m",
    )
