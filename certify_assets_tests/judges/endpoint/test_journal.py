from pathlib import Path

import pytest

from certify_assets.errors import InputError, IntegrityError
from certify_assets.judges.endpoint.scoring import AnswerJournal


def _filled(path: Path) -> None:
    with AnswerJournal(path) as journal:
        for number in range(4):
            journal.put(f"key {number}", {"logs": [-0.5, -1.0 - number], "text": "ü\n"})


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.jsonl"
    _filled(path)
    with AnswerJournal(path) as journal:
        assert len(journal) == 4
        assert journal.get("key 2") == {"logs": [-0.5, -3.0], "text": "ü\n"}
        assert journal.get("key 9") is None
        journal.put("key 9", 1)
    with AnswerJournal(path) as journal:
        assert len(journal) == 5
    assert path.stat().st_mode & 0o077 == 0


def test_every_torn_end_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    _filled(path)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        with AnswerJournal(path) as journal:
            assert len(journal) == 3
            journal.put("key 3", {"logs": [-0.5, -4.0], "text": "ü\n"})
        assert path.read_bytes() == whole


def test_what_is_no_answer_is_refused_and_earlier_scorings_are_known(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    _filled(path)
    kept = path.read_bytes()
    with AnswerJournal(tmp_path / "new.jsonl", [kept]) as journal:
        assert len(journal) == 4 and journal.get("key 2")["logs"] == [-0.5, -3.0]
        journal.put("key 7", 7)
    assert (tmp_path / "new.jsonl").read_bytes().count(b"\n") == 1
    for poison in (b"\n", b"null\n", b"[]\n", b"\xff\n", b'{"key": 1}\n'):
        path.write_bytes(poison)
        with pytest.raises(IntegrityError, match="line 1"):
            AnswerJournal(path)


def test_it_belongs_to_one_scoring_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerJournal(path), pytest.raises(InputError, match="in use by another scoring"):
        AnswerJournal(path)
    with pytest.raises(InputError, match="cannot be opened"):
        AnswerJournal(tmp_path)
