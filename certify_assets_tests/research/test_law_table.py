import json
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.errors import InputError
from certify_assets.research.law import read_points

ROWS = [
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
        frame.to_csv(path, index=True, index_label="index")
    elif ending == "parquet":
        frame.to_parquet(path)
    elif ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
    else:
        path.write_text(json.dumps(ROWS), "utf-8")
    first, second = read_points(path)
    assert (first.corpus, first.success_rate, first.n_eff, first.tasks, first.index) == (
        "a",
        0.2,
        40.5,
        30,
        None,
    )
    assert (second.corpus, second.n_eff, second.tasks) == ("b", None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("corpus,success_rate,auroc\na,.2,.9\n", "has no column 'coverage'"),
        (
            "corpus,success_rate,auroc,coverage\na,.2,high,.5\n",
            "row 1 (line 2), column 'auroc' is 'high'; give a number",
        ),
        (
            "corpus,success_rate,auroc,coverage\na,.2,.9,.5\nb,20,.9,.5\n",
            "row 2 (line 3): success_rate of corpus 'b' is 20.0",
        ),
        ("corpus,success_rate,auroc,coverage\n ,.2,.9,.5\n", "column 'corpus' is ' '"),
        (
            "corpus,success_rate,auroc,coverage,tasks\na,.2,.9,.5,2.5\n",
            "column 'tasks' is 2.5; give a whole number",
        ),
        ("corpus,success_rate,auroc,coverage\na,.2,nan,.5\n", "auroc of corpus 'a' is nan"),
    ],
)
def test_a_table_that_is_wrong_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        read_points(path)
    assert words in str(error.value) and str(path) in str(error.value)
