"""Labels of runs, in a table of their own or in the file of a draw, joined by trajectory_id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from certify_assets.certificates.inputs import UNCLEAR, UNLABELLED
from certify_assets.errors import InputError
from certify_assets.tables.score_table import ScoreTable, read_labels
from certify_assets.tables.settings import COLUMNS, ReadingOptions
from certify_assets.tables.table import word_of

#: what reviewers write where they cannot settle a run
_UNCLEAR_WORD = "unclear"


@dataclass(frozen=True)
class RunLabels:
    """Labels of a file by trajectory_id: 0, 1 or `UNCLEAR`."""

    path: Path
    outcomes: Mapping[str, int]
    # what was understood that is not as a table has it
    read_as: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, reading: ReadingOptions) -> RunLabels:
        """Read labels; an empty outcome is no label.

        Raises
        ------
        InputError
            If the table cannot be read, or names a run twice.
        """
        settings = reading.settings
        asked = replace(settings, no_label=(*settings.no_label, _UNCLEAR_WORD))
        ids, outcomes, table = read_labels(path, replace(reading, settings=asked))
        column = {**COLUMNS, **reading.columns}["outcome"]
        if _UNCLEAR_WORD not in settings.no_label:
            cells = table.values(column)
            unclear = np.array([word_of(cell) == _UNCLEAR_WORD for cell in cells], dtype=bool)
            outcomes = np.where(unclear, UNCLEAR, outcomes)
        rows: dict[str, int] = {}
        for place, name in enumerate(ids.tolist()):
            before = rows.setdefault(name, place)
            if before == place:
                continue
            first, again = table.row(before), table.row(place)
            if outcomes[before] == outcomes[place]:
                raise InputError(
                    f"{path}, {again} repeats {name!r} of {first}. Keep one row for each run."
                )
            raise InputError(
                f"{path}, {again} gives {name!r} another outcome than {first}. Settle which one "
                "holds, and keep that row."
            )
        known = {name: int(outcomes[place]) for name, place in rows.items()}
        return cls(
            path,
            {name: outcome for name, outcome in known.items() if outcome != UNLABELLED},
            table.read_as,
        )

    def join(self, table: ScoreTable) -> ScoreTable:
        """Return a table with these outcomes: `UNLABELLED` where a run has none."""
        assert table.trajectories is not None
        found = [self.outcomes.get(name, UNLABELLED) for name in table.trajectories.tolist()]
        return replace(table, outcomes=np.array(found, dtype=np.int8))

    def matching(self, table: ScoreTable) -> str:
        """Say how many labels name a run of a table, and how many of its runs have one."""
        assert table.trajectories is not None
        common = len(self.outcomes.keys() & set(table.trajectories.tolist()))
        return (
            f"{common:,} of {len(self.outcomes):,} labels of {self.path.name} name a run of "
            f"{table.path.name}; {common:,} of its {len(table):,} runs have a label"
        )


def require_ids(table: ScoreTable) -> None:
    """Refuse a table without trajectory_id, by which labels and draws name runs."""
    if table.trajectories is None:
        raise InputError(
            f"{table.path} has no column trajectory_id, by which labels name the runs. Name the "
            "one that it has with --columns id=NAME."
        )
