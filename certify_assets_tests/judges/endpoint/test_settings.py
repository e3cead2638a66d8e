from datetime import UTC, datetime
from typing import Any

import pytest

from certify_assets.errors import InputError
from certify_assets.judges.endpoint.client import retry_after_seconds
from certify_assets.judges.endpoint.settings import Asking, Prices, Server


def test_the_plain_url_has_no_credentials() -> None:
    server = Server("https://user:pa%40ss@Host.example:8443/v1/", "m")
    assert server.plain_url == "https://host.example:8443/v1"
    assert server.root_url == "https://host.example:8443"
    assert server.login() == ("user", "pa@ss") and Server("http://h/v1", "m").login() is None
    assert Server("http://[::1]:8000/v1", "m").plain_url == "http://[::1]:8000/v1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/v1",
        "ftp://h/v1",
        "http://",
        "http://h/v1?key=secret",
        "http://h/v1#secret",
        "http://h:port/v1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InputError, match="base URL") as caught:
        Server(url, "m")
    assert "secret" not in str(caught.value)


def test_the_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="not the key") as caught:
        Server("http://h/v1", "m", key_variable="sk-secret")
    assert "sk-secret" not in str(caught.value)
    server = Server("http://h/v1", "m", key_variable="JUDGE_KEY")
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(InputError, match="JUDGE_KEY is not set"):
        server.key()
    monkeypatch.setenv("JUDGE_KEY", "two\nlines")
    with pytest.raises(InputError, match="JUDGE_KEY holds characters") as caught:
        server.key()
    assert "lines" not in str(caught.value)
    monkeypatch.setenv("JUDGE_KEY", " sk-1 ")
    assert server.key() == "sk-1"


@pytest.mark.parametrize(
    ("kind", "changes", "word"),
    [
        (Server, {"model": ""}, "name of a model"),
        (Server, {"concurrency": 0}, "concurrency"),
        (Server, {"timeout_seconds": float("nan")}, "timeout_seconds"),
        (Asking, {"read": "mind"}, "token_ids"),
        (Asking, {"top": 21}, "2 to 20"),
        (Asking, {"words": ("A", "A")}, "two different words"),
        (Prices, {"prompt": -1}, "prices"),
    ],
)
def test_values_that_cannot_be_used_are_named(
    kind: Any, changes: dict[str, Any], word: str
) -> None:
    needed = {"base_url": "http://h/v1", "model": "m"} if kind is Server else {}
    with pytest.raises(InputError, match=word):
        kind(**needed | changes)


def test_retry_after_is_read_as_seconds_or_a_date() -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_seconds("Thu, 01 Jan 2026 12:00:30 GMT", now) == 30.0
    assert retry_after_seconds("1.5") == 1.5
    for nonsense in (None, "soon", "-3", "nan", "inf"):
        assert retry_after_seconds(nonsense) is None
