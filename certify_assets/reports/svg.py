"""Inline SVG from a matplotlib figure or from parts written by hand.

The text stays text (searchable, read by screen readers), names and numbers are escaped, and equal
inputs give equal bytes.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: colours of the light page; each is drawn as the variable of the style sheet that holds it, so
#: that a chart follows the page into dark mode
SHARE, SHARE_SOFT = "#1f57b0", "#b7cdee"
PASS, PASS_SOFT = "#13776f", "#a5d6d0"
HUMAN, HUMAN_SOFT = "#5a6470", "#dfe3e8"
WRONG = "#b3261e"
BUDGET, INK, MUTED = "#8a5a00", "#1c2229", "#5c6672"
GRID, AXIS, PAPER = "#e4e8ed", "#aab2bc", "#ffffff"
VARIABLES: dict[str, str] = {
    SHARE: "--share",
    SHARE_SOFT: "--share-soft",
    PASS: "--pass",
    PASS_SOFT: "--pass-soft",
    HUMAN: "--human",
    HUMAN_SOFT: "--human-soft",
    WRONG: "--wrong",
    BUDGET: "--warn",
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    AXIS: "--axis",
    PAPER: "--paper",
}

_RC: dict[str, str | float] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 11,
    "axes.edgecolor": AXIS,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "ytick.minor.size": 0,
    "xtick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "legend.handlelength": 2.4,
    "hatch.linewidth": 0.9,
    "figure.dpi": 72,
}

_OPENING = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")
# metadata, comments, and styles: the page's own font is set once, in its style sheet
_CLUTTER = re.compile(
    r"\s*<(metadata|style)\b.*?</\1>|<!--.*?-->|font-family: [^;\"]*;? ?|(?<=>)\s+(?=<)", re.DOTALL
)
# names of the parts of a figure, which are those of every figure
_GROUP_ID = re.compile(r"(<g) id=\"[^\"]*\"")
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


def side_colour(side: str) -> str:
    """Return the colour of a decision side: reject or release."""
    return SHARE if side == "reject" else PASS


def style_context() -> Any:
    """Return the context of every figure: fixed fonts and colours."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        name: value for name, value in mpl.rcParamsDefault.items() if not name.startswith("backend")
    }
    return mpl.rc_context(settings | _RC)


def figure_svg(figure: Figure, name: str, label: str) -> str:
    """Write a matplotlib figure as inline SVG; `name` keeps its ids apart from those of others."""
    import matplotlib as mpl

    stream = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": f"certify_assets {name}"}):
        figure.savefig(stream, format="svg", metadata=metadata, transparent=True)
    text = stream.getvalue()
    opening = _OPENING.search(text)
    if opening is None:
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    body = _CLUTTER.sub("", text[opening.end() : text.rindex("</svg>")])
    body = _TAG.sub(_shorter, _GROUP_ID.sub(r"\1", body).replace("xlink:href", "href"))
    return inline_svg(body, opening[1], label, classes="plot")


def _shorter(tag: re.Match[str]) -> str:
    # coordinates only: what is written as text keeps its digits
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", tag[0])


def _variable(colour: re.Match[str]) -> str:
    name = VARIABLES.get(colour[0])
    return f"var({name})" if name else colour[0]


def inline_svg(body: str, view_box: str, label: str, *, classes: str = "") -> str:
    """Wrap SVG parts into one element that scales with its column and speaks its label."""
    width, height = (float(v) for v in view_box.split()[2:])
    # in tags only: what is written as text may look like a colour
    body = _TAG.sub(lambda tag: _COLOUR.sub(_variable, tag[0]), body)
    return (
        f'<svg class="{escape(classes)}" viewBox="{view_box}" width="{width:g}" '
        f'height="{height:g}" style="min-width:{width:g}px" role="img" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )
