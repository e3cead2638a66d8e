"""Journals: chain, torn lines, appends that depend on what is stored, bytes that never change."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from certify_assets.errors import IntegrityError, LedgerError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.journal import UNCHAINED, Journal, LineFormat, canonical_line
from certify_assets.storage.store import Store


@dataclass(frozen=True)
class Note:
    text: str
    number: int = 0
    previous: str = ""
    sha256: str = ""


FORMATS = {
    "previous": LineFormat(),
    "numbered": LineFormat(number="number", encode=canonical_line),
    "sealed": LineFormat(seal="sha256", genesis="0" * 64, encode=canonical_line),
}


def _journal(store: Store, format: LineFormat) -> Journal[Note]:
    return Journal(store, "notes.jsonl", lambda entry: Note(**entry), format)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture(params=list(FORMATS))
def journal(request: pytest.FixtureRequest, store: Store) -> Journal[Note]:
    return _journal(store, FORMATS[request.param])


def test_entries_come_back_and_every_line_names_the_one_before(journal: Journal[Note]) -> None:
    assert journal.read() == [] and journal.head() == journal.format.genesis
    (first,) = journal.append(Note("ä\n\u2028"))
    second, third = journal.append(Note("b"), Note("c"))
    assert journal.read() == [first, second, third]
    assert [note.text for note in journal.read()] == ["ä\n\u2028", "b", "c"]
    heads = [journal.format.genesis, *(line.sha256 for line in journal.lines())]
    assert [note.previous for note in journal.read()] == heads[:-1] and heads[-1] == journal.head()


def test_an_append_depends_on_what_is_stored(journal: Journal[Note]) -> None:
    assert journal.append_unless(lambda note: note.text == "a", Note("a")) is not None
    before = journal.store.read_bytes("notes.jsonl")
    assert journal.append_unless(lambda note: note.text == "a", Note("a")) is None
    assert journal.append() == [] and journal.store.read_bytes("notes.jsonl") == before


def test_a_torn_last_line_is_left_out_and_cut_off(journal: Journal[Note]) -> None:
    journal.append(Note("a"))
    whole = journal.store.read_bytes("notes.jsonl")
    journal.store.write_bytes("notes.jsonl", whole + whole[:-1])
    assert [note.text for note in journal.read()] == ["a"]
    journal.append(Note("b"))
    assert [note.text for note in journal.read()] == ["a", "b"]


@pytest.mark.parametrize("attack", ["changed", "removed", "first", "swapped", "repeated"])
def test_an_altered_journal_is_found(journal: Journal[Note], attack: str) -> None:
    journal.append(Note("a"), Note("b"), Note("c"))
    lines = journal.store.read_bytes("notes.jsonl").splitlines(keepends=True)
    altered = {
        "changed": [lines[0], lines[1].replace(b'"b"', b'"x"'), lines[2]],
        "removed": [lines[0], lines[2]],
        "first": lines[1:],
        "swapped": [lines[1], lines[0], lines[2]],
        "repeated": [lines[0], lines[0], *lines[1:]],
    }[attack]
    journal.store.write_bytes("notes.jsonl", b"".join(altered))
    for use in (journal.read, journal.head, lambda: journal.append(Note("d"))):
        with pytest.raises(IntegrityError, match="was altered; restore the file"):
            use()
    assert journal.store.read_bytes("notes.jsonl") == b"".join(altered)


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"text": 1, "text": 2}', b"\xff", b'{"words": 1}']
)
def test_a_line_that_is_no_entry_is_named(store: Store, line: bytes) -> None:
    journal = Journal(
        store,
        "notes.jsonl",
        lambda entry: Note(**entry),
        LineFormat(previous="", entry="a note", error=LedgerError),
    )
    journal.append(Note("a"))
    with (Path(store.root) / "notes.jsonl").open("ab") as stream:
        stream.write(line + b"\n")
    with pytest.raises(LedgerError, match=r"notes\.jsonl, line 2 is not a note; restore"):
        journal.read()


def test_the_bytes_of_the_formats_are_fixed(store: Store) -> None:
    note = {"text": "ü", "number": 7}
    body = {**note, "previous": "p"}
    digest = sha256_bytes(canonical_json(body))
    expected = {
        "previous": json.dumps(body, sort_keys=True),
        "numbered": '{"number":2,"previous":"p","text":"ü"}',
        "sealed": f'{{"number":7,"previous":"p","sha256":"{digest}","text":"ü"}}',
    }
    for name, text in expected.items():
        written, line = FORMATS[name].line(note, 2, "p")
        assert written == text and line.number == 2
        assert line.sha256 == (digest if name == "sealed" else sha256_bytes(text.encode("utf-8")))
    assert UNCHAINED.line(note, 2, "p")[0] == json.dumps(note, sort_keys=True)
