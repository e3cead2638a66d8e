from typing import Any

import pytest

from certify_assets.errors import InputError
from certify_assets.judges.configured import validated
from certify_assets.judges.endpoint.settings import EndpointEntry
from certify_assets.judges.families.endpoint import EndpointSpec
from certify_assets_tests.judges.endpoint.faulty_server import judge_of


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
        "http://user:secret@h/v1",
        "http://:secret@h/v1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InputError, match="base URL") as caught:
        judge_of(url)
    assert "secret" not in str(caught.value)


def test_the_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="not the key") as caught:
        judge_of("http://h/v1", key_variable="sk-secret")
    assert "sk-secret" not in str(caught.value)
    server = judge_of("http://h/v1", key_variable="JUDGE_KEY")
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(InputError, match="JUDGE_KEY is not set"):
        server.key()
    monkeypatch.setenv("JUDGE_KEY", "two\nlines")
    with pytest.raises(InputError, match="JUDGE_KEY holds characters") as caught:
        server.key()
    assert "lines" not in str(caught.value)
    monkeypatch.setenv("JUDGE_KEY", " sk-1 ")
    assert server.key() == "sk-1"


def test_mlflow_gets_the_prompt_with_a_place_for_the_run() -> None:
    spec = EndpointSpec(name="served", endpoint=judge_of("http://h/v1", form="chat"))
    system, user = spec.prompts["certify-served"]
    assert "sceptical auditor" in system["content"]
    assert user["content"].startswith("RUN\n{{run}}\nEND OF RUN")
    plain = EndpointSpec(name="served", endpoint=judge_of("http://h/v1", form="completion"))
    assert plain.prompts["certify-served"].endswith("VERDICT:")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model": ""}, "model"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"top": 1}, "top"),
        ({"asking": "sc_0"}, "choose logprob, cot, sc_5"),
        ({"prompt": {"success": "A", "fail": "A"}}, "give two words"),
        ({"prices": {"prompt": -1}}, "prompt"),
    ],
)
def test_values_that_cannot_be_used_are_named(changes: dict[str, Any], word: str) -> None:
    entry = {"name": "served", "url": "http://h/v1", "model": "m"}
    with pytest.raises(InputError, match=word):
        validated(entry | changes, EndpointEntry)


def test_how_a_verdict_is_asked_for() -> None:
    served = judge_of("http://h/v1")
    assert (served.mode, served.votes, served.heat) == ("logprob", 1, 0.0)
    assert served.words == ("SUCCESS", "FAIL") and served.question()["marker"] == ""
    votes = judge_of("http://h/v1", asking="sc_10", form="completion")
    assert (votes.mode, votes.votes, votes.heat) == ("vote", 10, 0.7)
    assert votes.words == (" SUCCESS", " FAIL")
    assert judge_of("http://h/v1/").plain_url == "http://h/v1"
