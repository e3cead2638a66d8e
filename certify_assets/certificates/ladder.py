"""The ladder of promises: the strongest that a table reaches, and the cost of the next one.

A promise counts as kept where nothing is certified. So a weaker promise may be tried where a
stronger one certifies nothing: on each side, one of the two is broken with probability at most 2δ.
For the average promise, this concerns its cap only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from certify_assets.certificates.certifier import Certifier, procedure_settings
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.diagnosis import Diagnosis, diagnose_evaluation, rounded
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.one_run import CAP
from certify_assets.certificates.procedures import (
    AVERAGE,
    CONFIDENT,
    EVERY_PROCEDURE,
    PROMISED,
    PROMISES,
    PROVED,
    Promise,
    find_procedure,
)
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet
from certify_assets.errors import InputError, UnfitTableError, UnlabelledRunError, quoted


def procedures_of(promise: str | None, *, drawn: bool) -> tuple[str, ...]:
    """Return the procedures to try in turn: one for a named promise, otherwise two."""
    if promise is not None:
        return (PROMISED[promise],)
    return PROMISED[PROVED if drawn else CONFIDENT], PROMISED[AVERAGE]


def issue(
    certifier: Certifier,
    settings: Mapping[str, Any],
    *,
    side: str = "both",
    promise: str | None = None,
    joint: bool = False,
) -> CertificateSet:
    """Issue by the given procedure, or by the strongest promise that certifies anything.

    Parameters
    ----------
    certifier : Certifier
    settings : mapping
        Fields of :class:`Settings`; the procedure may be "all".
    side : {"both", "reject", "release"}
    promise : {"average", "confident", "proved"}, optional
        The only promise to try.
    joint : bool
        See :meth:`Certifier.issue_set`.

    Raises
    ------
    InputError
        If settings contradict each other, or nothing fits the table.
    """
    if side not in ("both", *SIDES):
        raise InputError(f"side is {quoted(side)}. Give one of both, reject, release.")
    if promise not in (None, *PROMISES):
        raise InputError(f"promise is {quoted(promise)}. Give one of {', '.join(PROMISES)}.")
    if joint and side != "both":
        raise InputError("joint is about both sides. Leave it or side out.")
    sides = SIDES if side == "both" else (side,)
    procedure = settings.get("procedure")
    if procedure is None:
        tried = procedures_of(promise, drawn=certifier.sample is not None)
        return climb(certifier, tried, settings, sides=sides, joint=joint)
    if promise is not None:
        raise InputError("promise names the procedure. Leave procedure out.")
    names = EVERY_PROCEDURE if procedure == "all" else (procedure,)
    return certifier.issue_set(procedure_settings(names, settings), sides=sides, joint=joint)


def climb(
    certifier: Certifier,
    procedures: Sequence[str],
    settings: Mapping[str, Any],
    *,
    sides: Iterable[str] = SIDES,
    joint: bool = False,
) -> CertificateSet:
    """Issue certificates by the first of some procedures that certifies anything.

    Parameters
    ----------
    certifier : Certifier
    procedures : sequence of str
        The strongest promise first.
    settings : mapping
        Fields of :class:`Settings` but the procedure.
    sides, joint
        See :meth:`Certifier.issue_set`.

    Returns
    -------
    CertificateSet
        By the first procedure that certifies anything, or else by the first that the table is large
        enough for. With looks or candidates, only the first is tried.

    Raises
    ------
    UnfitTableError
        If the table has too few tasks for every procedure, or no draw; the last one's error.
    UnlabelledRunError
        If a drawn run lacks a label that the procedure being tried needs.
    """
    sides = tuple(sides)
    found: CertificateSet | None = None
    refusal: UnfitTableError | None = None
    for place, name in enumerate(procedures):
        chosen = settings.get("candidates", 1) > 1 or settings.get("looks", 1) > 1
        if place and (chosen or settings.get("alpha", 0) * CAP >= 1):
            # there is no promise on average for a chosen judge, several looks, or without its cap
            break
        asked = Settings(**{**settings, "procedure": name})
        taken = certifier.read_by(asked.method) if place else certifier
        if found is not None:
            taken = replace(taken, after=procedures[0])
        try:
            now = taken.issue_set([asked], sides=sides, joint=joint)
        except UnfitTableError as error:
            refusal = error
            continue
        except UnlabelledRunError as more:
            if found is None:
                raise
            raise UnlabelledRunError(
                f"The promise {find_procedure(procedures[0]).promise} is settled and certifies "
                "nothing, so you may stop here. More labels can only give the promise on average. "
                f"{more}",
                more.task,
                more.score,
            ) from None
        if now.certified:
            return now
        found = found or now
    if found is None:
        assert refusal is not None
        raise refusal
    return found


@dataclass(frozen=True)
class Rung:
    """The next promise, and the number of tasks that would give an even chance of it.

    Attributes
    ----------
    promise : {"confident", "proved"}
    side : str
        The side that needs the fewest tasks.
    tasks : int
        Tasks to label in all, to two digits: an order of magnitude.
    here : int
        Tasks of the table.
    delta : float
    """

    promise: Promise
    side: str
    tasks: int
    here: int
    delta: float

    @property
    def sentence(self) -> str:
        """Say what the promise costs."""
        trust = f"{100 * (1 - self.delta):.4g} % confidence"
        what, unless = "all attempts at", ""
        if self.promise == PROVED:
            trust, what = f"a proof ({trust})", "one run of each of"
            unless = ", unless looks were named beforehand"
        return (
            f"Labels of {what} about {self.tasks:,} tasks ({self.here:,} here) would give an even "
            f"chance of {trust}. They must be new labels{unless}. The number is estimated from "
            "these labels, within a factor of two."
        )


def next_rung(certifier: Certifier, found: CertificateSet, settings: Settings) -> Rung | None:
    """Return the next promise and its cost: "confident"; with a draw, or after that, "proved".

    It is the proof itself where that was asked for and certifies nothing. None after a proof, where
    these labels would do, and where no number of tasks helps. None too where labels of a part of
    the runs do not show what the limit is.
    """
    promise = found.certificates[0].promise
    if promise == PROVED and (found.certified or (certifier.table.outcomes < 0).any()):
        return None
    proved = promise == PROVED or certifier.sample is not None
    proved = proved or (found.certified and promise == CONFIDENT)
    name = PROMISED[PROVED if proved else CONFIDENT]
    # looks are those of one_run alone, and an engine that of a bootstrap
    looks = {} if name == PROMISED[PROVED] else {"looks": 1, "look": 1}
    asked = settings.replace(procedure=name, engine="auto", **looks)
    made = _diagnoses(certifier, found, asked)
    if any(item.stopped_by is None for item in made.values()):
        # a promise that is chosen by its result does not hold
        return None
    needed = {side: item.tasks_needed for side, item in made.items() if item.tasks_needed}
    if not needed:
        return None
    side = min(needed, key=lambda name: needed[name])
    here = made[side].tasks
    tasks = max(rounded(needed[side]), here + 1)
    return Rung(PROVED if proved else CONFIDENT, side, tasks, here, settings.delta)


def nearest_side(certifier: Certifier, found: CertificateSet, settings: Settings) -> str:
    """Return the side that the fewest tasks would certify; the first where no number would."""
    made = _diagnoses(certifier, found, settings)
    return min(made, key=lambda side: made[side].tasks_needed or math.inf)


def _diagnoses(
    certifier: Certifier, found: CertificateSet, settings: Settings
) -> dict[str, Diagnosis]:
    """Diagnose the sides of certificates under other settings."""
    made = {}
    for side in dict.fromkeys(item.side for item in found.certificates):
        asked = settings.replace(side=side)
        table = certifier.table.unknown_as_wrong(side)
        made[side] = diagnose_evaluation(table, evaluate(table, asked), asked)
    return made
