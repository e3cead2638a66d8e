import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.judges.base import Judge
from certify_assets.judges.endpoint.judge import EndpointJudge, connected
from certify_assets.judges.endpoint.settings import Prices
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    chat_body,
    faulty_server,
    judge_of,
    text_of,
)
from certify_assets_tests.paths import REPOSITORY

SECRET = "sk-0123456789-never-written"


def _logs(payload: dict[str, Any]) -> dict[str, float]:
    return {"SUCCESS": -0.01 * (1 + int(text_of(payload).split()[1])), "FAIL": -3.0}


def _by_number(payload: dict[str, Any], times: int) -> Action:
    return Action(chat_body(logs=_logs(payload)))


def _judge(url: str, journal: Path | None = None, **settings: Any) -> EndpointJudge:
    plain = {"timeout_seconds": 20.0, "prices": Prices(prompt=2.0, completion=10.0)}
    entry = judge_of(url, **plain | settings)
    return connected(entry, answers=lambda: nullcontext((journal, ())))


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_scores_come_in_the_order_of_the_texts_and_within_the_bound(concurrency: int) -> None:
    def slow(payload: dict[str, Any], times: int) -> Action:
        number = int(text_of(payload).split()[1])
        return Action(chat_body(logs=_logs(payload)), delay=0.02 * (number % 3))

    with faulty_server(slow) as server:
        judge = _judge(server.url, concurrency=concurrency)
        found = judge.run([f"run {number}" for number in range(40)])
    expected = [-0.01 * (1 + number) for number in range(40)]
    np.testing.assert_allclose(found.scores.log_p_success, expected)
    assert server.most <= concurrency and (concurrency == 1 or server.most > concurrency // 2)
    assert found.report.requests == sum(server.arrived.values()) == 40
    assert isinstance(judge, Judge) and len(judge.provenance().adapter_sha256) == 64


def test_the_bill_is_per_decision() -> None:
    with faulty_server(_by_number) as server:
        report = _judge(server.url).run(["run 0", "run 1"]).report
    # 100 prompt tokens at 2 and 10 completion tokens at 10 a million
    assert (report.prompt_tokens, report.completion_tokens) == (200, 20)
    assert (report.cost, report.cost_per_decision) == pytest.approx((6e-4, 3e-4))
    assert report.model_dump()["parse_rate"] == 1.0 and report.models == ("m",)


def test_equal_texts_are_asked_once_and_no_text_is_none() -> None:
    with faulty_server(_by_number) as server:
        judge = _judge(server.url)
        found = judge.run(["run 1", "run 2", "run 1", "run 1"])
        empty = judge.run([])
    assert max(server.arrived.values()) == 1
    assert found.report.cache_hits == 2
    assert found.scores.score[0] == found.scores.score[3]
    assert empty.scores.score.shape == (0,) and empty.report.model_dump()["parse_rate"] is None


def test_stated_probabilities_and_their_parse_rate() -> None:
    said = {"run 0": "P_SUCCESS=90", "run 1": "I cannot say.", "run 2": "P_SUCCESS=20"}
    with faulty_server(lambda payload, times: Action(chat_body(said[text_of(payload)]))) as server:
        found = _judge(server.url, asking="cot").run(list(said))
    expected = [90.5 / 101, np.nan, 20.5 / 101]
    np.testing.assert_allclose(np.exp(found.scores.log_p_success), expected)
    assert found.reasons == ("", "unparsed", "")
    assert found.report.scored == 2 and found.report.parse_rate == pytest.approx(2 / 3)


def test_votes_differ_by_seed_and_ten_reuse_five(tmp_path: Path) -> None:
    def vote(payload: dict[str, Any], times: int) -> Action:
        said = f"VERDICT: {'SUCCESS' if payload['seed'] % 2 else 'FAIL'}"
        return Action(chat_body("?" if text_of(payload) == "run 1" else said))

    with faulty_server(vote) as server:
        five, ten = (
            _judge(server.url, tmp_path / "a.jsonl", asking=f"sc_{votes}", seed=1).run(
                ["run 0", "run 1"]
            )
            for votes in (5, 10)
        )
        seeds = sorted(json.loads(raw)["seed"] for raw in server.arrived if "run 0" in raw)
    assert seeds == list(range(1, 11)) and max(server.arrived.values()) == 1
    assert (five.report.cache_hits, ten.report.cache_hits, ten.report.requests) == (0, 10, 10)
    np.testing.assert_allclose(np.exp(five.scores.log_p_success[0]), (3 + 0.5) / 6)
    np.testing.assert_allclose(np.exp(ten.scores.log_p_success[0]), 0.5)
    assert five.reasons[1] == "unparsed" and five.report.parse_rate == 0.5
    assert ten.report.cost == pytest.approx(20 * 3e-4)


@pytest.mark.parametrize(
    "pace",
    [
        {"requests_per_minute": 1200.0, "concurrency": 8},
        # 1100 tokens a request, more than the estimate from the length of the prompt
        {"tokens_per_minute": 1_320_000.0, "concurrency": 1},
    ],
)
def test_requests_keep_to_their_rate(pace: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 1099, "completion_tokens": 1, "total_tokens": 1100}

    def costly(payload: dict[str, Any], times: int) -> Action:
        return Action({**chat_body(logs=_logs(payload)), "usage": usage})

    with faulty_server(costly) as server:
        _judge(server.url, **pace).run([f"run {n}" for n in range(9)])
    # eight gaps of 50 ms, of which the first connection may take some
    assert server.times[-1] - server.times[0] >= 0.25


_SCORE = """
import sys
from pathlib import Path
from contextlib import nullcontext
from certify_assets.judges.endpoint.judge import connected
from certify_assets.judges.endpoint.settings import EndpointEntry
entry = EndpointEntry(name="served", url=sys.argv[1], model="m", concurrency=4,
    timeout_seconds=30)
judge = connected(entry, answers=lambda: nullcontext((Path(sys.argv[2]), ())))
print(judge.run([f"run {number}" for number in range(30)]).scores.score.tolist())
"""


@pytest.mark.slow
def test_a_killed_scoring_repeats_no_answered_request(tmp_path: Path) -> None:
    journal, held = tmp_path / "answers.jsonl", threading.Event()
    answered = 0

    def answer(payload: dict[str, Any], times: int) -> Action:
        nonlocal answered
        answered += 1
        return Action(
            chat_body(logs=_logs(payload)), hold=None if answered <= 12 or held.is_set() else held
        )

    with faulty_server(answer) as server:
        command = [sys.executable, "-c", _SCORE, server.url, str(journal)]
        with subprocess.Popen(command, cwd=REPOSITORY) as process:
            until = time.monotonic() + 60
            while time.monotonic() < until and not (
                journal.exists() and journal.read_bytes().count(b"\n") >= 12
            ):
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL and journal.read_bytes().count(b"\n") == 12
        held.set()
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        assert len(server.answered) == 30 and max(server.answered.values()) == 1
    np.testing.assert_allclose(
        json.loads(done.stdout), [3.0 - 0.01 * (1 + number) for number in range(30)]
    )


def test_the_key_is_sent_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    caplog.set_level(logging.DEBUG)

    def echo(payload: dict[str, Any], times: int) -> Action:
        if text_of(payload) == "run 2":
            return Action({"error": {"message": "x" * 290 + f"key {SECRET} may not"}}, status=400)
        if times == 1:
            return Action(raw=b"y" * 290 + f"Bearer {SECRET}".encode(), status=500)
        return Action(chat_body(f"your key is {SECRET}. P_SUCCESS=70", model=SECRET))

    journal = tmp_path / "answers.jsonl"
    with faulty_server(echo) as server:
        judge = _judge(server.url, journal, asking="cot", key_variable="JUDGE_KEY")
        found = judge.run(["run 0", "run 1", "run 2"])
        assert set(server.keys) == {f"Bearer {SECRET}"}
        with pytest.raises(Exception, match="none of 1 texts") as caught:
            judge.run(["run 2"])
    assert found.reasons == ("", "", "refused") and found.report.retries == 2
    assert "your key is [key]" in journal.read_text()
    said = [str(found.report.model_dump()), str(asdict(judge.provenance())), repr(judge)]
    said += [str(caught.value), caplog.text]
    said += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    for piece in said:
        assert "sk-0123" not in piece


def test_nothing_that_the_environment_holds_for_another_server_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Leak: {SECRET}")
    with faulty_server(_by_number) as server:
        _judge(server.url).score(["run 0"])
    assert server.keys == [None]
    asked = {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert server.headers <= asked | {"content-type", "content-length"}
