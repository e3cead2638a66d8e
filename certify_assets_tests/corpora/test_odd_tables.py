"""One table of runs written in many ways: read right, or refused with what would read it right."""

import gzip
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.formats.importing import ImportedCorpus, import_corpus
from certify_assets.errors import InputError

TASKS = ["tür 1", "tür 1", "b-2", "c", "7", "7"]
OUTCOMES = [0, 1, 1, 0, 1, 0]
TEXTS = ["opened a; b", "clicked, then left", "typed 1,5", "a|b", "ended", "läuft"]
PLAIN = pd.DataFrame({"task_id": TASKS, "outcome": OUTCOMES, "text": TEXTS})

Write = Callable[[Path], Any]
#: name of the file, how it is written, whether options are needed to read it
Way = tuple[str, Write, bool]


def text(frame: pd.DataFrame, encoding: str = "utf-8", **how: Any) -> Write:
    return lambda path: path.write_bytes(frame.to_csv(index=False, **how).encode(encoding))


def lines(frame: pd.DataFrame) -> Write:
    return lambda path: frame.to_json(path, orient="records", lines=True)


def words(success: Any, failure: Any) -> pd.DataFrame:
    return PLAIN.assign(outcome=[success if outcome else failure for outcome in OUTCOMES])


def book(**sheets: pd.DataFrame) -> Write:
    def write(path: Path) -> None:
        with pd.ExcelWriter(path) as made:
            for name, frame in sheets.items():
                frame.to_excel(made, sheet_name=name, index=False)

    return write


def packed(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("runs.csv", PLAIN.to_csv(index=False, sep=";").encode("cp1252"))


def ways() -> Iterator[tuple[str, Way]]:
    separators = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
    encodings = {"utf8": "utf-8", "bom": "utf-8-sig", "utf16": "utf-16", "cp1252": "cp1252"}
    for name, separator in separators.items():
        for code, encoding in encodings.items():
            yield f"{name}-{code}", ("a.csv", text(PLAIN, encoding, sep=separator), False)
        yield f"{name}-tsv", ("a.tsv", text(PLAIN, sep=separator), False)
        how = {"sep": separator, "quoting": 1, "lineterminator": "\r\n"}
        yield f"{name}-quoted-crlf", ("a.csv", text(PLAIN, **how), False)
    for pair in (
        "yes no", "Y N", "TRUE FALSE", "pass fail", "Passed Failed", "success failure",
        "resolved unresolved", "correct incorrect", "1.0 0.0", "succeeded failed",
    ):  # fmt: skip
        yield f"word-{pair}", ("a.csv", text(words(*pair.split())), False)
    for pair in ("good bad", "ok failed", "passed timeout", "A B", "2 1", "2 0", "1 -1"):
        named = words(*pair.split())
        yield f"label-{pair}", ("a.csv", text(named), True)
        yield f"label-{pair}-xlsx", ("a.xlsx", book(Runs=named), True)
    for name, change in {
        "upper": str.upper,
        "spaces": lambda name: name.replace("_", " ").title(),
        "padded": lambda name: f" {name.replace('_', '-')} ",
    }.items():
        named = PLAIN.rename(columns=change)
        for ending, write in every(named):
            yield f"header-{name}-{ending}", (f"a.{ending}", write, False)
    for name, columns in {
        "problems": {"task_id": "problem", "outcome": "solved", "text": "transcript"},
        "instances": {"task_id": "instance_id", "outcome": "resolved"},
        "labels": {"outcome": "label"},
    }.items():
        for ending, write in every(PLAIN.rename(columns=columns)):
            yield f"names-{name}-{ending}", (f"a.{ending}", write, True)
    for ending, write in every(words(0, 1).rename(columns={"outcome": "failed"})):
        if ending != "jsonl":
            yield f"contrary-{ending}", (f"a.{ending}", write, True)
    yield "order", ("a.csv", text(PLAIN[PLAIN.columns[::-1]]), False)
    yield "others", ("a.csv", text(PLAIN.assign(note="a;b|c\td, e", Outcome_of_another=7)), False)
    for name, pair in {"true": (True, False), "words": ("pass", "fail")}.items():
        yield f"json-{name}", ("a.jsonl", lines(words(*pair)), False)
        yield f"parquet-{name}", ("a.parquet", words(*pair).to_parquet, False)
    about = pd.DataFrame({"about": ["runs of March"]})
    yield "xlsx-sheets", ("a.xlsx", book(About=about, Runs=words("yes", "no")), False)
    semicolons = PLAIN.to_csv(index=False, sep=";").encode()
    yield "gz", ("a.csv.gz", lambda path: path.write_bytes(gzip.compress(semicolons)), False)
    yield "zip", ("a.zip", packed, False)


def every(frame: pd.DataFrame) -> Iterator[tuple[str, Write]]:
    """A table in every kind of file."""
    yield "csv", text(frame)
    yield "jsonl", lines(frame)
    yield "parquet", frame.to_parquet
    yield "xlsx", book(Runs=frame)


WAYS = dict(ways())


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


@pytest.mark.parametrize("name", WAYS)
def test_a_table_of_runs_is_read_right_or_refused_with_a_remedy(name: str, tmp_path: Path) -> None:
    file, write, asked = WAYS[name]
    write(tmp_path / file)
    options: dict[str, Any] = {}
    if name.startswith("contrary"):
        options = {"columns": {"outcome": "failed"}}
        with pytest.raises(
            InputError, match=r"name that means a failure.* '?0'?, '?1'? .*success=VALUE"
        ):
            read(tmp_path / file, **options)
        options["success"] = 0
    elif asked:
        with pytest.raises(InputError) as refused:
            read(tmp_path / file)
        options = remedy(str(refused.value))
        assert options
    found = read(tmp_path / file, **options)
    observed = [steps[0]["observation"] for steps in found.frame["steps"]]
    rows = sorted(zip(found.frame["task_id"], found.frame["outcome"], observed, strict=True))
    assert rows == sorted(zip(TASKS, OUTCOMES, TEXTS, strict=True)) and found.dropped == {}


def test_what_was_understood_of_tables_is_said_in_one_line(tmp_path: Path) -> None:
    odd = words("pass", "fail").rename(columns={"task_id": "Task ID"})
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
    text(words("good", "bad"))(tmp_path / "a.csv")
    with pytest.raises(InputError, match="has no 'god', which --option success names"):
        read(tmp_path / "a.csv", success="god")
    # of new runs all may have failed, and one file of several as well
    assert set(read(tmp_path, success="god", keep_unlabelled=True).frame["outcome"]) == {0}
    text(words("bad", "bad").assign(task_id="z"))(tmp_path / "b.csv")
    assert len(read(tmp_path, success="good").frame) == 12
    text(words("passed", "pass"))(tmp_path / "a.csv")
    with pytest.raises(InputError, match="'pass' means a success as well"):
        read(tmp_path / "a.csv", success="passed")
