"""What the gate buys: the same training fed by labels, by a raw score cut and by the lowest scores, without a certificate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.judges.harvest.loop import Loop, Parts, measured
from certify_assets.judges.harvest.measures import share_wrong
from certify_assets.judges.harvest.withholding import HALF_A, LABEL_SOURCE, training_set

if TYPE_CHECKING:
    from certify_assets.judges.base import Judge

__all__ = ["controls_of", "ranking_of", "uncertified_cuts"]

_SHARES = (0.25, 0.5)


def controls_of(loop: Loop, parts: Parts, start: Judge, size: int) -> list[dict[str, Any]]:
    """Run the controls of a loop.

    Parameters
    ----------
    loop, parts
    start : Judge
        Of round 0.
    size : int
        Runs that the certificate let through in round 1; the lowest scores are taken of as many, beside fixed shares of the pool.

    Returns
    -------
    list of dict
        The labels of half A spent on training instead, certified on half B; then every cut without a certificate, with its contamination and, where
        a training is cheap, what came of it.
    """
    found = [_labels_spent(loop, parts)]
    table = loop.learner.score(start, parts.pool.frame)
    for name, taken in uncertified_cuts(table["score"].to_numpy(np.float64), loop, size).items():
        about = {
            "control": name,
            "size": int(taken.sum()),
            "pool": len(table),
            "contamination": share_wrong(taken, parts.pool.withheld, loop.label),
        }
        if loop.learner.dear or not taken.any():
            found.append(about)
            continue
        training = training_set(
            loop.learner.source,
            parts.pool.frame[taken],
            label=loop.label,
            manifest=loop.splits.manifest,
        )
        found.append(measured(loop, parts, loop.learner.train(training, name), about))
    return found


def uncertified_cuts(
    scores: NDArray[np.float64], loop: Loop, size: int
) -> dict[str, NDArray[np.bool_]]:
    """Choose rows of a pool without a certificate.

    Returns
    -------
    dict of str to bool array
        ``verdict``: where the judge says the pseudo-label at all; ``confidence``: where it gives the other outcome at most α; ``lowest_…`` (on the
        release side ``highest_…``): as many as the certificate let through, and fixed shares of the pool.
    """
    sign = 1.0 if loop.settings.side == "reject" else -1.0
    keys = np.where(np.isnan(scores), np.inf, sign * scores)
    order = np.argsort(keys, kind="stable")
    end = "lowest" if sign > 0 else "highest"
    counts = {f"{end}_{share:.0%}": int(share * len(scores)) for share in _SHARES}
    counts = {f"{end}_as_many": size, **counts} if size else counts
    cuts = {
        "verdict": keys < 0,
        "confidence": keys <= math.log(loop.settings.alpha / (1 - loop.settings.alpha)),
    }
    for name, count in counts.items():
        taken = np.zeros(len(scores), dtype=bool)
        taken[order[:count]] = True
        cuts[name] = taken & np.isfinite(keys)
    return cuts


def ranking_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Say whether half B would have put the rounds in the order in which TEST has them; None where there are not two rounds.

    Returns
    -------
    dict or None
        For every procedure: rounds by certified coverage on half B and by coverage certified on TEST's own scores, best first (the earlier round
        on a tie), and whether the two agree. TEST is reported here, not chosen by: the number of rounds is fixed beforehand.
    """
    made = [row for row in rows if "certificates" in row]
    if len(made) < 2:
        return None
    found = {}
    for name in made[0]["certificates"]:
        half_b, test = (
            {row["round"]: row["certificates"][name][key] or 0.0 for row in made}
            for key in ("half_b_coverage", "test_own_coverage")
        )
        orders = [
            [number for _, number in sorted((-share, number) for number, share in by.items())]
            for by in (half_b, test)
        ]
        found[name] = {
            "rounds": [
                {"round": number, "half_b": half_b[number], "test": test[number]}
                for number in half_b
            ],
            "order_half_b": orders[0],
            "order_test": orders[1],
            "agree": orders[0] == orders[1],
        }
    return found


def _labels_spent(loop: Loop, parts: Parts) -> dict[str, Any]:
    """Train on the labels of half A instead of using them for a threshold: its tasks certify nothing any more."""
    import pandas as pd

    labelled = [
        loop.learner.source.assign(**{LABEL_SOURCE: "human"}),
        parts.half_a.assign(**{LABEL_SOURCE: HALF_A}),
    ]
    training = pd.concat(labelled, ignore_index=True)
    training["outcome"] = training["outcome"].astype("int8")
    about = {
        "control": "labels_of_half_a",
        "trained_on": len(training),
        "labels": len(parts.half_a),
    }
    return measured(loop, parts, loop.learner.train(training, "labels_of_half_a"), about)
