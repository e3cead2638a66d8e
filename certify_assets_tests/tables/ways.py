"""Ways to write one table: in every kind of file, encoding and words that people use."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

Write = Callable[[Path], Any]


class Way(NamedTuple):
    """A file, how it is written, and what must be said to read it: nothing of most."""

    file: str
    write: Write
    # what it calls columns
    columns: Mapping[str, str] = MappingProxyType({})
    success: str = ""


def text(frame: pd.DataFrame, encoding: str = "utf-8", **how: Any) -> Write:
    return lambda path: path.write_bytes(frame.to_csv(index=False, **how).encode(encoding))


def book(**sheets: pd.DataFrame) -> Write:
    def write(path: Path) -> None:
        with pd.ExcelWriter(path) as made:
            for name, frame in sheets.items():
                frame.to_excel(made, sheet_name=name, index=False)

    return write


def file_of(frame: pd.DataFrame) -> Write:
    """Write a table in the kind of file that its ending says."""

    def write(path: Path) -> None:
        match path.suffix:
            case ".xlsx":
                book(Runs=frame)(path)
            case ".json" | ".jsonl":
                frame.to_json(path, orient="records", lines=path.suffix == ".jsonl")
            case ".arrow" | ".feather":
                frame.to_feather(path)
            case ".parquet" | ".pq":
                frame.to_parquet(path)
            case _:
                frame.to_csv(path, index=False)

    return write


def words(frame: pd.DataFrame, success: Any, failure: Any) -> pd.DataFrame:
    """Return a table with its outcomes in words."""
    return frame.assign(outcome=[success if right else failure for right in frame["outcome"]])


def ways(plain: pd.DataFrame, endings: str) -> Iterator[Way]:
    """Go through the ways to write a table with the columns task_id and outcome."""
    files = [f"a.{ending}" for ending in endings.split()]
    for separator in ",;\t|":
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            yield Way("a.csv", text(plain, encoding, sep=separator))
        yield Way("a.tsv", text(plain, sep=separator))
        yield Way("a.csv", text(plain, sep=separator, quoting=1, lineterminator="\r\n"))
    for pair in (
        "yes no", "Y N", "t f", "TRUE FALSE", "pass fail", "Passed Failed", "success failure",
        "resolved unresolved", "correct incorrect", "succeeded failed", "1.0 0.0",
    ):  # fmt: skip
        yield Way("a.csv", text(words(plain, *pair.split())))
    yield Way("a.csv", text(words(plain, " 1", "0 ")))
    for pair in ("good bad", "ok timeout", "passed timeout", "A B", "2 1", "2 0", "1 -1"):
        for file in ("a.csv", "a.xlsx"):
            success, failure = pair.split()
            yield Way(file, file_of(words(plain, success, failure)), success=success)
    yield Way("a.csv", text(plain[plain.columns[::-1]]))
    yield Way("a.csv", text(plain.assign(note="a;b|c\td, e", Score_of_another=7)))
    for file in files:
        for changed in (plain, words(plain, "Pass", "Fail"), plain.astype({"outcome": float})):
            yield Way(file, file_of(changed))
        for change in (
            str.upper,
            lambda name: name.replace("_", " ").title(),
            lambda name: f" {name.replace('_', '-')} ",
        ):
            yield Way(file, file_of(plain.rename(columns=change)))
        for columns in (
            {"task_id": "problem", "outcome": "solved"},
            {"task_id": "instance_id", "outcome": "resolved"},
            {"outcome": "label"},
        ):
            yield Way(file, file_of(plain.rename(columns=columns)), columns)
        # 1 says that a run failed
        failed = words(plain, 0, 1).rename(columns={"outcome": "failed"})
        yield Way(file, file_of(failed), {"outcome": "failed"}, success="0")
