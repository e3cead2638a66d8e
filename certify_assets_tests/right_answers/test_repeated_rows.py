"""A run is there twice only where nothing in its row says that it is another one."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets import certify
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


def plain() -> pd.DataFrame:
    """Return a table without trajectory_id, in which eleven rows are there twice."""
    rows = score_rows(tasks=60, attempts=5)[["task_id", "score", "outcome"]]
    return pd.concat([rows, rows.head(11)], ignore_index=True)


def codes(document: dict[str, Any]) -> list[str]:
    return [item["code"] for item in document["findings"]]


CHANGES = {
    "ids under another name": (lambda rows: rows.assign(Run=[f"r{n}" for n in rows.index]), False),
    "ids in two columns": (
        lambda rows: rows.assign(
            night=[n // 300 for n in rows.index], host=rows.groupby(["task_id"]).cumcount()
        ),
        False,
    ),
    "ratings": (lambda rows: rows.assign(score=rows["score"].round().clip(-3, 3)), False),
    "nothing": (lambda rows: rows, True),
    "a number a row": (lambda rows: rows.reset_index(names="Unnamed: 0"), True),
    "a column of one value": (lambda rows: rows.assign(model="m"), True),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_only_rows_that_nothing_tells_apart_are_repeats(
    call: Call, tmp_path: Path, change: str, ending: str
) -> None:
    edit, repeated = CHANGES[change]
    rows, path = edit(plain()), tmp_path / f"s.{ending}"
    rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path)
    document = call(f"certificate {path} --side reject --json --out {tmp_path}/c.json").json
    assert ("duplicate_rows" in codes(document)) == repeated
    assert call(f"verify {tmp_path}/c.json {path}").code == 0
    found = certify(rows, side="reject")
    assert found.to_dict()["findings"] == document["findings"]


def test_coarse_scores_hide_no_copies_of_fine_ones() -> None:
    rows = plain()
    found = certify(rows["score"], rows["outcome"], rows["task_id"], side="reject")
    assert "11 of 311 rows repeat" in str(found.findings)
    agents = ["one"] * 300 + ["two"] * 11
    other = certify(rows["score"], rows["outcome"], rows["task_id"], side="reject", agents=agents)
    assert "duplicate_rows" not in codes(other.to_dict())
