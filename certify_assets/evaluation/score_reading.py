"""How the scores of a table were read, kept with its certificate for the tables that follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.tables.settings import TableSettings

if TYPE_CHECKING:
    from certify_assets.certificates.inputs import ScoreRange

PERCENT = "percent"
# ends of scales on which scores are given that are neither probabilities nor log-odds
_GRADES = (10, 100)
# 8.7 of a hundred and of ten look alike
_DOUBTFUL = (PERCENT, "0 to 10")
_SCALE, _LOWER, _COLUMNS = "score_scale", "lower_is_better", "columns"


@dataclass(frozen=True)
class ColumnNames:
    """How the columns of a score table are called."""

    task: str = "task_id"
    score: str = "score"
    outcome: str = "outcome"
    id: str = "trajectory_id"
    agent: str = "agent"
    split: str = "split"


_FIELDS = tuple(entry.name for entry in fields(ColumnNames))
# a name may hold commas: the next column begins where its field is named
_NEXT = re.compile(rf",(?=(?:{'|'.join(_FIELDS)})=)")


def parse_columns(text: str) -> dict[str, str]:
    """Read names of columns by their fields, written as task=NAME,score=NAME."""
    return checked_columns(part.partition("=")[::2] for part in (_NEXT.split(text) if text else ()))


def checked_columns(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names of columns by their fields, each given once; InputError says which there are."""
    named: dict[str, str] = {}
    for name, column in pairs:
        if name not in _FIELDS or not column or name in named:
            raise InputError(
                f"columns has {f'{name}={column}'!r}. Give each of {', '.join(_FIELDS)} once, as "
                "FIELD=NAME separated by commas."
            )
        named[name] = column
    return named


def written_columns(named: Mapping[str, str]) -> str:
    """Write names of columns as `parse_columns` reads them; those of every table are left out."""
    plain = vars(ColumnNames())
    other = [name for name in _FIELDS if named.get(name, plain[name]) != plain[name]]
    return ",".join(f"{name}={named[name]}" for name in other)


@dataclass(frozen=True)
class ScoreReading:
    """How a table was read where that is not as it stands."""

    # percent (divided by 100), or the scale of scores that are as they are written: 0 to 10
    scale: str = ""
    lower_is_better: bool = False
    settings: TableSettings = field(default_factory=TableSettings)
    # as `written_columns` has them
    columns: str = ""

    @classmethod
    def of_provenance(cls, provenance: Mapping[str, str]) -> ScoreReading:
        """Return how the table of a certificate was read."""
        names = [entry.name for entry in fields(TableSettings)]
        settings = TableSettings.of({name: provenance.get(name) for name in names})
        parse_columns(columns := provenance.get(_COLUMNS, ""))
        return cls(provenance.get(_SCALE, ""), provenance.get(_LOWER) == "true", settings, columns)

    def provenance(self) -> dict[str, str]:
        """Return what a certificate says of it: nothing of a table that is read as it stands."""
        said = {
            _SCALE: self.scale,
            _LOWER: "true" if self.lower_is_better else "",
            **self.settings.provenance(),
            _COLUMNS: self.columns,
        }
        return {name: words for name, words in said.items() if words}

    @property
    def words(self) -> str:
        """Say what the scores are."""
        if not self.scale:
            return "probabilities or log-odds"
        return "percentages" if self.scale == PERCENT else f"scores from {self.scale}"


def grades(low: float, high: float) -> str:
    """Return the scale of scores from `low` to `high` that may be percentages or grades."""
    if low < 0 or high <= 1:
        return ""
    return next((f"0 to {end}" for end in _GRADES if high <= end), "")


class Doubt(NamedTuple):
    """Why scores may not be those of a judge; `sure` where they are refused."""

    sentence: str
    sure: bool


@dataclass(frozen=True)
class IssuedReading:
    """How the table of a certificate was read, for those that are read after it."""

    # what the certificate is called in messages
    name: str
    reading: ScoreReading
    scores: ScoreRange | None = None
    # what --score-scale says of a further table
    asked: str | None = None
    verb: str = "was issued on"

    @classmethod
    def of(
        cls, path: Path | str, certificates: Iterable[tuple[Mapping[str, str], ScoreRange | None]]
    ) -> IssuedReading:
        """Return the reading of certificates of one table, given provenance and scores."""
        given = list(certificates)
        readings = {ScoreReading.of_provenance(provenance) for provenance, _ in given}
        if len(readings) > 1:
            raise InputError(
                f"{path} holds certificates of scores that were read in different ways; choose one "
                "by --side, --alpha and --procedure."
            )
        scores = next((scores for _, scores in given), None)
        return cls(str(path), next(iter(readings), ScoreReading()), scores)

    def scale_option(self, asked: str | None) -> str | None:
        """Return --score-scale for a further table; refuse one that contradicts."""
        contrary = {PERCENT: "log-odds", "": None}.get(self.reading.scale, "probability")
        if asked is not None and asked == contrary:
            raise InputError(
                f"{self.name} was issued on {self.reading.words}, which --score-scale {asked} "
                "would read in another way; leave it out."
            )
        return "probability" if self.reading.scale == PERCENT else asked

    def lower_option(self, asked: bool) -> bool:
        """Return --lower-is-better for a further table; refuse one that contradicts."""
        if asked and not self.reading.lower_is_better:
            raise InputError(
                f"{self.name} was issued on scores of which higher ones are better; leave "
                "--lower-is-better out, or issue it again with it."
            )
        return self.reading.lower_is_better

    def difference(self, table: Path | str, scale: str, written: str) -> str | None:
        """Say how the scores of a table are of another scale, unless it is said which they are.

        They are `written` as such of a scale, and read as such of `scale`.
        """
        expected = self.reading.scale
        # the range of scores tells of others
        divided = scale == PERCENT and expected not in ("", PERCENT)
        if self.asked is not None or not (divided or (expected, written) == _DOUBTFUL):
            return None
        found = ScoreReading(written).words if written else "scores up to 1"
        return (
            f"{table} has {found}, and {self.name} {self.verb} {self.reading.words}; give scores "
            "of the same judge on the same scale"
        )

    def doubt(self, table: Path | str, scores: NDArray[np.float64], tasks: int) -> Doubt | None:
        """Say how scores of some tasks are unlike those of the certificate."""
        from certify_assets.certificates.scale import scale_fault

        if self.scores is None or self.asked is not None:
            return None
        fault = scale_fault(self.scores, scores, tasks)
        if fault is None:
            return None
        low, middle, high = np.nanquantile(scores, (0, 0.5, 1))
        own = self.scores
        percentages = low >= 0 and 1 < high <= 100 and own["low"] >= 0 and own["high"] <= 1
        option = "probability" if percentages or self.reading.scale == PERCENT else "log-odds"
        return Doubt(
            f"{table} has scores from {low:.4g} to {high:.4g} (median {middle:.4g}), and "
            f"{self.name} {self.verb} scores from {own['low']:.4g} to {own['high']:.4g} (median "
            f"{own['quantiles'][2]:.4g}): {fault.reason}. Give scores of the same judge on the "
            f"same scale, or say with --score-scale {option} that these are right.",
            fault.sure,
        )

    def require(self, path: Path, scale: str, written: str) -> None:
        """Refuse a table whose scores are of another scale, unless it is said which they are."""
        if found := self.difference(path, scale, written):
            percentages, unchanged = "probability (percentages)", "log-odds (as they are)"
            options = {"": f"{percentages} or {unchanged}", PERCENT: percentages}
            option = options.get(self.reading.scale, unchanged)
            raise InputError(f"{found}, or say with --score-scale {option} that these are so.")
