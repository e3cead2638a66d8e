"""A certificate in a notebook: a card with bar and curve, an account in words, a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np

from certify_assets.certificates.words import WORDS
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from certify_assets.certificates import Certificate, Diagnosis, Sides, ThresholdCurve

#: of the bar and the curves: they stand out from white and from black, since a notebook has either
COLOURS: Final = {"reject": "#3f7fd6", "human": "#8b94a0", "release": "#1f9a8f"}
_BUDGET = "#c98a1b"
_WIDTH, _HEIGHT = 520.0, 200.0
_BUDGETS = 3.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 12.0, 12.0, 36.0


@dataclass(frozen=True)
class Explained:
    """One certificate with what its grid and its table say of it."""

    certificate: Certificate
    curve: ThresholdCurve
    diagnosis: Diagnosis


def card(sides: Sides, explained: Sequence[Explained], read_as: Sequence[str] = ()) -> str:
    """Draw certificates of one table as HTML that a notebook shows, in light and in dark."""
    first = sides.certificates[0]
    facts = ", ".join(
        [
            counted(first.trajectories, "run"),
            counted(first.tasks, "task"),
            f"{percent(first.success_rate)} successful",
            f"budget {percent(first.alpha)}",
        ]
    )
    said = f"<p>Table read as: {escape('; '.join(read_as))}.</p>" if read_as else ""
    return in_order(
        '<div class="certify-card" style="max-width:560px;line-height:1.45;color:inherit">'
        f"<p><strong>{escape(sides.sentence)}</strong><br>{escape(facts)}</p>"
        f"{_bar(sides)}{_curves(explained)}"
        f"<details><summary>The promise and its findings</summary>{_promises(explained)}{said}"
        "</details></div>"
    )


def _promises(explained: Sequence[Explained]) -> str:
    parts = []
    for item in explained:
        findings = "".join(
            f"<li>{escape(finding['code'])}: {escape(finding['message'])}</li>"
            for finding in item.certificate.findings
        )
        listed = f"<ul>{findings}</ul>" if findings else ""
        parts.append(f"<p>{escape(item.certificate.promise)}</p>{listed}")
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
            + _text(at + 15, 40, f"{WORDS[name]} {percent(share)}")
        )
    label = ", ".join(f"{WORDS[name]} {percent(share)}" for name, share in shares.items())
    return _drawn("".join(parts), 48, f"Of all runs: {label}.")


def _curves(explained: Sequence[Explained]) -> str:
    """Draw the error among decided runs by their share, with the budget and what is certified."""
    drawn = [item for item in explained if item.curve.thresholds.size]
    if not drawn:
        return ""
    alpha = max(item.certificate.alpha for item in drawn)
    widest = max(float(item.curve.coverage.max()) for item in drawn) or 1.0
    # beyond some budgets a curve says no more than that it is above
    top = min(1.0, _BUDGETS * alpha)

    def at(share: float, error: float) -> tuple[float, float]:
        return (
            _LEFT + (_WIDTH - _LEFT - _RIGHT) * share / widest,
            _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.0, error / top),
        )

    (left, base), (right, line) = at(0, 0), at(widest, alpha)
    parts = [
        f'<path d="M{left:.1f} {_TOP:.1f}V{base:.1f}H{right:.1f}" stroke="currentColor" '
        'stroke-opacity=".45" fill="none"/>',
        f'<path d="M{left:.1f} {line:.1f}H{right:.1f}" stroke="{_BUDGET}" stroke-width="1.5" '
        'stroke-dasharray="6 3"/>',
        _text(right, line - 4, f"budget {percent(alpha)}", "end"),
        _text(left - 5, base + 4, "0", "end"),
        _text(left - 5, _TOP + 8, percent(top, 0), "end"),
        _text(left, base + 14, "0"),
        _text(right, base + 14, percent(widest, 0), "end"),
        _text((left + right) / 2, base + 28, "share of runs decided; error among them", "middle"),
    ]
    said = []
    for item in drawn:
        certificate, curve = item.certificate, item.curve
        colour, order = COLOURS[curve.side], np.argsort(curve.coverage, kind="stable")
        points = " ".join(
            "{:.1f},{:.1f}".format(*at(float(curve.coverage[i]), float(curve.selective_error[i])))
            for i in order
            if curve.selective_error[i] <= top
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        if certificate.certified:
            x, y = at(certificate.coverage, certificate.selective_error or 0.0)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}" stroke="currentColor"/>'
            )
        share = percent(certificate.coverage) if certificate.certified else "nothing"
        said.append(f"{WORDS[curve.side]}: {share} certified")
    return _drawn(
        "".join(parts),
        _HEIGHT,
        f"Error among decided runs by their share, {'; '.join(said)}; budget {percent(alpha)}.",
    )


def _drawn(body: str, height: float, label: str) -> str:
    # complete in itself: a notebook has none of the pages' styles
    return (
        '<div style="max-width:100%;overflow-x:auto">'
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" width="{_WIDTH:g}" height="{height:g}" '
        f'role="img" aria-label="{escape(label)}">{body}</svg></div>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="currentColor" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
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
            f"  Promise: {certificate.promise}",
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
