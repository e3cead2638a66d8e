"""Labels of runs, from a separate table or from the file of a draw, joined by trajectory_id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from certify_assets.certificates.inputs import UNCLEAR, UNLABELLED
from certify_assets.errors import InputError
from certify_assets.names import folding
from certify_assets.tables.agreement import Agreement, Said, measure_agreement
from certify_assets.tables.cells import likely_column, shown, word_of
from certify_assets.tables.reading import matched, read_table
from certify_assets.tables.score_table import LabelRows, ScoreTable, read_labels
from certify_assets.tables.settings import COLUMNS, DRAWN_BY, ReadingOptions
from certify_assets.words import number_of

#: what reviewers write where they cannot settle a run
_UNCLEAR_WORD = "unclear"


@dataclass(frozen=True)
class RunLabels:
    """Labels of a file by trajectory_id: 0, 1 or `UNCLEAR`."""

    path: Path
    outcomes: Mapping[str, int]
    # what was understood that is not as a table has it
    read_as: tuple[str, ...] = ()
    # what each annotator says, where the file names them
    said: tuple[Said, ...] = ()
    # runs on which as many annotators say 1 as 0; they have no label
    tied: frozenset[str] = frozenset()
    # whether runs without a label are to be left out
    drops: bool = False
    # runs of the file of a draw that wait for a label; None of any other file
    waiting: frozenset[str] | None = None

    @classmethod
    def read(cls, path: Path, reading: ReadingOptions) -> RunLabels:
        """Read labels; an empty outcome is not a label.

        With several annotators of a run, the majority counts.

        Raises
        ------
        InputError
            If the table cannot be read, or an annotator labels a run twice.
        """
        settings = reading.settings
        asked = replace(settings, no_label=(*settings.no_label, _UNCLEAR_WORD))
        rows = read_labels(path, replace(reading, settings=asked))
        outcomes = rows.outcomes
        if _UNCLEAR_WORD not in settings.no_label:
            unclear = np.array([word_of(cell) == _UNCLEAR_WORD for cell in rows.written], bool)
            outcomes = np.where(unclear, UNCLEAR, outcomes)
        names = [""] * len(rows.ids) if rows.annotators is None else rows.annotators.tolist()
        # nobody has two votes by another spelling
        spelling = folding(names)
        names = [spelling.get(name, name) for name in names]
        places: dict[tuple[str, str], int] = {}
        for place, said in enumerate(zip(names, rows.ids.tolist(), strict=True)):
            before = places.setdefault(said, place)
            if before != place:
                raise _twice(rows, said, before, place)
        votes: dict[str, list[int]] = {}
        for (_, run), place in places.items():
            if outcomes[place] != UNLABELLED:
                votes.setdefault(run, []).append(int(outcomes[place]))
        found = {run: _majority(given) for run, given in votes.items()}
        labels = {run: outcome for run, outcome in found.items() if outcome is not None}
        said_by = tuple(
            Said(name, run, int(outcomes[place]))
            for (name, run), place in places.items()
            if name and outcomes[place] in (0, 1)
        )
        waiting = None
        if matched([name for name in rows.table.names if name], {DRAWN_BY}):
            waiting = frozenset(rows.ids.tolist()) - labels.keys()
        tied = frozenset(found.keys() - labels.keys())
        drops = bool(settings.unlabelled)
        return cls(path, labels, rows.table.read_as, said_by, tied, drops, waiting)

    def join_alone(self, table: ScoreTable) -> ScoreTable:
        """Return a table with these outcomes, where the runs to label were not drawn.

        Raises
        ------
        InputError
            If no label names a run of the table, or annotators are tied, or labels are unclear.
            Also if the file belongs to a draw: its first labels are those of the judge's surest
            runs.
        """
        if self.waiting is not None:
            raise InputError(
                f"{self.path} is the file of a draw, where perhaps only the judge's surest runs "
                "have a label. Give it with --sample to certify certificate, so that the others "
                "count too."
            )
        joined = self.join(table)
        assert joined.outcomes is not None and table.trajectories is not None
        tied = sorted(self.tied.intersection(table.trajectories.tolist()))
        if tied and not self.drops:
            raise InputError(
                f"The annotators of {self.path} have no majority for {shown(tied[0])} "
                f"({len(tied):,} such runs). Ask one more, or leave these runs out with --set "
                "unlabelled=drop."
            )
        if (joined.outcomes == UNLABELLED).all():
            raise self.no_match(table)
        if (joined.outcomes == UNCLEAR).any():
            raise InputError(
                f"{self.path} calls runs unclear, which only a draw can count. Give its file with "
                "--sample to certify certificate, or leave these runs out with --set "
                "no_label=unclear."
            )
        return joined

    def join(self, table: ScoreTable) -> ScoreTable:
        """Return a table with these outcomes: `UNLABELLED` where a run has none."""
        assert table.trajectories is not None
        found = [self.outcomes.get(name, UNLABELLED) for name in table.trajectories.tolist()]
        return replace(table, outcomes=np.array(found, dtype=np.int8))

    def refuse_others(self, runs: Iterable[str], fault: str, remedy: str) -> None:
        """Refuse labels of other runs than these."""
        if strange := sorted(self.outcomes.keys() - set(runs)):
            raise InputError(
                f"{self.path} labels {strange[0]!r}, {fault} ({len(strange)} such labels). {remedy}"
            )

    def no_match(self, table: ScoreTable) -> InputError:
        """Return the error for labels that name no run of a table."""
        return InputError(
            f"No label of {self.path} names a run of {table.path}. Write trajectory_id alike in "
            "both files."
        )

    def matching(self, table: ScoreTable) -> str:
        """Say how many labels name a run of a table, and how many of its runs have a label."""
        assert table.trajectories is not None
        common = len(self.outcomes.keys() & set(table.trajectories.tolist()))
        counts = (
            f"{common:,} of {len(self.outcomes):,} labels of {self.path.name} name a run of "
            f"{table.path.name}; {common:,} of its {len(table):,} runs have a label"
        )
        ties = (
            f"; {number_of(len(self.tied), 'run')} without a label because annotators tie"
            if self.tied
            else ""
        )
        return f"{counts}{ties}"

    def agreement(self, table: ScoreTable) -> Agreement | None:
        """Measure the agreement of annotators; None where no run has two of them.

        The interval is a bootstrap over the tasks of the table.
        """
        if table.trajectories is None or len({one.trajectory_id for one in self.said}) == len(
            self.said
        ):
            return None
        tasks = dict(zip(table.trajectories.tolist(), table.tasks.tolist(), strict=True))
        return measure_agreement(self.said, tasks)


def _majority(votes: Sequence[int]) -> int | None:
    """Return the outcome that most annotators give, None for a tie; it may be unclear."""
    ones, zeros, unclear = (votes.count(vote) for vote in (1, 0, UNCLEAR))
    if unclear > max(ones, zeros):
        return UNCLEAR
    return None if ones == zeros else int(ones > zeros)


def _twice(rows: LabelRows, said: tuple[str, str], before: int, place: int) -> InputError:
    """Return the error of an annotator who labels a run twice."""
    annotator, run = said
    first, again = rows.table.row(before), rows.table.row(place)
    by = f" of {shown(annotator)}" if annotator else ""
    problem = f"repeats {shown(run)}{by} of {first}"
    if rows.outcomes[before] != rows.outcomes[place]:
        problem = f"gives {shown(run)}{by} another outcome than {first}"
    named = "" if annotator else ", or name the annotators with --columns annotator=NAME"
    return InputError(f"{rows.table.path}, {again} {problem}. Keep one row{named}.")


def require_ids(table: ScoreTable) -> None:
    """Refuse a table without trajectory_id, the column by which labels and draws name runs."""
    if table.trajectories is None:
        raise InputError(
            f"{table.path} has no column trajectory_id, by which labels name the runs. Add it, "
            "or name a column with an id for each run with --columns id=NAME."
        )


def reading_of_scores(source: Path, labels: Path | None, reading: ReadingOptions) -> ReadingOptions:
    """Return how scores are read where the given name of the id column is that of the labels."""
    given = reading.columns.get("id")
    if labels is None or given is None or not source.is_file():
        return reading
    names, of_labels = (
        [name for name in read_table(path, set()).names if name] for path in (source, labels)
    )
    if matched(names, {given}) or not matched(of_labels, {given}):
        return reading
    others = {field: name for field, name in reading.columns.items() if field != "id"}
    usual = matched(names, {COLUMNS["id"]})
    own = {} if usual else likely_column("id", names, others.values())
    return replace(reading, columns={**others, **own})
