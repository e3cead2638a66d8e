import math
import time
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.judges.endpoint.client import UnavailableError
from certify_assets.judges.endpoint.judge import EndpointJudge, EndpointRun
from certify_assets.judges.endpoint.questions import ChatPrompt, auditor_prompt
from certify_assets.judges.endpoint.settings import Asking, Server
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    Faulty,
    chat_body,
    faulty_server,
    text_of,
)

GOOD = Action(chat_body(logs={"SUCCESS": -0.25, "FAIL": -1.75, "yes": -4.0}))
TEXTS = ["run 0", "run 1", "run 2"]


def _run(
    server: Faulty,
    texts: list[str] = TEXTS,
    *,
    max_failed: int = 0,
    read: str = "top",
    **settings: Any,
) -> EndpointRun:
    plain = {
        "first_wait_seconds": 0.01,
        "attempts": 3,
        "timeout_seconds": 5.0,
        "concurrency": 2,
    } | settings
    judge = EndpointJudge.connect(
        Server(server.url, "m", **plain),
        Asking(read=read),
        ChatPrompt(auditor_prompt("logprob")),
        max_failed=max_failed,
    )
    return judge.run(texts)


@pytest.mark.parametrize(
    "fault",
    [
        Action({"error": {"message": "slow down"}}, status=429),
        Action({"error": "broken"}, status=500),
        Action(raw=b"<html>Bad gateway</html>", status=502),
        Action({"error": "overloaded"}, status=529),
        Action(GOOD.body, cut=True),
        Action(raw=b"\xff\xfe{not json"),
        Action(raw=b"[1, 2]"),
        Action(raw=b'{"choices": [], "choices": []}'),
        Action(raw=b"[" * 100_000),
        Action(raw=b'{"a":' * 900 + b"1" + b"}" * 900),
        Action({"error": {"message": "upstream failed"}}),
        Action(GOOD.body, delay=1.0),
    ],
    ids=[
        "429",
        "500",
        "502",
        "529",
        "cut",
        "garbage",
        "list",
        "twice",
        "deep",
        "deep-object",
        "error-200",
        "time-out",
    ],
)
def test_what_may_pass_is_asked_again(fault: Action) -> None:
    with faulty_server(lambda payload, times: fault if times == 1 else GOOD) as server:
        found = _run(server, timeout_seconds=0.5 if fault.delay else 5.0)
    assert found.reasons == ("", "", "")
    assert found.report.retries == 3
    assert found.report.requests == 6
    np.testing.assert_array_equal(found.scores.score, [1.5, 1.5, 1.5])


@pytest.mark.parametrize(
    "fault",
    [
        Action(status=500, body={"error": "broken"}),
        Action(raw=b"nothing"),
        Action(GOOD.body, cut=True),
        Action({"choices": "none"}),
        Action({"choices": [{"message": {"content": "SUCCESS"}}]}),
        Action({"choices": [{"logprobs": {"content": []}}]}),
        Action({**GOOD.body, "filler": "x" * 200_000}),
    ],
    ids=["500", "garbage", "cut", "shape", "no-logprobs", "no-tokens", "long"],
)
def test_what_does_not_pass_ends_in_a_sentence(fault: Action) -> None:
    bad = lambda payload, times: fault if text_of(payload) == "run 1" else GOOD  # noqa: E731
    with faulty_server(bad) as server:
        with pytest.raises(
            UnavailableError, match=r"^text 2 of 3 was not answered \(.+\); \d answers are kept"
        ):
            _run(server, longest_body=100_000)
        found = _run(server, longest_body=100_000, max_failed=1)
    assert found.reasons == ("", "failed", "")
    assert found.report.unscored == {"failed": 1}
    assert math.isnan(found.scores.score[1])
    # a body of another form, or beyond the limit, is not asked for twice
    assert max(server.arrived.values()) <= 2 * 3


@pytest.mark.parametrize(
    ("logs", "reason"),
    [
        ({"SUCCESS": float("nan"), "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": -0.1, "FAIL": float("-inf")}, "missing"),
        ({"SUCCESS": 0.4, "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": "-1", "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": True, "FAIL": -1.0}, "not_finite"),
        ({"SUCCESS": -0.1}, "missing"),
        ({"SUCCESS": -0.1, " FAIL": -1.0}, "missing"),
        ({"SUCCESS": -0.1, "FAIL": -9999.0}, "missing"),
        ({"SUCCESS": -0.1, "FAIL": None}, "missing"),
    ],
)
def test_a_verdict_without_a_number_is_unscored_and_never_zero_or_one(
    logs: dict[str, Any], reason: str
) -> None:
    with faulty_server(
        lambda payload, times: Action(chat_body(logs=logs)) if text_of(payload) == "run 1" else GOOD
    ) as server:
        found = _run(server)
    assert found.reasons == ("", reason, "")
    assert found.report.unscored == {reason: 1}
    assert found.report.retries == 0
    assert np.isnan(found.scores.log_p_success[1]) and np.isnan(found.scores.log_p_fail[1])
    assert found.report.parse_rate == pytest.approx(2 / 3)


@pytest.mark.slow
def test_retry_after_is_honoured_by_every_worker() -> None:
    begun: list[float] = []

    def answer(payload: dict[str, Any], times: int) -> Action:
        begun.append(time.monotonic())
        busy = Action({"error": "later"}, status=429, headers={"Retry-After": "1"})
        return busy if len(begun) == 1 else Action(GOOD.body, delay=0.2)

    with faulty_server(answer) as server:
        found = _run(server, [f"run {number}" for number in range(12)], concurrency=4)
    # the three that were on their way came through; what came after kept the wait of one of them
    assert found.report.retries == 1 and found.report.scored == 12
    assert sum(start - begun[0] < 1.0 for start in begun) <= 4


