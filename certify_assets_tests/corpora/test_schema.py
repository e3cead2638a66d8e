from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.schema import (
    ARROW_SCHEMA,
    COLUMNS,
    parquet_bytes,
    read_trajectories,
    to_frame,
)
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets_tests.corpora.builders import from_frame, trajectory


@pytest.fixture
def rows() -> list[Trajectory]:
    return [trajectory(number, outcome=None if number == 4 else number % 2) for number in range(7)]


def test_table_and_objects_hold_the_same(rows: list[Trajectory]) -> None:
    frame = to_frame(rows)
    assert tuple(frame.columns) == COLUMNS == tuple(ARROW_SCHEMA.names)
    assert from_frame(frame) == sorted(rows, key=lambda row: (row.task_id, row.trajectory_id))
    assert frame["outcome"].isna().sum() == 1


def test_the_same_rows_in_any_order_give_the_same_bytes(
    tmp_path: Path, rows: list[Trajectory]
) -> None:
    data = parquet_bytes(to_frame(rows))
    assert parquet_bytes(to_frame(rows).sample(frac=1.0, random_state=3)) == data
    (tmp_path / "a.parquet").write_bytes(data)
    pd.testing.assert_frame_equal(read_trajectories(tmp_path / "a.parquet"), to_frame(rows))


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    frame = to_frame([trajectory(instruction="lone \ud800", steps=(Step("\udfff", "é"),))])
    assert frame["instruction"][0] == "lone �"
    assert frame["steps"][0] == ({"action": "�", "observation": "é"},)
