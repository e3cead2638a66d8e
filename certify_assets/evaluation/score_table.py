"""Score tables, read and checked; what is refused is named with file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.score_reading import (
    PERCENT,
    ColumnNames,
    ScoreReading,
    grades,
    parse_columns,
    written_columns,
)
from certify_assets.tables.cells import shown
from certify_assets.tables.columns import Columns, Rows, TableError, likely_column, matched, rows_of
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table_files import arrow_columns, read_columns, read_rows
from certify_assets.tables.text_column import TextColumn
from certify_assets.work import WorkStage, under_way

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from certify_assets.certificates.inputs import ScoreRange

_PERCENT = 100
# task, score and outcome
_LEAST_COLUMNS = 3
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
#: columns of a frame by the fields of a score table
_FRAME_NAMES = {
    "scores": "score",
    "outcomes": "outcome",
    "tasks": "task_id",
    "trajectories": "trajectory_id",
    "agents": "agent",
    "splits": "split",
}


@dataclass(frozen=True)
class ScoreTable:
    """A validated score table; a column that the file lacks is None."""

    path: Path
    # NaN where unscored; never infinite
    scores: npt.NDArray[np.float64]
    # 0 or 1, −1 where missing
    outcomes: npt.NDArray[np.int8] | None
    tasks: npt.NDArray[np.object_]
    trajectories: npt.NDArray[np.object_] | None = None
    agents: npt.NDArray[np.object_] | None = None
    splits: npt.NDArray[np.object_] | None = None
    # as `Rows` has them
    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lines: npt.NDArray[np.int64] | None = None
    # what was understood that is not as a score table has it
    read_as: tuple[str, ...] = ()
    # … of these, of how the scores are written
    scores_as: tuple[str, ...] = ()
    # all that the file has, as it calls them
    found: tuple[str, ...] = ()
    # how the scores are read, for the certificate
    reading: ScoreReading = field(default_factory=ScoreReading)
    # the scale of the scores as they are written, where it may be of grades or percentages
    written: str = ""

    def __len__(self) -> int:
        return int(self.scores.size)

    @property
    def score_range(self) -> ScoreRange | None:
        """The range of its scores, None without any."""
        from certify_assets.certificates.inputs import score_range

        scored = np.sort(self.scores[np.isfinite(self.scores)])
        return score_range(scored) if scored.size else None

    def choose_split(self, wanted: str | None, *more: str, required: bool = False) -> ScoreTable:
        """Return the rows of one split or more; all rows where there is none, or none is wanted."""
        if required and wanted is not None and self.splits is None:
            raise InputError(
                f"{self.path} has no split column to choose split={wanted!r} by; add one, or "
                "leave --split out."
            )
        if self.splits is None or wanted is None:
            return self
        keep = np.logical_or.reduce([self.splits == name for name in (wanted, *more)]).astype(bool)
        if not keep.any():
            found = sorted({str(name) for name in self.splits})
            raise InputError(
                f"{self.path} has no row with split={wanted!r}; splits found: {', '.join(found)}. "
                "Give a table that has it or leave the column out."
            )
        return self.take(keep)

    def take(self, keep: npt.NDArray[np.bool_ | np.int64]) -> ScoreTable:
        """Return the rows where `keep` is true, or those at its places."""
        columns = {name: getattr(self, name) for name in (*_FRAME_NAMES, "rows", "lines")}
        return replace(
            self, **{name: value[keep] for name, value in columns.items() if value is not None}
        )

    def on_scale(self, scale: str) -> ScoreTable:
        """Return the table with scores that are said to be of a scale."""
        return replace(self, reading=replace(self.reading, scale=scale))

    def negated(self) -> ScoreTable:
        """Return the rows with scores of which lower ones were better."""
        return replace(
            self, scores=-self.scores, reading=replace(self.reading, lower_is_better=True)
        )

    def labelled(self) -> ScoreTable:
        """Return the table with an outcome in every row; refuse one that lacks any.

        Rows without an outcome are left out where the settings say so.
        """
        if self.outcomes is None:
            raise TableError(
                [
                    f"{self.path} has no outcome column"
                    + (f"; its columns are {_listed(self.found)}" if self.found else "")
                    + ". Name the one with 0 and 1 with --columns outcome=NAME."
                ],
                _likely("outcome", self.found, ()),
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if not missing.size:
            return self
        rows = f"{missing.size:,} row{'s' * (missing.size > 1)}"
        if missing.size == len(self):
            raise InputError(f"{self.path} has no outcome in any row. Label its runs first.")
        if not self.reading.settings.unlabelled:
            raise TableError(
                [
                    f"{self.path}, {self.row_name(int(missing[0]))} has no outcome ({rows} in "
                    "all). Label each, or leave these rows out with --set unlabelled=drop."
                ],
                {"unlabelled": "drop"},
            )
        kept = self.take(self.outcomes >= 0)
        return replace(kept, read_as=(*self.read_as, f"{rows} without an outcome left out"))

    @property
    def labels(self) -> npt.NDArray[np.int8]:
        """The outcomes of a table that has them all."""
        outcomes = self.labelled().outcomes
        assert outcomes is not None
        return outcomes

    def row_name(self, index: int) -> str:
        """Name a row as a reader finds it in the file."""
        return Rows(self.rows, self.lines).name(index)

    def file_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return every column of the file in its order, and scores that were read as others."""
        names = [name for name in self.found if name]
        _, columns, rows = read_columns(self.path, set(names), set(names))
        places = np.searchsorted(rows.numbers, self.rows)
        found = {name: rows_of(columns[name])[places] for name in names}
        if self.reading.lower_is_better or self.reading.scale == PERCENT:
            return {**found, "score_used": self.scores}
        column = ColumnNames(**parse_columns(self.reading.columns)).score
        return {**found, matched(names, {column})[column]: self.scores}

    @property
    def naming_columns(self) -> set[str]:
        """The columns of the file that name tasks, runs, agents and splits."""
        names = ColumnNames(**parse_columns(self.reading.columns))
        wanted = {names.task, names.id, names.agent, names.split}
        return set(matched([name for name in self.found if name], wanted).values())

    @property
    def alone(self) -> bool:
        """Whether the task of every row is the id of its run."""
        return self.trajectories is not None and bool(np.all(self.trajectories == self.tasks))

    @cached_property
    def named(self) -> bool:
        """Whether the columns of the file tell every row from the others."""
        return self.tells_rows(self.file_columns)

    def tells_rows(self, columns: Callable[[], Mapping[str, Iterable[Any]]]) -> bool:
        """Whether ids, or all columns together, tell rows apart that are alike otherwise."""
        from certify_assets.certificates.inputs import task_codes

        if self.trajectories is not None:
            return True
        codes = task_codes(self.tasks)[1]
        order = np.lexsort((self.scores, codes))
        alike = (np.diff(self.scores[order]) == 0) & (np.diff(codes[order]) == 0)
        return len(self.found) > _LEAST_COLUMNS and bool(alike.any()) and _rows_differ(columns())

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table under the platform's own column names."""
        columns = {name: getattr(self, field) for field, name in _FRAME_NAMES.items()}
        return {name: value for name, value in columns.items() if value is not None}

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        return pd.DataFrame(self.columns())


