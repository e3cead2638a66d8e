from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.research.law import LawPoint, read_points

HEADER = "corpus,success_rate,auroc,coverage,tasks"
ROWS: list[dict[str, Any]] = [
    {"corpus": "a", "success_rate": 0.2, "auroc": 0.9, "coverage": 0.6, "n_eff": 40.5, "tasks": 30},
    {
        "corpus": "b",
        "success_rate": 0.5,
        "auroc": 0.8,
        "coverage": 0.3,
        "n_eff": None,
        "tasks": None,
    },
]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "json"])
def test_every_format_gives_the_same_points(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"points.{ending}"
    frame = pd.DataFrame(ROWS).assign(other="x")
    if ending == "csv":
        frame.to_csv(path, index_label="index")
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=ending == "jsonl")
    assert read_points(path) == [LawPoint(**row) for row in ROWS]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("corpus,success_rate,auroc\na,.2,.9", "has no column 'coverage'"),
        (f"{HEADER}\na,.2,high,.5,", "row 1 (line 2), column 'auroc' is 'high'; give a number"),
        (f"{HEADER}\na,.2,.9,.5,\nb,20,.9,.5,", "row 2 (line 3): success_rate of corpus 'b' is 20"),
        (f"{HEADER}\n ,.2,.9,.5,", "a point of the law has no corpus"),
        (f"{HEADER}\na,.2,.9,.5,2.5", "column 'tasks' is 2.5; give a whole number"),
    ],
)
def test_a_table_that_is_wrong_is_a_sentence(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"{rows}\n", "utf-8")
    with pytest.raises(InputError) as error:
        read_points(path)
    assert words in str(error.value) and str(path) in str(error.value)
