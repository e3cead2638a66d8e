"""Score tables as Parquet files, read a piece at a time as the whole is read in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from certify_assets.errors import ChangedInputError, InputError
from certify_assets.evaluation.score_reading import IssuedReading, ScoreReading, grades
from certify_assets.evaluation.score_table import (
    ColumnNames,
    ScoreTable,
    no_such_split,
    score_ends,
    score_table_pieces,
)
from certify_assets.evaluation.spill import Spill
from certify_assets.tables.table_files import PARQUET_ENDINGS
from certify_assets.tables.text_column import id_used_twice

#: from here on a table is read in pieces: below, all rows at once fit a small machine and are as
#: fast
MANY_ROWS = 20_000_000
_PIECE = 1 << 18
_ROWS_A_PART, _MOST_PARTS = 1 << 21, 128
#: ids that are suspected of being there twice and compared letter by letter
_SUSPECTS = 1000


def is_large(path: Path) -> bool:
    """Whether a table is Parquet with so many rows that it is read in pieces."""
    if path.suffix.lower() not in PARQUET_ENDINGS or not path.is_file():
        return False
    return _count_rows(path) >= MANY_ROWS


def _count_rows(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        # the reader says what is wrong with it
        return 0


@dataclass(frozen=True)
class ScorePieces:
    """A Parquet score table that is gone through several times and must stay as it is.

    Raises
    ------
    ChangedInputError
        At the end of a passage, where the file is another than it was at construction.
    """

    path: Path
    names: ColumnNames = field(default_factory=ColumnNames)
    split: str | None = None
    # whether a table without a column of splits is refused
    required: bool = False
    # every score is negated as it is read
    lower_is_better: bool = False
    success_label: str | None = None
    score_scale: str | None = None
    # of the certificate by which the scores are judged
    issued: IssuedReading | None = None
    size: int = _PIECE
    # the lowest and highest score of the passages so far
    ends: list[float] = field(init=False, default_factory=lambda: [1.0, 0.0])
    mark: tuple[int, ...] = field(init=False)
    parts: int = field(init=False)

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in PARQUET_ENDINGS:
            raise InputError(
                f"{self.path} is no Parquet file, and only those are read in pieces; write it as "
                "Parquet, or leave --stream out."
            )
        if not self.path.is_file():
            raise InputError(f"{self.path} does not exist or is not a file; check the path.")
        object.__setattr__(self, "mark", self._mark())
        parts = min(max(2, _count_rows(self.path) // _ROWS_A_PART), _MOST_PARTS)
        object.__setattr__(self, "parts", parts)

    def _mark(self) -> tuple[int, ...]:
        found = self.path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def require_unchanged(self) -> None:
        """Refuse a file that was written or replaced since it was opened."""
        if not self.path.is_file() or self._mark() != self.mark:
            raise ChangedInputError(
                f"{self.path} was changed while it was read, and nothing was written; run the "
                "command again when nothing writes it any more."
            )

    def chosen(self, ids: Spill | None = None) -> Iterator[ScoreTable]:
        """Go through the checked rows of the split; all rows where there is no such column.

        With a place for the trajectory ids, two rows of the file that share one are refused.
        """
        found: set[str] = set()
        some = False
        for table in self._tables():
            if ids is not None and table.trajectories is not None:
                _add_ids(ids, hashes(table.trajectories))
            if table.splits is None or self.split is None:
                some = True
                yield table.choose_split(self.split, required=self.required)
                continue
            keep = np.asarray(table.splits == self.split, dtype=bool)
            if keep.any():
                some = True
                yield table.take(keep)
            elif not some:
                found |= set(map(str, table.splits.tolist()))
        if not some:
            raise no_such_split(self.path, str(self.split), found)
        if ids is not None:
            self._refuse_repeated(ids)

    def _tables(self) -> Iterator[ScoreTable]:
        try:
            pieces = score_table_pieces(
                self.path, self.names, self.size, self.success_label, self.score_scale
            )
            for table in pieces:
                low, high = score_ends(table.scores)
                self.ends[:] = min(low, self.ends[0]), max(high, self.ends[1])
                yield table.negated() if self.lower_is_better else table
            if self.issued is not None:
                self.issued.require(self.path, self.reading.scale, self.reading.scale)
        except InputError:
            # half a file cannot be read either
            self.require_unchanged()
            raise
        self.require_unchanged()

    @property
    def reading(self) -> ScoreReading:
        """How the scores are read, as the passages so far show."""
        return ScoreReading(grades(*self.ends), self.lower_is_better)

    def require_alike(self, path: Path, scores: npt.NDArray[np.float64]) -> None:
        """Refuse further scores that are on another scale than the pieces were."""
        scale = grades(*score_ends(-scores if self.lower_is_better else scores))
        unit = self.ends[0] >= -1 and self.ends[1] <= 1
        mine = IssuedReading(str(self.path), self.reading, unit, self.score_scale, verb="has")
        mine.require(path, scale, scale)

    def _refuse_repeated(self, ids: Spill) -> None:
        # of ids that are there twice one is named, not always the one that the file repeats first
        suspects: list[int] = []
        for part in range(ids.parts):
            if (rows := ids.table(part)) is not None and len(suspects) < _SUSPECTS:
                ordered = np.sort(rows["id"].to_numpy())
                repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
                suspects.extend(repeated[: _SUSPECTS - len(suspects)].tolist())
        if not suspects:
            return
        first: dict[str, str] = {}
        for table in self._tables():
            assert table.trajectories is not None
            for row in np.flatnonzero(np.isin(hashes(table.trajectories), suspects)).tolist():
                label, name = table.trajectories[row], table.row_name(row)
                if label in first:
                    raise id_used_twice(self.path, name, self.names.trajectory, label, first[label])
                first[label] = name


def hashes(labels: npt.NDArray[np.object_]) -> npt.NDArray[np.int64]:
    """Return a hash a label: the same for the same text, in this process only."""
    return np.fromiter(map(hash, labels.tolist()), dtype=np.int64, count=labels.size)


def _add_ids(ids: Spill, found: npt.NDArray[np.int64]) -> None:
    import pyarrow as pa

    ids.add(pa.record_batch({"id": found}), found % ids.parts)
