"""Progress of commands: bars in a terminal, lines elsewhere, a sign of life where there is none."""

import os
import pty
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from certify_assets.cli.progress import heartbeat
from certify_assets_tests.builders import score_rows


def test_a_silent_command_says_that_it_is_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    with heartbeat("ops deploy", patience=0.01):
        while not (said := capsys.readouterr().err):
            time.sleep(0.01)
    assert said.startswith("ops deploy: at work for 0 s\n")
    for words in ("run", "demo", "ui", "research study", "review serve", "corpus rm"):
        with heartbeat(words, patience=0.001):
            time.sleep(0.01)
    with heartbeat("report", patience=60):
        pass
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


_AT_ONCE = (
    "import sys; from certify_assets.cli import progress; from certify_assets.cli.main import main; "
    "progress.BARS_AFTER_S = {after}; progress.DRAWN_EVERY_S = 0.02; main(sys.argv[1:])"
)


def _in_a_terminal(command: str, *, after: float = 0.0) -> tuple[str, str]:
    """Run a command with stderr in a terminal; return what stdout had and what was drawn."""
    ours, theirs = pty.openpty()
    code = _AT_ONCE.format(after=after)
    with subprocess.Popen(
        [sys.executable, "-c", code, *command.split()],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        drawn = b""
        try:
            while part := os.read(ours, 1 << 16):
                drawn += part
        except OSError:
            pass  # how a terminal ends
        os.close(ours)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    assert process.returncode in (0, 3), drawn.decode()
    return printed, drawn.decode()


@pytest.mark.slow
def test_what_takes_long_shows_the_time_left_in_a_terminal(tmp_path: Path) -> None:
    score_rows(tasks=6_000, attempts=8).to_csv(scores := tmp_path / "s.csv", index=False)
    printed, drawn = _in_a_terminal(f"certificate {scores}")
    assert "of runs are decided" in printed and "━" not in drawn.rsplit("\x1b[2K", 1)[-1]
    for words in ("checking the columns", "certifying", "left"):
        assert words in drawn, words
    (folder := tmp_path / "runs").mkdir()
    for number in range(60):
        rows = [
            f'{{"task_id": "t{number}", "outcome": {i % 2}, "text": "{number} {i} {"word " * 200}"}}'
            for i in range(60)
        ]
        (folder / f"{number}.jsonl").write_text("\n".join(rows))
    with tarfile.open(tmp_path / "runs.tgz", "w:gz") as archive:
        archive.add(folder, "runs")
    for place, source in enumerate((folder, tmp_path / "runs.tgz")):
        arguments = f"corpus import {source} --name c{place} --root {tmp_path}/root"
        drawn = _in_a_terminal(arguments)[1]
        for words in ("reading files", " MB", "left", "writing the runs"):
            assert words in drawn, words
    score_rows(tasks=200, attempts=8).to_csv(scores := tmp_path / "s.csv", index=False)
    printed, drawn = _in_a_terminal(f"plan {scores}")
    assert "Planned for" in printed and "planning " in drawn and "left" in drawn


@pytest.mark.slow
def test_a_run_shows_its_first_certificate_at_once_in_a_terminal(tmp_path: Path) -> None:
    printed, drawn = _in_a_terminal(f"run miniwob_weak --root {tmp_path}")
    first = drawn.index("% of runs are decided: ")
    assert drawn.index("miniwob_weak") < first < drawn.rindex("left")
    assert "of runs are decided" not in printed and printed.startswith("miniwob_weak: 2,000 runs")
