"""A batch is drawn once, whatever its table looks like."""

from pathlib import Path

import pandas as pd
import pytest

from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call

EDITS = {
    "a column more": lambda rows: rows.assign(note="read again"),
    "rows in another order": lambda rows: rows.iloc[::-1],
    "nine digits": lambda rows: rows.assign(score=rows["score"].map("{:.9g}".format)),
    "without outcomes": lambda rows: rows.drop(columns="outcome"),
}


@pytest.fixture
def draw(call: Call, tmp_path: Path) -> Call:
    score_rows(tasks=80, seed=0).to_csv(tmp_path / "cal.csv", index=False)
    score_rows(tasks=80, seed=1).to_csv(tmp_path / "batch.csv", index=False)
    asked = f"certificate {tmp_path}/cal.csv --side reject --out {tmp_path}/c.json"
    assert call(asked).code == 0
    return lambda name, seed: call(
        f"batch draw {tmp_path}/c.json {tmp_path}/{name} --seed {seed} --out {tmp_path}/draw.csv"
    )


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("name", ["batch.csv", "copy.csv"])
def test_the_same_runs_are_not_drawn_again(
    draw: Call, tmp_path: Path, edit: str, name: str
) -> None:
    assert draw("batch.csv", 11).code == 0
    rows = pd.read_csv(tmp_path / "batch.csv")
    EDITS[edit](rows).to_csv(tmp_path / name, index=False)
    again = draw(name, 12)
    assert again.code == 2 and "was drawn with seed 11 at" in again.err
    assert ("has the runs of batch.csv, which" in again.err) == (name == "copy.csv")
    if edit != "nine digits":
        assert draw(name, 11).code == 0


def test_a_table_in_between_is_no_second_chance(draw: Call, tmp_path: Path) -> None:
    first = (tmp_path / "batch.csv").read_bytes()
    assert draw("batch.csv", 11).code == 0
    score_rows(tasks=80, seed=3).to_csv(tmp_path / "batch.csv", index=False)
    assert draw("batch.csv", 12).code == 0
    (tmp_path / "batch.csv").write_bytes(first)
    assert draw("batch.csv", 12).code == 2 and draw("batch.csv", 11).code == 0
    (tmp_path / "batch.csv.draw.json").write_text("[]", "utf-8")
    assert draw("batch.csv", 12).code == 2
