"""Files as this package reads and writes them: strictly, whole or not at all."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from certify_assets.errors import InputError
from certify_assets.files import (
    parse_json,
    parse_yaml,
    read_json,
    stored_as,
    unique_keys,
    write_atomic,
)
from certify_assets_tests.builders import UNREADABLE_YAML


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "integer of 5000 digits"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"x": [{"é": 1, "é": 1}]}', r"the key '\\xe9' twice"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ('{"a": 1} 2', "Extra data"),
    ],
)
def test_json_that_cannot_be_read_or_means_two_things_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        parse_json(text)
    (tmp_path / "a.json").write_text(text, "utf-8")
    with pytest.raises(InputError, match=rf"a\.json is not a JSON document \(.*{words}"):
        read_json(tmp_path / "a.json")


class _CountedKey(str):
    """A key that counts how often it is compared or hashed."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        _CountedKey.looks += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        _CountedKey.looks += 1
        return super().__hash__()


@pytest.mark.parametrize("repeated", ["first", "last"])
def test_a_repeated_key_is_found_in_one_passage(repeated: str) -> None:
    names = [f"key {number}" for number in range(3000)]
    pairs = [(_CountedKey(name), 0) for name in (*names, names[0 if repeated == "first" else -1])]
    _CountedKey.looks = 0
    with pytest.raises(ValueError, match="it has the key 'key"):
        unique_keys(pairs)
    assert _CountedKey.looks < 10 * len(pairs)


@pytest.mark.parametrize("value", UNREADABLE_YAML)
def test_yaml_whose_value_is_not_of_its_type_is_named_by_its_line(value: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2: |^a character"):
        parse_yaml(f"a: 1\nb: {value}\n")


def test_json_that_is_sound_is_read() -> None:
    assert parse_json('{"a": [1, 2.5, -3, null, true], "b": {"a": "ä"}}') == {
        "a": [1, 2.5, -3, None, True],
        "b": {"a": "ä"},
    }


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        write_atomic(tmp_path, b"x")
    assert caught.value.filename == str(tmp_path)
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(NotADirectoryError) as other:
        write_atomic(tmp_path / "file" / "below", b"x")
    assert other.value.filename == str(tmp_path / "file" / "below")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_a_device_is_written_and_stays_a_device() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomic(Path("/dev/full"), b"x")
    assert caught.value.filename == "/dev/full"
    write_atomic(Path(os.devnull), b"x")
    assert Path("/dev/full").is_char_device() and Path(os.devnull).is_char_device()


def test_a_link_stays_a_link_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


@dataclass(frozen=True)
class Inner:
    names: tuple[str, ...]
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    parts: tuple[Inner, ...]


def test_a_stored_document_becomes_dataclasses_and_one_of_another_kind_is_refused() -> None:
    document = {"parts": [{"names": ["a", "b"], "share": 0.5}, {"names": []}], "other": 1}
    assert stored_as(Outer, document) == Outer((Inner(("a", "b"), 0.5), Inner(())))
    with pytest.raises(InputError, match=r"of a Outer cannot be read \(parts.0.names: .*make it"):
        stored_as(Outer, {"parts": [{"names": None}]})
