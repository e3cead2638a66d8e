"""What was understood of odd tables of runs is said, or refused with a remedy."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.formats.importing import ImportedCorpus, import_corpus
from certify_assets.errors import InputError
from certify_assets_tests.tables.ways import book, text, words

PLAIN = pd.DataFrame(
    {
        "task_id": ["tür 1", "tür 1", "b-2", "c", "7", "7"],
        "outcome": [0, 1, 1, 0, 1, 0],
        "text": ["opened a; b", "clicked, then left", "typed 1,5", "a|b", "ended", "läuft"],
    }
)


def read(path: Path, **options: Any) -> ImportedCorpus:
    return import_corpus(path, name="c", format="table" if options else "auto", options=options)


def test_what_was_understood_of_tables_is_said_in_one_line(tmp_path: Path) -> None:
    odd = words(PLAIN, "pass", "fail").rename(columns={"task_id": "Task ID"})
    for name in ("a.csv", "b.csv"):
        text(odd.assign(text=f"{name} " + odd["text"]), sep=";")(tmp_path / name)
    text(PLAIN)(tmp_path / "c.csv")
    assert read(tmp_path).read_as == (
        f"{tmp_path.name}/a.csv and 1 more read as: semicolons between fields; column "
        "'Task ID' as task_id",
        f"{tmp_path.name}/a.csv and 1 more read as: outcome counts 'pass' as 1 and 'fail' as 0",
    )


def test_a_text_that_is_utf8_but_for_one_row_loses_that_row(tmp_path: Path) -> None:
    rows = PLAIN.to_csv(index=False).encode().splitlines()
    (tmp_path / "a.csv").write_bytes(b"\n".join([*rows, b"d,1,\xe9t\xe9"]))
    found = read(tmp_path / "a.csv")
    assert found.dropped == {"unreadable_record": 1} and "tür 1" in set(found.frame["task_id"])


def test_a_label_that_no_run_has_is_refused(tmp_path: Path) -> None:
    text(words(PLAIN, "good", "bad"))(tmp_path / "a.csv")
    with pytest.raises(InputError, match="has no 'god', which --option success names"):
        read(tmp_path / "a.csv", success="god")
    # of new runs all may have failed, and one file of several as well
    assert set(read(tmp_path, success="god", keep_unlabelled=True).frame["outcome"]) == {0}
    text(words(PLAIN, "bad", "bad").assign(task_id="z"))(tmp_path / "b.csv")
    assert len(read(tmp_path, success="good").frame) == 12
    text(words(PLAIN, "passed", "pass"))(tmp_path / "a.csv")
    with pytest.raises(InputError, match="'pass' means a success as well"):
        read(tmp_path / "a.csv", success="passed")


def test_a_column_without_a_name_is_no_field(tmp_path: Path) -> None:
    PLAIN.to_csv(tmp_path / "a.csv")
    found = read(tmp_path / "a.csv").frame
    assert len(found) == len(PLAIN) and set(found["agent"]) == {"unknown"}


def test_two_columns_for_one_field_are_refused(tmp_path: Path) -> None:
    text(PLAIN.assign(Outcome=1))(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"2 columns for outcome: .outcome., .Outcome.\. Keep one"):
        read(tmp_path / "a.csv")


def test_dates_of_a_workbook_are_no_names(tmp_path: Path) -> None:
    book(Runs=PLAIN.assign(task_id=pd.Timestamp("2026-03-01")))(tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"row 2 .*its task_id is a date; give it as text"):
        read(tmp_path / "a.xlsx")