def _rows_differ(columns: Mapping[str, Iterable[Any]]) -> bool:
    """Whether no two rows of a table are equal; a column that numbers its rows does not count."""
    texts = [list(map(str, values)) for values in columns.values()]
    numbers = [[str(place) for place in range(start, len(texts[0]) + start)] for start in (0, 1)]
    rows = list(zip(*(values for values in texts if values not in numbers), strict=True))
    return len(set(rows)) == len(rows)


def read_score_table(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    outcomes: bool = True,
    settings: TableSettings | None = None,
    score_scale: str | None = None,
) -> ScoreTable:
    """Read and check a table, maybe under other names of columns.

    Parameters
    ----------
    path
        CSV or TSV, Parquet, Arrow, JSON, JSON Lines or Excel, by its ending.
    columns
        What its columns are called, by the fields of `ColumnNames`; upper and lower case, spaces
        and hyphens count for nothing.
    remembered
        What they were called in an earlier table; where this one lacks such a column, it has the
        name that it has in most tables.
    outcomes
        Whether the column of outcomes is read; else it may hold whatever it does.
    settings
        How outcomes and ids are read. By default 0 and 1, yes and no, true and false, pass and
        fail and the like are outcomes.
    score_scale
        "probability" where scores are from 0 to 1, or percentages, which are divided by 100;
        "log-odds" where they are any number. By default they are taken as they are.

    Raises
    ------
    InputError
        Where anything can be read in two ways, or not at all: every such thing of the file.

    """
    asked, before = columns or {}, remembered or {}
    names = [ColumnNames(**asked), ColumnNames(**{**before, **asked})]
    wanted, numbers = _wanted(path, names, outcomes=outcomes)
    found, raw, rows = read_columns(path, wanted, numbers)
    chosen = _chosen(path, found, asked, before)
    raw = {name: values for name, values in raw.items() if name in vars(chosen).values()}
    reader = _ColumnReader(path, raw, rows, settings or TableSettings(), first=remembered is None)
    return _scaled(_checked(reader, chosen, asked, found), chosen.score, score_scale)


def _chosen(
    path: Path, found: list[str], asked: Mapping[str, str], before: Mapping[str, str]
) -> ColumnNames:
    """Return the names of columns; refuse others where those of an earlier table are there."""
    there = {name: column for name, column in before.items() if matched(found, {column})}
    for name, column in there.items():
        if asked.get(name, column) != column:
            raise InputError(
                f"{path} has the column {column!r} that the certificate was issued on, and "
                f"--columns {name}={asked[name]} names another. Leave it out."
            )
    return ColumnNames(**{**asked, **there})


def _scaled(table: ScoreTable, column: str, scale: str | None) -> ScoreTable:
    """Return a table whose scores are on the scale that they are said to have."""
    low, high = score_ends(table.scores)
    percentages = bool(low >= 0 and 1 < high <= _PERCENT)
    table = replace(table, written=grades(low, high))
    if any("percent" in words for words in table.scores_as):
        table = table.on_scale(PERCENT)
    if scale == "probability" and (low < 0 or high > _PERCENT):
        place = int(np.flatnonzero((table.scores < 0) | (table.scores > _PERCENT))[0])
        raise InputError(
            f"{table.path}, {table.row_name(place)}, column {column!r}: {table.scores[place]:g} is "
            "neither a probability nor a percentage; leave --score-scale out, or correct the score."
        )
    if scale != "probability" and not table.reading.scale:
        table = table.on_scale(table.written)
    if not percentages or scale == "log-odds":
        return table
    if scale is None:
        said = (
            f"scores up to {high:g} as they are (--score-scale probability takes them for "
            "percentages)"
        )
        return replace(table, read_as=(*table.read_as, said))
    return replace(
        table,
        scores=table.scores / _PERCENT,
        read_as=(*table.read_as, "scores in percent, divided by 100"),
    ).on_scale(PERCENT)


def score_ends(scores: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest score, at most 1, and the highest one, at least 0."""
    return float(np.nanmin(scores, initial=1)), float(np.nanmax(scores, initial=0))


_FRAME = Path("the table")


def frame_table(
    rows: pa.Table,
    found: list[str],
    columns: Mapping[str, str],
    settings: TableSettings,
    score_scale: str | None = None,
) -> ScoreTable:
    """Read and check columns of a frame, `found` being all that it has."""
    names = ColumnNames(**columns)
    wanted, numbers = _wanted(_FRAME, [names])
    raw, places = arrow_columns(_FRAME, rows, matched(rows.column_names, wanted), numbers)
    reader = _ColumnReader(_FRAME, raw, places, settings)
    return _scaled(_checked(reader, names, columns, found), names.score, score_scale)


def frame_scores(rows: pa.Table, name: str, score_scale: str | None = None) -> ScoreTable:
    """Return the scores of a frame without tasks, whatever else it has."""
    # as in files, a column that is not there has the name that it has in most tables
    name = name if matched(rows.column_names, {name}) else "score"
    columns, places = arrow_columns(_FRAME, rows, matched(rows.column_names, {name}), {name})
    if name not in columns:
        raise InputError(f"the table has no column {name!r}; give one with the judge's scores.")
    scores = TextColumn(_FRAME, name, columns[name], places).scores()
    nothing = np.empty(0, dtype=np.object_)
    table = ScoreTable(_FRAME, scores, None, nothing, rows=places.numbers, lines=places.lines)
    return _scaled(table, name, score_scale)


def _no_rows(path: Path) -> InputError:
    return InputError(f"{path} has a header but no rows; write one row a trajectory.")


def _wanted(
    path: Path, possible: Sequence[ColumnNames], *, outcomes: bool = True
) -> tuple[set[str], set[str]]:
    """Return the columns of a score table, and those of numbers among them."""
    names = possible[0]
    _refuse_one_column_twice(path, names)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} "
            "with one row a trajectory."
        )
    named = [(field, column) for one in possible for field, column in vars(one).items()]
    wanted = {column for field, column in named if outcomes or field != "outcome"}
    texts = {column for field, column in named if field not in ("score", "outcome")}
    return wanted, {column for _, column in named} - texts


class _ColumnReader:
    """Columns of one table, read one after the other; what is wrong with them is gathered."""

    def __init__(
        self, path: Path, raw: Columns, rows: Rows, settings: TableSettings, *, first: bool = True
    ) -> None:
        self.path, self.rows, self.settings, self.first = path, rows, settings, first
        self.problems, self.remedies = list[str](), dict[str, str]()
        self._stage = WorkStage("checking the columns", len(raw))
        self.columns = {
            name: TextColumn(path, name, values, rows, settings) for name, values in raw.items()
        }

    def __call__(self, name: str, of: Callable[[TextColumn], _Array]) -> _Array | None:
        if name not in self.columns:
            return None
        self._stage.done += 1
        try:
            with under_way(self._stage):
                return of(self.columns[name])
        except TableError as error:
            self.problems.extend(error.problems)
            self.remedies |= error.options
        except InputError as error:
            self.problems.append(str(error))
        return None

    def outcomes(self, name: str) -> npt.NDArray[np.int8] | None:
        """Return the outcomes; those of a first table have the words that settings name."""
        return self(name, lambda column: column.outcomes(named=self.first))

    def lacks(self, kind: str, name: str, found: Sequence[str]) -> None:
        """Keep it that a column is missing, and which one may be meant."""
        self.problems.append(
            f"{self.path} has no column {name!r}; its columns are {_listed(found)}. Rename one, or "
            f"name it with --columns {kind}=NAME."
        )
        self.remedies |= _likely(kind, found, self.columns)

    def notes(self, name: str) -> tuple[str, ...]:
        """Return what a column is read as otherwise than it is written."""
        return tuple(self.columns[name].notes) if name in self.columns else ()

    def refusal(self) -> TableError:
        """Return the error of all that was gathered."""
        return TableError(self.problems, self.remedies)


def _checked(
    read: _ColumnReader, names: ColumnNames, asked: Collection[str], found: list[str]
) -> ScoreTable:
    if not len(read.rows.numbers) and {names.task, names.score} <= read.columns.keys():
        raise _no_rows(read.path)
    for kind, name in vars(names).items():
        needed = kind in ("task", "score") or (kind in asked and kind != "outcome")
        if needed and name not in read.columns:
            read.lacks(kind, name, found)
    scores, outcomes = read(names.score, TextColumn.scores), read.outcomes(names.outcome)
    tasks = read(names.task, TextColumn.ids)
    trajectories = read(names.id, lambda column: column.ids(unique=True))
    agents, splits = read(names.agent, TextColumn.labels), read(names.split, TextColumn.labels)
    if read.problems or scores is None or tasks is None:
        if names.outcome not in read.columns:
            read.remedies |= _likely("outcome", found, read.columns)
        raise read.refusal()
    scores_as = read.notes(names.score)
    others_as = (*read.notes(names.outcome), *read.notes(names.task))
    there = {kind: name for kind, name in vars(names).items() if name in read.columns}
    return ScoreTable(
        path=read.path,
        scores=scores,
        outcomes=outcomes,
        tasks=tasks,
        trajectories=trajectories,
        agents=agents,
        splits=splits,
        rows=read.rows.numbers,
        lines=read.rows.lines,
        read_as=(*read.rows.read_as, *scores_as, *others_as),
        scores_as=scores_as,
        found=tuple(found),
        reading=ScoreReading(settings=read.settings, columns=written_columns(there)),
    )


def _likely(kind: str, found: Sequence[str], raw: Collection[str]) -> dict[str, str]:
    """Return the one column that may be meant, by its field, if there is one."""
    column = likely_column(kind, found, raw)
    return {} if column is None else {kind: column}


def read_labels(
    path: Path,
    columns: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    settings: TableSettings | None = None,
) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int8], Rows]:
    """Read trajectory ids and their outcomes, −1 where there is none, as a score table is read."""
    asked, before = columns or {}, remembered or {}
    possible = [ColumnNames(**asked), ColumnNames(**{**before, **asked})]
    outcomes_in = {names.outcome for names in possible}
    found, raw, rows = read_columns(
        path, outcomes_in | {names.id for names in possible}, outcomes_in
    )
    names = _chosen(path, found, asked, before)
    if not len(rows.numbers) and {names.id, names.outcome} <= raw.keys():
        raise _no_rows(path)
    read = _ColumnReader(path, raw, rows, settings or TableSettings(), first=remembered is None)
    for kind in ("id", "outcome"):
        if (name := getattr(names, kind)) not in raw:
            read.lacks(kind, name, found)
    ids, outcomes = read(names.id, TextColumn.ids), read.outcomes(names.outcome)
    if read.problems or ids is None or outcomes is None:
        raise read.refusal()
    return ids, outcomes, replace(rows, read_as=(*rows.read_as, *read.notes(names.outcome)))


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found[:12])


def _refuse_one_column_twice(path: Path, names: ColumnNames) -> None:
    used = {"task": names.task, "score": names.score, "outcome": names.outcome}
    for name in used.values():
        same = [field for field, column in used.items() if column == name]
        if len(same) > 1:
            raise InputError(
                f"{path}: --columns gives {' and '.join(same)} the column {name!r}. Give each a "
                "column of its own."
            )


PROVENANCE_COLUMNS = ("provenance", "audit_sample", "asked")
NOT_STATED = {
    "code": "provenance_not_stated",
    "message": (
        "The table has no column provenance, audit_sample or asked: that its tasks were drawn at "
        "random before scoring, with all their attempts, and hold no label from the review queue "
        "is taken on trust."
    ),
}
_TRUE = frozenset({"true", "1", "1.0", "yes"})


def require_audit_sample(path: Path) -> bool:
    """Refuse labels that are no audit sample; return whether the table says where they are from."""
    _, columns, rows = read_rows(path, set(PROVENANCE_COLUMNS))
    for name, values in columns.items():
        other = [index for index, value in enumerate(values) if not _is_audit_sample(name, value)]
        if other:
            raise TextColumn(path, name, values, rows).error(
                other[0],
                f": {shown(values[other[0]])} is no audit sample ({len(other)} of {len(values)} "
                "rows are none); labels from the review queue are of what the judge could not "
                "decide, so give only tasks drawn at random before scoring, with all their "
                "attempts.",
            )
    return bool(columns)


def _is_audit_sample(column: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if column == "asked":
        return text in {"audit_sample", "spot_check"}
    return (
        text in _TRUE
        if column == "audit_sample"
        else text.replace(" ", "_").replace("-", "_") == "audit_sample"
    )
