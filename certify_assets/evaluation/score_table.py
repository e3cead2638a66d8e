"""Score tables, read and checked; what is refused is named with file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.score_reading import PERCENT, ScoreReading, grades
from certify_assets.tables.columns import Columns, Rows, TableError, likely_column, matched
from certify_assets.tables.table_files import arrow_columns, read_columns, read_rows
from certify_assets.tables.text_column import TextColumn, shown
from certify_assets.work import WorkStage, under_way

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_PERCENT = 100
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
class ColumnNames:
    """How the columns of a score table are called."""

    task: str = "task_id"
    score: str = "score"
    outcome: str = "outcome"
    trajectory: str = "trajectory_id"
    agent: str = "agent"
    split: str = "split"


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

    def negated(self) -> ScoreTable:
        """Return the rows with scores of which lower ones were better."""
        return replace(
            self, scores=-self.scores, reading=replace(self.reading, lower_is_better=True)
        )

    def labelled(self) -> npt.NDArray[np.int8]:
        """Return the outcomes, all 0 or 1; refuse a table that lacks any."""
        if self.outcomes is None:
            raise TableError(
                [
                    f"{self.path} has no outcome column; certification and audits need one with 0 "
                    "and 1 (or name it with --outcome-col)"
                    + (f"; its columns are {_listed(self.found)}." if self.found else ".")
                ],
                _likely("--outcome-col", self.found, ()),
            )
        missing = np.flatnonzero(self.outcomes < 0)
        if missing.size:
            raise InputError(
                f"{self.path}, {self.row_name(int(missing[0]))} has no outcome ({missing.size} "
                "rows have none); label the row as 0 or 1 or leave it out."
            )
        return self.outcomes

    def row_name(self, index: int) -> str:
        """Name a row as a reader finds it in the file."""
        return Rows(self.rows, self.lines).name(index)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table under the platform's own column names."""
        columns = {name: getattr(self, field) for field, name in _FRAME_NAMES.items()}
        return {name: value for name, value in columns.items() if value is not None}

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a frame, under the platform's own column names."""
        import pandas as pd

        return pd.DataFrame(self.columns())


def read_score_table(
    path: Path,
    *,
    columns: ColumnNames | None = None,
    outcomes: bool = True,
    success_label: str | None = None,
    score_scale: str | None = None,
) -> ScoreTable:
    """Read and check a table, maybe under other names of columns.

    Parameters
    ----------
    path
        CSV or TSV, Parquet, Arrow, JSON, JSON Lines or Excel, by its ending.
    columns
        What its columns are called; upper and lower case, spaces and hyphens count for nothing.
    outcomes
        Whether the column of outcomes is read; else it may hold whatever it does.
    success_label
        The value of that column that is a success; every other one is then a failure. By default
        0 and 1, yes and no, true and false, pass and fail and the like.
    score_scale
        "probability" where scores are from 0 to 1, or percentages, which are divided by 100;
        "log-odds" where they are any number. By default they are taken as they are.

    Raises
    ------
    InputError
        Where anything can be read in two ways, or not at all: every such thing of the file.

    """
    names = columns or ColumnNames()
    wanted, numbers = _wanted(path, names)
    if not outcomes:
        wanted.discard(names.outcome)
    found = read_columns(path, wanted, numbers)
    table = _checked(path, names, *found, success_label=success_label)
    if success_label is not None and table.outcomes is not None and 1 not in table.outcomes:
        raise _no_success(path, names.outcome, success_label)
    return _scaled(table, names.score, score_scale)


def _scaled(table: ScoreTable, column: str, scale: str | None) -> ScoreTable:
    """Return a table whose scores are on the scale that they are said to have."""
    low, high = score_ends(table.scores)
    percentages = bool(low >= 0 and 1 < high <= _PERCENT)
    table = replace(table, written=grades(low, high))
    if any("percent" in words for words in table.scores_as):
        table = replace(table, reading=ScoreReading(PERCENT))
    if scale == "probability" and (low < 0 or high > _PERCENT):
        place = int(np.flatnonzero((table.scores < 0) | (table.scores > _PERCENT))[0])
        raise InputError(
            f"{table.path}, {table.row_name(place)}, column {column!r}: {table.scores[place]:g} is "
            "neither a probability nor a percentage; leave --score-scale out, or correct the score."
        )
    if scale != "probability" and not table.reading.scale:
        table = replace(table, reading=ScoreReading(table.written))
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
        reading=ScoreReading(PERCENT),
    )


