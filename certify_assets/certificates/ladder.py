"""The ladder of promises: the strongest that a table reaches, and what the next one costs.

Each promise counts an exercise that certifies nothing as kept. So a weaker promise may be tried
where a stronger one certifies nothing: one of the two is broken with probability at most 2δ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from certify_assets.certificates.certifier import Certifier
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.diagnosis import approximate, diagnose_evaluation
from certify_assets.certificates.evaluation import evaluate
from certify_assets.certificates.findings import SECOND_PROMISE
from certify_assets.certificates.procedures import (
    AVERAGE,
    CONFIDENT,
    PROMISED,
    PROVED,
    find_procedure,
)
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet
from certify_assets.errors import UnfitTableError, UnlabelledRunError
from certify_assets.words import percent


def procedures_of(promise: str | None, *, drawn: bool) -> tuple[str, ...]:
    """Return the procedures to try in turn: one for a promise, two where none is asked for."""
    if promise is not None:
        return (PROMISED[promise],)
    return PROMISED[PROVED if drawn else CONFIDENT], PROMISED[AVERAGE]


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
        By the first procedure that certifies anything. Where none does, by the first that the
        table is large enough for.

    Raises
    ------
    UnfitTableError
        If the table has too few tasks for each procedure, or no draw; that of the last one.
    UnlabelledRunError
        If a drawn run lacks a label that the first procedure needs.
    """
    sides = tuple(sides)
    found: CertificateSet | None = None
    for place, name in enumerate(procedures):
        last = place == len(procedures) - 1
        taken = certifier
        if not find_procedure(name).calibrated and place:
            taken = certifier.without_pool()
        if found is not None:
            taken = replace(taken, provenance=_tried(taken.provenance, procedures[0], settings))
            if settings.get("candidates", 1) > 1:
                # a judge that was chosen on these labels has no promise on average
                break
        try:
            asked = Settings(**{**settings, "procedure": name})
            now = taken.issue_set([asked], sides=sides, joint=joint)
        except UnfitTableError:
            if last and found is None:
                raise
            continue
        except UnlabelledRunError:
            if found is None:
                raise
            continue
        if any(item.certified for item in now.certificates):
            return now
        found = found or now
    assert found is not None
    return found


def _tried(
    provenance: Mapping[str, str] | None, before: str, settings: Mapping[str, Any]
) -> dict[str, str]:
    delta = Settings(**settings).delta
    return {
        **(provenance or {}),
        SECOND_PROMISE: f"{before} certified nothing on these labels, so the promise on average "
        f"was tried. One of the two promises is broken with probability at most {200 * delta:.4g} "
        "%.",
    }


def next_rung(certifier: Certifier, found: CertificateSet, settings: Settings) -> str:
    """Say what the next stronger promise costs, as one line; empty where no number of tasks helps.

    The next promise is that of confidence; with a draw, or where that is reached, the proof.
    """
    certified = any(item.certified for item in found.certificates)
    promise = found.certificates[0].promise
    if certified and promise == PROVED:
        return ""
    confident = certified and promise == CONFIDENT
    proved = confident or certifier.sample is not None
    name = PROMISED[PROVED if proved else CONFIDENT]
    trust = f"{100 * (1 - settings.delta):.4g} % confidence{' with a proof' * proved}"
    one_a_task = len(certifier.table.labels) == certifier.table.rows
    needed = []
    for side in dict.fromkeys(item.side for item in found.certificates):
        asked = settings.replace(procedure=name, side=side)
        table = certifier.table.unknown_as_wrong(side)
        evaluation = evaluate(table, asked)
        if confident and evaluation.chosen is not None and not certifier.left_out:
            share = percent(evaluation.chosen_coverage)
            return f"The same labels decide {share} of runs with a proof: --promise proved."
        needed.append(diagnose_evaluation(table, evaluation, asked).tasks_needed)
    least = min((number for number in needed if number), default=None)
    if least is None:
        return ""
    if proved and (certifier.left_out or not one_a_task):
        return (
            f"One labelled run of each of about {approximate(least)} tasks gives {trust}: "
            "certify sample."
        )
    more = least - len(certifier.table.labels)
    return f"Label about {approximate(more)} more task{'s' * (more > 1)} for {trust}."
