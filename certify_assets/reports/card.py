"""A certificate in a notebook: a card with a bar, an account in words, a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.reports.wording import (
    DASH,
    compact,
    counted,
    done,
    in_order,
    percent,
    rate,
    small,
)
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.certificates import Certificate, Diagnosis, Sides, ThresholdCurve

#: of the bar and the curves: they stand out from white and from black, since a notebook has either
COLOURS: Final = {"reject": "#3f7fd6", "human": "#8b94a0", "release": "#1f9a8f"}
_BUDGET = "#c98a1b"
_WIDTH = 520.0


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
    facts = ", ".join(
        [
            counted(first.trajectories, "run"),
            counted(first.tasks, "task"),
            f"{percent(first.success_rate)} {of}successful",
            f"budget {percent(first.alpha)}",
        ]
    )
    said = f"<p>Table read as: {escape('; '.join(read_as))}.</p>" if read_as else ""
    return in_order(
        '<div class="certify-card" style="max-width:560px;line-height:1.45;color:inherit">'
        f"<p><strong>{escape(sides.sentence)}</strong><br>{escape(facts)}</p>"
        f"{_bar(sides)}"
        f"<details><summary>The promise and its findings</summary>{_promises(sides)}{said}"
        "</details></div>"
    )


def _promises(sides: Sides) -> str:
    parts = []
    for certificate in sides.certificates:
        findings = "".join(
            f"<li>{escape(finding['code'])}: {escape(finding['message'])}</li>"
            for finding in certificate.findings
        )
        listed = f"<ul>{findings}</ul>" if findings else ""
        parts.append(f"<p>{escape(certificate.statement)}</p>{listed}")
    return "".join(parts)


def _bar(sides: Sides) -> str:
    """Draw what becomes of runs: failed by the judge, reviewed, passed by the judge."""
    x, parts = 0.0, []
    shares = {name: sides.shares[name] for name in COLOURS}
    for name, share in shares.items():
        parts.append(
            f'<rect x="{x:.1f}" y="0" width="{_WIDTH * share:.1f}" height="22" '
            f'fill="{COLOURS[name]}"/>'
        )
        x += _WIDTH * share
    for place, (name, share) in enumerate(shares.items()):
        at = place * _WIDTH / 3
        parts.append(
            f'<rect x="{at:.1f}" y="31" width="10" height="10" fill="{COLOURS[name]}"/>'
            f'<text x="{at + 15:.1f}" y="40" font-size="11" fill="currentColor">'
            f"{escape(WORDS[name])} {percent(share)}</text>"
        )
    label = ", ".join(f"{WORDS[name]} {percent(share)}" for name, share in shares.items())
    # complete in itself: a notebook has none of the pages' styles
    return (
        '<div style="max-width:100%;overflow-x:auto">'
        f'<svg viewBox="0 0 {_WIDTH:g} 48" width="{_WIDTH:g}" height="48" role="img" '
        f'aria-label="{escape(f"Of all runs: {label}.")}">{"".join(parts)}</svg></div>'
    )


def draw_curves(explained: Sequence[Explained], axes: Axes | None = None) -> Axes:
    """Draw the error among decided runs by their share on matplotlib axes, new ones by default."""
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(6.4, 3.8))[1]
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
    axes.legend(fontsize="small")
    return axes


def account(sides: Sides, explained: Sequence[Explained], read_as: Sequence[str] = ()) -> str:
    """Say in plain words what is promised, why by these thresholds, and what would widen them."""
    parts = [sides.sentence]
    for item in explained:
        certificate = item.certificate
        name = WORDS[certificate.side].capitalize()
        found = "".join(
            f"\n    - {finding['code']}: {finding['message']}" for finding in certificate.findings
        )
        parts += [
            f"{name} (side {certificate.side})",
            f"  Promise: {certificate.statement}",
            f"  Threshold: {_why(item)}",
            f"  What would widen it: {_wider(item)}",
            f"  Findings:{found or ' none'}",
        ]
    if read_as:
        parts.append(f"Table read as: {'; '.join(read_as)}.")
    return "\n".join(parts)


def _why(item: Explained) -> str:
    certificate, curve = item.certificate, item.curve
    tried = f"{counted(curve.thresholds.size, 'threshold')} tried"
    if not certificate.certified:
        return f"none of the {tried} passes. {item.diagnosis.sentence}"
    said = (
        f"{compact(certificate.threshold)} is the widest of the {tried} that passes: "
        f"{certificate.errors} of the {counted(certificate.covered_trajectories, 'run')} of "
        f"{counted(certificate.covered_tasks, 'task')} that it has {done(certificate.side)} are "
        f"wrong ({percent(certificate.selective_error)}), and its tail, how likely so few errors "
        f"are where the error is above the budget, is {small(certificate.tail)} of at most "
        f"{small(certificate.level)}."
    )
    wider = _next(item)
    if wider is None:
        return f"{said} There is no wider one."
    return (
        f"{said} The next wider one decides {percent(float(curve.coverage[wider]))} of runs with "
        f"an error of {percent(float(curve.selective_error[wider]))} and a tail of "
        f"{small(float(curve.tail[wider]))}."
    )


def _next(item: Explained) -> int | None:
    """Return the place of the narrowest threshold that is wider than the certified one."""
    covered = item.curve.coverage
    wider = np.flatnonzero(covered > item.certificate.coverage + 1e-9)
    return int(wider[np.argmin(covered[wider])]) if wider.size else None


def _wider(item: Explained) -> str:
    certificate, curve = item.certificate, item.curve
    area = rate(item.diagnosis.auroc, 2)
    if not certificate.certified:
        if item.diagnosis.lift:
            return f"{item.diagnosis.lift}, for {certificate.tasks} now."
        return f"a judge that ranks better (its AUROC is {area}), or a larger budget."
    within = curve.selective_error <= certificate.alpha
    reach = float(np.max(curve.coverage[within], initial=certificate.coverage))
    if reach > certificate.coverage + 1e-9:
        return (
            f"more tasks like these: the observed error stays within {percent(certificate.alpha)} "
            f"up to {percent(reach)} of runs. Beyond that only a judge that ranks better (its "
            f"AUROC is {area}) or a larger budget."
        )
    return (
        f"a judge that ranks better (its AUROC is {area if area != DASH else 'not known'}) or a "
        "larger budget; more tasks would not, since beyond this share the observed error itself "
        "is above it."
    )
