"""Results of Inspect Scout as a table of scores, and a validation file for the runs to label."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.formats.files import SCAN, is_scan
from certify_assets.corpora.formats.records import Record
from certify_assets.errors import InputError
from certify_assets.tables.cells import array_of, number_of
from certify_assets.tables.writing import write_table_file

if TYPE_CHECKING:
    import pandas as pd

#: columns of every scan, by what they are called here
_RUN = {
    "trajectory_id": "transcript_id",
    "task_set": "transcript_task_set",
    "task": "transcript_task_id",
    "agent": "transcript_model",
    "transcript_success": "transcript_success",
}
#: what a table calls a run, and no scanner may
_NAMES = ("trajectory_id", "task_id", "agent", "transcript_success")
_OTHERS = ("input_type", "value", "value_type", "validation_target")
#: how Scout writes values into one column of texts
_WORDS = {"true": 1.0, "false": 0.0}


def read_scan(folder: Path) -> pd.DataFrame:
    """Return the results of a scan, one row for each transcript.

    Returns
    -------
    DataFrame
        Columns trajectory_id (of the transcript), task_id, agent, transcript_success (of the
        evaluation; empty if unknown), and for every scanner NAME with its value. Where the scan was
        validated, ``NAME_target`` is the value that people gave. Booleans are 1 and 0. A value that
        is a list or an object, and a scan that failed, is empty.

    Raises
    ------
    InputError
        If the folder holds no scan of whole transcripts, or pyarrow is missing.
    """
    import pandas as pd

    if not is_scan(folder):
        raise InputError(f"{folder} holds no {SCAN}. Name the folder of one Scout scan.")
    runs: dict[str, Record] = {}
    names: dict[str, None] = {}
    for path in sorted(folder.glob("*.parquet")):
        names[path.stem] = None
        for row in _rows(path):
            if row["input_type"] != "transcript":
                continue
            run = runs.setdefault(row["transcript_id"], _run(row))
            if path.stem in _NAMES:
                raise InputError(
                    f"{path}: a scanner is called as the column {path.stem}. Give it another name."
                )
            if path.stem in run:
                raise InputError(
                    f"{path}: transcript {row['transcript_id']!r} has two results. "
                    "Scan every transcript once."
                )
            run[path.stem] = _value(row["value"], row["value_type"])
            if (target := row["validation_target"]) is not None:
                names[f"{path.stem}_target"] = None
                run[f"{path.stem}_target"] = _target(target)
    if not runs:
        raise InputError(
            f"{folder} has no result of a whole transcript. Scan with messages='all', and wait "
            "until the scan is complete."
        )
    columns = [*_NAMES, *names]
    return pd.DataFrame(list(runs.values()), columns=columns, dtype=object)


def _rows(path: Path) -> list[Record]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            "pyarrow reads the results of Scout; pip install 'certify_assets[parquet]'."
        ) from None
    wanted = [*_RUN.values(), *_OTHERS]
    try:
        found: list[Record] = pq.read_table(path, columns=wanted).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{path} cannot be read ({said}). Scan again.") from None
    if found and (lacking := set(wanted) - found[0].keys()):
        raise InputError(f"{path} lacks the column {min(lacking)}. Scan with Scout 0.6 or later.")
    return found


def _run(row: Record) -> Record:
    found = {name: row[column] for name, column in _RUN.items()}
    # as the format `inspect` names tasks; transcripts of other sources may lack a part
    parts = [str(part) for part in (found.pop("task_set"), found.pop("task")) if part]
    if (success := found["transcript_success"]) is not None:
        found["transcript_success"] = _number(success)
    return {**found, "task_id": "/".join(parts) or found["trajectory_id"]}


def _number(value: Any) -> Any:
    """Return a value as a number; other values stay, and the table refuses them."""
    number = float(value) if isinstance(value, bool) else number_of(value)
    return value if number is None else number


def _value(value: Any, kind: str | None) -> Any:
    if value is None or kind in ("null", "array", "object", "resultset"):
        return None
    if kind == "boolean":
        return _WORDS.get(str(value).lower())
    return _number(value) if kind == "number" else value


def _target(text: str) -> Any:
    """Return a target, which Scout writes as JSON."""
    try:
        value = json.loads(text)
    except RecursionError:
        return None
    except ValueError:
        return text
    if isinstance(value, bool | int | float):
        return _number(value)
    return value if isinstance(value, str) else None


def write_validation(path: Path, transcripts: Iterable[str]) -> None:
    """Write a validation file of Scout whose targets are to be filled in.

    Parameters
    ----------
    path : Path
        Usually ``validation.csv``.
    transcripts : iterable of str
        Ids of the runs to label; for samples of Inspect these are their uuids.

    Notes
    -----
    Scout View edits it. Filled in, it is a label sheet: ``--columns id=id,outcome=target``.
    """
    ids = array_of(list(transcripts))
    write_table_file(path, {"id": ids, "target": array_of([""] * len(ids))})
