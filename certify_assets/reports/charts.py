"""The map of a corpus, written by hand as SVG: a row a task, a cell a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from certify_assets.reports import svg

if TYPE_CHECKING:
    from numpy.typing import NDArray

# of a card on a wide screen
_WIDTH = 960.0
_GAP = 26.0
_LEGEND = 26.0
# height of a row and widest cell
_PITCH = 13.0
_MOST_CELLS = 9000
_MOST_TASKS = 640
_Kind = tuple[str, int]


class _Look(NamedTuple):
    words: str
    fill: str
    # colour of the mark, and its path around the centre
    ink: str = ""
    path: str = "h.01"


_CROSS, _TICK = "m-2 -2l4 4m-4 0l4 -4", "m-2.5 0l2 2l3 -4"
# by decision and outcome, in the order of the legend
_LOOKS: Mapping[_Kind, _Look] = {
    ("reject", 0): _Look("auto-fail, failed", svg.SHARE_SOFT),
    ("reject", 1): _Look("auto-fail, but succeeded (error)", svg.WRONG, svg.PAPER, _CROSS),
    ("human", 0): _Look("reviewed, failed", svg.HUMAN_SOFT),
    ("human", 1): _Look("reviewed, succeeded", svg.HUMAN_SOFT, svg.HUMAN),
    ("release", 1): _Look("auto-pass, succeeded", svg.PASS_SOFT, svg.INK, _TICK),
    ("release", 0): _Look("auto-pass, but failed (error)", svg.WRONG, svg.PAPER, _CROSS),
    ("run", 0): _Look("failed", svg.HUMAN_SOFT),
    ("run", 1): _Look("succeeded", svg.SHARE, svg.PAPER),
}


@dataclass(frozen=True)
class Heatmap:
    """The map as inline SVG with the counts that its caption needs."""

    markup: str
    tasks: int
    shown: int
    wrong_tasks: int


def task_heatmap(
    tasks: Sequence[object],
    order: Sequence[Any],
    decisions: Sequence[str],
    outcomes: NDArray[np.int8],
    *,
    label: str,
) -> Heatmap:
    """Draw one row a task (best success rate on top), one cell a run in the order that is given.

    `decisions` are reject, release and human; or run, where no judge decided.
    """
    rows = _sorted_rows(tasks, outcomes, order)
    kinds = [(decision, int(right)) for decision, right in zip(decisions, outcomes, strict=True)]
    wrong = sum(any(_LOOKS[kinds[i]].fill == svg.WRONG for i in members) for _, members in rows)
    return _draw(rows, kinds, label, wrong)


def _sorted_rows(
    tasks: Sequence[object], outcomes: NDArray[np.int8], order: Sequence[Any]
) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for index in sorted(range(len(tasks)), key=order.__getitem__):
        groups[str(tasks[index])].append(index)
    return sorted(groups.items(), key=lambda item: (-float(np.mean(outcomes[item[1]])), item[0]))


def _draw(
    rows: Sequence[tuple[str, list[int]]],
    kinds: Sequence[_Kind],
    label: str,
    wrong: int,
) -> Heatmap:
    most = min(len(rows), _MOST_TASKS, max(1, _MOST_CELLS * len(rows) // max(1, len(kinds))))
    shown = [rows[i] for i in np.linspace(0, len(rows) - 1, most).round().astype(int)]
    widest = max(len(members) for _, members in shown)
    margin = 12 + 5.3 * max(len(_shortened(task)) for task, _ in shown)
    # as many columns of rows as leave room to see a cell
    panels = next(
        number
        for number in (4, 3, 2, 1)
        if number == 1 or (_room(number, margin) >= 9 * widest and len(shown) >= 10 * number)
    )
    height, cell = -(-len(shown) // panels), min(_PITCH, _room(panels, margin) / widest)
    paths: dict[str, list[str]] = defaultdict(list)
    names = []
    for place, (task, members) in enumerate(shown):
        panel, row = divmod(place, height)
        x = panel * (_WIDTH + _GAP) / panels + margin
        y = _LEGEND + row * _PITCH
        title = f"<title>{escape(task)}</title>{escape(_shortened(task))}"
        names.append(f'<text x="{x - 5:.4g}" y="{y + 9.4:.5g}">{title}</text>')
        for column, index in enumerate(members):
            _add_cell(paths, kinds[index], x + column * cell, y, cell)
    keys, x = [], 0.0
    for kind in (kind for kind in _LOOKS if kind in set(kinds)):
        words = _LOOKS[kind].words
        _add_cell(paths, kind, x, 2, _PITCH)
        keys.append(f'<text class="key" x="{x + 18:g}" y="12">{escape(words)}</text>')
        x += 34 + 6.1 * len(words)
    # fills first: a mark must lie on its cell
    drawn = "".join(f'<path {style} d="{"".join(paths[style])}"/>' for style in sorted(paths))
    body = "".join([drawn, *keys, '<g class="rows">', *names, "</g>"])
    box = f"0 0 {_WIDTH:g} {_LEGEND + height * _PITCH + 4:g}"
    return Heatmap(svg.inline_svg(body, box, label, classes="map"), len(rows), len(shown), wrong)


def _room(panels: int, margin: float) -> float:
    return (_WIDTH + _GAP) / panels - _GAP - margin


def _add_cell(paths: dict[str, list[str]], kind: _Kind, x: float, y: float, cell: float) -> None:
    look, width = _LOOKS[kind], max(0.8, cell - 1)
    paths[f'fill="{look.fill}"'].append(f"M{x:.4g} {y:.5g}h{width:.3g}v12h-{width:.3g}z")
    if look.ink:
        thick = 1.4 if look.path in (_CROSS, _TICK) else min(width, 12) * 0.42
        style = f'stroke="{look.ink}" stroke-width="{thick:.3g}" stroke-linecap="round" fill="none"'
        paths[style].append(f"M{x + width / 2:.4g} {y + 6:.5g}{look.path}")


def _shortened(task: str) -> str:
    return task if len(task) <= 20 else f"{task[:10]}…{task[-9:]}"
