"""The Parquet file of a corpus, one row group at a time: what lets a corpus be larger than memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from certify_assets.corpora.rendering import Outline, Renderer
from certify_assets.corpora.schema import (
    ARROW_SCHEMA,
    COLUMNS,
    Trajectory,
    read_groups,
    text_array,
    write_tables,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SMALL_COLUMNS", "outlines", "read_columns", "write_groups"]

SMALL_COLUMNS: tuple[str, ...] = tuple(name for name in COLUMNS if name != "steps")

_AT_ONCE = 256


def write_groups(sink: IO[bytes], groups: Iterable[Sequence[Trajectory]]) -> None:
    """Write trajectories as `schema.write_trajectories` does, one group in memory at a time.

    Parameters
    ----------
    sink : binary stream
    groups : iterable of sequences of Trajectory
        The row groups of the file, as `schema.row_groups` divides it, in the order of task_id and trajectory_id; no id may occur twice.
    """
    write_tables(sink, map(_table, groups))


def read_columns(path: Path, columns: Sequence[str] = SMALL_COLUMNS) -> pd.DataFrame:
    """Read some columns of a corpus, without the texts of the steps.

    Raises
    ------
    InputError
        If the file is missing or is not a table of trajectories.
    """
    import pandas as pd

    tables = list(read_groups(path, columns))
    table = pa.concat_tables(
        [pa.schema([ARROW_SCHEMA.field(name) for name in columns]).empty_table(), *tables]
    )
    frame = table.to_pandas()
    if "outcome" in columns:
        frame["outcome"] = pd.array(table.column("outcome").to_pylist(), dtype="Int8")
    return frame


def outlines(path: Path, renderer: Renderer | None = None) -> list[Outline]:
    """Render every run of a corpus, in the order of the file, and keep of each what `Outline` holds."""
    renderer = renderer or Renderer()
    return [renderer.render(instruction, steps).outline() for instruction, steps in _texts(path)]


def _texts(path: Path) -> Iterator[tuple[str, list[dict[str, str]]]]:
    for table in read_groups(path, ("instruction", "steps")):
        for start in range(0, table.num_rows, _AT_ONCE):
            part = table.slice(start, _AT_ONCE)
            yield from zip(
                part.column("instruction").to_pylist(),
                part.column("steps").to_pylist(),
                strict=True,
            )


def _table(items: Sequence[Trajectory]) -> pa.Table:
    columns = {
        name: text_array([getattr(item, name) for item in items], ARROW_SCHEMA.field(name).type)
        for name in SMALL_COLUMNS
    }
    steps = [step for item in items for step in item.steps]
    kind = ARROW_SCHEMA.field("steps").type
    texts = [
        text_array([getattr(step, name) for step in steps], pa.string())
        for name in ("action", "observation")
    ]
    ends = pa.array(accumulate((len(item.steps) for item in items), initial=0), pa.int32())
    columns["steps"] = pa.ListArray.from_arrays(
        ends, pa.StructArray.from_arrays(texts, fields=list(kind.value_type)), kind
    )
    return pa.Table.from_arrays([columns[name] for name in COLUMNS], schema=ARROW_SCHEMA)
