import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.errors import InputError, MissingToolError
from certify_assets.research import miniwob
from certify_assets.research.miniwob import ModelAgent, attempt
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.judges.endpoint.faulty_server import Action, chat_body, faulty_server

Answer = Callable[[dict[str, Any], int], Action]


class Form:
    """A page with a field and a button, without a browser."""

    instruction = 'Enter "Joe" and press Submit.'

    def __init__(self) -> None:
        self.lines, self.ended = ["field", 'button "Submit"'], False

    def look(self) -> tuple[bool, list[str]]:
        return self.ended, [] if self.ended else self.lines

    def act(self, verb: str, number: int, text: str) -> str:
        if not 0 <= number < 2:
            return "no element matches"
        if verb == "type":
            self.lines = [f'field holds "{text}"', self.lines[1]]
        self.ended = (verb, number) == ("click", 1)
        return ""


def steps_of(*replies: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Let replies act on a form; return the steps, and what the model was asked at each turn."""
    left, asked = list(replies), []

    def ask(messages: list[dict[str, str]]) -> str:
        asked.append(messages[-1]["content"])
        return left.pop(0)

    return list(attempt(Form(), ask)), asked  # type: ignore[arg-type]


def test_a_model_acts_until_it_claims() -> None:
    steps, asked = steps_of('type 0 "Joe"', "click 99", "click 1", 'claim "sent"')
    assert steps == [
        ("open the page", 'field; button "Submit"'),
        ('type field "Joe"', 'now: field holds "Joe"'),
        ("click 99", "no element matches"),
        ('click button "Submit"', "the page ended"),
        ('claim("sent")', ""),
    ]
    assert asked[1].splitlines()[1:] == [
        'Last: now: field holds "Joe"',
        '0. field holds "Joe"',
        '1. button "Submit"',
    ]


def answering(replies: list[str | int], asked: list[dict[str, Any]]) -> Answer:
    """Answer each request with the next text, or decline it with the next status."""

    def answer(request: dict[str, Any], _: int) -> Action:
        asked.append(request)
        reply = replies.pop(0)
        return Action(chat_body(reply)) if isinstance(reply, str) else Action({}, status=reply)

    return answer


def test_what_is_missing_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTIFY_MODEL_URL", raising=False)
    with pytest.raises(InputError, match="CERTIFY_MODEL_URL"):
        ModelAgent.from_environment()
    monkeypatch.setattr(miniwob.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingToolError, match=r"certify_assets\[miniwob\]"):
        miniwob.require_tools()


@pytest.mark.slow
@pytest.mark.browser
def test_a_model_runs_on_real_pages_and_a_stopped_generation_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,  # noqa: F811
) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("no Chromium is here")
    path = tmp_path / "runs.jsonl"
    pages = f"research generate-miniwob --out {path} --attempts 1"
    command = f"{pages} --task click-test-2 --task enter-text"
    replies: list[str | int] = ["click 0", 'claim "pressed ONE"', 401]
    asked: list[dict[str, Any]] = []
    with faulty_server(answering(replies, asked)) as endpoint:
        monkeypatch.setenv("CERTIFY_MODEL_URL", endpoint.url)
        monkeypatch.setenv("CERTIFY_MODEL_NAME", "small-model")
        # the server declines in the second run, and the first is kept
        declined = call(command)
        assert declined.code == 2 and "401" in declined.err
        with path.open("a") as stream:
            stream.write('{"task_id": "to')
        replies += ['type 0 "no such name"', "click 1", 'claim "entered it"']
        assert call(f"{command} --json").json == {"added": 1, "file": str(path)}
        assert call(command).code == 0
    clicked, entered = map(json.loads, path.read_text().splitlines())
    assert (clicked["task_id"], clicked["outcome"]) == ("click-test-2", 1)
    assert (entered["task_id"], entered["outcome"]) == ("enter-text", 0)
    assert clicked["agent"] == "model:small-model"
    assert clicked["steps"][1:] == [
        ['click button "ONE"', "the page ended"],
        ['claim("pressed ONE")', ""],
    ]
    assert "textbox: no such name" in str(entered["steps"])
    assert '0. button "ONE"' in asked[0]["messages"][-1]["content"]
    # nothing of the harness is shown
    assert not [word for word in ("reward", "Time left", "Last 10") if word in str(asked)]
    unknown = call(f"{pages} --task nothing")
    assert unknown.code == 2 and "no task 'nothing'" in unknown.err


def test_a_model_that_gets_nowhere_is_stopped() -> None:
    steps, asked = steps_of(*[f'type 0 "{number}"' for number in range(20)])
    assert steps[-1] == ('claim("not done: out of turns")', "")
    assert len(asked) == miniwob.MAX_TURNS
    steps, _ = steps_of("let me think")
    assert steps[-1] == ('claim("not done: no readable action")', "")
