"""Files as this package reads and writes them: strictly, whole or not at all."""

import os
from pathlib import Path

import pytest

from certify_assets.errors import InputError
from certify_assets.files import parse_json, parse_yaml, read_json, write_atomic
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


@pytest.mark.parametrize("value", UNREADABLE_YAML)
def test_yaml_whose_value_is_not_of_its_type_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2: |^a value"):
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
