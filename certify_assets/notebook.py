"""Certificates of arrays and DataFrames, with what a notebook asks of them.

A frame is anything with columns that Arrow can read: pandas, Polars, a pyarrow Table. None of these
libraries is loaded for arrays.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets import certificates as core
from certify_assets.certificates import Certificate, CertificateSet, Sides
from certify_assets.certificates.certifier import parted
from certify_assets.certificates.ladder import issue
from certify_assets.certificates.procedures import find_procedure
from certify_assets.errors import InputError
from certify_assets.tables.settings import (
    COLUMNS,
    TABLE_SETTINGS,
    IssuedReading,
    ReadingOptions,
    TableSettings,
    checked_columns,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.certificates.evidence import GivenPool
    from certify_assets.reports.card import Explained
    from certify_assets.tables.score_table import ScoreTable

_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_NAMED_COLUMNS = re.compile(r"--columns (\w+=\w+(?:,\w+=\w+)*)")


@dataclass(frozen=True)
class _Evidence:
    """The table that certificates are of."""

    scores: ArrayLike
    outcomes: ArrayLike
    tasks: Sequence[Any] | NDArray[Any]
    reading: ReadingOptions
    pool: GivenPool | None = None
    read_as: tuple[str, ...] = ()

    def explained(self, certificate: Certificate) -> Explained:
        """Return a certificate with its grid, and with what stands in the way of a wider one."""
        from certify_assets.certificates import diagnose, settings_of, threshold_curve
        from certify_assets.reports.card import Explained

        table, settings = (self.scores, self.outcomes, self.tasks), dict(settings_of(certificate))
        pool = self.pool if "pool" in certificate.inputs else None
        return Explained(
            certificate,
            threshold_curve(*table, pool=pool, **settings),
            diagnose(*table, pool=pool, **settings),
        )


class Account(str):
    """An account in words, which a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _NotebookMethods:
    """What a notebook asks of certificates of one table."""

    def _issued(self) -> tuple[Sides, _Evidence]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from certify_assets.reports.card import card

        sides, evidence = self._issued()
        return card(sides, evidence.read_as)

    @cached_property
    def _explained(self) -> list[Explained]:
        sides, evidence = self._issued()
        return [evidence.explained(item) for item in sides.certificates]

    def explain(self) -> Account:
        """Say in words what is promised, why by this threshold, and what would widen it."""
        from certify_assets.reports.card import account

        sides, evidence = self._issued()
        return Account(account(sides, self._explained, evidence.read_as))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the error among decided runs by their share on matplotlib axes, and return them."""
        from certify_assets.reports.card import draw_curves

        return draw_curves(self._explained, axes)

    def decide(self, rows: Any) -> Any:
        """Decide runs by their scores.

        Parameters
        ----------
        rows : DataFrame or array_like of float
            A frame whose column of scores has the name that :func:`certify` read; or scores.

        Returns
        -------
        DataFrame or array of str
            For a frame, the same kind of frame with the further columns decision ("reject",
            "release" or "human") and reason. For scores, an array of decisions.
        """
        sides, evidence = self._issued()
        if not _is_frame(rows):
            return core.decide(sides.certificates, _higher(rows, evidence.reading)).decisions
        scores = _frame_scores(rows, evidence.reading, sides.certificates)
        made = core.decide(sides.certificates, scores)
        return _with_columns(
            rows, {"decision": made.decisions.tolist(), "reason": made.reasons.tolist()}
        )


class TableCertificate(_NotebookMethods, Certificate):
    """A certificate that keeps its table, as :func:`certify` returns it.

    It equals the certificate with the same values, and writes the same document.
    """

    # outside of the values that a certificate is written and hashed from
    _evidence: _Evidence | None = None

    @classmethod
    def of(cls, certificate: Certificate, evidence: _Evidence) -> TableCertificate:
        """Return a certificate with its table."""
        made = cls(**dict(certificate))
        made._evidence = evidence
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Certificate):
            return NotImplemented
        return dict(self) == dict(other)

    # as of a certificate, whose values are no keys
    __hash__ = None  # type: ignore[assignment]

    def _issued(self) -> tuple[Sides, _Evidence]:
        if self._evidence is None:
            raise InputError(
                "The certificate is a changed copy without its table. Use the one that certify "
                "returned."
            )
        return Sides((self,)), self._evidence


@dataclass(frozen=True)
class CertificatePair(_NotebookMethods, CertificateSet):
    """Certificates of both sides of one table.

    Attributes
    ----------
    reject, release : Certificate
    certificates : tuple of Certificate
        Both, reject first.
    decided, human : float
        Shares of scored runs that the judge decides, and that go to review.
    promise : str
        What both promise together.
    """

    _evidence: _Evidence = field(repr=False, compare=False)

    @property
    def reject(self) -> Certificate:
        """The certificate of the runs that are labelled failures."""
        return self.certificates[0]

    @property
    def release(self) -> Certificate:
        """The certificate of the runs that are labelled successes."""
        return self.certificates[1]

    @property
    def decided(self) -> float:
        """The share of scored runs that the judge decides."""
        return self.sides.decided

    @property
    def human(self) -> float:
        """The share of scored runs that reviewers decide."""
        return self.sides.human

    def _issued(self) -> tuple[Sides, _Evidence]:
        return self.sides, self._evidence


@overload
def certify(
    scores: Any,
    outcomes: ArrayLike | None = None,
    tasks: Sequence[Any] | NDArray[Any] | None = None,
    *,
    side: Literal["both"] = "both",
    **keywords: Any,
) -> CertificatePair: ...


@overload
def certify(
    scores: Any,
    outcomes: ArrayLike | None = None,
    tasks: Sequence[Any] | NDArray[Any] | None = None,
    *,
    side: Literal["reject", "release"],
    **keywords: Any,
) -> TableCertificate: ...


def certify(
    scores: Any,
    outcomes: ArrayLike | None = None,
    tasks: Sequence[Any] | NDArray[Any] | None = None,
    *,
    side: str = "both",
    promise: Literal["average", "confident", "proved"] | None = None,
    columns: Mapping[str, str] | None = None,
    score_scale: Literal["probability", "log-odds"] | None = None,
    lower_is_better: bool = False,
    **keywords: Any,
) -> TableCertificate | CertificatePair:
    """Certify the largest share of runs that a judge may decide alone at an error budget.

    Parameters
    ----------
    scores : array_like of float, DataFrame, or path
        Judge scores, higher = more likely a success; NaN = unscored. Or a table with a row for each
        run: of pandas, Polars or Arrow, or the path of a file. Its columns are read as by ``certify
        certificate``. If it has a column split, the rows with split "cal" are used.
    outcomes : array_like, optional
        1 success, 0 failure; not with a table.
    tasks : sequence of hashables, optional
        Task of each run; not with a table.
    side : {"both", "reject", "release"}
    promise : {"average", "confident", "proved"}, optional
        An error within alpha on average, with confidence by simulation, or with a proof. By default
        confident. If that certifies nothing and every task has one run, average is tried.
    columns : mapping of str to str, optional
        Names of the table's columns, by ``task``, ``score``, ``outcome``, ``id``, ``agent`` and
        ``split``.
    score_scale : {"probability", "log-odds"}, optional
        Scale of the scores of a table. With "probability", percentages are divided by 100. By
        default scores are not changed.
    lower_is_better : bool
        Whether a lower score means a likelier success. Scores are negated, here and by ``decide``.
    **keywords
        Those of :func:`certify_assets.certificates.certify`: alpha, delta, procedure, pool and
        others. With ``joint=True``, both sides hold together at 1 − delta. For a table also
        success, failure, threshold, no_label, unlabelled and ids: see
        :class:`certify_assets.tables.settings.TableSettings`.

    Returns
    -------
    TableCertificate or CertificatePair
        Certificates of both sides, or of the one side that was asked for. Both classes have the
        methods ``decide``, ``plot`` and ``explain``, and a notebook shows them as a card.

    Raises
    ------
    InputError
        If a value or a column cannot be used. For a table, the message lists all faults.
    """
    words = {name: keywords.pop(name) for name in TABLE_SETTINGS if name in keywords}
    settings, named = TableSettings.of(words), checked_columns((columns or {}).items())
    reading = ReadingOptions(named, settings, lower_is_better, score_scale)
    joint = keywords.pop("joint", False)
    about, asked = parted(keywords, more=["joint"])
    _refuse_other_order(scores, outcomes, tasks)
    scores = Path(scores) if isinstance(scores, str) else scores
    read_as: tuple[str, ...] = ()
    if isinstance(scores, Path) or _is_frame(scores):
        if outcomes is not None or tasks is not None:
            raise InputError("A table holds outcomes and tasks itself. Give only the table.")
        table = _read(scores, reading)
        read_as, given = table.read_as, table.evidence
    elif outcomes is None or tasks is None:
        raise InputError(
            "Outcomes or tasks are missing. Give them with the scores, or give a table."
        )
    else:
        of_tables = {**words, "columns": columns, "score_scale": score_scale}
        if unread := [name for name, value in of_tables.items() if value is not None]:
            raise InputError(f"{unread[0]} is for tables, but arrays were given. Leave it out.")
        given = {"scores": _higher(scores, reading), "outcomes": outcomes, "tasks": tasks}
        given["provenance"] = reading.provenance({}, "")
    if not isinstance(about.get("sample"), Mapping | None):
        raise InputError(
            "sample is not a file, but the mapping that a certificate has of its draw. To certify "
            "a drawn file, use `certify certificate SCORES --sample FILE`."
        )
    about["provenance"] = {**given["provenance"], **(about.get("provenance") or {})}
    certifier = core.Certifier.of(**{**given, **about})
    if asked.get("procedure") is not None:
        # several side by side are a table of the command
        find_procedure(asked["procedure"])
    found = issue(certifier, asked, side=side, promise=promise, joint=joint)
    columns_given = {name: given[name] for name in ("scores", "outcomes", "tasks")}
    evidence = _Evidence(**columns_given, reading=reading, pool=about.get("pool"), read_as=read_as)
    if side != "both":
        return TableCertificate.of(found.certificates[0], evidence)
    return CertificatePair(found.certificates, evidence)


def _refuse_other_order(*columns: Any) -> None:
    """Refuse Series with other indexes: pandas would match them by these, arrays go by place."""
    given = [column.index for column in columns if hasattr(column, "iloc")]
    if any(not index.equals(given[0]) for index in given):
        raise InputError(
            "scores, outcomes and tasks have different indexes. Give one table, or call "
            "reset_index(drop=True) if their order is the same."
        )


def _is_frame(value: object) -> bool:
    if hasattr(value, "collect"):
        raise InputError("The table is lazy, but its rows are needed. Give table.collect().")
    # a column of a frame speaks Arrow as well, and has no columns
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def _higher(scores: ArrayLike, reading: ReadingOptions) -> ArrayLike:
    """Return scores of which a higher one means that a success is likelier."""
    return -np.asarray(scores, dtype=np.float64) if reading.lower_is_better else scores


def _read(frame: Any, reading: ReadingOptions) -> ScoreTable:
    """Read a frame as a score table, in the words of a call."""
    from certify_assets.tables.cells import TableError
    from certify_assets.tables.score_table import read_score_table

    try:
        return read_score_table(frame, reading).choose_split("cal").labelled()
    except TableError as problems:
        columns = {name: text for name, text in problems.options.items() if name in COLUMNS}
        words = [f"columns={ {**reading.columns, **columns}!r}"] if columns else []
        words += [
            f"{name}={text!r}" for name, text in problems.options.items() if name not in COLUMNS
        ]
        remedy = f"\n  {problems.lead}: certify(table, {', '.join(words)})" if words else ""
        raise InputError(_in_python(str(problems)) + remedy) from None
    except InputError as error:
        raise InputError(_in_python(str(error))) from None


def _in_python(sentence: str) -> str:
    """Return a sentence of the command with its options as keywords."""
    sentence = _NAMED_COLUMNS.sub(
        lambda found: f"columns={dict(one.split('=') for one in found[1].split(','))}", sentence
    ).replace("--set ", "")
    return _OPTION.sub(lambda option: f"{option[1].replace('-', '_')}=", sentence)


def _frame_scores(
    frame: Any, reading: ReadingOptions, certificates: Sequence[Certificate]
) -> ArrayLike:
    from certify_assets.tables.score_table import read_score_table

    issued = IssuedReading.of("the certificate", certificates)
    try:
        reading = replace(reading, columns={}).under(issued)
        table = read_score_table(frame, reading, fields=("score",))
    except InputError as error:
        raise InputError(_in_python(str(error))) from None
    if (doubt := table.doubt(issued)) is not None:
        if doubt.sure:
            raise InputError(f"{doubt.sentence}, or give the scores as an array if they are right.")
        warnings.warn(f"{doubt.sentence}.", stacklevel=4)
    return table.scores


def _with_columns(frame: Any, columns: Mapping[str, list[str]]) -> Any:
    """Return a frame of the same kind with further columns, in place of those of these names."""
    if hasattr(frame, "assign"):
        return frame.assign(**columns)
    if hasattr(frame, "with_columns"):
        return frame.with_columns(type(frame)(columns).get_columns())
    import pyarrow as pa

    table = pa.table(frame)
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pa.array(values, type=pa.string()))
    return table
