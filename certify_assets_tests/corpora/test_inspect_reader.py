"""Inspect AI logs through inspect-ai's own reader, and what happens where it is missing or ends."""

import json
import os
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.formats import ImportedCorpus, import_corpus
from certify_assets.corpora.formats.inspect_reader import INSPECT_PYTHON, choose_reader
from certify_assets.errors import InputError
from certify_assets_tests.corpora.eval_files import (
    STORED,
    ZSTD,
    eval_bytes,
    header,
    sample,
    write_eval,
)
from certify_assets_tests.corpora.formats.inspect import COUNTS, write
from certify_assets_tests.killing import left_by_a_kill
from certify_assets_tests.paths import shared_data

CANARY = "canary-7f3a"
# what stands in for an interpreter: it has a version, and begins to read a log
STAND_IN = """#!/bin/sh
[ "$2" = -c ] && echo {version} && exit 0
exec {python} -I -c '{code}'
"""


def read(path: Path, reader: str, **options: Any) -> ImportedCorpus:
    return import_corpus(
        path, format="inspect", name="inspect", options={"reader": reader, **options}
    )


def stand_in(path: Path, version: str, code: str = "") -> str:
    path.write_text(
        STAND_IN.format(version=version, python=shlex.quote(sys.executable), code=code), "utf-8"
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def inspect_ai(monkeypatch: pytest.MonkeyPatch) -> str:
    """Version of an inspect-ai that can be asked, or a skip with the reason."""
    try:
        package = choose_reader({"reader": "inspect_ai"})
    except InputError as error:
        pytest.skip(str(error))
    assert package is not None
    monkeypatch.setenv(INSPECT_PYTHON, package.python)
    return package.version


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interpreter is named, and this one has no inspect-ai."""
    monkeypatch.delenv(INSPECT_PYTHON, raising=False)
    try:
        pytest.skip(f"this interpreter has inspect-ai {metadata.version('inspect-ai')}")
    except metadata.PackageNotFoundError:
        return


def test_without_inspect_ai_the_logs_are_read_here(tmp_path: Path, nowhere: None) -> None:
    path = write_eval(tmp_path / "log.eval", eval_bytes(header(), [sample(1)]))
    assert (
        read(path, "auto").notes == read(path, "own").notes == {"logs read without inspect-ai": 1}
    )
    with pytest.raises(
        InputError,
        match=r"asks for inspect-ai, but this interpreter has no inspect-ai; install "
        r"inspect-ai 0\.3\.179 or later",
    ):
        read(path, "inspect_ai")
    with pytest.raises(
        InputError, match="the option reader is 'theirs'; give auto, inspect_ai or own"
    ):
        read(path, "theirs")


def test_an_interpreter_that_is_named_must_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, words in (
        ("0.3.69", "inspect-ai 0.3.69, which cannot read logs compressed with zstd"),
        ("", "no inspect-ai"),
    ):
        monkeypatch.setenv(INSPECT_PYTHON, stand_in(tmp_path / "python", version))
        with pytest.raises(InputError, match=f"{INSPECT_PYTHON} names .*python, which has {words}"):
            choose_reader({})
    monkeypatch.setenv(INSPECT_PYTHON, str(tmp_path / "none"))
    with pytest.raises(
        InputError, match=r"none, which does not run \(FileNotFoundError\); install"
    ):
        choose_reader({})
    assert choose_reader({"reader": "own"}) is None


HEADER = json.dumps({"header": header()})
ONE = json.dumps({"sample": sample(1)})
BEGIN = 'print("{}", flush=True); input(); '


@pytest.mark.parametrize(
    ("code", "dropped", "words"),
    [
        (
            BEGIN + "raise SystemExit(3)",
            {"file_unreadable": 2},
            r"log\.eval ended inspect-ai 1\.0\.0 \(without a word\); .* option reader=own",
        ),
        (
            BEGIN + f'print(r"""{HEADER}""", flush=True); 1/0',
            {"file_unreadable": 2},
            "ZeroDivisionError",
        ),
        (
            BEGIN + f'print(r"""{HEADER}"""); print(r"""{ONE}""", flush=True); 1/0',
            {"file_ends_early": 2, "duplicate": 1},
            "ZeroDivision",
        ),
    ],
)
def test_a_log_that_ends_the_reader_costs_that_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, dropped: dict[str, int], words: str
) -> None:
    monkeypatch.setenv(INSPECT_PYTHON, stand_in(tmp_path / "python", "1.0.0", code))
    for name in ("logs/log.eval", "logs/second.eval"):
        write_eval(tmp_path / name, eval_bytes(header(), [sample(1), sample(2)]))
    if "file_ends_early" in dropped:
        imported = read(tmp_path / "logs", "auto")
        assert (len(imported.frame), imported.dropped) == (1, dropped)
        return
    with pytest.raises(InputError, match=words):
        read(tmp_path / "logs", "auto")


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")
def test_a_reader_that_is_at_a_log_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    code = BEGIN + f'import time; open("{tmp_path}/begun", "w").close(); time.sleep(600)'
    python = stand_in(tmp_path / "python", "1.0.0", code)
    path = write_eval(tmp_path / "log.eval", eval_bytes(header(), [sample(1)]))
    words = f"corpus import {path} --name c --format inspect --root {tmp_path / 'root'}"
    left = left_by_a_kill(
        [sys.executable, "-m", "certify_assets.cli", *words.split()],
        lambda children: bool(children) and (tmp_path / "begun").exists(),
        **{INSPECT_PYTHON: python},
    )
    assert left == []


def test_a_reader_that_cannot_be_started_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        INSPECT_PYTHON, stand_in(tmp_path / "python", "1.0.0", "import nothing_of_this_name")
    )
    path = write_eval(tmp_path / "log.eval", eval_bytes(header(), [sample(1)]))
    with pytest.raises(InputError, match=r"cannot be started .*ModuleNotFoundError"):
        read(path, "auto")


def test_both_readers_give_the_same_runs(tmp_path: Path, inspect_ai: str) -> None:
    """The worker runs in the interpreter that has inspect-ai, and every canary stays there."""
    write(tmp_path, CANARY)
    ours, theirs = (read(tmp_path, reader) for reader in ("own", "inspect_ai"))
    assert theirs.frame.equals(ours.frame) and len(ours.frame) == COUNTS.trajectories
    assert theirs.dropped == ours.dropped == COUNTS.dropped
    assert (
        theirs.notes[f"logs read by inspect-ai {inspect_ai}"]
        == ours.notes["logs read without inspect-ai"]
    )
    assert CANARY not in theirs.frame.to_json()


def test_a_broken_sample_and_a_broken_log_cost_themselves(tmp_path: Path, inspect_ai: str) -> None:
    data = eval_bytes(header(), [sample(1), sample(2, messages="none"), sample(3)], ZSTD)
    write_eval(tmp_path / "logs" / "a.eval", data)
    write_eval(
        tmp_path / "logs" / "b.eval", eval_bytes({"status": "success", "eval": {}}, [sample(4)])
    )
    write_eval(tmp_path / "logs" / "c.eval", eval_bytes(header("other"), [sample(5)])[:-30])
    write_eval(tmp_path / "logs" / "d.eval", eval_bytes(header("last"), [sample(6)]))
    imported = read(tmp_path / "logs", "auto")
    assert sorted(imported.frame["task_id"]) == ["last/6", "sums/1", "sums/3"]
    assert imported.dropped == {"file_unreadable": 2, "unreadable_record": 1}
    assert (
        "samples/2_epoch_1.json cannot be used: ValidationError"
        in imported.examples["unreadable_record"]
    )


def test_a_log_that_unpacks_to_too_much_is_refused_before_it_is_read(
    tmp_path: Path, inspect_ai: str
) -> None:
    path = write_eval(
        tmp_path / "log.eval",
        eval_bytes(header(), [sample(1, store={"noise": "x" * (2 << 20)})], STORED),
    )
    with pytest.raises(InputError, match="unpacks to more than the limit of 1,048,576"):
        read(path, "inspect_ai", max_file_mb=1)


def test_the_environment_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is given a path, a home of its own and nothing else of the environment."""
    written = tmp_path / "written"
    code = f'import json, os; open("{written}", "w").write(json.dumps(dict(os.environ)))'
    monkeypatch.setenv(INSPECT_PYTHON, stand_in(tmp_path / "python", "1.0.0", code))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with pytest.raises(InputError, match="cannot be started"):
        read(write_eval(tmp_path / "log.eval", eval_bytes(header(), [sample(1)])), "auto")
    seen = json.loads(written.read_text("utf-8"))
    assert CANARY not in seen.values()
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["HOME"] != os.environ.get("HOME")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "TransluceAI+docent.raw.tar.gz",
        "UKGovernmentBEIS+inspect_ai.raw.tar.gz",
        "meridianlabs-ai+inspect_scout.raw.tar.gz",
    ],
)
def test_both_readers_give_the_same_runs_of_the_published_logs(name: str, inspect_ai: str) -> None:
    path = shared_data("inspect_logs", name)
    ours, theirs = (read(path, reader, keep_unlabelled=True) for reader in ("own", "inspect_ai"))
    assert theirs.frame.equals(ours.frame) and theirs.dropped == ours.dropped
