"""How the scores of a table were read, kept with its certificate for the tables that follow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from certify_assets.errors import InputError
from certify_assets.tables.settings import TableSettings

if TYPE_CHECKING:
    from certify_assets.certificates.inputs import ScoreRange
    from certify_assets.evaluation.score_table import ScoreTable

PERCENT: Final = "percent"
# 8.7 of a hundred and of ten look alike
_DOUBTFUL = (PERCENT, "0 to 10")
_SCALE, _LOWER, _COLUMNS = "score_scale", "lower_is_better", "columns"
#: how the columns of most score tables are called, by field
COLUMNS: Final[Mapping[str, str]] = {
    "task": "task_id",
    "score": "score",
    "outcome": "outcome",
    "id": "trajectory_id",
    "agent": "agent",
    "split": "split",
}
# a name may hold commas: the next column begins where its field is named
_NEXT = re.compile(rf",(?=(?:{'|'.join(COLUMNS)})=)")


def parse_columns(text: str) -> dict[str, str]:
    """Read names of columns by their fields, written as task=NAME,score=NAME."""
    return checked_columns(part.partition("=")[::2] for part in (_NEXT.split(text) if text else ()))


def checked_columns(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names of columns by their fields, each given once; InputError says which there are."""
    named: dict[str, str] = {}
    for name, column in pairs:
        if name not in COLUMNS or not column or name in named:
            raise InputError(
                f"columns has {f'{name}={column}'!r}. Give each of {', '.join(COLUMNS)} once, as "
                "FIELD=NAME separated by commas."
            )
        named[name] = column
    used: dict[str, str] = {}
    for name in ("task", "score", "outcome"):
        column = named.get(name, COLUMNS[name])
        if (other := used.setdefault(column, name)) != name:
            raise InputError(
                f"columns gives {other} and {name} the column {column!r}. Give each a column of "
                "its own."
            )
    return named


def written_columns(named: Mapping[str, str]) -> str:
    """Write names of columns as `parse_columns` reads them; those of every table are left out."""
    return ",".join(
        f"{name}={named[name]}"
        for name, plain in COLUMNS.items()
        if named.get(name, plain) != plain
    )


@dataclass(frozen=True)
class ScoreReading:
    """How a table was read where that is not as it is written."""

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
        """Return what a certificate says of it: nothing where it is read as it is written."""
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
        return _scale_words(self.scale) or "probabilities or log-odds"


def _scale_words(scale: str) -> str:
    return "percentages" if scale == PERCENT else f"scores from {scale}" * bool(scale)


class Doubt(NamedTuple):
    """Why scores may not be those of a judge; `sure` where they are refused."""

    sentence: str
    # what --score-scale would say if they are
    option: str
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

    def doubt(self, table: ScoreTable) -> Doubt | None:
        """Say how the scores of a table are unlike those of the certificate.

        There is no doubt where it is said which scale they are on.
        """
        from certify_assets.certificates.scale import scale_fault

        if self.asked is not None:
            return None
        own, scale = f"{self.name} {self.verb}", self.reading.scale
        same = "Give scores of the same judge on the same scale"
        # the range of scores tells of others
        divided = table.reading.scale == PERCENT and scale not in ("", PERCENT)
        if divided or (scale, table.written) == _DOUBTFUL:
            found = _scale_words(table.written) or "scores up to 1"
            option = {"": "probability or log-odds", PERCENT: "probability"}.get(scale, "log-odds")
            return Doubt(
                f"{table.path} has {found}, and {own} {self.reading.words}. {same}", option, True
            )
        tasks = len(set(table.tasks.tolist())) or table.scores.size
        if self.scores is None or (fault := scale_fault(self.scores, table.scores, tasks)) is None:
            return None
        low, middle, high = np.nanquantile(table.scores, (0, 0.5, 1))
        least, most = self.scores["low"], self.scores["high"]
        percentages = low >= 0 and 1 < high <= 100 and least >= 0 and most <= 1
        return Doubt(
            f"{table.path} has scores from {low:.4g} to {high:.4g} (median {middle:.4g}), and "
            f"{own} scores from {least:.4g} to {most:.4g} (median "
            f"{self.scores['quantiles'][2]:.4g}): {fault.reason}. {same}",
            "probability" if percentages or scale == PERCENT else "log-odds",
            fault.sure,
        )
