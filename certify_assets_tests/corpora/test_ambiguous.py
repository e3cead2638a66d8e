"""Records that two readers could read differently are left out, and say why."""

import json
import sys
from pathlib import Path

import pytest

from certify_assets.cli import main
from certify_assets.corpora.formats import import_corpus
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import json_value, one_object
from certify_assets.errors import UnreadableFileError

GOOD = '{"task_id": "a", "text": "x", "outcome": 1}'


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (
            '{"task_id": "b", "text": "x", "outcome": 0, "outcome": 1}',
            "unreadable_record",
            "it has the key 'outcome' twice in one object",
        ),
        ('{"task_id": "b\\ud800", "text": "x", "outcome": 1}', "unreadable_record", "Unicode"),
        (
            '{"task_id": "b", "trajectory_id": "\\udfff", "text": "x", "outcome": 1}',
            "unreadable_record",
            "Unicode",
        ),
    ],
)
def test_an_ambiguous_record_is_left_out(
    tmp_path: Path, line: str, reason: str, words: str
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{GOOD}\n{line}\n", "utf-8")
    imported = import_corpus(path, name="c")
    assert imported.dropped == {reason: 1} and len(imported.frame) == 1
    assert "runs.jsonl row 2" in imported.examples[reason] and words in imported.examples[reason]


@pytest.mark.parametrize("written", ["1", "1.0", "1e0", "0", "0.0", "0e-9"])
def test_an_outcome_that_is_exactly_0_or_1_is_kept(tmp_path: Path, written: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(GOOD.replace("1}", written + "}"), "utf-8")
    assert import_corpus(path, name="c").frame["outcome"].tolist() == [int(float(written))]


def test_every_reader_of_documents_refuses_a_key_twice() -> None:
    text = '{"resolved": [], "resolved": ["a"]}'
    assert "twice" in one_object(text)
    with pytest.raises(ValueError, match="twice"):
        json_value(text.encode())
    assert one_object('{"n": 1e-400}') == {"n": 5e-324}
    assert json_value(b'{"n": 1e-40, "m": [1.0]}') == json.loads('{"n": 1e-40, "m": [1.0]}')


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mem.csv").symlink_to("/proc/self/mem")
    with pytest.raises(SystemExit) as end:
        main(["corpus", "import", f"{tmp_path}/mem.csv", "--name", "c", "--root", str(tmp_path)])
    assert end.value.code == 2
    # a slow machine says above it that the command is at work
    assert capsys.readouterr().err.splitlines()[-1] == (
        "certify: mem.csv cannot be read (Input/output error); check its disk, or give a copy of it."
    )


@pytest.mark.skipif(sys.platform != "linux", reason="a file that opens and cannot be read")
def test_a_file_that_cannot_be_hashed_is_named_too() -> None:
    memory = Path("/proc/self/mem")
    with pytest.raises(UnreadableFileError, match="Input/output error") as caught:
        SourceFile("runs/mem", 0, lambda: memory.open("rb")).sha256()
    assert caught.value.filename == "runs/mem"
