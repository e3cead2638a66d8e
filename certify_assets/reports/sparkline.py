"""The verdict in miniature: a hand-written sparkline and a Markdown block short enough to show inline on an asset's page."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.wording import percent, signed

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, ThresholdCurve

__all__ = ["sparkline_svg", "verdict_markdown"]

_POINTS = 12
_INLINE = 1000


def sparkline_svg(
    curve: ThresholdCurve, *, alpha: float, certified: float | None = None, side: str = "reject"
) -> str:
    """Draw error against share decided in about 400 characters.

    Parameters
    ----------
    curve : ThresholdCurve
        The grid on CAL.
    alpha : float
        The error budget, a dashed line.
    certified : float, optional
        The certified share; a filled dot on the curve.
    side : str
        Colour of the dot.

    Returns
    -------
    str
        One standalone ``<svg>`` element of 120 by 30 units.
    """
    share, error = _thinned(curve)
    top = max(2.5 * alpha, 1e-9)
    points = " ".join(
        f"{120 * x:.0f},{_height(y, top):.0f}" for x, y in zip(share, error, strict=True)
    )
    line = _height(alpha, top)
    dot = ""
    if certified is not None:
        at = _height(float(np.interp(certified, share, error)), top)
        dot = f"<circle cx='{120 * certified:.0f}' cy='{at:.0f}' r='3' fill='{svg.side_colour(side)}'/>"
    return (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 120 30' width='240' height='60'>"
        f"<path d='M0 {line:.0f}h120' stroke='{svg.ALPHA_INK}' stroke-dasharray='4 2'/>"
        f"<polyline points='{points}' fill='none' stroke='{svg.JUDGE}' stroke-width='1.5'/>{dot}</svg>"
    )


def _thinned(curve: ThresholdCurve) -> tuple[list[float], list[float]]:
    order = np.argsort(curve.coverage, kind="stable")
    kept = order[
        np.unique(np.linspace(0, order.size - 1, min(_POINTS, order.size)).round().astype(int))
    ]
    return [float(x) for x in curve.coverage[kept]], [
        float(y) for y in np.nan_to_num(curve.selective_error[kept])
    ]


def _height(error: float, top: float) -> float:
    return 29 - 28 * min(1.0, error / top)


def verdict_markdown(certificate: Certificate, curve: ThresholdCurve) -> str:
    """Write the verdict block of an asset: a status line, one row of numbers, the sparkline.

    Parameters
    ----------
    certificate : Certificate
        What is certified, or that nothing is.
    curve : ThresholdCurve
        The grid it was chosen from.

    Returns
    -------
    str
        Markdown of fewer than 1,000 characters, which Dagster shows without a click. No text of the corpus enters it.
    """
    budget, trust = percent(certificate.alpha), percent(1 - certificate.delta)
    if certificate.certified:
        status = f"**\N{CHECK MARK} {certificate.side} {percent(certificate.coverage)}** at error ≤ {budget}, confidence {trust}"
    else:
        status = f"**\N{EN DASH} Nothing certified** ({certificate.side}, error ≤ {budget}, confidence {trust})"
    image = base64.b64encode(
        sparkline_svg(
            curve,
            alpha=certificate.alpha,
            certified=certificate.coverage if certificate.certified else None,
            side=certificate.side,
        ).encode()
    ).decode()
    row = (
        f"|{signed(certificate.threshold)}|{percent(certificate.selective_error if certificate.certified else None)}"
        f"|{certificate.covered_tasks}/{certificate.tasks}|"
    )
    block = f"{status}\n\n|θ|error|tasks|\n|-|-|-|\n{row}\n\n![error by share decided](data:image/svg+xml;base64,{image})\n"
    if len(block) >= _INLINE:
        raise RuntimeError(
            f"the verdict block has {len(block)} characters; it must stay under {_INLINE} to be shown inline"
        )
    return block
