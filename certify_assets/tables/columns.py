"""The columns of a table, read as scores, outcomes or names; what breaks a rule is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.arrays import Floats, Objects
from certify_assets.names import folding, spelled, two_spellings
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.rules import IDS, NAMES, SCORES, WRITTEN_SCORES, Rule
from certify_assets.tables.settings import TableSettings
from certify_assets.tables.table import (
    Table,
    TableError,
    array_of,
    each,
    likely_column,
    name_of,
    number_of,
    shown,
)


class ColumnReader:
    """Reads the columns of one table; `settle` refuses all that was found wrong."""

    def __init__(self, table: Table, settings: TableSettings | None = None) -> None:
        self.table, self.settings = table, settings or TableSettings()
        self.problems: list[str] = []
        self.remedies: dict[str, str] = {}
        # what is read otherwise than it is written
        self.notes: list[str] = []

    def settle(self) -> None:
        """Raise the error of all that was gathered."""
        if self.problems:
            raise TableError(self.problems, self.remedies)

    def lacks(self, kind: str, name: str) -> None:
        """Refuse a table without a column; say which one may be meant."""
        self.problems.append(
            f"{self.table.path} has no column {name!r}; its columns are {self.table.listed}. "
            f"Rename one, or name it with --columns {kind}=NAME."
        )
        self.remedies |= likely_column(kind, self.table.names, self.table.columns)

    def refuse(self, column: str, places: Sequence[int], problem: str) -> None:
        """Refuse cells of a column for one reason."""
        said = f"{self.table.path}, {self.table.row(places[0])}, column {column!r}{problem}"
        more = f" {len(places):,} rows have such a cell." if len(places) > 1 else ""
        self.problems.append(said + more)

    def _obeys(
        self,
        column: str,
        rules: Iterable[Rule],
        values: Sequence[Any],
        distinct: Sequence[Any] | None = None,
    ) -> bool:
        """Whether what was read of a column obeys rules; refuse the first that it breaks."""
        for rule in rules:
            if bad := set(rule.broken(values if distinct is None else distinct)):
                places = [place for place, value in enumerate(values) if value in bad]
                cell = self.table.values(column)[places[0]]
                said = rule.sentence.format(value=shown(cell), kind=type(cell).__name__)
                self.refuse(column, places, said)
                return False
        return True

    def scores(self, column: str) -> Floats:
        """Return finite numbers, NaN where there is none."""
        stored = self.table.columns[column]
        if stored.dtype != object and not np.isinf(stored).any():
            return stored.astype(np.float64)
        cells = stored.tolist()
        texts = [cell if isinstance(cell, str) else "" for cell in cells]
        joined = "".join(texts)
        if not self._obeys(column, WRITTEN_SCORES, texts):
            return np.zeros(len(cells))
        if "," in joined and "." not in joined:
            self.notes.append("scores with decimal commas")
            cells = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
        numbers = _numbers(cells, joined)
        return np.array(numbers if self._obeys(column, SCORES, numbers) else 0.0, dtype=np.float64)

    def outcomes(self, column: str, *, named: bool) -> NDArray[np.int8]:
        """Return 0 and 1, −1 where there is none; `named` refuses settings that name none."""
        values, words = self.table.columns[column], OutcomeColumn(column, self.settings)
        plain = values.dtype != object and not (self.settings.provenance() or words.contrary)
        if plain and np.isin(values, (0, 1)).all():
            return values.astype(np.int8)
        cells = values.tolist()
        read = each(cells, words.read)
        if None in read:
            places = [place for place, outcome in enumerate(read) if outcome is None]
            problem, remedy = words.problem(cells[places[0]])
            self.refuse(column, places, f": {problem}")
            self.remedies |= remedy
            return np.zeros(len(read), dtype=np.int8)
        if named:
            words.require_named(self.table.path)
        self.notes += words.notes()
        return np.array(read, dtype=np.int8)

    def names(self, column: str) -> Objects:
        """Return a name a row, empty where there is none."""
        return self._named(column, NAMES)[0]

    def ids(self, column: str) -> Objects:
        """Return a name a row, none empty; refuse one that is there in two spellings."""
        names, distinct = self._named(column, IDS)
        if self.settings.ids and (spelling := folding(distinct)):
            one, other = next(iter(spelling.items()))
            more = f" and {len(spelling) - 1:,} more" if len(spelling) > 1 else ""
            self.notes.append(f"{column}: {spelled(one)} as {spelled(other)}{more}")
            return array_of([spelling.get(name, name) for name in names.tolist()])
        if self._refuse_alike(column, names, distinct, "count them as one with --set ids=fold"):
            self.remedies["ids"] = "fold"
        return names

    def unique_ids(self, column: str) -> Objects:
        """Return a name a row, none empty; refuse one that is there twice, or in two spellings."""
        names, distinct = self._named(column, IDS)
        if len(distinct) == names.size:
            self._refuse_alike(column, names, distinct, "give each run its own id")
            return names
        first: dict[str, int] = {}
        labels = names.tolist()
        places = [at for at, name in enumerate(labels) if first.setdefault(name, at) < at]
        label = labels[places[0]]
        self.refuse(
            column,
            places,
            f": {shown(label)} was already used in {self.table.row(first[label])}. Give every "
            "trajectory its own id, or leave the column out.",
        )
        return names

    def _named(self, column: str, rules: Iterable[Rule]) -> tuple[Objects, list[str]]:
        """Return a name a row, and the distinct names; refuse names that break a rule."""
        names, cells = self.table.columns[column], self.table.values(column)
        if set(map(type, cells)) != {str}:
            names = array_of(cells := each(cells, name_of))
        distinct = list(dict.fromkeys(cells))
        if not self._obeys(column, rules, cells, distinct):
            # names that break no further rule
            distinct = [str(place) for place in range(len(cells))]
            names = array_of(distinct)
        return names, distinct

    def _refuse_alike(self, column: str, names: Objects, distinct: list[str], remedy: str) -> bool:
        """Refuse names that look the same: one task would count as two."""
        pair = two_spellings(distinct)
        if pair is None:
            return False
        labels = names.tolist()
        before, place = map(labels.index, pair)
        self.refuse(
            column,
            [place],
            f": {spelled(labels[place])} and {spelled(labels[before])} in "
            f"{self.table.row(before)} are one name in two spellings. Write the same name in "
            f"both, or {remedy}.",
        )
        return True


def _numbers(cells: Sequence[Any], texts: str) -> Sequence[float | None]:
    """Return scores as numbers, None where a cell is none; `texts` are those among them."""
    kinds = set(map(type, cells))
    if kinds == {float}:
        return cells
    if kinds == {str} and "_" not in texts:
        with suppress(ValueError):
            return list(map(float, cells))
    return each(cells, number_of)
