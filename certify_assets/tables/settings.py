"""Settings for tables that can be read in two ways; certificates keep them for later tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets.errors import InputError, unknown_setting

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.certificates.inputs import ScoreRange

#: how the columns of most score tables are called, by field
COLUMNS: Final[Mapping[str, str]] = {
    "task": "task_id",
    "score": "score",
    "again": "score_again",
    "outcome": "outcome",
    "id": "trajectory_id",
    "agent": "agent",
    "group": "group",
    "split": "split",
    "annotator": "annotator",
}
#: the column by which the file of a draw says how it was drawn
DRAWN_BY = "drawn_by"
#: the scale of scores that were divided by 100
PERCENT = "percent"
# a name may hold commas: the next column begins where its field is named
_NEXT = re.compile(rf",(?=(?:{'|'.join(COLUMNS)})=)")
_OUTCOME = {"success", "failure", "threshold"}


def parse_columns(text: str) -> dict[str, str]:
    """Read names of columns by their fields, written as task=NAME,score=NAME."""
    return checked_columns(part.partition("=")[::2] for part in (_NEXT.split(text) if text else ()))


def checked_columns(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return names of columns by their fields; InputError for an unknown or repeated field."""
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
    """Write names of columns as `parse_columns` reads them, without default names."""
    return ",".join(
        f"{name}={named[name]}"
        for name, plain in COLUMNS.items()
        if named.get(name, plain) != plain
    )


@dataclass(frozen=True)
class TableSettings:
    """How outcomes and ids of a table are read.

    Parameters
    ----------
    success, failure
        Values that are successes, and values that are failures. With one of the two, every other
        value is the opposite; with both, every other value is refused.
    threshold
        Outcomes are numbers; a success is this number or more.
    no_label
        Words in the outcome column that mean no outcome.
    unlabelled
        "drop" leaves rows without an outcome out where outcomes are needed.
    ids
        "fold" counts ids that differ only in spelling as one.
    """

    success: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()
    threshold: float | None = None
    no_label: tuple[str, ...] = ()
    unlabelled: str = ""
    ids: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TableSettings:
        """Read settings by name; None means not given. InputError names the fault."""
        if unknown := sorted(given.keys() - _READERS.keys()):
            raise unknown_setting(unknown[0], _READERS)
        said = {name: value for name, value in given.items() if value is not None}
        found = cls(**{name: _READERS[name](name, value) for name, value in said.items()})
        if found.threshold is not None and (found.success or found.failure):
            raise InputError(
                "threshold is for outcomes that are numbers, success and failure are for words. "
                "Give one of them."
            )
        words = [word.lower() for word in (*found.success, *found.failure, *found.no_label)]
        if twice := [word for word in words if words.count(word) > 1]:
            raise InputError(
                f"{twice[0]!r} is given twice among success, failure and no_label. Give it once."
            )
        return found

    def provenance(self) -> dict[str, str]:
        """Return the given settings as text, which `of` reads."""
        return {
            name: ",".join(value) if isinstance(value, tuple) else str(value).removesuffix(".0")
            for name, value in vars(self).items()
            if value not in ((), None, "")
        }