def test_a_wait_beyond_what_is_allowed_ends_the_scoring() -> None:
    with (
        faulty_server(
            lambda payload, times: Action({}, status=429, headers={"Retry-After": "3600"})
        ) as server,
        pytest.raises(InputError, match="asks to wait 3600 s"),
    ):
        _run(server)
    assert sum(server.arrived.values()) <= 2


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "set key_variable"),
        (403, "refused"),
        (302, "redirects"),
        (404, "has no model 'm'"),
        (405, "no model"),
    ],
)
def test_what_no_request_can_get_past_ends_at_once(status: int, sentence: str) -> None:
    fault = Action(
        {"error": {"message": "no"}},
        status=status,
        headers={"Location": "http://127.0.0.1:1/"} if status == 302 else {},
    )
    with (
        faulty_server(lambda payload, times: fault) as server,
        pytest.raises(InputError, match=sentence),
    ):
        _run(server, [f"run {number}" for number in range(50)])
    assert sum(server.arrived.values()) <= 4


def test_a_text_that_the_server_declines_is_unscored_and_all_of_them_an_error() -> None:
    long = Action({"error": {"message": "maximum context length is 8 tokens"}}, status=400)
    with faulty_server(
        lambda payload, times: long if text_of(payload) == "run 0" else GOOD
    ) as server:
        found = _run(server)
    assert found.reasons == ("refused", "", "") and found.report.retries == 0
    with (
        faulty_server(lambda payload, times: long) as server,
        pytest.raises(InputError, match=r"none of 3 texts .*maximum context length"),
    ):
        _run(server)


def test_a_server_that_does_not_say_what_it_is_can_judge() -> None:
    with faulty_server(lambda payload, times: GOOD) as server:
        server.about = {
            "/v1/models": Action({"error": "no cache"}, status=500),
            "/version": Action({"error": "who asks"}, status=403),
        }
        assert _run(server).report.scored == 3
        server.about = {
            "/v1/models": Action(
                {
                    "data": [
                        {"id": "other"},
                        {"id": "m", "parent": "base", "max_model_len": 8, "root": "/secret/place"},
                    ]
                }
            ),
            "/version": Action({"version": "1.2"}),
        }
        judge = EndpointJudge.connect(
            Server(server.url, "m"), Asking(read="top"), ChatPrompt(auditor_prompt("logprob"))
        )
    said = {
        "url": server.url,
        "revision": "",
        "version": "1.2",
        "parent": "base",
        "max_model_len": 8,
    }
    assert judge.provenance().settings["server"] == said and "1.2" in judge.provenance().engine


def test_a_server_that_is_not_there(unused_tcp_port: int) -> None:
    server = Server(
        f"http://127.0.0.1:{unused_tcp_port}/v1", "m", attempts=2, first_wait_seconds=0.01
    )
    with pytest.raises(
        UnavailableError,
        match=r"did not answer: the connection failed.*; start the server, or correct the url",
    ):
        EndpointJudge.connect(server, Asking(), ChatPrompt(auditor_prompt("logprob")))


@pytest.fixture
def unused_tcp_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_a_model_that_changes_on_the_way_is_refused() -> None:
    def answer(payload: dict[str, Any], times: int) -> Action:
        return Action({**GOOD.body, "model": "m-2" if text_of(payload) == "run 2" else "m-1"})

    with (
        faulty_server(answer) as server,
        pytest.raises(IntegrityError, match="answered as m-1 and as m-2"),
    ):
        _run(server)


def test_auto_falls_back_to_the_likeliest_tokens() -> None:
    def strict(payload: dict[str, Any], times: int) -> Action:
        return (
            Action({"error": {"message": "unknown field"}}, status=400)
            if "logprob_token_ids" in payload
            else GOOD
        )

    def careless(payload: dict[str, Any], times: int) -> Action:
        return GOOD

    for answer in (strict, careless):
        with faulty_server(answer) as server:
            judge = EndpointJudge.connect(
                Server(server.url, "m"),
                Asking(verdict_ids=(5, 6)),
                ChatPrompt(auditor_prompt("logprob")),
            )
            assert judge.provenance().settings["read"] == "top"
            np.testing.assert_array_equal(judge.score(TEXTS).score, [1.5, 1.5, 1.5])
    with (
        faulty_server(lambda payload, times: Action(chat_body("SUCCESS"))) as server,
        pytest.raises(CertifyError, match="choose mode cot or vote"),
    ):
        EndpointJudge.connect(
            Server(server.url, "m"), Asking(), ChatPrompt(auditor_prompt("logprob"))
        )


def test_half_a_character_in_an_answer_is_kept_as_a_question_mark() -> None:
    half = Action(
        raw=b'{"model": "m", "choices": [{"message": {"content": "\\ud800 P_SUCCESS=70"}}]}'
    )
    with faulty_server(lambda payload, times: half) as server:
        found = EndpointJudge.connect(
            Server(server.url, "m"), Asking(mode="cot"), ChatPrompt(auditor_prompt("cot"))
        ).run(TEXTS)
    assert found.report.scored == 3
    assert found.report.uncounted_answers == 3
    assert found.report.cost == 0