def score_ends(scores: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the lowest score, at most 1, and the highest one, at least 0."""
    return float(np.nanmin(scores, initial=1)), float(np.nanmax(scores, initial=0))


_FRAME = Path("the table")


def frame_table(
    rows: pa.Table,
    found: list[str],
    names: ColumnNames,
    success_label: str | None = None,
    score_scale: str | None = None,
) -> ScoreTable:
    """Read and check columns of a frame, `found` being all that it has."""
    wanted, numbers = _wanted(_FRAME, names)
    columns, places = arrow_columns(_FRAME, rows, matched(rows.column_names, wanted), numbers)
    table = _checked(_FRAME, names, found, columns, places, success_label=success_label)
    return _scaled(table, names.score, score_scale)


def frame_scores(rows: pa.Table, name: str, score_scale: str | None = None) -> ScoreTable:
    """Return the scores of a frame without tasks, whatever else it has."""
    columns, places = arrow_columns(_FRAME, rows, matched(rows.column_names, {name}), {name})
    if name not in columns:
        raise InputError(f"the table has no column {name!r}; give one with the judge's scores.")
    scores = TextColumn(_FRAME, name, columns[name], places).scores()
    nothing = np.empty(0, dtype=np.object_)
    table = ScoreTable(_FRAME, scores, None, nothing, rows=places.numbers, lines=places.lines)
    return _scaled(table, name, score_scale)


def _no_success(path: Path, column: str, label: str) -> InputError:
    return InputError(
        f"{path}, column {column!r} has no {shown(label)}, which --success-label names; give one "
        "of its values, or write 0 for each failure."
    )


def _no_rows(path: Path) -> InputError:
    return InputError(f"{path} has a header but no rows; write one row a trajectory.")


def _wanted(path: Path, names: ColumnNames) -> tuple[set[str], set[str]]:
    """Return the columns of a score table, and those of numbers among them."""
    _refuse_one_column_twice(path, names)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path} is empty; write the columns {names.task}, {names.score} and {names.outcome} "
            "with one row a trajectory."
        )
    wanted = {getattr(names, entry.name) for entry in fields(names)}
    others = {names.task, names.trajectory, names.agent, names.split}
    return wanted, {names.score, names.outcome} - others


class _ColumnReader:
    """Columns of one table, read one after the other; what is wrong with them is gathered."""

    def __init__(
        self,
        path: Path,
        raw: Columns,
        rows: Rows,
        success_label: str | None,
        problems: list[str],
    ) -> None:
        self._problems, self._stage = problems, WorkStage("checking the columns", len(raw))
        self._columns = {
            name: TextColumn(path, name, values, rows, success_label)
            for name, values in raw.items()
        }

    def __call__(self, name: str, of: Callable[[TextColumn], _Array]) -> _Array | None:
        if name not in self._columns:
            return None
        self._stage.done += 1
        try:
            with under_way(self._stage):
                return of(self._columns[name])
        except TableError as error:
            self._problems.extend(error.problems)
        except InputError as error:
            self._problems.append(str(error))
        return None

    def notes(self, name: str) -> tuple[str, ...]:
        """Return what a column is read as otherwise than it is written."""
        return tuple(self._columns[name].notes) if name in self._columns else ()

    def refusal(self, options: Mapping[str, str]) -> TableError:
        """Return the error of all that was gathered."""
        asked = any("--success-label" in problem for problem in self._problems)
        return TableError(
            self._problems, {**options, **({"--success-label": "LABEL"} if asked else {})}
        )


def _checked(
    path: Path,
    names: ColumnNames,
    found: list[str],
    raw: Columns,
    rows: Rows,
    *,
    success_label: str | None = None,
) -> ScoreTable:
    if not len(rows.numbers) and {names.task, names.score} <= raw.keys():
        raise _no_rows(path)
    problems, options = list[str](), dict[str, str]()
    for option, name in (("--task-col", names.task), ("--score-col", names.score)):
        if name not in raw:
            problems.append(
                f"{path} has no column {name!r}; its columns are {_listed(found)}; rename "
                f"one or name it with {option}."
            )
            options |= _likely(option, found, raw)
    read = _ColumnReader(path, raw, rows, success_label, problems)
    scores, outcomes = (
        read(names.score, TextColumn.scores),
        read(names.outcome, TextColumn.outcomes),
    )
    tasks = read(names.task, TextColumn.ids)
    trajectories = read(names.trajectory, lambda column: column.ids(unique=True))
    agents, splits = read(names.agent, TextColumn.labels), read(names.split, TextColumn.labels)
    if problems or scores is None or tasks is None:
        if names.outcome not in raw:
            options |= _likely("--outcome-col", found, raw)
        raise read.refusal(options)
    scores_as, outcomes_as = read.notes(names.score), read.notes(names.outcome)
    return ScoreTable(
        path=path,
        scores=scores,
        outcomes=outcomes,
        tasks=tasks,
        trajectories=trajectories,
        agents=agents,
        splits=splits,
        rows=rows.numbers,
        lines=rows.lines,
        read_as=(*rows.read_as, *scores_as, *outcomes_as),
        scores_as=scores_as,
        found=tuple(found),
    )


def _likely(option: str, found: Sequence[str], raw: Collection[str]) -> dict[str, str]:
    """Return the option with the one column that it may mean, if there is one."""
    column = likely_column(option.removeprefix("--").removesuffix("-col"), found, raw)
    return {} if column is None else {option: column}


def read_labels(
    path: Path, names: ColumnNames, success_label: str | None = None
) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int8], Rows]:
    """Read trajectory ids and their outcomes, −1 where there is none, as a score table is read."""
    found, raw, rows = read_columns(path, {names.trajectory, names.outcome}, {names.outcome})
    if not len(rows.numbers) and {names.trajectory, names.outcome} <= raw.keys():
        raise _no_rows(path)
    problems, options = list[str](), dict[str, str]()
    for name in (names.trajectory, names.outcome):
        if name not in raw:
            problems.append(f"{path} has no column {name!r}; its columns are {_listed(found)}.")
    if names.outcome not in raw:
        options |= _likely("--outcome-col", found, raw)
    read = _ColumnReader(path, raw, rows, success_label, problems)
    ids, outcomes = read(names.trajectory, TextColumn.ids), read(names.outcome, TextColumn.outcomes)
    if problems or ids is None or outcomes is None:
        raise read.refusal(options)
    if success_label is not None and 1 not in outcomes:
        raise _no_success(path, names.outcome, success_label)
    return ids, outcomes, replace(rows, read_as=(*rows.read_as, *read.notes(names.outcome)))


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found[:12])


def _refuse_one_column_twice(path: Path, names: ColumnNames) -> None:
    options = {"--task-col": names.task, "--score-col": names.score, "--outcome-col": names.outcome}
    for name in options.values():
        same = [other for other, there in options.items() if there == name]
        if len(same) > 1:
            raise InputError(
                f"{path}: {' and '.join(same)} both name the column {name!r}; give each a column "
                "of its own."
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
