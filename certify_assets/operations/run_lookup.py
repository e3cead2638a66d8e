"""Single runs of batches, found without reading a batch for each."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import COLUMNS, Step, Trajectory
from certify_assets.errors import InputError
from certify_assets.operations.layout import batch_key, require_as_decided
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RunLookup", "stamp"]

_GROUPS_KEPT = 4


def stamp(store: Store, key: str) -> tuple[int, int]:
    """Return size and time of what is stored under a key, which change when it does; zeros where nothing is, or the root is remote."""
    if not store.is_local or not store.exists(key):
        return (0, 0)
    found = store.local_path(key).stat()
    return (found.st_size, found.st_mtime_ns)


class RunLookup:
    """Runs of the batches of a corpus by their ids.

    Parameters
    ----------
    store : Store
    corpus : str

    Notes
    -----
    Of a batch the column of ids is read once and kept; of its texts one row group at a time, of which the last few are kept. Rows lie
    sorted by task, so the attempts of a task are mostly in one group. A batch that is written again is read again. Not for several
    threads at once.
    """

    def __init__(self, store: Store, corpus: str) -> None:
        self._store = store
        self._corpus = corpus
        self._places: dict[str, tuple[tuple[int, int], dict[str, tuple[int, int]]]] = {}
        self._groups: OrderedDict[tuple[str, tuple[int, int], int], pa.Table] = OrderedDict()

    def find(self, batch: str, trajectory_id: str) -> Trajectory:
        """Return a run.

        Raises
        ------
        InputError
            If the batch does not hold it, or cannot be read.
        IntegrityError
            If the runs are not those that were decided.
        """
        key = batch_key(self._corpus, batch, "runs.parquet")
        now = stamp(self._store, key)
        with self._store.as_file(key) as path:
            if batch not in self._places or self._places[batch][0] != now:
                require_as_decided(Corpus(self._store, self._corpus), batch, "runs")
                self._places[batch] = (now, _places(path))
            place = self._places[batch][1].get(trajectory_id)
            if place is None:
                raise InputError(
                    f"{path} has no run {trajectory_id!r}, which its decisions name; import the batch again."
                )
            group, row = place
            return _trajectory(self._group(path, (batch, now, group)).slice(row, 1))

    def _group(self, path: Path, name: tuple[str, tuple[int, int], int]) -> pa.Table:
        if name not in self._groups:
            self._groups[name] = _read(path, name[2], COLUMNS)
            if len(self._groups) > _GROUPS_KEPT:
                self._groups.popitem(last=False)
        self._groups.move_to_end(name)
        return self._groups[name]


def _places(path: Path) -> dict[str, tuple[int, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            groups = file.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} is not a readable Parquet file ({type(error).__name__}); import the batch again."
        ) from None
    found: dict[str, tuple[int, int]] = {}
    for group in range(groups):
        names = _read(path, group, ("trajectory_id",)).column("trajectory_id").to_pylist()
        found |= {name: (group, row) for row, name in enumerate(names)}
    return found


def _read(path: Path, group: int, columns: tuple[str, ...]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return file.read_row_group(group, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} is not a table of trajectories ({type(error).__name__}); import the batch again."
        ) from None


def _trajectory(table: pa.Table) -> Trajectory:
    row = table.to_pylist()[0]
    steps = tuple(
        Step(step["action"] or "", step["observation"] or "") for step in row["steps"] or ()
    )
    return Trajectory(**{name: row[name] for name in COLUMNS if name != "steps"}, steps=steps)
