"""A scorer of Inspect AI that passes or fails a sample where a certificate lets a judge decide.

    inspect score LOG --scorer certify/certified -S certificate=certificate.json -S judge=NAME

Every sample gets the score ``certified``, an object with two values. ``certified`` is C or I where
the certificate decides, and otherwise unscored, with a reason. ``decided`` is 1 or 0. The metrics
are ``decided_share`` and ``certified_error_bound``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
from inspect_ai.solver import TaskState

from certify_assets.errors import InputError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _under_certify(function: _Function) -> _Function:
    """Register under the name given: Inspect would put the package of the module before it."""
    function.__module__ = "certify"
    return function


@metric(name="certify/decided_share", scores="unreduced")
@_under_certify
def decided_share() -> Metric:
    """Return the metric: the share of samples that the certificate decides."""

    def share(scores: list[SampleScore]) -> float:
        decided = [one.score.as_dict()["decided"] for one in scores]
        return sum(map(float, decided)) / len(decided) if decided else math.nan

    return share


@metric(name="certify/certified_error_bound", scores="unreduced")
@_under_certify
def certified_error_bound() -> Metric:
    """Return the metric: the share of decided samples that may be wrong, by the certificate."""

    def bound(scores: list[SampleScore]) -> float:
        about = [one.score.metadata or {} for one in scores]
        return max((float(one["alpha"]) for one in about if "alpha" in one), default=math.nan)

    return bound


@scorer(name="certify/certified", metrics=[decided_share(), certified_error_bound()])
@_under_certify
def certified(certificate: str, judge: str | None = None, alpha: float | None = None) -> Scorer:
    """Return a scorer that decides samples by another of their scores, under a certificate.

    Parameters
    ----------
    certificate : str
        File of a certificate, or of one for each side, issued for this judge.
    judge : str, optional
        Name of the judge's score, or ``NAME/KEY``. By default the column that the certificate was
        issued on.
    alpha : float, optional
        Which budget, where the file holds several.

    Raises
    ------
    InputError
        If the file holds no such certificate, or a sample has no such score.
    """
    from pathlib import Path

    from certify_assets.certificates import decide
    from certify_assets.certificates.certificate_files import Choice, load_certificates, one_a_side
    from certify_assets.corpora.inspect_verdicts import SCORE, SampleVerdict, cells, verdict_fields
    from certify_assets.tables.settings import PERCENT, IssuedReading, parse_columns

    path = Path(certificate)
    certificates = one_a_side(path, load_certificates(path, Choice(alpha=alpha)))
    reading = IssuedReading.of(path, certificates).reading
    column = judge or parse_columns(reading.get("columns", "")).get("score", "score")
    unit = 100 if reading.get("score_scale") == PERCENT else 1
    unit = -unit if "lower_is_better" in reading else unit

    async def score(state: TaskState, target: Target) -> Score:
        values = cells({name: one for name, one in (state.scores or {}).items() if name != SCORE})
        if column not in values:
            held = ", ".join(values) or "none"
            raise InputError(
                f"Sample {state.sample_id} has no score {column!r}; it has {held}. Name the "
                "judge's with -S judge=NAME, and keep the scores with --action append."
            )
        value = values[column]
        if isinstance(value, str):
            raise InputError(
                f"Sample {state.sample_id} has {value!r} as {column!r}, which is not a number. "
                "Name another score with -S judge=NAME."
            )
        # a frame a sample would take longer than all the rest
        rows = decide(certificates, math.nan if value is None else value / unit)
        verdict = SampleVerdict(str(rows.decisions[0]), str(rows.reasons[0]), value)
        return Score(**verdict_fields(verdict, certificates))

    return score
