"""Links of reviewers that a file keeps."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from certify_assets.cli.review_app import Links
from certify_assets.errors import InputError


def test_links_of_a_file_are_the_same_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    first = Links(["Ann"], file=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and first.lasting
    more = Links(["Bob", "Ann"], file=file)
    assert more.tokens["Ann"] == first.tokens["Ann"] != more.tokens["Bob"]
    assert Links([], file=file).tokens == more.tokens
    # whom the command does not name is kept in the file and not let in
    bob = Links(["Bob"], file=file)
    assert bob.reviewer(first.tokens["Ann"]) is None
    assert Links([], file=file).tokens == more.tokens


def test_a_folder_keeps_no_links(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file, so it cannot keep links"):
        Links([], file=tmp_path)


def test_without_a_reviewer_there_is_no_link(tmp_path: Path) -> None:
    for file in (None, tmp_path / "links.json"):
        with pytest.raises(InputError, match="no reviewer is named"):
            Links([], file=file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tokens": []}',
        '{"tokens": {"Ann": "short"}}',
        '{"tokens": {"Ann": 1}}',
        json.dumps({"tokens": {"Ann": "t" * 43, "Bob": "t" * 43}}),
    ],
)
def test_files_that_are_none_or_open_to_others_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "links.json"
    file.write_text(text, "utf-8")
    with pytest.raises(InputError, match="can be read by others"):
        Links([], file=file)
    file.chmod(0o600)
    with pytest.raises(InputError, match="is no file of review links"):
        Links([], file=file)
