"""Runs drawn for labels: the files of draws, their labels, and the first draw of a table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter

from certify_assets.certificates.inputs import UNLABELLED, SampleInputs
from certify_assets.certificates.one_run import fewest_rows
from certify_assets.certificates.path_limits import path_limits, planned_rows
from certify_assets.certificates.sampling import Draw, reading_batches, shuffled
from certify_assets.certificates.settings import Settings
from certify_assets.documents import CLOSED, Count, Document, Sha256
from certify_assets.errors import InputError, UnlabelledRunError, quoted
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_json_atomic
from certify_assets.tables.columns import ColumnReader
from certify_assets.tables.reading import matched, read_table
from certify_assets.tables.run_labels import RunLabels, require_ids
from certify_assets.tables.score_table import ScoreTable
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions
from certify_assets.words import number_of

if TYPE_CHECKING:
    from certify_assets.certificates.batch_draw import BatchDraw

#: column that a draw adds to those of its table, next to `DRAWN_BY`
BATCH: Final = "batch"
#: part of the drawn runs of a side in every batch after the first
_LATER: Final = 0.05


def names_of(table: ScoreTable) -> tuple[list[str], list[str]]:
    """Return the tasks and the runs of a table as texts."""
    require_ids(table)
    assert table.trajectories is not None
    return list(map(str, table.tasks.tolist())), list(map(str, table.trajectories.tolist()))


def filled(source: Any, column: str) -> int:
    """Return how many cells of a column are filled; 0 where the column is missing."""
    table = read_table(source, {column})
    cells = table.values(column) if column in table.columns else []
    return sum(cell is not None and cell == cell and str(cell).strip() != "" for cell in cells)


def keep_labels(out: Path | None, outcome: str = "outcome") -> None:
    """Refuse to overwrite a table with labels in the column of that name."""
    if out is None or not out.is_file() or not out.stat().st_size:
        return
    try:
        count = filled(out, outcome)
    except InputError as error:
        # a sheet that one wrong cell makes unreadable holds labels all the same
        raise InputError(
            f"{out} exists already and may hold labels. Name another file. ({error})"
        ) from None
    if count:
        raise InputError(f"{out} holds {number_of(count, 'label')}. Name another file.")


def draw_of(table: ScoreTable, **asked: Any) -> Draw:
    """Plan a draw from a table; see :meth:`Draw.of`."""
    return Draw.of(*names_of(table), table.scores, **asked)


def drawn_rows(table: ScoreTable, draw: Draw) -> ScoreTable:
    """Return the drawn rows of a table, in the order of the draw."""
    return replace(table.take(draw.rows(*names_of(table))), sample=draw.inputs)


def drawn_again(table: ScoreTable, draw: Draw) -> ScoreTable | None:
    """Return the drawn rows in the order of the table; None if the draw is from another table."""
    if draw_of(table, count=1).sha256 != draw.sha256:
        return None
    return replace(table.take(np.sort(draw.rows(*names_of(table)))), sample=draw.inputs)


def drawn_attempts(drawn: ScoreTable) -> tuple[int, int]:
    """Return the fewest and the most drawn runs of a task."""
    sizes = Counter(drawn.tasks.tolist()).values()
    return min(sizes), max(sizes)


def sheet(
    drawn: ScoreTable,
    draw: Draw,
    settings: Settings,
    *,
    sides: Sequence[str],
    outcome: str,
    hidden: Collection[str] = (),
) -> dict[str, NDArray[Any]]:
    """Return the columns of the file in which drawn runs are labelled.

    They are those of the table, with the batch and an empty outcome. Scores and `hidden` columns
    are left out, so that reviewers do not see them.
    """
    batches = _batches(drawn, sides, settings)
    own = drawn.file_columns()
    for column in matched(list(own), {*hidden, *drawn.judging_columns}).values():
        own.pop(column, None)
    order = shuffled(draw.seed, names_of(drawn)[1], batches)
    name = next(iter(matched(list(own), {outcome}).values()), outcome)
    own[name] = np.full(len(drawn), None, dtype=object)
    named = " ".join(f"{name}={value}" for name, value in draw.inputs.items())
    said = np.full(len(drawn), named, dtype=object)
    found = {BATCH: batches, **own, DRAWN_BY: said}
    return {key: values[order] for key, values in found.items()}


def _batches(drawn: ScoreTable, sides: Sequence[str], settings: Settings) -> NDArray[np.int64]:
    """Return batches: first the runs that each side needs to certify anything, then 5 % each."""
    rows, alpha, delta = len(drawn), settings.alpha, settings.delta
    planned = planned_rows(rows, alpha, delta, settings.planned_share)
    possible = np.flatnonzero(path_limits(planned, alpha, delta).most >= 0)
    first = int(possible[0]) if possible.size else fewest_rows("average", alpha, delta)
    batches = reading_batches(drawn.scores, sides, first=first, later=math.ceil(_LATER * rows))
    # every labelled run of a task is used, so that reading cannot stop early
    return np.minimum(batches, 1) if drawn_attempts(drawn)[1] > 1 else batches


@dataclass(frozen=True)
class DrawnFile:
    """A file that `certify sample` wrote, with or without labels."""

    path: Path
    draw: Draw
    # the batch of each run; empty where the file lacks them
    batches: Mapping[str, int]
    runs: frozenset[str]
    labelled: bool

    @classmethod
    def read(cls, path: Path, reading: ReadingOptions) -> DrawnFile:
        """Read the drawn runs, and the options of the draw."""
        called = {**COLUMNS, **reading.columns}
        name = called["id"]
        table = read_table(path, {name, BATCH, DRAWN_BY})
        if not {name, DRAWN_BY} <= table.columns.keys():
            raise InputError(
                f"{path} lacks the column {DRAWN_BY} or {name}, which certify sample writes. Give "
                "the file of the draw as it was written."
            )
        try:
            (said,) = set(map(str, table.values(DRAWN_BY)))
            words = dict(word.split("=", 1) for word in said.split())
            inputs = TypeAdapter(SampleInputs).validate_strings(words)
        except ValueError:
            raise InputError(
                f"{path}, column {DRAWN_BY} does not name one draw. Give the file as certify "
                "sample wrote it."
            ) from None
        draw = Draw.from_inputs(inputs)
        columns = ColumnReader(table, reading.settings)
        runs = columns.unique_ids(name)
        columns.settle()
        cells = map(str, table.values(BATCH)) if BATCH in table.columns else ()
        pairs = zip(runs.tolist(), cells, strict=False)
        batches = {run: int(number) for run, number in pairs if number.isdecimal()}
        labelled = filled(path, called["outcome"]) > 0
        return cls(path, draw, batches, frozenset(runs.tolist()), labelled)

    def rows_of(self, table: ScoreTable) -> ScoreTable:
        """Return the drawn rows of a table; refuse another table, and an edited file."""
        rows = drawn_again(table, self.draw)
        if rows is None:
            raise InputError(
                f"{self.path} was drawn from another table than {table.path}: tasks, runs or "
                "scores differ. Give the table that it was drawn from."
            )
        if set(names_of(rows)[1]) != self.runs:
            raise InputError(
                f"{self.path} does not hold the runs that its seed draws from {table.path}. Give "
                "the file as certify sample wrote it."
            )
        return rows

    def more_labels(self, needed: UnlabelledRunError, rows: ScoreTable) -> UnlabelledRunError:
        """Return an error that names the batch to label, and the first run without a label."""
        assert rows.outcomes is not None
        tasks, runs = names_of(rows)
        lacking = np.flatnonzero(rows.outcomes == UNLABELLED).tolist()
        first = next(
            runs[place]
            for place in lacking
            if tasks[place] == needed.task and rows.scores[place] == needed.score
        )
        what = "the drawn runs"
        if (number := self.batches.get(first)) is not None:
            count = sum(self.batches.get(runs[place]) == number for place in lacking)
            what = f"batch {number} ({count:,} run{'s' * (count > 1)})"
        return UnlabelledRunError(
            f"{needed} Label {what}; {quoted(first)} is the first without a label.",
            needed.task,
            needed.score,
        )


def labels_of_draw(rows: ScoreTable, found: RunLabels | None, table: ScoreTable) -> ScoreTable:
    """Return the drawn rows of a table with their labels; refuse labels of other runs."""
    if found is None:
        if rows.outcomes is None:
            raise InputError(
                f"No drawn run has a label, and {rows.path} has no outcomes. Write labels into "
                "the file of the draw, or give them with --labels."
            )
        return rows
    for known, fault, remedy in (
        (table, f"and {table.path} has no such run", "Write trajectory_id alike in both files."),
        (rows, "which was not drawn", "Labels given before a draw prove nothing."),
    ):
        found.refuse_others(names_of(known)[1], fault, remedy)
    return found.join(rows)


_BATCH_COLUMNS: Final = ("order", "trajectory_id", "task_id", "seed", "batch_sha256", "level")


def draw_rows(draw: BatchDraw) -> list[tuple[int | str, ...]]:
    """Return the rows of a draw file, in the order of labelling if there is no error."""
    tasks = dict(zip(draw.batch.trajectories, draw.batch.tasks, strict=True))
    levels: dict[str, int] = {}
    for side in draw.sides:
        for level, one in enumerate(side.sets):
            levels |= {name: level for name in one.names if name not in levels}
    return [
        (number, name, tasks[name], draw.seed, draw.batch_sha256, levels[name])
        for number, name in enumerate(draw.order, 1)
    ]


def draw_sheet(rows: list[tuple[int | str, ...]]) -> dict[str, NDArray[Any]]:
    """Return the columns of the file of runs to label."""
    columns = zip(_BATCH_COLUMNS, zip(*rows, strict=True), strict=True)
    return {name: np.array(values, dtype=object) for name, values in columns}


def read_draw(path: Path) -> tuple[int, list[tuple[str, ...]]]:
    """Read the seed and the rows of a draw file."""
    table = read_table(path, set(_BATCH_COLUMNS))
    if set(_BATCH_COLUMNS) - table.columns.keys():
        raise InputError(
            f"{path} has the columns {table.listed}. Give the file as `certify batch draw` wrote "
            f"it, with {', '.join(_BATCH_COLUMNS)}."
        )
    rows = list(zip(*(map(str, table.values(name)) for name in _BATCH_COLUMNS), strict=True))
    seeds = {row[3] for row in rows}
    # longer than any seed that `draw` takes: a number of thousands of digits is no number
    if len(seeds) != 1 or not re.fullmatch("[0-9]{1,1000}", seed := seeds.pop()):
        raise InputError(f"{path} does not name one seed. Give the file as it was written.")
    return int(seed), rows


def require_drawn(path: Path, rows: list[tuple[str, ...]], draw: BatchDraw, scores: Path) -> None:
    """Refuse a draw file that is not the beginning of a draw."""
    expected = [tuple(map(str, row)) for row in draw_rows(draw)]
    if rows != expected[: len(rows)]:
        raise InputError(
            f"{path} was edited, or belongs to another batch or plan than {scores}. Give it as it "
            "was written, with the table and options of the draw."
        )


class FirstDraw(BaseModel):
    """The draw that was made of a batch."""

    model_config = ConfigDict(**CLOSED, frozen=True)

    seed: Count
    batch_sha256: Sha256
    time: str


class Draws(Document):
    """The first draw of each batch of a table, by the hash of its runs."""

    SCHEMA = "certify_assets/draws/2"
    TITLE = "list of draws"

    draws: dict[str, FirstDraw]


def require_first_sample(scores: Path, draw: Draw) -> Path:
    """Keep the seed of a draw in a file next to the table or log; refuse another seed."""
    remedy = "If nobody has seen the runs that it drew, remove {}."
    return require_first(
        scores, "sample", draw.sha256, seed=draw.seed, sha256=draw.sha256, remedy=remedy
    )


def require_first(
    scores: Path, kind: str, runs: str, *, seed: int, sha256: str, remedy: str
) -> Path:
    """Keep the first draw of runs in a file next to their table; refuse a different draw."""
    # "." has no name
    scores = scores if scores.name else scores.absolute()
    own = scores.with_name(f"{scores.name}.{kind}.json")
    kept = {}
    for path in sorted(scores.parent.glob(f"*.{kind}.json")):
        document = read_json(path)
        # files of another kind may have such a name, but not that of this table
        if path == own or (isinstance(document, dict) and "schema" in document):
            try:
                kept[path] = Draws.from_dict(document).draws
            except InputError as error:
                raise InputError(f"{path} keeps the first draws of a table. {error}") from None
    for path, draws in kept.items():
        before = draws.get(runs)
        # the hash has the scores to the last digit, so a copy with six of them has another one
        if before is not None and (before.seed, before.batch_sha256) != (seed, sha256):
            other = "under another plan" if before.seed == seed else f"with seed {before.seed}"
            first = path.name.removesuffix(f".{kind}.json")
            same = "" if path == own else f"has the runs of {first}, which "
            raise InputError(
                f"{scores} {same}was drawn {other} at {before.time}. Give that one: a draw that is "
                f"repeated until it suits proves nothing. {remedy.format(path)}"
            )
    if runs not in kept.get(own, {}):
        time = datetime.now(UTC).isoformat(timespec="seconds")
        now = FirstDraw(seed=seed, batch_sha256=sha256, time=time)
        write_json_atomic(own, Draws(draws={**kept.get(own, {}), runs: now}).to_dict())
    return own


def require_first_draw(scores: Path, draw: BatchDraw) -> None:
    """Keep seed and hash of a draw next to the table; refuse another draw of the same runs."""
    # to six digits: a table that a spreadsheet saved again is no other batch
    digits = [f"{score:.6g}" for score in draw.batch.scores.tolist()]
    runs = sha256_bytes(canonical_json([draw.batch.trajectories, draw.batch.tasks, digits]))
    remedy = (
        "A second draw needs its own share of δ: plan it with a smaller --delta, and move {} away."
    )
    require_first(scores, "draw", runs, seed=draw.seed, sha256=draw.batch_sha256, remedy=remedy)
