"""The files of ``certify batch``: the drawn runs, the first draw of a batch, the labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.batch_draw import BatchDraw
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.tables.drawn import require_first
from certify_assets.tables.reading import read_table
from certify_assets.tables.score_table import read_labels
from certify_assets.tables.settings import ReadingOptions

_COLUMNS: Final = ("order", "trajectory_id", "task_id", "seed", "batch_sha256", "level")


def draw_rows(draw: BatchDraw) -> list[tuple[int | str, ...]]:
    """Return the rows of a draw file, in the order in which runs are labelled if none is wrong."""
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
    columns = zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    return {name: np.array(values, dtype=object) for name, values in columns}


def read_draw(path: Path) -> tuple[int, list[tuple[str, ...]]]:
    """Read the seed and the rows of a draw file."""
    table = read_table(path, set(_COLUMNS))
    if set(_COLUMNS) - table.columns.keys():
        raise InputError(
            f"{path} has the columns {table.listed}. Give the file as `certify batch draw` wrote "
            f"it, with {', '.join(_COLUMNS)}."
        )
    rows = list(zip(*(map(str, table.values(name)) for name in _COLUMNS), strict=True))
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
            f"{path} was edited, or is of another batch or plan than {scores}. Give it as it was "
            "written, with the table and the options that it was drawn with."
        )


def require_first_draw(scores: Path, draw: BatchDraw) -> None:
    """Keep seed and hash of a draw next to the table; refuse another draw of the same runs."""
    # to six digits: a table that a spreadsheet saved again is no other batch
    digits = [f"{score:.6g}" for score in draw.batch.scores.tolist()]
    runs = sha256_bytes(canonical_json([draw.batch.trajectories, draw.batch.tasks, digits]))
    remedy = (
        "A second draw needs a share of δ of its own: plan it with a smaller --delta, and move {} "
        "away."
    )
    require_first(scores, "draw", runs, seed=draw.seed, sha256=draw.batch_sha256, remedy=remedy)


def labels_of(
    path: Path, drawn: Path, allowed: set[str], reading: ReadingOptions
) -> tuple[dict[str, int], Sequence[str]]:
    """Read the outcomes of drawn runs by trajectory_id; an empty one is no label yet.

    Returns them with what was understood of the file.
    """
    ids, outcomes, *_, table = read_labels(path, reading)
    found: dict[str, int] = {}
    for place, (name, outcome) in enumerate(zip(ids.tolist(), outcomes.tolist(), strict=True)):
        if outcome >= 0 and found.setdefault(name, outcome) != outcome:
            raise InputError(
                f"{path}, {table.row(place)} gives {name!r} another outcome than an earlier "
                "row. Settle which one holds."
            )
    if strange := sorted(set(found) - allowed):
        raise InputError(
            f"{path} labels {strange[0]!r}, which {drawn} does not have ({len(strange)} such "
            "labels). Label the runs of the draw, with the ids that they have there."
        )
    return found, table.read_as
