"""The certifier: every certificate is issued here, by whoever asks for it.

A `Certifier` is a calibration table with what else its certificates depend on. The settings are
all that is missing: the same certifier and settings give the same bytes, which is how a certificate
is verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, TypeAlias

from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates.certificate import Certificate, LedgerHead
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.inputs import Observations, SampleInputs, observe, repeated_rows
from certify_assets.certificates.issuance import issue
from certify_assets.certificates.pool import GivenPool, Pool, as_pool
from certify_assets.certificates.procedures import DEFAULT, find_procedure
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet, joint_deltas
from certify_assets.errors import InputError, UnfitTableError, unknown_setting
from certify_assets.work import WorkStage, under_way

#: scores, outcomes and tasks
GivenTable: TypeAlias = tuple[ArrayLike, ArrayLike, Sequence[Any] | NDArray[Any]]
#: keywords that say something of a table; all others are settings
_OF_TABLE: Final = (
    "pilot",
    "pool",
    "agents",
    "named",
    "alone",
    "selection",
    "provenance",
    "sample",
    "left_out",
)


class DeltaClaim(Protocol):
    """A share of δ that was claimed before anything was computed."""

    @property
    def delta(self) -> float:
        """δ of each side and budget."""

    @property
    def ledger(self) -> LedgerHead:
        """The event that claimed it."""


@dataclass(frozen=True, eq=False)
class Certifier:
    """A calibration table, and what else its certificates depend on.

    Attributes
    ----------
    table : Observations
    pilot : Observations, optional
        Other tasks, from which betting takes thresholds, start and bets.
    pool : Pool, optional
        Unlabelled runs of other tasks, from which pseudo_task takes how unequal tasks are in size.
    repeats : int
        Rows that repeat an earlier one, which a finding counts.
    alone : bool
        Whether the task of every row is the id of its run, which a finding says.
    selection : str, optional
        The rule by which this judge was chosen among candidates, for the reader.
    provenance : mapping of str to str, optional
        Names and hashes of what produced the scores; carried as they are.
    sample : SampleInputs, optional
        The draw that the runs of the table are of; runs without a label are then allowed.
    left_out : int
        Runs that are not in the table for want of a label; one_run and average then prove nothing.
    after : str, optional
        The procedure of a stronger promise that certified nothing on these labels, on any side.
    claim : DeltaClaim, optional
        The δ of certificates whose data root keeps an account of it, and the event that claimed it;
        without one, δ is that of the settings.
    """

    table: Observations
    pilot: Observations | None = None
    pool: Pool | None = None
    repeats: int = 0
    alone: bool = False
    selection: str | None = None
    provenance: Mapping[str, str] | None = None
    sample: SampleInputs | None = None
    left_out: int = 0
    after: str | None = None
    claim: DeltaClaim | None = None

    @classmethod
    def of(
        cls,
        scores: ArrayLike,
        outcomes: ArrayLike,
        tasks: Sequence[Any] | NDArray[Any],
        *,
        pilot: GivenTable | None = None,
        pool: GivenPool | None = None,
        agents: Sequence[Any] | NDArray[Any] | None = None,
        named: bool = False,
        **about: Any,
    ) -> Self:
        """Read arrays; for the parameters see :func:`certify`."""
        table = observe(scores, outcomes, tasks, partly=about.get("sample") is not None)
        return cls(
            table,
            pilot=None if pilot is None else observe(*pilot),
            pool=as_pool(pool),
            repeats=0 if named else repeated_rows(table, scores, outcomes, tasks, agents),
            **about,
        )

    def issue(self, settings: Settings) -> Certificate:
        """Issue one certificate."""
        claim = self.claim
        return issue(
            self.table,
            settings if claim is None else settings.replace(delta=claim.delta),
            pilot=self.pilot,
            pool=self.pool,
            provenance=self.provenance,
            selection=self.selection,
            repeats=self.repeats,
            alone=self.alone,
            ledger=None if claim is None else claim.ledger,
            sample=self.sample,
            left_out=self.left_out,
            after=self.after,
        )

    def issue_set(
        self, every: Sequence[Settings], *, sides: Iterable[str] = SIDES, joint: bool = False
    ) -> CertificateSet:
        """Issue certificates of several sides, by one procedure or several.

        Parameters
        ----------
        every : sequence of Settings
            One a procedure, whatever its side.
        sides : iterable of str
        joint : bool
            Both sides hold together at confidence 1 − δ, see :func:`joint_deltas`; else each by
            itself, and together at 1 − 2δ.
        """
        found: list[Certificate] = []
        unfit = None
        with under_way(WorkStage("certifying", len(every))) as stage:
            for asked in every:
                # of several procedures each takes what it reads
                taken = self if asked.method.calibrated or len(every) == 1 else self.without_pool()
                deltas = joint_deltas(taken.table, asked, taken.pilot, taken.pool) if joint else {}
                # of several procedures only those that this table can pass are of use
                try:
                    found += [
                        taken.issue(asked.replace(side=side, delta=deltas.get(side, asked.delta)))
                        for side in sides
                    ]
                except UnfitTableError as error:
                    unfit = error
                stage.done += 1
        if unfit is not None and not found:
            raise unfit
        return CertificateSet(tuple(found), every[-1].delta if joint else None)

    def without_pool(self) -> Self:
        """Return the certifier of procedures that read no pool."""
        return replace(self, pool=None)


def certify(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    **keywords: Any,
) -> Certificate:
    """Certify the largest share of the trajectories that a judge may decide alone at an error
    budget.

    Parameters
    ----------
    scores : array_like of float
        Judge scores, higher = more likely a success; NaN = unscored, left out and counted in the
        findings.
    outcomes : array_like
        1 success, 0 failure.
    tasks : sequence of hashables
        Task of each trajectory; attempts at one task stay together.
    pilot : tuple of scores, outcomes and tasks, optional
        Other tasks, from which betting takes thresholds, start and bets; without them it certifies
        nothing. No other procedure reads it.
    pool : Pool, or tuple of scores and tasks, optional
        Unlabelled runs of other tasks, from which pseudo_task takes how unequal tasks are in size;
        without them it takes that from the table alone. No other procedure accepts it.
    selection : str, optional
        The rule by which this judge was chosen among candidates, for the reader.
    agents : sequence of hashables, optional
        Agent of each trajectory: rows of different agents do not repeat one another.
    provenance : mapping, optional
        Names and hashes of what produced the scores; carried as they are.
    sample : mapping, optional
        The draw that the runs are of, as :meth:`Draw.fingerprint` has it. The outcome of a drawn
        run without a label, or with an unclear one, is −1.
    named : bool
        Whether every row is known to be a run of its own, as in a table with trajectory_id; else
        rows that repeat an earlier one are counted in a finding.
    alone : bool
        Whether the task of every row is the id of its run, which a finding says.
    left_out : int
        Runs that are not among these for want of a label. one_run and average are then refused.
    alpha, delta, side, procedure, seed, …
        The fields of :class:`Settings`.

    Returns
    -------
    Certificate

    Raises
    ------
    InputError
        If a value cannot be used.

    Notes
    -----
    A threshold is certified when its tail is at most its level, δ/(|Θ|·candidates) by default, and
    the guard passes; the widest one is taken.
    """
    about, settings = _parted(keywords)
    asked = Settings(**settings)
    return Certifier.of(scores, outcomes, tasks, **about).issue(asked)


def certify_sides(
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    sides: Sequence[str] = SIDES,
    procedures: Sequence[str] = (DEFAULT,),
    joint: bool = False,
    **keywords: Any,
) -> CertificateSet:
    """Certify several sides of one table, by one procedure or several.

    Parameters
    ----------
    scores, outcomes, tasks
    sides, procedures : sequence of str
    joint : bool
        See :meth:`Certifier.issue_set`.
    **keywords
        As for :func:`certify`; a procedure of several takes what it reads.

    Returns
    -------
    CertificateSet
        Procedures in the order given, of each the sides in theirs.
    """
    about, settings = _parted(keywords)
    if unknown := sorted(settings.keys() - Settings.model_fields.keys()):
        raise unknown_setting(unknown[0], [*Settings.model_fields, "joint"])
    every = procedure_settings(procedures, settings)
    certifier = Certifier.of(scores, outcomes, tasks, **about)
    return certifier.issue_set(every, sides=sides, joint=joint)


def _parted(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what is said of a table from the settings of its certificates."""
    about = {name: of for name, of in keywords.items() if name in _OF_TABLE}
    return about, {name: of for name, of in keywords.items() if name not in _OF_TABLE}


def procedure_settings(procedures: Sequence[str], settings: Mapping[str, Any]) -> list[Settings]:
    """Return the settings of each procedure; of several, of those that the settings allow.

    Of several, one that lacks the engine is taken without it.
    """
    found, refusal = [], None
    for name in procedures:
        lacks = find_procedure(name).calibrated and len(procedures) > 1
        own = {key: of for key, of in settings.items() if not (lacks and key == "engine")}
        try:
            found.append(Settings(**{**own, "procedure": name}))
        except InputError as error:
            refusal = refusal or error
    if refusal is not None and not found:
        raise refusal
    return found
