"""The figures of a comparison, drawn by hand as SVG: AUROC with its interval and certified coverage, a line a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from certify_assets.reports import svg
from certify_assets.reports.wording import DASH, percent, rate

__all__ = ["auroc_figure", "coverage_figure"]

_WIDTH, _LEFT, _RIGHT, _STEP, _TOP = 720, 150, 96, 30, 26
_SPAN = _WIDTH - _LEFT - _RIGHT


def auroc_figure(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw AUROC on CAL with its 95 % interval: filled dots for judges, open ones for leak controls, a diamond within tasks."""
    lowest = min([0.5, *(value for row in rows for value in _extremes(row))])
    low = max(0.0, int(lowest * 10) / 10)
    ticks = [round(low + 0.1 * step, 1) for step in range(round((1 - low) * 10) + 1)]
    parts = _frame(
        len(rows),
        [(f"{tick:.1f}", (tick - low) / (1 - low)) for tick in ticks],
        strong=(0.5 - low) / (1 - low),
    )
    said = []
    for number, row in enumerate(rows):
        y = _TOP + _STEP * number + _STEP / 2
        area, within = row["auroc"]["cal"] or {}, row["within_task"]["cal"] or {}
        parts.append(_label(row["judge"], y))
        if area.get("value") is None:
            parts.append(_note("one outcome only", y))
            continue
        places = {
            name: _place((area[name] - low) / (1 - low))
            for name in ("value", "low", "high")
            if area[name] is not None
        }
        parts.append(_dot(places, y, own=row["family"] != "control"))
        if within.get("value") is not None:
            parts.append(_diamond(_place((within["value"] - low) / (1 - low)), y))
        parts.append(_note(rate(area["value"]), y))
        said.append(f"{row['judge']} {rate(area['value'])}")
    label = f"AUROC on CAL with 95 % intervals: {'; '.join(said) or 'none measured'}."
    return svg.inline_svg(
        "".join(parts), f"0 0 {_WIDTH} {_height(len(rows))}", label, classes="plot"
    )


def coverage_figure(
    rows: Sequence[Mapping[str, Any]], *, side: str, alphas: Sequence[float]
) -> str:
    """Draw certified coverage of one side: a bar a judge and budget, the smaller budget on top and darker."""
    judges = [row for row in rows if row["certified"]]
    parts = _frame(len(judges), [(percent(tick), tick) for tick in (0.0, 0.25, 0.5, 0.75, 1.0)])
    said = []
    for number, row in enumerate(judges):
        y = _TOP + _STEP * number
        parts.append(_label(row["judge"], y + _STEP / 2))
        found = {
            cell["alpha"]: cell["coverage"] for cell in row["certified"] if cell["side"] == side
        }
        height = (_STEP - 10) / max(1, len(alphas))
        for place, alpha in enumerate(alphas):
            width = _SPAN * found.get(alpha, 0.0)
            opacity = 1 - 0.55 * place / max(1, len(alphas) - 1) if len(alphas) > 1 else 1
            parts.append(
                f'<rect x="{_LEFT}" y="{y + 5 + place * height:.1f}" width="{width:.1f}" height="{height - 1:.1f}" '
                f'fill="{svg.side_colour(side)}" fill-opacity="{opacity:.2f}"/>'
            )
        words = " / ".join(
            percent(found.get(alpha)) if found.get(alpha) else DASH for alpha in alphas
        )
        parts.append(_note(words, y + _STEP / 2))
        said.append(f"{row['judge']} {words}")
    budgets = " and ".join(f"{alpha:g}" for alpha in alphas)
    label = f"Certified {side} coverage at {budgets}: {'; '.join(said) or 'no certificates'}."
    return svg.inline_svg(
        "".join(parts), f"0 0 {_WIDTH} {_height(len(judges))}", label, classes="plot"
    )


def _extremes(row: Mapping[str, Any]) -> list[float]:
    areas = [row["auroc"]["cal"] or {}, row["within_task"]["cal"] or {}]
    return [
        area[name]
        for area in areas
        for name in ("value", "low")
        if area.get(name) is not None and (name == "value" or area is areas[0])
    ]


def _height(rows: int) -> int:
    return _TOP + _STEP * max(1, rows) + 8


def _place(share: float) -> float:
    return _LEFT + _SPAN * min(1.0, max(0.0, share))


def _frame(rows: int, ticks: Sequence[tuple[str, float]], strong: float | None = None) -> list[str]:
    bottom = _height(rows) - 6
    lines = [
        f'<path d="M{_place(share):.1f} {_TOP - 4}V{bottom}" stroke="{svg.GRID}"/>'
        f'<text x="{_place(share):.1f}" y="{_TOP - 10}" font-size="11" text-anchor="middle" fill="{svg.MUTED}">{escape(words)}</text>'
        for words, share in ticks
    ]
    if strong is not None:
        lines.append(
            f'<path d="M{_place(strong):.1f} {_TOP - 4}V{bottom}" stroke="{svg.ALPHA_INK}" stroke-dasharray="5 3"/>'
        )
    return lines


def _label(name: str, y: float) -> str:
    text = name if len(name) <= 20 else f"{name[:19]}…"
    return f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" font-size="13" text-anchor="end" fill="{svg.INK}">{escape(text)}</text>'


def _note(words: str, y: float) -> str:
    return f'<text x="{_LEFT + _SPAN + 10}" y="{y + 4:.1f}" font-size="12" fill="{svg.INK}">{escape(words)}</text>'


def _dot(places: Mapping[str, float], y: float, *, own: bool) -> str:
    line = ""
    if "low" in places and "high" in places:
        line = f'<path d="M{places["low"]:.1f} {y:.1f}H{places["high"]:.1f}" stroke="{svg.JUDGE if own else svg.HUMAN}" stroke-width="2"/>'
    look = f'fill="{svg.JUDGE}"' if own else f'fill="white" stroke="{svg.HUMAN}" stroke-width="2"'
    return f'{line}<circle cx="{places["value"]:.1f}" cy="{y:.1f}" r="5" {look}/>'


def _diamond(x: float, y: float) -> str:
    return f'<path d="M{x:.1f} {y - 6:.1f}l4.5 6l-4.5 6l-4.5-6z" fill="none" stroke="{svg.ALPHA_INK}" stroke-width="1.6"/>'
