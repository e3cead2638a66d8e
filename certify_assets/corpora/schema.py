"""What a trajectory is, in memory (`Trajectory`), as a table (a pandas frame) and on disk (Parquet)."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ARROW_SCHEMA",
    "COLUMNS",
    "Step",
    "Trajectory",
    "clean_text",
    "from_frame",
    "read_trajectories",
    "to_frame",
    "validate_frame",
    "write_trajectories",
]

ARROW_SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("trajectory_id", pa.string(), nullable=False),
        pa.field("agent", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("instruction", pa.string(), nullable=False),
        pa.field("steps", pa.list_(pa.struct([pa.field("action", pa.string()), pa.field("observation", pa.string())])), nullable=False),
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


def clean_text(text: str) -> str:
    """Replace lone surrogates (which JSON allows and UTF-8 does not) by the replacement character."""
    return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an agent with its environment: what it did, and an excerpt of what it saw in return."""

    action: str
    observation: str

    def __post_init__(self) -> None:
        for name, value in (("action", self.action), ("observation", self.observation)):
            if not isinstance(value, str):
                raise InputError(f"a step's {name} is {type(value).__name__}, not text; give text, empty where there was none.")


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt of one agent at one task.

    Parameters
    ----------
    corpus, task_id, trajectory_id, agent : str
        Not empty. `task_id` is the cluster: trajectories of a task are never told apart as independent. `trajectory_id` is
        unique within the corpus.
    attempt : int
        Number of this attempt among the agent's attempts at the task, from 0.
    instruction : str
        What the agent was asked to do.
    steps : tuple of Step
        In order.
    outcome : {0, 1} or None
        1 = success, None = not labelled.
    source_file, source_sha256 : str
        Name of the file the record was read from and the SHA-256 of its content ("" where it was generated in place).

    Raises
    ------
    InputError
        If a field has another type or value.
    """

    corpus: str
    task_id: str
    trajectory_id: str
    agent: str
    attempt: int
    instruction: str
    steps: tuple[Step, ...]
    outcome: int | None
    source_file: str = ""
    source_sha256: str = ""

    def __post_init__(self) -> None:
        where = f"trajectory {self.trajectory_id!r} of task {self.task_id!r}"
        for name in (*_IDENTITIES, "instruction", "source_file", "source_sha256"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InputError(f"{where}: {name} is {type(value).__name__}, not text; give text.")
            if name in _IDENTITIES and not value.strip():
                raise InputError(f"{where}: {name} is empty; give every trajectory its {name}.")
        if self.source_sha256 and not _SHA256.fullmatch(self.source_sha256):
            raise InputError(f"{where}: source_sha256 is not 64 hexadecimal digits; hash the source file again.")
        if isinstance(self.attempt, bool) or not isinstance(self.attempt, int) or not 0 <= self.attempt <= _MAX_ATTEMPT:
            raise InputError(f"{where}: attempt is {self.attempt!r}; number attempts with integers from 0.")
        if isinstance(self.outcome, bool) or self.outcome not in (None, 0, 1):
            raise InputError(f"{where}: outcome is {self.outcome!r}; give 1, 0 or nothing.")
        if not isinstance(self.steps, tuple) or not all(isinstance(step, Step) for step in self.steps):
            raise InputError(f"{where}: steps is not a tuple of Step; wrap each exchange in Step(action, observation).")


def to_frame(trajectories: Iterable[Trajectory]) -> pd.DataFrame:
    """Turn trajectories into a table.

    Returns
    -------
    pandas.DataFrame
        One row a trajectory with the columns `COLUMNS`; `steps` holds a tuple of {"action", "observation"} dicts, `outcome`
        is a nullable Int8. Rows are sorted by task_id, trajectory_id.
    """
    rows = [
        {name: getattr(item, name) for name in COLUMNS if name != "steps"}
        | {"steps": [{"action": step.action, "observation": step.observation} for step in item.steps]}
        for item in trajectories
    ]
    return _arrow_to_frame(_sorted(pa.Table.from_pylist([_encodable(row) for row in rows], schema=ARROW_SCHEMA)))


def from_frame(frame: pd.DataFrame) -> list[Trajectory]:
    """Turn a table of trajectories into objects, in the order of its rows.

    Raises
    ------
    InputError
        If a column is missing or a row is not a trajectory.
    """
    return [
        Trajectory(**(row | {"steps": tuple(Step(step["action"] or "", step["observation"] or "") for step in row["steps"])}))
        for row in _frame_to_arrow(frame).to_pylist()
    ]


def validate_frame(frame: pd.DataFrame) -> None:
    """Refuse a table that is not one of trajectories: columns, types, values, unique trajectory_id.

    Raises
    ------
    InputError
        With the first row at fault.
    """
    if repeated := frame["trajectory_id"][frame["trajectory_id"].duplicated()].tolist() if "trajectory_id" in frame else []:
        raise InputError(f"trajectory_id {repeated[0]!r} occurs more than once; give every trajectory its own id.")
    from_frame(frame)


def write_trajectories(path: Path, frame: pd.DataFrame) -> bytes:
    """Write a table of trajectories as Parquet (zstd), atomically: the same rows give the same bytes.

    Returns
    -------
    bytes
        What was written. Rows are sorted by task_id, trajectory_id whatever their order in `frame`.
    """
    import pyarrow.parquet as pq

    validate_frame(frame)
    sink = io.BytesIO()
    pq.write_table(_sorted(_frame_to_arrow(frame)), sink, compression="zstd", compression_level=9, row_group_size=4096)
    data = sink.getvalue()
    write_atomic(path, data)
    return data


def read_trajectories(path: Path) -> pd.DataFrame:
    """Read a table written by `write_trajectories`.

    Raises
    ------
    InputError
        If the file is missing, is not Parquet, or is not a table of trajectories.
    """
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InputError(f"{path} does not exist; import or generate the corpus first.")
    try:
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable Parquet file ({_first_line(error)}); import the corpus again.") from None
    if missing := [name for name in COLUMNS if name not in table.schema.names]:
        raise InputError(f"{path} lacks the columns {', '.join(missing)}; it is not a table of trajectories: import the corpus first.")
    try:
        return _arrow_to_frame(table.select(COLUMNS).cast(ARROW_SCHEMA))
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path} has columns of other types than a table of trajectories ({_first_line(error)}); import again.") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _encodable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with every text in UTF-8's reach."""
    clean: dict[str, Any] = {name: clean_text(value) if isinstance(value, str) else value for name, value in row.items()}
    clean["steps"] = [{name: clean_text(text or "") for name, text in step.items()} for step in row["steps"]]
    return clean


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([("task_id", "ascending"), ("trajectory_id", "ascending")])


def _arrow_to_frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    frame = table.drop_columns(["steps", "outcome"]).to_pandas()
    frame["steps"] = pd.Series([tuple(steps or ()) for steps in table.column("steps").to_pylist()], index=frame.index, dtype=object)
    frame["outcome"] = pd.array(table.column("outcome").to_pylist(), dtype="Int8")
    return frame[list(COLUMNS)]


def _frame_to_arrow(frame: pd.DataFrame) -> pa.Table:
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise InputError(f"the table lacks the columns {', '.join(missing)}; give a table of trajectories.")
    columns: list[pa.Array] = []
    for field in ARROW_SCHEMA:
        column = frame[field.name]
        values = [None if absent else value for value, absent in zip(column.tolist(), column.isna().tolist(), strict=True)]
        try:
            columns.append(pa.array(values, type=field.type))
        except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
            raise InputError(f"column {field.name} is not {field.type} throughout ({_first_line(error)}); correct its values.") from None
        if not field.nullable and columns[-1].null_count:
            row = columns[-1].is_null().to_pylist().index(True)
            raise InputError(f"column {field.name} is missing in row {row}; give every trajectory its {field.name}.")
    return pa.Table.from_arrays(columns, schema=ARROW_SCHEMA)
