"""What several certificates promise together."""

from __future__ import annotations

from collections.abc import Sequence

from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.issuance import CONFIDENCE

__all__ = ["document_promise", "joint_promise"]

#: the weakest first
_WEAKEST = ("none under clustering", "conjectured", "asymptotic", "finite-sample")
_PAIR = 2


def joint_promise(certificates: Sequence[Certificate]) -> str:
    """Say with what confidence several certificates hold together: one minus the sum of their δ.

    Parameters
    ----------
    certificates : sequence of Certificate
        All that were asked for: one on which nothing is certified has spent its δ as well, because it could have been.

    Returns
    -------
    str
        Names the scores that lie in both regions, where there are any.
    """
    active = [certificate for certificate in certificates if certificate.certified]
    if not active:
        return "Nothing is certified: every trajectory goes to a person."
    if len(certificates) < _PAIR:
        return active[0].promise
    joint = max(0.0, 1.0 - sum(certificate.delta for certificate in certificates))
    word = CONFIDENCE[
        next(kind for kind in _WEAKEST if kind in {certificate.validity for certificate in active})
    ]
    parts = [
        f"Together, with {word} {100 * joint:g} %:",
        *[certificate.promise for certificate in certificates],
    ]
    return " ".join([*parts, *_overlap(active)])


def _overlap(active: Sequence[Certificate]) -> list[str]:
    limits = {certificate.side: certificate.threshold for certificate in active}
    high, low = limits.get("reject"), limits.get("release")
    if len(active) != _PAIR or high is None or low is None or low > high:
        return []
    # where the regions meet they leave nothing out, so what is counted twice is the excess over one
    share = 100 * (sum(certificate.coverage for certificate in active) - 1.0)
    return [
        f"Scores from {low!r} to {high!r} ({share:.1f} % of the rows) lie in both regions: those rows go to a person, and the promise of each "
        "side counts them in its own."
    ]


def document_promise(certificates: Sequence[Certificate]) -> str | None:
    """Return the promise of a document of certificates: for every procedure what its two sides promise together.

    Parameters
    ----------
    certificates : sequence of Certificate

    Returns
    -------
    str or None
        One line a procedure. None where a procedure lacks a side or has several certificates of one: then no pair is meant.
    """
    by_procedure: dict[str, list[Certificate]] = {}
    for certificate in certificates:
        by_procedure.setdefault(certificate.procedure, []).append(certificate)
    if any(
        sorted(item.side for item in group) != ["reject", "release"]
        for group in by_procedure.values()
    ):
        return None
    built = {name: joint_promise(group) for name, group in by_procedure.items()}
    if len(by_procedure) == 1 or not built:
        return next(iter(built.values()), None)
    return "\n".join(f"By {name}: {promise}" for name, promise in built.items())
