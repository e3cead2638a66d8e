import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError, IntegrityError
from certify_assets.judges.endpoint.client import UnavailableError
from certify_assets.judges.endpoint.judge import EndpointRun, connected
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    Faulty,
    chat_body,
    faulty_server,
    judge_of,
    text_of,
)
from certify_assets_tests.services import free_port

GOOD = Action(chat_body(logs={"SUCCESS": -0.25, "FAIL": -1.75, "yes": -4.0}))
TEXTS = ["run 0", "run 1", "run 2"]


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The openai package waits half a second before it asks again."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


def _run(server: Faulty, texts: list[str] = TEXTS, **settings: Any) -> EndpointRun:
    plain: dict[str, Any] = {"attempts": 3, "concurrency": 2, "timeout_seconds": 5.0}
    return connected(judge_of(server.url, **plain | settings)).run(texts)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Action({"error": {"message": "slow down"}}, status=429), id="429"),
        pytest.param(Action(raw=b"<html>Bad gateway</html>", status=502), id="502"),
        pytest.param(Action(GOOD.body, cut=True), id="cut"),
        pytest.param(Action(raw=b"\xff\xfe{not json"), id="garbage"),
        pytest.param(Action(raw=b'{"choices": [], "choices": []}'), id="twice"),
        pytest.param(Action(raw=b"[" * 100_000), id="deep"),
        pytest.param(Action({"error": {"message": "upstream failed"}}), id="error-200"),
        pytest.param(Action(GOOD.body, delay=1.0), id="time-out"),
    ],
)
def test_what_may_pass_is_asked_again(fault: Action) -> None:
    with faulty_server(lambda payload, times: fault if times == 1 else GOOD) as server:
        found = _run(server, timeout_seconds=0.5 if fault.delay else 5.0)
    assert found.reasons == ("", "", "")
    assert (found.report.retries, found.report.requests) == (3, 6)
    np.testing.assert_array_equal(found.scores.score, [1.5, 1.5, 1.5])


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Action(status=500, body={"error": "broken"}), id="500"),
        pytest.param(Action({"choices": [3]}), id="shape"),
        pytest.param(Action(status=202, raw=b""), id="accepted"),
        pytest.param(Action({"choices": [{"message": {"content": "SUCCESS"}}]}), id="no-logprobs"),
    ],
)
def test_what_does_not_pass_ends_in_a_sentence(fault: Action) -> None:
    with faulty_server(_only("run 1", fault)) as server:
        with pytest.raises(
            UnavailableError, match=r"^text 2 of 3 was not answered \(.+\); \d answers are kept"
        ):
            _run(server)
        found = _run(server, max_failed=1)
    assert found.reasons == ("", "failed", "") and found.report.unscored == {"failed": 1}
    assert math.isnan(found.scores.score[1])
    # three attempts, in two scorings
    assert max(server.arrived.values()) <= 2 * 3


def _only(text: str, action: Action) -> Callable[[dict[str, Any], int], Action]:
    return lambda payload, times: action if text_of(payload) == text else GOOD


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        ({"SUCCESS": float("nan"), "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": 0.4, "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": True, "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": -0.1, " FAIL": -1.0}, "missing"),
        ({"SUCCESS": -0.1, "FAIL": -9999.0}, "missing"),
        ({"SUCCESS": -0.1, "FAIL": None}, "missing"),
    ],
)
def test_a_verdict_without_a_number_is_unscored_and_never_zero_or_one(
    logs: dict[str, Any], reason: str
) -> None:
    with faulty_server(_only("run 1", Action(chat_body(logs=logs)))) as server:
        found = _run(server)
    assert found.reasons == ("", reason, "") and found.report.unscored == {reason: 1}
    assert found.report.retries == 0 and found.report.parse_rate == pytest.approx(2 / 3)
    assert np.isnan(found.scores.log_p_success[1]) and np.isnan(found.scores.log_p_fail[1])


def test_a_server_that_asks_for_an_hour_ends_the_scoring() -> None:
    with (
        faulty_server(
            lambda payload, times: Action({}, status=429, headers={"Retry-After": "3600"})
        ) as server,
        pytest.raises(UnavailableError, match="status 429"),
    ):
        _run(server)
    assert sum(server.arrived.values()) <= 2


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(401, "set key_variable"), (403, "refused"), (302, "redirects"), (404, "has no model 'm'")],
)
def test_what_no_request_can_get_past_ends_at_once(status: int, sentence: str) -> None:
    elsewhere = {"Location": "http://127.0.0.1:1/"} if status == 302 else {}
    fault = Action({"error": {"message": "no"}}, status=status, headers=elsewhere)
    with (
        faulty_server(lambda payload, times: fault) as server,
        pytest.raises(InputError, match=sentence),
    ):
        _run(server, [f"run {number}" for number in range(50)])
    assert sum(server.arrived.values()) <= 4


def test_a_text_that_the_server_declines_is_unscored_and_all_of_them_an_error() -> None:
    long = Action({"error": {"message": "maximum context length is 8 tokens"}}, status=400)
    with faulty_server(_only("run 0", long)) as server:
        found = _run(server)
    assert found.reasons == ("refused", "", "") and found.report.retries == 0
    with (
        faulty_server(lambda payload, times: long) as server,
        pytest.raises(InputError, match=r"none of 3 texts .*maximum context length"),
    ):
        _run(server)


def test_a_server_that_does_not_say_what_it_is_can_judge() -> None:
    served = {"id": "m", "parent": "base", "max_model_len": 8, "root": "/secret/place"}
    with faulty_server(lambda payload, times: GOOD) as server:
        server.about = {
            "/v1/models": Action({"error": "no cache"}, status=500),
            "/version": Action({"error": "who asks"}, status=403),
        }
        assert _run(server).report.scored == 3
        server.about = {
            "/v1/models": Action({"data": [{"id": "other"}, served]}),
            "/version": Action({"version": "1.2"}),
        }
        provenance = connected(judge_of(server.url)).provenance()
    said = {"revision": "", "version": "1.2", "parent": "base", "max_model_len": 8}
    assert provenance.settings["server"] == {"url": server.url} | said
    assert "1.2" in provenance.engine


def test_a_server_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(
        UnavailableError,
        match=r"did not answer: the connection failed.*; start the server, or correct the url",
    ):
        connected(judge_of(url, attempts=2))


def test_a_model_that_changes_on_the_way_is_refused() -> None:
    def answer(payload: dict[str, Any], times: int) -> Action:
        return Action({**GOOD.body, "model": "m-2" if text_of(payload) == "run 2" else "m-1"})

    with (
        faulty_server(answer) as server,
        pytest.raises(IntegrityError, match="answered as m-1 and as m-2"),
    ):
        _run(server)
