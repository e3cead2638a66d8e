"""One table of runs written in many ways: read right, or refused with what would read it right."""

import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.formats.importing import ImportedCorpus, import_corpus
from certify_assets.errors import InputError
from certify_assets.tables.outcomes import means_failure
from certify_assets_tests.tables.ways import Way, book, file_of, text, ways, words

TASKS = ["tür 1", "tür 1", "b-2", "c", "7", "7"]
OUTCOMES = [0, 1, 1, 0, 1, 0]
TEXTS = ["opened a; b", "clicked, then left", "typed 1,5", "a|b", "ended", "läuft"]
PLAIN = pd.DataFrame({"task_id": TASKS, "outcome": OUTCOMES, "text": TEXTS})


def packed(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("runs.csv", PLAIN.to_csv(index=False, sep=";").encode("cp1252"))


def compressed(path: Path) -> None:
    path.write_bytes(gzip.compress(PLAIN.to_csv(index=False, sep=";").encode()))


WAYS = [
    *ways(PLAIN, "csv jsonl parquet xlsx"),
    Way("a.jsonl", file_of(words(PLAIN, True, False))),
    Way("a.parquet", file_of(words(PLAIN, True, False))),
    Way("a.xlsx", book(About=pd.DataFrame({"about": ["runs of March"]}), Runs=PLAIN)),
    Way("a.csv.gz", compressed),
    Way("a.zip", packed),
]


def read(path: Path, **options: Any) -> ImportedCorpus:
    return import_corpus(path, name="c", format="table" if options else "auto", options=options)


def remedy(sentence: str) -> dict[str, Any]:
    """Return the options that a refusal names, a label being the success of the table."""
    found: dict[str, Any] = {}
    if columns := re.search(r"--option 'columns=(\{.*?\})'", sentence):
        found["columns"] = json.loads(columns[1])
    if "--option success=VALUE" in sentence:
        named = sentence.partition("among")[2]
        found["success"] = next(word for word in ("good", "ok", "passed", "A") if word in named)
    if scale := re.search(
        r"go from \S+ to (\d)\. Say where success begins with --option", sentence
    ):
        found["threshold"] = scale[1]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_table_of_runs_is_read_right_or_refused_with_a_remedy(way: Way, tmp_path: Path) -> None:
    way.write(path := tmp_path / way.file)
    options: dict[str, Any] = {}
    if means_failure(way.columns.get("outcome", "")):
        options = {"columns": dict(way.columns)}
        with pytest.raises(InputError, match=r"name that means a failure.* .*success=VALUE"):
            read(path, **options)
        options["success"] = way.success
    elif way.columns or way.success:
        with pytest.raises(InputError) as refused:
            read(path)
        options = remedy(str(refused.value))
        assert options
    found = read(path, **options)
    observed = [steps[0]["observation"] for steps in found.frame["steps"]]
    rows = sorted(zip(found.frame["task_id"], found.frame["outcome"], observed, strict=True))
    assert rows == sorted(zip(TASKS, OUTCOMES, TEXTS, strict=True)) and found.dropped == {}


def test_what_was_understood_of_tables_is_said_in_one_line(tmp_path: Path) -> None:
    odd = words(PLAIN, "pass", "fail").rename(columns={"task_id": "Task ID"})
    for name in ("a.csv", "b.csv"):
        text(odd.assign(text=f"{name} " + odd["text"]), "cp1252", sep=";")(tmp_path / name)
    text(PLAIN)(tmp_path / "c.csv")
    assert read(tmp_path).read_as == (
        f"{tmp_path.name}/a.csv and 1 more read as: Windows-1252 text; semicolons between fields; "
        "column 'Task ID' as task_id",
        f"{tmp_path.name}/a.csv and 1 more read as: outcome: 'pass' as 1 and 'fail' as 0",
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
