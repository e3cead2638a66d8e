"""A certificate in a notebook: a card with a bar, an account in words, a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.reports.page import in_order
from certify_assets.reports.wording import compact, count, counted, percent, rate, small
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.certificates import Certificate, Diagnosis, Sides, ThresholdCurve

#: of the bar and the curves: they stand out from white and from black, since a notebook has either
COLOURS: Final = {"reject": "#3f7fd6", "human": "#8b94a0", "release": "#1f9a8f"}
_BUDGET = "#c98a1b"


@dataclass(frozen=True)
class Explained:
    """One certificate with what its grid and its table say of it."""

    certificate: Certificate
    curve: ThresholdCurve
    diagnosis: Diagnosis


def card(sides: Sides, read_as: Sequence[str] = ()) -> str:
    """Draw certificates of one table as HTML that a notebook shows, in light and in dark."""
    first = sides.certificates[0]
    of = "of the labelled runs " if first.partly_labelled else ""
    facts = (
        f"{counted(first.trajectories, 'run')}, {counted(first.tasks, 'task')}, "
        f"{percent(first.success_rate)} {of}successful, budget {percent(first.alpha)}"
    )
    said = []
    for item in sides.certificates:
        said += [item.statement, *(f"{one['code']}: {one['message']}" for one in item.findings)]
    if read_as:
        said.append(f"Table read as: {'; '.join(read_as)}.")
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    return in_order(
        '<div class="certify-card" style="max-width:560px;line-height:1.45;color:inherit">'
        f"<p><strong>{escape(sides.sentence)}</strong><br>{escape(facts)}</p>{_bar(sides)}"
        f"<details><summary>The promise and its findings</summary><ul>{listed}</ul></details></div>"
    )


def _bar(sides: Sides) -> str:
    """Draw what becomes of runs: failed by the judge, reviewed, passed by the judge."""
    x, parts, words = 0.0, [], []
    for name, colour in COLOURS.items():
        width = 100 * sides.shares[name]
        parts.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="1" fill="{colour}"/>')
        dot = f'<span style="color:{colour}">\N{BLACK CIRCLE}</span>'
        words.append(f"<span>{dot} {WORDS[name]} {percent(sides.shares[name])}</span>")
        x += width
    # complete in itself: a notebook has none of the pages' styles
    return (
        '<svg viewBox="0 0 100 1" preserveAspectRatio="none" width="100%" height="22" role="img" '
        f'aria-label="What becomes of runs">{"".join(parts)}</svg>'
        '<div style="display:flex;flex-wrap:wrap;column-gap:24px;font-size:12px">'
        f"{''.join(words)}</div>"
    )


def draw_curves(explained: Sequence[Explained], axes: Axes | None = None) -> Axes:
    """Draw the error among decided runs by their share on matplotlib axes, new ones by default."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(8.4, 3.8), layout="constrained")[1]
    for item in explained:
        certificate, curve = item.certificate, item.curve
        order, colour = np.argsort(curve.coverage, kind="stable"), COLOURS[curve.side]
        share, side = curve.coverage[order], WORDS[curve.side]
        error, upper = curve.selective_error[order], curve.bootstrap_upper[order]
        axes.plot(share, error, color=colour, label=f"{side}: observed error")
        axes.plot(share, upper, color=colour, ls=":", label=f"{side}: upper bound")
        if certificate.certified:
            label = f"{side}: {percent(certificate.coverage)} certified"
            at = (certificate.coverage, certificate.selective_error or 0.0)
            axes.plot(*at, "o", color=colour, ms=8, ls="none", label=label)
    for alpha in sorted({item.certificate.alpha for item in explained}):
        axes.axhline(alpha, color=_BUDGET, ls="--", label=f"budget {percent(alpha)}")
    axes.set(xlabel="share of runs decided", ylabel="error among them", xlim=(0, None))
    axes.set_ylim(0, None)
    # next to the curves, of which it would hide a part
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def account(sides: Sides, explained: Sequence[Explained], read_as: Sequence[str] = ()) -> str:
    """Say in plain words what is promised, why by these thresholds, and what would widen them."""
    parts = [sides.sentence]
    for item in explained:
        certificate, area = item.certificate, rate(item.diagnosis.auroc, 2)
        wider = f"a judge that ranks better (its AUROC is {area}), or a larger budget"
        if item.diagnosis.stopped_by != "judge":
            wider = f"more tasks, {wider}"
        found = "".join(f"\n    - {one['code']}: {one['message']}" for one in certificate.findings)
        parts += [
            f"{WORDS[certificate.side].capitalize()} (side {certificate.side})",
            f"  Promise: {certificate.statement}",
            f"  Threshold: {_why(item)}",
            f"  What would widen it: {item.diagnosis.lift or wider}.",
            f"  Findings:{found or ' none'}",
        ]
    if read_as:
        parts.append(f"Table read as: {'; '.join(read_as)}.")
    return "\n".join(parts)


def _why(item: Explained) -> str:
    certificate = item.certificate
    tried = f"{counted(item.curve.thresholds.size, 'threshold')} tried"
    if not certificate.certified:
        return f"none of the {tried} passes. {item.diagnosis.sentence}"
    return (
        f"{compact(certificate.threshold)} is the widest of the {tried} that passes. It decides "
        f"{counted(certificate.covered_trajectories, 'run')} of "
        f"{counted(certificate.covered_tasks, 'task')}, {count(certificate.errors)} of them "
        f"wrongly ({percent(certificate.selective_error)}). If the error were above the budget, so "
        f"few errors would have probability {small(certificate.tail)}, at most "
        f"{small(certificate.level)}."
    )
