"""Output in a terminal: names cannot steer it, a poor encoding gives no traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.cli.output import (
    complain,
    console,
    emit_json,
    printable,
    refuse_overwrite,
    say,
    show_table,
)
from certify_assets.errors import InputError

CERTIFY = (sys.executable, "-m", "certify_assets.cli")
HOSTILE = "a\x1b[31mred\x07\x9b2J\u202eevil\u2066\u200b\ud800"


def _is_harmless(text: str) -> bool:
    return not any(
        character in text
        for character in HOSTILE
        if not character.isascii() or not character.isprintable()
    )


def test_what_steers_a_terminal_is_shown_as_escapes() -> None:
    shown = printable(HOSTILE)
    assert _is_harmless(shown)
    assert shown.startswith(r"a\u001b[31mred\u0007\u009b2J\u202eevil\u2066\u200b\ud800")
    assert json.loads(f'"{printable(chr(0xE0041))}"') == chr(0xE0041)
    assert printable("τ-bench, 中文, é ≤ 1") == "τ-bench, 中文, é ≤ 1"
    assert printable("a\nb", keep="\n") == "a\nb"


def test_everything_that_prints_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(HOSTILE, ["name", HOSTILE], [["x", HOSTILE]])
    console().print(HOSTILE, markup=False)
    say(HOSTILE)
    complain(HOSTILE)
    emit_json({HOSTILE: HOSTILE})
    captured = capsys.readouterr()
    assert _is_harmless(captured.out) and _is_harmless(captured.err)
    assert json.loads(captured.out[captured.out.index("{") :]) == {HOSTILE: HOSTILE}


def test_a_table_too_wide_for_the_terminal_is_turned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["judge", *(f"certified at_{number}" for number in range(9))]
    show_table("Judges", columns, [["lexical", *"123456789"], ["combined", *"abcdefghi"]])
    out = capsys.readouterr().out
    assert out.count("Judges") == 1
    assert re.search("certified at_8 +│ 9 +│ i", out)


def test_a_table_of_many_rows_is_not_turned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [[f"corpus/{number}/{'x' * 80}", "Batch draws", "random check"] for number in range(20)]
    show_table("Runs", ["run", "for", "why here"], rows)
    assert re.search("run +┃ for +┃ why here", capsys.readouterr().out)


def test_words_of_a_table_are_whole_where_there_is_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["batches", "state", "runs", "decided", "labels used", "labels wanted"]
    show_table("Batches", columns, [["000001-a7d3ade760f0", "provisional", "28", "12", "4", "9"]])
    out = capsys.readouterr().out
    assert "│ provisional │" in out and max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_a_poor_encoding_is_no_reason_to_fail(tmp_path: Path, environment: dict[str, str]) -> None:
    rows = "".join(f"t{number},{number % 2},text {number},agént-τ\n" for number in range(60))
    (tmp_path / "runs.csv").write_text(f"task_id,outcome,text,agent\n{rows}", "utf-8")
    decided = ("PYTHONIOENCODING", "PYTHONUTF8", "LANG", "LC_ALL")
    clean = {name: value for name, value in os.environ.items() if name not in decided}
    for more in ([], ["--replace", "--json"]):
        done = subprocess.run(
            [*CERTIFY, "corpus", "import", "runs.csv", "--name", "c", "--root", "root", *more],
            capture_output=True,
            cwd=tmp_path,
            env={**clean, **environment},
            check=False,
        )
        assert done.returncode == 0 and done.stdout.isascii(), done.stderr
    assert json.loads(done.stdout)["agents"] == {"agént-τ": 60}


def test_an_output_over_an_input_is_refused(tmp_path: Path) -> None:
    one, two, link, hard = (tmp_path / f"{name}.csv" for name in ("one", "two", "link", "hard"))
    one.write_text("x", "utf-8")
    link.symlink_to(one)
    hard.hardlink_to(one)
    refuse_overwrite([("--out", two)], [("SCORES", one)])
    for path in (one, tmp_path / "x" / ".." / "one.csv", link, hard):
        with pytest.raises(InputError, match=r"--out is .*, which is SCORES too and would be over"):
            refuse_overwrite([("--out", path)], [("SCORES", one)])
    with pytest.raises(InputError, match=r"--decisions is .*, which is --queue too"):
        refuse_overwrite([("--queue", two), ("--decisions", two)], [])


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*CERTIFY, "--help"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith(b"certify: the output: No space left")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_error_to_speak_of(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*CERTIFY, "corpus", "list", "--root", str(tmp_path)]
    for more in ([], ["--json"]):
        done = subprocess.run(
            [*command, *more], stdout=writing, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(writing)
