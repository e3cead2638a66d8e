"""A trajectory in memory (`Trajectory`), as a table (a pandas frame) and on disk (Parquet)."""

from __future__ import annotations

import io
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from certify_assets.errors import InputError, quoted
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
_IDENTITIES = ("corpus", "task_id", "trajectory_id", "agent")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_ATTEMPT = 2**31 - 1
# a row group of the file: so many rows, or fewer where their texts are long, however it was read
_GROUP_ROWS = 4096
_GROUP_CHARS = 32 << 20
_AT_ONCE = 256
SMALL_COLUMNS: tuple[str, ...] = tuple(name for name in COLUMNS if name != "steps")


def _schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([ARROW_SCHEMA.field(name) for name in columns])


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 does not allow, by the replacement character."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an agent with its environment: what it did, and what it saw then."""

    action: str
    observation: str

    def __post_init__(self) -> None:
        if not type(self.action) is type(self.observation) is str:
            raise InputError(
                f"a step has the action {quoted(self.action)} and the observation "
                f"{quoted(self.observation)}; give texts, empty where there was none."
            )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt of one agent at one task."""

    corpus: str
    # the cluster: trajectories of a task are never treated as independent
    task_id: str
    # unique within the corpus
    trajectory_id: str
    agent: str
    # number among the agent's attempts at the task, from 0
    attempt: int
    instruction: str
    steps: tuple[Step, ...]
    # 1 = success, None = not labelled
    outcome: int | None
    # the file that it was read from, with its SHA-256 ("" where it was generated in place)
    source_file: str = ""
    source_sha256: str = ""

    def __post_init__(self) -> None:
        for name in (*_IDENTITIES, "instruction", "source_file", "source_sha256"):
            value = getattr(self, name)
            if not isinstance(value, str) or (name in _IDENTITIES and not value.strip()):
                raise self._error(name, "a text")
        if self.source_sha256 and not _SHA256.fullmatch(self.source_sha256):
            raise self._error("source_sha256", "64 hexadecimal digits")
        if type(self.attempt) is not int or not 0 <= self.attempt <= _MAX_ATTEMPT:
            raise self._error("attempt", "a whole number from 0")
        if isinstance(self.outcome, bool) or self.outcome not in (None, 0, 1):
            raise self._error("outcome", "1, 0 or nothing")

    def _error(self, name: str, wanted: str) -> InputError:
        return InputError(
            f"trajectory {self.trajectory_id!r} of task {self.task_id!r}: {name} is "
            f"{quoted(getattr(self, name))}; give {wanted}."
        )


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
    frame = table.select(small).to_pandas()
    if "outcome" in small:
        frame["outcome"] = pd.array(table.column("outcome").to_pylist(), dtype="Int8")
    if "steps" in table.column_names:
        steps = map(tuple, table.column("steps").to_pylist())
        frame["steps"] = pd.Series(steps, index=frame.index, dtype=object)
    return frame[table.column_names]


def _table(items: Sequence[Trajectory]) -> pa.Table:
    columns = {
        name: _array([getattr(item, name) for item in items], ARROW_SCHEMA.field(name).type)
        for name in SMALL_COLUMNS
    }
    steps = [step for item in items for step in item.steps]
    kind = ARROW_SCHEMA.field("steps").type
    texts = [
        _array([getattr(step, name) for step in steps], pa.string())
        for name in ("action", "observation")
    ]
    ends = pa.array(accumulate((len(item.steps) for item in items), initial=0), pa.int32())
    columns["steps"] = pa.ListArray.from_arrays(
        ends, pa.StructArray.from_arrays(texts, fields=list(kind.value_type)), kind
    )
    return pa.Table.from_arrays([columns[name] for name in COLUMNS], schema=ARROW_SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except UnicodeEncodeError:
        return pa.array([clean_text(value) for value in values], type=kind)
