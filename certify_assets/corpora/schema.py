"""Trajectories as a table (a pandas frame) and on disk (Parquet)."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator, Sequence
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
# a row group of the file: so many rows, or fewer where their texts are long, however it was read
_GROUP_ROWS = 4096
_GROUP_CHARS = 32 << 20
_AT_ONCE = 256
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
    groups = list(row_groups(run_chars(ordered))) or [(0, 0)]
    tables = (
        pa.Table.from_pandas(ordered.iloc[start:end], schema=ARROW_SCHEMA, preserve_index=False)
        for start, end in groups
    )
    _write_tables(sink, (table.replace_schema_metadata() for table in tables))
    return sink.getvalue()


def row_groups(chars: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Divide rows into row groups by the characters of their texts: (first, after the last)."""
    first = total = end = 0
    for end, size in enumerate(chars, 1):
        total += size
        if end - first == _GROUP_ROWS or total >= _GROUP_CHARS:
            yield first, end
            first, total = end, 0
    if end > first:
        yield first, end


def write_groups(sink: IO[bytes], groups: Iterable[Sequence[Trajectory]]) -> None:
    """Write row groups of sorted trajectories, with one group in memory at a time."""
    _write_tables(sink, map(_table, groups))


def _write_tables(sink: IO[bytes], tables: Iterable[pa.Table]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, ARROW_SCHEMA, compression="zstd", compression_level=9) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=_GROUP_ROWS)


def read_trajectories(path: Path, *, tasks: Container[str] | None = None) -> pd.DataFrame:
    """Read a table of trajectories, or the runs of some tasks alone."""
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
        for start in range(0, table.num_rows, _AT_ONCE):
            for row in table.slice(start, _AT_ONCE).to_pylist():
                steps = tuple(Step(**step) for step in row.pop("steps"))
                yield Trajectory(**row, steps=steps)


def read_columns(path: Path, columns: Sequence[str] = SMALL_COLUMNS) -> pd.DataFrame:
    """Read some columns of a corpus, without the texts of the steps."""
    empty = _schema(columns).empty_table()
    return _frame(pa.concat_tables([empty, *read_groups(path, columns)]))


def read_groups(path: Path, columns: Sequence[str] = COLUMNS) -> Iterator[pa.Table]:
    """Go through a file by its row groups, reading no other columns than those."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        # an iterator over all groups would hold on to every group that it has read
        for group in counted("going through the runs", range(file.num_row_groups)):
            for batch in file.iter_batches(
                batch_size=_GROUP_ROWS, row_groups=[group], columns=list(columns)
            ):
                yield pa.Table.from_batches([batch]).select(columns).cast(_schema(columns))


def run_chars(frame: pd.DataFrame) -> list[int]:
    """Return the characters of each run: instruction, actions and observations."""
    return [
        len(instruction) + sum(len(step["action"]) + len(step["observation"]) for step in steps)
        for instruction, steps in zip(frame["instruction"], frame["steps"], strict=True)
    ]


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
