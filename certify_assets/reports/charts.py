"""The map of a corpus, written by hand as SVG: a row a task, a cell a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.reports import svg
from certify_assets.reports.wording import count, counted, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


_MAP_WIDTH = 1000.0
_GAP = 26.0
_MOST_CELLS = 9000
_MOST_TASKS = 640
_LEGEND = 26.0
# (decision, outcome) → words of the legend, fill of the cell, colour and shape of its mark
_LOOKS: dict[tuple[str, int], tuple[str, str, str, str]] = {
    ("reject", 0): ("auto-fail, failed", svg.SHARE_SOFT, "", ""),
    ("reject", 1): ("auto-fail, but succeeded (error)", svg.WRONG, svg.PAPER, "cross"),
    ("human", 0): ("reviewed, failed", svg.HUMAN_SOFT, "", ""),
    ("human", 1): ("reviewed, succeeded", svg.HUMAN_SOFT, svg.HUMAN, "dot"),
    ("release", 1): ("auto-pass, succeeded", "url(#map-hatch)", svg.INK, "dot"),
    ("release", 0): ("auto-pass, but failed (error)", svg.WRONG, svg.PAPER, "bar"),
    ("run", 0): ("failed", svg.HUMAN_SOFT, "", ""),
    ("run", 1): ("succeeded", svg.SHARE, svg.PAPER, "dot"),
}
_HATCH = (
    '<defs><pattern id="map-hatch" width="4" height="4" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)">'
    f'<rect width="4" height="4" fill="{svg.PASS_SOFT}"/><path d="M0 0v4" stroke="{svg.PASS}" '
    'stroke-width="2"/></pattern></defs>'
)


@dataclass(frozen=True)
class Heatmap:
    """The map as inline SVG with the counts that its caption needs."""

    markup: str
    tasks: int
    shown: int
    wrong_tasks: int


@dataclass(frozen=True)
class _MapLayout:
    panels: int
    rows: int
    cell: float
    pitch: float
    label: float

    @property
    def named(self) -> bool:
        return self.pitch >= 10


def task_heatmap(
    tasks: Sequence[object],
    scores: NDArray[np.float64],
    outcomes: NDArray[np.int8],
    decisions: Sequence[str],
) -> Heatmap:
    """Draw one row a task (best success rate on top), one cell a run (lowest score left)."""
    # unscored runs are at the right end of their row: nothing is known of them, so they go to
    # human review
    rows = _sorted_rows(
        tasks, outcomes, lambda i: (bool(np.isnan(scores[i])), float(np.nan_to_num(scores[i])))
    )
    wrong = sum(
        any((decisions[i], int(outcomes[i])) in {("reject", 1), ("release", 0)} for i in members)
        for _, members in rows
    )
    kinds = [
        (decision, int(outcome)) for decision, outcome in zip(decisions, outcomes, strict=True)
    ]
    return _draw_map(rows, kinds, _map_label(rows, decisions, outcomes, wrong), wrong)


def outcome_heatmap(
    tasks: Sequence[object],
    agents: Sequence[str],
    attempts: Sequence[int],
    outcomes: NDArray[np.int8],
) -> Heatmap:
    """Draw the outcomes of a corpus that no judge has read: one row a task, one cell a run."""
    rows = _sorted_rows(tasks, outcomes, lambda i: (agents[i], attempts[i]))
    kinds = [("run", int(outcome)) for outcome in outcomes]
    even = sum(len({int(outcomes[i]) for i in members}) == 1 for _, members in rows)
    label = (
        f"Map of {counted(len(kinds), 'run')} of {counted(len(rows), 'task')} sorted by "
        f"success rate ({percent(float(np.mean(outcomes)))} overall): "
        f"all attempts at {counted(even, 'task')} end alike."
    )
    return _draw_map(rows, kinds, label, 0)


def _draw_map(
    rows: list[tuple[object, list[int]]],
    every: Sequence[tuple[str, int]],
    label: str,
    wrong: int,
) -> Heatmap:
    mean = max(1.0, len(every) / max(1, len(rows)))
    kept = min(len(rows), _MOST_TASKS, max(1, int(_MOST_CELLS / mean)))
    shown = (
        [rows[i] for i in np.linspace(0, len(rows) - 1, kept).round().astype(int)]
        if kept < len(rows)
        else rows
    )
    longest = max((len(_shortened(str(task))) for task, _ in shown), default=1)
    layout = _map_layout(
        len(shown), max((len(members) for _, members in shown), default=1), 12 + 5.3 * longest
    )
    parts: dict[str, list[str]] = defaultdict(list)
    labels: list[str] = []
    for position, (task, members) in enumerate(shown):
        panel, row = divmod(position, layout.rows)
        x = panel * (_MAP_WIDTH + _GAP) / layout.panels + layout.label
        y = _LEGEND + row * layout.pitch
        if layout.named:
            labels.append(_row_label(str(task), x - 5, y + layout.pitch * 0.72))
        for column, index in enumerate(members):
            _map_cell(parts, every[index], (x + column * layout.cell, y), layout)
    height = _LEGEND + layout.rows * layout.pitch + 4
    present = set(every)
    kinds = [kind for kind in _LOOKS if kind in present]
    drawn = _HATCH + _map_legend(kinds) + _paths(parts)
    body = drawn + f'<g class="rows">{"".join(labels)}</g>'
    return Heatmap(
        svg.inline_svg(body, f"0 0 {_MAP_WIDTH:g} {height:g}", label, classes="map"),
        len(rows),
        len(shown),
        wrong,
    )


def _sorted_rows(
    tasks: Sequence[object], outcomes: NDArray[np.int8], order: Callable[[int], Any]
) -> list[tuple[object, list[int]]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        groups[task].append(index)
    ordered = {t: sorted(m, key=lambda i: (*order(i), i)) for t, m in groups.items()}
    return sorted(
        ordered.items(),
        key=lambda item: (-float(np.mean([outcomes[i] for i in item[1]])), str(item[0])),
    )


def _map_layout(tasks: int, widest: int, label: float) -> _MapLayout:
    for panels in (4, 3, 2, 1):
        room = (_MAP_WIDTH + _GAP) / panels - _GAP - label
        rows = -(-tasks // panels)
        if room / widest >= 9 and (rows >= 10 or panels == 1):
            return _MapLayout(panels, max(1, rows), min(13.0, room / widest), 13.0, label)
    panels = 2 if widest <= 80 else 1
    room = (_MAP_WIDTH + _GAP) / panels - _GAP - label
    return _MapLayout(
        panels,
        max(1, -(-tasks // panels)),
        room / widest,
        11.0 if tasks <= 90 * panels else 7.0,
        label,
    )


def _map_cell(
    parts: dict[str, list[str]],
    kind: tuple[str, int],
    corner: tuple[float, float],
    layout: _MapLayout,
) -> None:
    x, y = corner
    width, height = max(0.8, layout.cell - 1), layout.pitch - 1
    _, fill, ink, shape = _LOOKS[kind]
    parts[f'fill="{fill}"'].append(f"M{x:.4g} {y:.5g}h{width:.3g}v{height:.3g}h-{width:.3g}z")
    middle, centre = x + width / 2, y + height / 2
    if shape == "dot":
        parts[
            f'stroke="{ink}" stroke-width="{min(width, height) * 0.42:.3g}" stroke-linecap="round"'
        ].append(f"M{middle:.4g} {centre:.5g}h.01")
    elif shape == "bar":
        arm = min(width, height) * 0.27
        parts[f'stroke="{ink}" stroke-width="{arm * 0.7:.3g}" fill="none"'].append(
            f"M{middle - arm:.4g} {centre:.5g}h{2 * arm:.3g}"
        )
    elif shape == "cross":
        arm = min(width, height) * 0.27
        parts[f'stroke="{ink}" stroke-width="{arm * 0.55:.3g}" fill="none"'].append(
            f"M{middle - arm:.4g} {centre - arm:.5g}l{2 * arm:.3g} "
            f"{2 * arm:.3g}m-{2 * arm:.3g} 0l{2 * arm:.3g}-{2 * arm:.3g}"
        )


def _paths(parts: dict[str, list[str]]) -> str:
    # fills first: a mark must lie on its cell
    ordered = sorted(parts.items(), key=lambda item: (item[0].startswith("stroke"), item[0]))
    return "".join(f'<path {style} d="{"".join(segments)}"/>' for style, segments in ordered)


def _row_label(task: str, x: float, y: float) -> str:
    return (
        f'<text x="{x:.4g}" '
        f'y="{y:.5g}"><title>{escape(task)}</title>{escape(_shortened(task))}</text>'
    )


def _shortened(task: str) -> str:
    return task if len(task) <= 20 else f"{task[:10]}…{task[-9:]}"


def _map_legend(kinds: list[tuple[str, int]]) -> str:
    pieces, x = [], 0.0
    for kind in kinds:
        parts: dict[str, list[str]] = defaultdict(list)
        _map_cell(parts, kind, (x, 2), _MapLayout(1, 1, 13, 13, 0))
        words = _LOOKS[kind][0]
        place = f'class="key" x="{x + 18:g}" y="12"'
        pieces.append(f"{_paths(parts)}<text {place}>{escape(words)}</text>")
        x += 34 + 6.1 * len(words)
    return "".join(pieces)


def _map_label(
    rows: list[tuple[object, list[int]]],
    decisions: Sequence[str],
    outcomes: NDArray[np.int8],
    wrong: int,
) -> str:
    total = max(1, len(decisions))
    shares = ", ".join(
        f"{percent(sum(d == kind for d in decisions) / total)} {kind}"
        for kind in ("reject", "release", "human")
    )
    return (
        f"Map of {counted(len(decisions), 'run')} of {counted(len(rows), 'task')} sorted by "
        f"success rate ({percent(float(np.mean(outcomes)))} overall): "
        f"{shares}; {count(wrong)} tasks hold at least one wrong decision."
    )
