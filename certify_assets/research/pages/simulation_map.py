"""The maps of a synthetic study: a procedure a row, a design a column, the number in every cell; a mark where it exceeds δ.

Written by hand as SVG. A filled triangle says that a rate exceeds δ beyond its Monte-Carlo error, an open one that it does as seen: the mark
differs in shape from the rest, so nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from certify_assets.reports import svg
from certify_assets.reports.wording import counted, rate

if TYPE_CHECKING:
    from certify_assets.research.study import Cell, Rates

__all__ = ["COLUMNS", "coverage_map", "group_of", "short_rate", "violation_map"]

#: columns of one map
COLUMNS = 16
_WIDTH, _LABEL, _ROW, _HEAD = 1000.0, 158.0, 30.0, 40.0
_WITHIN, _ABOVE, _COVERED = (
    ((250, 251, 252), (219, 228, 242)),
    ((253, 228, 221), (190, 60, 50)),
    ((250, 251, 252), (122, 160, 222)),
)
_GROUPS = {
    "low_base_rate": "(i)",
    "size_outcome": "(ii)",
    "heavy_tails": "(iii)",
    "fooled": "whole tasks",
    "fooled_partly": "error ICC .7",
    "fooled_scattered": "error ICC .3",
    "fooled_larger": "wrong tasks 3×",
    "fooled_largest": "wrong tasks 5×",
}
_Colours = tuple[tuple[int, int, int], tuple[int, int, int]]


def short_rate(value: float | None, digits: int = 3) -> str:
    """Write a rate without the zero before its point."""
    return (
        rate(value, digits).removeprefix("0") if value is None or value < 1 else rate(value, digits)
    )


def group_of(cell: Cell) -> str:
    """Name the columns that stand together."""
    return (
        f"paper, {cell.tasks} tasks"
        if cell.design == "paper"
        else _GROUPS.get(cell.design, cell.design)
    )


def violation_map(cells: Sequence[Cell], procedures: Sequence[str], delta: float) -> str:
    """Draw the share of all trials that certified wrongly.

    Parameters
    ----------
    cells : sequence of Cell
        At most ``COLUMNS``.
    procedures : sequence of str
    delta : float

    Returns
    -------
    str
        Inline SVG.
    """
    above = [
        (cell, name)
        for cell in cells
        for name in procedures
        if (one := cell.of(name)) is not None and one.violation > delta
    ]
    parts = []
    for cell, name, corner, width in _places(cells, procedures):
        found = cell.of(name)
        if found is not None:
            told = f"{name}, {cell.title}: {found.violations} of {cell.trials} trials, {short_rate(found.violation)} ± {short_rate(found.violation_se)}"
            fill = (
                _colour(_ABOVE, found.violation)
                if found.violation > delta
                else _colour(_WITHIN, found.violation / delta)
            )
            parts.append(
                _box(corner, width, fill, short_rate(found.violation), told)
                + _mark(found, delta, corner, fill)
            )
    label = f"Violations of {counted(len(procedures), 'procedure')} in {counted(len(cells), 'design')}; {len(above)} of the values exceed {delta:g}."
    return _draw(cells, procedures, parts, label)


def coverage_map(cells: Sequence[Cell], procedures: Sequence[str]) -> str:
    """Draw the mean certified share; parameters and answer as for :func:`violation_map`."""
    parts = []
    for cell, name, corner, width in _places(cells, procedures):
        found = cell.of(name)
        if found is not None:
            told = f"{name}, {cell.title}: coverage {short_rate(found.coverage)} ± {short_rate(found.coverage_se)}"
            parts.append(
                _box(
                    corner,
                    width,
                    _colour(_COVERED, found.coverage / 0.8),
                    short_rate(found.coverage),
                    told,
                )
            )
    return _draw(
        cells,
        procedures,
        parts,
        f"Mean coverage of {counted(len(procedures), 'procedure')} in {counted(len(cells), 'design')}.",
    )


def _places(
    cells: Sequence[Cell], procedures: Sequence[str]
) -> list[tuple[Cell, str, tuple[float, float], float]]:
    width = min(76.0, (_WIDTH - _LABEL) / max(1, len(cells)))
    return [
        (cell, name, (_LABEL + column * width, _HEAD + row * _ROW), width)
        for row, name in enumerate(procedures)
        for column, cell in enumerate(cells)
    ]


def _draw(
    cells: Sequence[Cell], procedures: Sequence[str], parts: Sequence[str], label: str
) -> str:
    width = min(76.0, (_WIDTH - _LABEL) / max(1, len(cells)))
    names = "".join(
        f'<text x="{_LABEL - 8:g}" y="{_HEAD + row * _ROW + 19:g}" text-anchor="end" font-size="12" fill="{svg.INK}">{escape(name)}</text>'
        for row, name in enumerate(procedures)
    )
    body = _head(cells, width) + names + "".join(parts)
    return svg.inline_svg(
        body, f"0 0 {_WIDTH:g} {_HEAD + len(procedures) * _ROW + 2:g}", label, classes="map"
    )


def _head(cells: Sequence[Cell], width: float) -> str:
    parts, start = [], 0
    for group, members in groupby(cells, key=group_of):
        count = len(list(members))
        left = _LABEL + start * width
        # the name of a group of one column is as wide as that
        parts.append(_words(left + count * width / 2, 13, group, 11.5 if count > 1 else 11))
        parts.append(
            f'<path d="M{left + 3:.1f} 18h{count * width - 6:.1f}" stroke="{svg.MUTED}" stroke-width="1"/>'
        )
        start += count
    for column, cell in enumerate(cells):
        under = f"ρ {short_rate(cell.rho, 1)}" if cell.design == "paper" else f"{cell.tasks} tasks"
        parts.append(_words(_LABEL + (column + 0.5) * width, 32, under, 10.5))
    return "".join(parts)


def _words(x: float, y: float, text: str, size: float) -> str:
    return f'<text x="{x:.1f}" y="{y:g}" text-anchor="middle" font-size="{size:g}" fill="{svg.MUTED}">{escape(text)}</text>'


def _box(
    corner: tuple[float, float], width: float, fill: tuple[int, int, int], text: str, told: str
) -> str:
    x, y = corner
    return (
        f'<g><title>{escape(told)}</title><rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{_ROW - 2:.1f}" rx="2" '
        f'fill="rgb{fill}"/><text x="{x + width / 2:.1f}" y="{y + 19:.1f}" text-anchor="middle" font-size="12" fill="{_ink(fill)}">{text}</text></g>'
    )


def _mark(
    found: Rates, delta: float, corner: tuple[float, float], fill: tuple[int, int, int]
) -> str:
    """Triangle in the corner: filled where the lower bound exceeds δ, open where the rate does."""
    if found.violation <= delta:
        return ""
    ink = _ink(fill)
    inside = ink if found.violation_lower > delta else "none"
    x, y = corner
    return f'<path d="M{x + 4:.1f} {y + 11:.1f}h8l-4 -7z" fill="{inside}" stroke="{ink}" stroke-width="1"/>'


def _colour(ends: _Colours, share: float) -> tuple[int, int, int]:
    part = min(max(share, 0.0), 1.0)
    red, green, blue = (round(low + part * (high - low)) for low, high in zip(*ends, strict=True))
    return red, green, blue


def _ink(fill: tuple[int, int, int]) -> str:
    """White on what is darker than a fifth of full luminance, where its contrast is the better one."""
    red, green, blue = (float(part / 255) ** 2.2 for part in fill)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.2 else svg.INK