def words_of(name: str, value: Any) -> tuple[str, ...]:
    """Return a setting given as a list, or as words separated by commas; refuse empty words."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not all(found) or any("," in word for word in found):
        raise InputError(f"{name} is {value!r}. Give words separated by commas.")
    return found


def _number(name: str, value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} is {value!r}. Give a number.")
    return number


def _word(name: str, value: Any) -> str:
    only = {"unlabelled": "drop", "ids": "fold"}[name]
    if value != only:
        raise InputError(f"{name}={value} is not a setting. Give {name}={only}.")
    return only


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(("success", "failure", "no_label"), words_of),
    "threshold": _number,
    **dict.fromkeys(("unlabelled", "ids"), _word),
}
#: names of `TableSettings`
TABLE_SETTINGS: Final = tuple(_READERS)
_READING = (*_READERS, "columns", "grouped", "score_scale", "lower_is_better")


def reading_of(provenance: Mapping[str, str]) -> dict[str, str]:
    """Return, from a provenance, the settings by which its table was read."""
    return {name: provenance[name] for name in _READING if name in provenance}


@dataclass(frozen=True)
class IssuedReading:
    """How the table of a certificate was read; later tables are read in the same way."""

    # what the certificate is called in messages
    name: str
    # as `reading_of` returns it
    reading: Mapping[str, str]
    scores: ScoreRange | None = None

    @classmethod
    def of(cls, name: Path | str, certificates: Sequence[Certificate]) -> IssuedReading:
        """Return the reading of certificates of one table."""
        first, *others = (reading_of(item.provenance) for item in certificates)
        if any(other != first for other in others):
            raise InputError(
                f"{name} holds certificates of scores that were read in different ways. Choose one "
                "by --side, --alpha and --procedure."
            )
        return cls(str(name), first, certificates[0].inputs.get("scores"))


@dataclass(frozen=True)
class ReadingOptions:
    """How score tables are to be read.

    Parameters
    ----------
    columns
        Names of columns by their fields; case, spaces and hyphens are ignored.
    settings
        How outcomes and ids are read. By default 0 and 1, yes and no, true and false, pass and
        fail and the like are outcomes.
    lower_is_better
        Whether every score is negated.
    score_scale
        "probability" where scores are from 0 to 1, or percentages, which are divided by 100;
        "log-odds" where they are any number. By default scores are not changed.
    issued
        How an earlier table with scores on the same scale was read. `score_scale` has precedence.
    remembered
        Names of the columns of an earlier table. Where a table lacks such a column, the default
        name is used.
    grouped
        Whether tasks are joined to the groups of a column, which the table must have. By default
        they are joined if it has one.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    settings: TableSettings = field(default_factory=TableSettings)
    lower_is_better: bool = False
    score_scale: str | None = None
    issued: IssuedReading | None = None
    remembered: Mapping[str, str] | None = None
    grouped: bool | None = None

    def provenance(self, named: Mapping[str, str], scale: str, grouped: int = 0) -> dict[str, str]:
        """Return these options as a certificate records them; empty for the defaults."""
        said = {
            "score_scale": scale,
            "lower_is_better": "true" if self.lower_is_better else "",
            **self.settings.provenance(),
            "columns": written_columns(named),
            # number of tasks that were joined to groups
            "grouped": str(grouped or ""),
        }
        return {name: words for name, words in said.items() if words}

    def as_issued(self, name: Path | str, certificates: Sequence[Certificate]) -> ReadingOptions:
        """Return options that read scores as those of certificates were; refuse contradictions."""
        return self.under(IssuedReading.of(name, certificates))

    def under(self, issued: IssuedReading) -> ReadingOptions:
        """Return options that read tables as others were read; refuse contradictions."""
        known, mine = issued.reading, self.settings.provenance()
        settled = known.keys() | (_OUTCOME if known.keys() & _OUTCOME else set())
        wrong = [
            f"--set {name}={value}"
            for name, value in mine.items()
            if name in settled and known.get(name) != value
        ]
        lower, percent = known.get("lower_is_better") == "true", known.get("score_scale") == PERCENT
        if self.lower_is_better and not lower:
            wrong.append("--set lower_is_better=true")
        beyond = issued.scores and max(-issued.scores["low"], issued.scores["high"]) > 1
        if self.score_scale == ("log-odds" if percent else "probability" if beyond else ""):
            wrong.append(f"--set score_scale={self.score_scale}")
        if "group" in self.columns and "grouped" not in known:
            wrong.append(f"--columns group={self.columns['group']}")
        if wrong:
            said = " ".join(f"{name}={value}" for name, value in sorted(known.items()))
            raise InputError(
                f"The table of {issued.name} was read {f'with {said}' if said else 'as it is'}, "
                f"which {wrong[0]} contradicts. Leave {wrong[0]} out."
            )
        settings = {name: value for name, value in known.items() if name in _READERS}
        return ReadingOptions(
            self.columns,
            TableSettings.of({**mine, **settings}),
            lower,
            "probability" if percent else self.score_scale,
            # there is no doubt where it is said which scale scores are on
            issued if self.score_scale is None else None,
            parse_columns(known.get("columns", "")),
            "grouped" in known,
        )
