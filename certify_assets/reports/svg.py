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
SHARE = "#1f57b0"
SHARE_SOFT = "#b7cdee"
PASS = "#13776f"
PASS_SOFT = "#a5d6d0"
HUMAN = "#5a6470"
HUMAN_SOFT = "#dfe3e8"
WRONG = "#b3261e"
WRONG_SOFT = "#f3d3d0"
BUDGET = "#8a5a00"
INK = "#1c2229"
MUTED = "#5c6672"
GRID = "#e4e8ed"
AXIS = "#aab2bc"
PAPER = "#ffffff"
VARIABLES: dict[str, str] = {
    SHARE: "--share",
    SHARE_SOFT: "--share-soft",
    PASS: "--pass",
    PASS_SOFT: "--pass-soft",
    HUMAN: "--human",
    HUMAN_SOFT: "--human-soft",
    WRONG: "--wrong",
    WRONG_SOFT: "--wrong-soft",
    BUDGET: "--warn",
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    AXIS: "--axis",
    PAPER: "--paper",
}

_RC: dict[str, str | float | list[str]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "certify_assets",
    "svg.image_inline": True,
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
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
    "path.simplify": True,
    "figure.dpi": 72,
}

_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_OPENING = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")
_ELEMENT_ID = re.compile(r"(<g) id=\"[^\"]*\"")
_REFERENCED_ID = re.compile(r"(?<=\bid=\")([^\"]+)(?=\")")
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_UNTURNED = re.compile(r" transform=\"rotate\(-?0 [^)]*\)\"")
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_BLANKS = re.compile(r">\s+<")
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
    """Write a matplotlib figure as inline SVG."""
    stream = io.StringIO()
    figure.savefig(
        stream,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        transparent=True,
    )
    text = _METADATA.sub("", _PROLOGUE.sub("", stream.getvalue(), count=1))
    opening = _OPENING.search(text)
    if opening is None:
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    body = text[opening.end() : text.rindex("</svg>")]
    return inline_svg(_tidy(body, name), opening.group(1), label, classes="plot")


def _tidy(body: str, name: str) -> str:
    body = _ELEMENT_ID.sub(r"\1", body)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL).replace("xlink:href", "href")
    for old in sorted(set(_REFERENCED_ID.findall(body)), key=len, reverse=True):
        body = re.sub(
            rf"(id=\"|href=\"#|url\(#){re.escape(old)}(?=[\")])", rf"\g<1>{name}-{old}", body
        )
    # the page's own font is set once, in its style sheet
    body = _UNTURNED.sub("", _FAMILY.sub("", body))
    return _BLANKS.sub("><", _TAG.sub(_shorter, body))


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
