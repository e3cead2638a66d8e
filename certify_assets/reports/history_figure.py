"""The figures of a history, drawn by hand as SVG: what was certified, how often it was wrong, and what was spent, a column a set of certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from certify_assets.reports import svg
from certify_assets.reports.wording import percent

__all__ = ["coverage_history", "error_history", "spending_history"]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 250, 58, 16, 24, 40
_SPAN, _TALL = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_MOST_WORDS = 14


def coverage_history(steps: Sequence[Mapping[str, Any]]) -> str:
    """Draw certified coverage a side: filled where it decided, open where it was never deployed, nothing where nothing was certified."""
    top = _rounded(max([0.1, *(side["coverage"] for step in steps for side in step["sides"])]))
    parts, said = _frame(steps, top), []
    for name in ("reject", "release"):
        line = []
        for place, step in enumerate(steps):
            side = _of(step, name)
            if side is None:
                continue
            x, y = _x(place, len(steps)), _y(side["coverage"] / top)
            line.append(f"{x:.1f} {y:.1f}")
            parts.append(_mark(name, x, y, filled=bool(step["deployed"])))
            said.append(f"{_short(step)} {name} {percent(side['coverage'])}")
        parts.insert(
            0,
            f'<path d="M{" L".join(line)}" fill="none" stroke="{svg.side_colour(name)}" stroke-width="1.4"/>'
            if len(line) > 1
            else "",
        )
    return svg.inline_svg(
        "".join(parts), _BOX, f"Certified coverage: {'; '.join(said) or 'none'}.", classes="plot"
    )


def error_history(steps: Sequence[Mapping[str, Any]]) -> str:
    """Draw the realised error of what each set decided, with its interval, against the budget; a cross where it raised an alarm."""
    shown = [side for step in steps for side in step["sides"] if side["tasks"]]
    top = _rounded(
        max(
            [
                0.1,
                *(2.2 * side["alpha"] for side in shown),
                *(1.2 * (side["error"] or 0.0) for side in shown),
            ]
        )
    )
    parts, said = _frame(steps, top), []
    for place, step in enumerate(steps):
        for name, shift in (("reject", -9), ("release", 9)):
            side = _of(step, name)
            if side is None:
                continue
            x = _x(place, len(steps)) + shift
            y = _y(side["alpha"] / top)
            parts.append(
                f'<path d="M{x - 9:.1f} {y:.1f}h18" stroke="{svg.ALPHA_INK}" stroke-width="1.8" stroke-dasharray="4 2"/>'
            )
            if side["tasks"] and side["error"] is not None:
                parts += _band(side, x, top, name)
                said.append(
                    f"{_short(step)} {name} {percent(side['error'])} of {percent(side['alpha'])}"
                )
            if side["alarm"]:
                parts.append(_cross(x, _TOP + 6))
                said.append(f"alarm after {side['alarm']['at']} tasks")
    return svg.inline_svg(
        "".join(parts),
        _BOX,
        f"Realised error and budget: {'; '.join(said) or 'no labels yet'}.",
        classes="plot",
    )


def spending_history(claims: Sequence[Mapping[str, Any]], *, first: float, promised: float) -> str:
    """Draw δ of the first certificate and of every recertification, added up, under the most that was declared."""
    top = _rounded(1.05 * (first + promised))
    totals = [first]
    for item in claims:
        totals.append(totals[-1] + item["delta"])
    columns = [
        {"label": "first", "number": 0},
        *({"label": "", "number": item["number"]} for item in claims),
    ]
    parts = _frame(columns, top)
    width = min(40.0, 0.6 * _SPAN / len(totals))
    for place, total in enumerate(totals):
        x, y = _x(place, len(totals)), _y(total / top)
        before = _y((totals[place - 1] if place else 0.0) / top)
        parts.append(
            f'<rect x="{x - width / 2:.1f}" y="{before:.1f}" width="{width:.1f}" height="{_TOP + _TALL - before:.1f}" fill="{svg.GRID}"/>'
        )
        parts.append(
            f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{before - y:.1f}" fill="{svg.JUDGE}"/>'
        )
    y = _y((first + promised) / top)
    parts.append(
        f'<path d="M{_LEFT} {y:.1f}h{_SPAN}" stroke="{svg.ALPHA_INK}" stroke-width="1.6" stroke-dasharray="6 3"/>'
    )
    label = f"δ spent: {totals[-1]:.4g} of {first + promised:.4g} declared, by {len(claims)} recertifications and the first certificate."
    return svg.inline_svg("".join(parts), _BOX, label, classes="plot")


def _rounded(top: float) -> float:
    """Return the end of an axis whose quarters are round numbers."""
    return next(
        (
            4 * step
            for step in (0.01, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.15, 0.2, 0.25)
            if 4 * step >= top
        ),
        1.0,
    )


_BOX = f"0 0 {_WIDTH} {_HEIGHT}"


def _frame(steps: Sequence[Mapping[str, Any]], top: float) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_SPAN}" stroke="{svg.GRID}"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="{svg.MUTED}">{escape(percent(share * top))}</text>'
        )
    # of many columns every so many has its name
    every = -(-len(steps) // _MOST_WORDS) or 1
    for place, step in enumerate(steps):
        if place % every == 0:
            x = _x(place, len(steps))
            words = escape(_short(step))
            parts.append(
                f'<text x="{x:.1f}" y="{_HEIGHT - 16}" font-size="11" text-anchor="middle" fill="{svg.INK}">{words}</text>'
            )
    return parts


def _short(step: Mapping[str, Any]) -> str:
    return f"R{step['number']}" if step["number"] else "first"


def _of(step: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return next((side for side in step["sides"] if side["side"] == name), None)


def _x(place: int, columns: int) -> float:
    return _LEFT + _SPAN * (place + 0.5) / max(1, columns)


def _y(share: float) -> float:
    return _TOP + _TALL * (1 - min(1.0, max(0.0, share)))


def _mark(side: str, x: float, y: float, *, filled: bool) -> str:
    """Return a circle on the reject side and a square on the release side: never colour alone."""
    colour = svg.side_colour(side)
    look = f'fill="{colour if filled else "white"}" stroke="{colour}" stroke-width="2"'
    if side == "reject":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {look}/>'
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {look}/>'


def _band(side: Mapping[str, Any], x: float, top: float, name: str) -> list[str]:
    low, high = (_y(end / top) for end in side["interval"])
    band = f'<rect x="{x - 6:.1f}" y="{high:.1f}" width="12" height="{low - high:.1f}" fill="{svg.JUDGE}" fill-opacity="0.18"/>'
    return [band, _mark(name, x, _y(side["error"] / top), filled=True)]


def _cross(x: float, y: float) -> str:
    return f'<path d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" stroke="{svg.REJECT}" stroke-width="3"/>'
