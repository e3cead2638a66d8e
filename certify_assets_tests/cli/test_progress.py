"""Progress of commands: bars in a terminal, lines elsewhere, a sign of life where there is none."""

import io
import time

import pytest
from rich.console import Console

from certify_assets.cli import progress as module
from certify_assets.cli.progress import heartbeat, progress
from certify_assets.storage.progress import Advance


def test_a_silent_command_says_that_it_is_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    with heartbeat("ops deploy", patience=0.01):
        while not (said := capsys.readouterr().err):
            time.sleep(0.01)
    assert said.startswith("ops deploy: at work for 0 s\n")
    for words in ("ui", "research study", "review serve", "corpus rm"):
        with heartbeat(words, patience=0.001):
            time.sleep(0.01)
    with heartbeat("report", patience=60):
        pass
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_bar_with_the_time_left_in_a_terminal_and_lines_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress() as report:
        for done in (1, 2):
            report(Advance("scoring cal", done, 2))
    assert capsys.readouterr().err == "scoring cal: 1 of 2\nscoring cal: 2 of 2\n"
    drawn = io.StringIO()
    monkeypatch.setattr(
        module, "console", lambda **_: Console(file=drawn, force_terminal=True, width=80)
    )
    with progress() as report:
        report(Advance("sft", 1, 4, loss=0.5))
        report(Advance("sft", 4, 4, loss=0.25))
    assert "sft, loss 0.2500" in drawn.getvalue() and "4/4" in drawn.getvalue()
