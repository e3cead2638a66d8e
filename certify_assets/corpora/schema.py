"""Trajectories as a table (a pandas frame) and on disk (Parquet)."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from certify_assets.corpora.trajectory import Step, Trajectory, clean_text
from certify_assets.work import counted

if TYPE_CHECKING:
    import pandas as pd

ARROW_SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("trajectory_id", pa.string(), nullable=False),
        pa.field("agent", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("instruction", pa.string(), nullable=False),
        pa.field(
            "steps",
            pa.list_(
                pa.struct([pa.field("action", pa.string()), pa.field("observation", pa.string())])
            ),
            nullable=False,
        ),
        pa.field("outcome", pa.int8(), nullable=True),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("source_sha256", pa.string(), nullable=False),
    ]
)
COLUMNS: tuple[str, ...] = tuple(ARROW_SCHEMA.names)
#: rows of a row group of the file: all whose texts are in memory at once
GROUP_ROWS = 128
SMALL_COLUMNS: tuple[str, ...] = tuple(name for name in COLUMNS if name != "steps")


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


def to_frame(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """Turn trajectories into a table, sorted by task_id and trajectory_id."""
    order = sorted(
        trajectories, key=lambda item: (clean_text(item.task_id), clean_text(item.trajectory_id))
    )
    return _frame(_table(order))


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """Return a table as Parquet: the same rows in any order give the same bytes."""
    sink = io.BytesIO()
    ordered = frame.sort_values(["task_id", "trajectory_id"])
    _write_tables(
        sink,
        (
            pa.Table.from_pandas(
                ordered.iloc[start : start + GROUP_ROWS],
                schema=ARROW_SCHEMA,
                preserve_index=False,
            ).replace_schema_metadata()
            for start in range(0, max(1, len(ordered)), GROUP_ROWS)
        ),
    )
    return sink.getvalue()


def write_trajectories(sink: IO[bytes], runs: Iterable[Trajectory]) -> None:
    """Write sorted trajectories, with the texts of one row group in memory at a time."""
    rest = iter(runs)
    _write_tables(sink, map(_table, iter(lambda: list(islice(rest, GROUP_ROWS)), [])))


def _write_tables(sink: IO[bytes], tables: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, ARROW_SCHEMA, compression="zstd", compression_level=9) as writer:
        for table in tables:
            writer.write_table(table)


def read_trajectories(path: Path, *, tasks: Container[str] | None = None) -> pd.DataFrame:
    """Read a table of trajectories, or only the runs of some tasks."""
    import pandas as pd

    parts = [_frame(ARROW_SCHEMA.empty_table())]
    for table in read_groups(path):
        if tasks is not None:
            names = table.column("task_id").to_pylist()
            table = table.filter(pa.array([name in tasks for name in names], pa.bool_()))
        parts.append(_frame(table))
    return pd.concat(parts, ignore_index=True)


def read_runs(path: Path) -> Iterator[Trajectory]:
    """Read one trajectory after the other, in the order of the file."""
    for table in read_groups(path):
        for row in table.to_pylist():
            steps = tuple(Step(**step) for step in row.pop("steps"))
            yield Trajectory(**row, steps=steps)


def read_columns(path: Path, columns: Sequence[str] = SMALL_COLUMNS) -> pd.DataFrame:
    """Read some columns of a corpus, without the texts of the steps."""
    empty = _schema(columns).empty_table()
    return _frame(pa.concat_tables([empty, *read_groups(path, columns)]))


def read_groups(path: Path, columns: Sequence[str] = COLUMNS) -> Iterator[pa.Table]:
    """Iterate over the row groups of a file, reading only the given columns."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        # an iterator over all groups would hold on to every group that it has read
        for group in counted("going through the runs", range(file.num_row_groups)):
            table = file.read_row_group(group, columns=list(columns))
            yield table.select(columns).cast(_schema(columns))


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    small = [name for name in table.column_names if name != "steps"]
    frame = table.select(small).to_pandas(types_mapper={pa.int8(): pd.Int8Dtype()}.get)
    if "steps" in table.column_names:
        steps = map(tuple, table.column("steps").to_pylist())
        frame["steps"] = pd.Series(steps, index=frame.index, dtype=object)
    return frame[table.column_names]


def _table(items: Sequence[Trajectory]) -> pa.Table:
    return pa.Table.from_pylist(list(map(_row, items)), schema=ARROW_SCHEMA)


def _row(item: Trajectory) -> dict[str, Any]:
    values = {name: getattr(item, name) for name in SMALL_COLUMNS}
    row = {
        name: clean_text(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    steps = [(clean_text(step.action), clean_text(step.observation)) for step in item.steps]
    return {**row, "steps": [{"action": done, "observation": seen} for done, seen in steps]}
