"""How the scores of a table were read, kept with its certificate for the tables that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from certify_assets.errors import InputError
from certify_assets.tables.settings import TableSettings, parse_columns

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.certificates.inputs import ScoreRange

PERCENT: Final = "percent"


@dataclass(frozen=True)
class ScoreReading:
    """How a table was read where that is not as it is written."""

    # percent (divided by 100), or the scale of scores that are as they are written: 0 to 10
    score_scale: str = ""
    lower_is_better: bool = False
    settings: TableSettings = field(default_factory=TableSettings)
    # as `written_columns` has them
    columns: str = ""
    # number of tasks that were joined to groups; 0 where tasks are as they are
    grouped: int = 0

    @classmethod
    def of_provenance(cls, provenance: Mapping[str, str]) -> ScoreReading:
        """Return how the table of a certificate was read."""
        names = [entry.name for entry in fields(TableSettings)]
        settings = TableSettings.of({name: provenance.get(name) for name in names})
        parse_columns(columns := provenance.get("columns", ""))
        lower = provenance.get("lower_is_better") == "true"
        grouped = provenance.get("grouped", "0")
        if not grouped.isdecimal():
            raise InputError(f"provenance.grouped is {grouped!r}; it is a number of tasks.")
        return cls(provenance.get("score_scale", ""), lower, settings, columns, int(grouped))

    def provenance(self) -> dict[str, str]:
        """Return what a certificate says of it: nothing where it is read as it is written."""
        said = {
            "score_scale": self.score_scale,
            "lower_is_better": "true" if self.lower_is_better else "",
            **self.settings.provenance(),
            "columns": self.columns,
            "grouped": str(self.grouped or ""),
        }
        return {name: words for name, words in said.items() if words}

    @property
    def words(self) -> str:
        """Say what the scores are."""
        return scale_words(self.score_scale) or "probabilities or log-odds"


def scale_words(scale: str) -> str:
    """Say what the scores of a scale are; "" where it is none of grades or percentages."""
    if scale == PERCENT:
        return "percentages"
    return f"scores from {scale}" if scale else ""


@dataclass(frozen=True)
class IssuedReading:
    """How the table of a certificate was read, for those that are read after it."""

    # what the certificate is called in messages
    name: str
    reading: ScoreReading
    scores: ScoreRange | None = None
    verb: str = "was issued on"

    @classmethod
    def of(cls, name: Path | str, certificates: Iterable[Certificate]) -> IssuedReading:
        """Return the reading of certificates of one table."""
        given = list(certificates)
        readings = {ScoreReading.of_provenance(item.provenance) for item in given}
        if len(readings) > 1:
            raise InputError(
                f"{name} holds certificates of scores that were read in different ways; choose one "
                "by --side, --alpha and --procedure."
            )
        scores = given[0].inputs.get("scores") if given else None
        return cls(str(name), next(iter(readings), ScoreReading()), scores)


@dataclass(frozen=True)
class ReadingOptions:
    """How score tables are to be read.

    Parameters
    ----------
    columns
        Names of columns by their fields; case, spaces and hyphens count for nothing.
    settings
        How outcomes and ids are read. By default 0 and 1, yes and no, true and false, pass and
        fail and the like are outcomes.
    lower_is_better
        Whether every score is negated.
    score_scale
        "probability" where scores are from 0 to 1, or percentages, which are divided by 100;
        "log-odds" where they are any number. By default they are taken as they are.
    issued
        How the table was read whose scores are on the same scale, unless `score_scale` is given.
    remembered
        What the columns of an earlier table were called. Where a table lacks such a column, it has
        the name that it has in most tables.
    grouped
        Whether tasks are joined to the groups of a column, which a table must have then. By default
        they are where it has one.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    settings: TableSettings = field(default_factory=TableSettings)
    lower_is_better: bool = False
    score_scale: str | None = None
    issued: IssuedReading | None = None
    remembered: Mapping[str, str] | None = None
    grouped: bool | None = None

    def as_issued(self, name: Path | str, certificates: Iterable[Certificate]) -> ReadingOptions:
        """Return options that read scores as those of certificates were; refuse others."""
        return self.under(IssuedReading.of(name, certificates))

    def under(self, issued: IssuedReading) -> ReadingOptions:
        """Return options that read tables as others were read; refuse options that contradict."""
        reading, asked = issued.reading, self.score_scale
        contrary = {PERCENT: "log-odds", "": None}.get(reading.score_scale, "probability")
        if asked is not None and asked == contrary:
            raise InputError(
                f"{issued.name} was issued on {reading.words}, which --score-scale {asked} would "
                "read in another way; leave it out."
            )
        if self.lower_is_better and not reading.lower_is_better:
            raise InputError(
                f"{issued.name} was issued on scores of which higher ones are better; leave "
                "--lower-is-better out, or issue it again with it."
            )
        if "group" in self.columns and not reading.grouped:
            raise InputError(
                f"{issued.name} was issued on tasks, not on groups of them. Leave "
                f"--columns group={self.columns['group']} out, or issue it again with it."
            )
        return ReadingOptions(
            self.columns,
            self.settings.under(reading.settings, issued.name),
            reading.lower_is_better,
            "probability" if reading.score_scale == PERCENT else asked,
            # there is no doubt where it is said which scale scores are on
            issued if asked is None else None,
            parse_columns(reading.columns),
            reading.grouped > 0,
        )
