import math
from typing import Any

import pytest

from certify_assets.judges.endpoint.questions import Reply, conclude, read_answer
from certify_assets_tests.judges.endpoint.faulty_server import judge_of


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("P_SUCCESS=85", 85.0),
        ("so **P_SUCCESS = 7.5%**.", 7.5),
        ("P_SUCCESS=100.", 100.0),
        ("P_SUCCESS=20\nno, wait\nP_SUCCESS=30\n", 30.0),
        ("P_SUCCESS=20, later P_SUCCESS=maybe", None),
        ("P_SUCCESS=101", None),
        ("P_SUCCESS=-5", None),
        ("P_SUCCESS=40–60", None),
        ("P_SUCCESS=1e2", None),
        ("P_SUCCESS=0,85", None),
        ("P_SUCCESS=٤٢", None),
        ("85", None),
    ],
)
def test_the_last_stated_probability_is_read_strictly(text: str, percent: float | None) -> None:
    assert Reply(text=text).percent == percent


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ("VERDICT: SUCCESS", True),
        ("**VERDICT: FAIL**", False),
        ("VERDICT: SUCCESS … on reflection VERDICT: FAIL", False),
        ("VERDICT: SUCCESS, then VERDICT: unclear", None),
        ("VERDICT: SUCCESS or FAIL", None),
        ("VERDICT: FAILED", None),
        ("SUCCESS", None),
    ],
)
def test_the_last_vote_is_read_strictly(text: str, vote: bool | None) -> None:
    assert Reply(text=text).vote == vote


def test_an_answer_cut_in_its_number_is_not_read() -> None:
    assert Reply(text="P_SUCCESS=8", cut=True).percent is None
    assert Reply(text="P_SUCCESS=8\n", cut=True).percent == 8.0
    assert Reply(text="VERDICT: FAIL", cut=True).vote is None


def test_conclusions_are_finite_and_in_order() -> None:
    stated = [conclude("cot", [Reply(text=f"P_SUCCESS={percent}")], 1) for percent in range(101)]
    odds = [success - fail for success, fail, _ in stated]
    assert all(map(math.isfinite, odds)) and odds == sorted(odds) and odds[50] == pytest.approx(0)
    yes, no, none = (Reply(text=text) for text in ("VERDICT: SUCCESS", "VERDICT: FAIL", "?"))

    def share(*votes: Reply) -> float:
        return math.exp(conclude("vote", votes, 5)[0])

    shares = [share(*[yes] * count, *[no] * (5 - count)) for count in range(6)]
    assert shares == pytest.approx([(count + 0.5) / 6 for count in range(6)])
    # three of five readable: their share; two: no verdict
    assert share(yes, yes, no, none, none) == pytest.approx((5 * 2 / 3 + 0.5) / 6)
    assert conclude("vote", [yes, yes, none, none, none], 5)[2] == "unparsed"
    assert conclude("cot", [none], 1)[2] == "unparsed"
    assert conclude("logprob", [Reply(reason="missing")], 1)[2] == "missing"


def test_completions_and_chats_are_read() -> None:
    def read(choice: dict[str, Any], **settings: Any) -> Reply:
        entry = judge_of("http://h/v1", form="completion", **settings)
        return read_answer(entry, {"choices": [choice]})

    listed = {" SUCCESS": -0.5, " FAIL": -2.0}
    choice = {"text": " SUCCESS", "logprobs": {"top_logprobs": [listed]}}
    assert read(choice).logs == (-0.5, -2.0)
    assert read(choice, prompt={"fail": " NO"}).reason == "missing"
    assert read({"text": "so", "finish_reason": "length"}, asking="cot").cut
    # a reasoning model that was cut before its answer sends no content
    assert read({"message": {"content": None}}, asking="cot").text == ""
