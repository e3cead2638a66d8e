"""Whether further scores are on the scale of those that a certificate was issued on."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certify_assets.arrays import Floats, Names
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.counts import covers
from certify_assets.certificates.inputs import LEVELS, ScoreRange, task_codes

#: what is less likely than this says of scores surely, or perhaps, that they are of another scale
_SURE, _PERHAPS = 0.001, 0.01
#: how far scores of one scale are apart at most, beyond chance (Kolmogorov, 95 %)
_UNLIKE, _CHANCE = 0.3, 1.36
#: tasks below which a share says little
_FEW = 10
_DIFFERENT = 0.1
_ALL = (0.0, *LEVELS, 1.0)
_ENDS = {1.0: "all are from 0 to 1, as probabilities are", 10.0: "all are from 0 to 10"}


class ScaleFault(NamedTuple):
    """A sign that scores are on another scale; `sure` where nothing else explains it."""

    reason: str
    sure: bool


def scale_fault(issued: ScoreRange, scores: Floats, tasks: int) -> ScaleFault | None:
    """Say how scores of some tasks differ in scale or sign from those of a certificate.

    Other agents, more or less successful ones, do not count as another scale.
    """
    found = np.sort(scores[np.isfinite(scores)])
    if not found.size:
        return None
    points = np.array([issued["low"], *issued["quantiles"], issued["high"]])
    unit = bool(points[0] >= 0 and points[-1] <= 1)
    reach = (points[-1] - points[0]) / 2
    outside = (found < points[0] - reach) | (found > points[-1] + reach)
    if unit and (found[0] < 0 or found[-1] > 1):
        return ScaleFault("not all are from 0 to 1", sure=True)
    if points[0] >= 0 and (found < 0).mean() >= LEVELS[0]:
        return ScaleFault("some are negative", sure=True)
    # grades have an end, log-odds have none
    if reach and outside.mean() >= (LEVELS[0] if points[0] >= 0 else 0.5):
        return ScaleFault("many are far outside of that range", sure=True)
    doubts = []
    for end, fact in _ENDS.items():
        # an agent of which every run fails alike has one score
        if 0 <= found[0] < found[-1] <= end:
            # of other agents, half of the scores that were elsewhere may be there
            share = _at_most(points, end) - (1.0 - _at_most(-points[::-1], 0.0))
            # grades may be the log-odds of an agent that always succeeds
            graded = end < 10 or points[0] >= 0
            sure = bool(graded and ((1 + share) / 2) ** tasks <= _SURE)
            doubts += [ScaleFault(fact, sure)] * (share**tasks <= _PERHAPS)
    # of probabilities p or grades, 1 − p or the grade from the other end
    ends = 0.0 if points[0] < 0 else float(points[0] + points[-1])
    doubts += _reversal(points, found, tasks, 1.0 if unit else ends)
    return max(doubts, key=lambda fault: fault.sure, default=None)


def _reversal(points: Floats, found: Floats, tasks: int, centre: float) -> list[ScaleFault]:
    """Whether scores fit a certificate's scores far better when reversed."""
    own, other = _distance(points, found), _distance(points, np.sort(centre - found))
    words = "negated" if centre == 0 else f"taken from {centre:g}"
    fault = ScaleFault(
        f"they fit that range where they are {words}", own >= _UNLIKE + _CHANCE / math.sqrt(tasks)
    )
    return [fault] if other <= own / 2 and own >= (_UNLIKE + _CHANCE / math.sqrt(tasks)) / 2 else []


def _distance(points: Floats, found: Floats) -> float:
    """Largest distance of the distribution of scores from the quantiles of others."""
    below, upto = (np.searchsorted(found, points, side) / found.size for side in ("left", "right"))
    return float(np.max(np.maximum(below - np.array(_ALL), np.array(_ALL) - upto)[1:-1]))


def _at_most(points: Floats, end: float) -> float:
    return float(np.interp(end, points, _ALL, 0.0, 1.0))


def share_doubt(certificate: Certificate, scores: Floats, tasks: Names) -> str | None:
    """Say where a certificate decides another share of a table than of its own, beyond chance."""
    from scipy.special import stdtrit

    scored = np.isfinite(scores)
    if certificate.threshold is None or not scored.any():
        return None
    inside = covers(certificate.side, certificate.threshold, scores[scored])
    codes = task_codes(tasks)[1][scored]
    sizes, of_task = np.bincount(codes), np.bincount(codes, weights=inside)
    number, share = int((sizes > 0).sum()), float(inside.mean())
    expected = certificate.coverage
    # of the certificate, runs of a task count as one: that is no less than its standard error
    spread = expected * (1 - expected) / max(1, certificate.tasks)
    spread += float(np.square(of_task - share * sizes).sum()) / codes.size**2
    limit = float(stdtrit(max(1, number - 1), 1 - _SURE / 2)) * math.sqrt(spread)
    if number < _FEW or abs(share - expected) <= max(_DIFFERENT, limit):
        return None
    return (
        f"{100 * share:.1f} % of the scored runs are decided on the {certificate.side} side, "
        f"{100 * expected:.1f} % of those that certified it; check that the scores are of the same "
        "judge on the same scale, and the runs of the same kind."
    )
