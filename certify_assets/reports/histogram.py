"""A histogram of one quantity by outcome, written by hand: successes stand up, failures hang down (hatched)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from certify_assets.reports import svg
from certify_assets.reports.wording import compact

__all__ = ["outcome_histogram"]

_WIDTH, _HALF, _MARGIN, _TOP, _BOTTOM = 460.0, 78.0, 8.0, 22.0, 34.0
_TICKS = 5


def outcome_histogram(spread: Mapping[str, Sequence[float]], quantity: str, *, name: str) -> str:
    """Draw a spread of `certify_assets.corpora.leak_evidence`.

    Parameters
    ----------
    spread : mapping
        edges (bins + 1), successes and failures (bins) as counts.
    quantity : str
        What the horizontal axis is, with its unit.
    name : str
        Prefix of ids, unique on the page.

    Returns
    -------
    str
        Inline SVG; each outcome is drawn in shares of its own trajectories, so that a rare one is as visible as the other.
    """
    sides = [_shares(spread["successes"]), _shares(spread["failures"])]
    top = max([*sides[0], *sides[1], 1e-9])
    width = (_WIDTH - 2 * _MARGIN) / max(1, len(sides[0]))
    middle = _TOP + _HALF
    paths = ["", ""]
    for side, shares in enumerate(sides):
        for place, share in enumerate(shares):
            if share:
                height = share / top * _HALF
                y = middle - height if side == 0 else middle
                paths[side] += (
                    f"M{_MARGIN + place * width:.2f} {y:.2f}h{width - 1:.2f}v{height:.2f}h-{width - 1:.2f}z"
                )
    body = (
        _pattern(name)
        + f'<path fill="{svg.JUDGE}" d="{paths[0]}"/><path fill="url(#{name}-hatch)" d="{paths[1]}"/>'
    )
    body += f'<path stroke="{svg.INK}" stroke-width="1" d="M{_MARGIN:g} {middle:g}H{_WIDTH - _MARGIN:g}"/>'
    body += _text(_MARGIN, 13, "successes up, failures down, each in shares of its own") + _axis(
        spread["edges"], quantity, len(sides[0]), width
    )
    return svg.inline_svg(
        body,
        f"0 0 {_WIDTH:g} {middle + _HALF + _BOTTOM:g}",
        _label(spread, quantity),
        classes="plot",
    )


def _shares(counts: Sequence[float]) -> list[float]:
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]


def _pattern(name: str) -> str:
    return (
        f'<defs><pattern id="{name}-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="5" height="5" fill="#ecd0d0"/><path d="M0 0v5" stroke="{svg.REJECT}" stroke-width="2.4"/></pattern></defs>'
    )


def _axis(edges: Sequence[float], quantity: str, bins: int, width: float) -> str:
    below = _TOP + 2 * _HALF
    step = max(1, -(-bins // _TICKS))
    # bins of whole numbers are named by the number in their middle, others by their edges
    whole = all(edge % 1 == 0.5 for edge in edges)
    ticks = []
    for place in range(0, bins + (0 if whole else 1), step):
        value, x = (edges[place] + 0.5, place + 0.5) if whole else (edges[place], float(place))
        anchor = "start" if place == 0 else "end" if place == bins else "middle"
        ticks.append(
            _text(
                _MARGIN + x * width,
                below + 14,
                f"{round(value):,}" if value >= 10 else f"{value:.2g}",
                anchor,
            )
        )
    return "".join(ticks) + _text(_WIDTH / 2, below + 30, quantity, "middle")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="{svg.MUTED}" text-anchor="{anchor}">{escape(text)}</text>'


def _label(spread: Mapping[str, Any], quantity: str) -> str:
    up, down = (
        compact(_median(spread["edges"], spread[side])) for side in ("successes", "failures")
    )
    return f"Histogram of {quantity} by outcome: half of the successes are below about {up}, half of the failures below about {down}."


def _median(edges: Sequence[float], counts: Sequence[float]) -> float | None:
    seen, total = 0.0, sum(counts)
    for place, count in enumerate(counts):
        seen += count
        if total and 2 * seen >= total:
            return edges[place + 1]
    return None
