"""Numbers and short words, as every page writes them."""

from __future__ import annotations

import math

from certify_assets.words import WORDS

DASH = "\N{EN DASH}"
#: what an audit's verdict says about a release, the most reassuring first
AUDIT_WORDS: dict[str, str] = {
    "PASS": "passed on held-out tasks",
    "NONE": "not audited yet",
    "WARN": "inconclusive on held-out tasks",
    "ERROR": "failed on held-out tasks",
}
_MINUS = "\N{MINUS SIGN}"
# a percent sign stands off its number by a space that neither breaks nor gapes
_PERCENT = "\N{NARROW NO-BREAK SPACE}%"


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share as a percentage: .4321 is 43.2 %, .5 is 50 %, None is a dash."""
    if share is None or not math.isfinite(share):
        return DASH
    text = f"{100 * share:.{digits}f}"
    return (
        text.rstrip("0").rstrip(".")
        if "." in text and float(text) == round(100 * share, 9)
        else text
    ).replace("-", _MINUS) + _PERCENT


def narrow_percents(sentence: str) -> str:
    """Write the percent signs of a sentence as `percent` does."""
    return sentence.replace(" %", _PERCENT)


def count(number: float | None) -> str:
    """Write a whole number with thousands separators."""
    return DASH if number is None or not math.isfinite(number) else f"{round(number):,}"


def counted(number: int, noun: str) -> str:
    """Write a number of things: 1 task, 2 tasks."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def measured(share: float | None) -> str:
    """Write a measured share with one decimal, so that those of a page read alike."""
    if share is None or not math.isfinite(share):
        return DASH
    return f"{100 * share:.1f}{_PERCENT}"


def success(share: float | None) -> str:
    """Write a success rate, which is not known where no outcome is."""
    return "no outcome known" if share is None else measured(share)


def rate(value: float | None, digits: int = 3) -> str:
    """Write a rate between 0 and 1 with fixed decimals."""
    return (
        DASH
        if value is None or not math.isfinite(value)
        else f"{value:.{digits}f}".replace("-", _MINUS)
    )


def compact(value: float | None) -> str:
    """Write a number of any size with at most four significant digits."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", _MINUS)
    return f"{value:.4g}".replace("-", _MINUS)


def small(value: float | None) -> str:
    """Write a tail probability: three significant digits, powers of ten below a thousandth."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    if value >= 0.001:
        return f"{value:.3g}"
    exponent = math.floor(math.log10(value))
    raised = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value / 10**exponent:.1f}\N{MULTIPLICATION SIGN}10{raised}"


def signed(value: float | None, digits: int = 3) -> str:
    """Write a score with its sign."""
    return (
        DASH
        if value is None or not math.isfinite(value)
        else f"{value:+.{digits}f}".replace("-", _MINUS)
    )


def probability(score: float) -> float:
    """Turn a log-odds score into the judge's probability of success."""
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def log_odds(threshold: float | None, scale: str = "log-odds") -> str:
    """Write a threshold; on the log-odds scale with its probability."""
    if threshold is None or not math.isfinite(threshold):
        return DASH
    if scale == "log-odds":
        return f"{signed(threshold)} (P = {probability(threshold):.3f})"
    return f"{compact(threshold)}"


def done(side: str) -> str:
    """Return what a run is after the decision of a side: auto-failed or auto-passed."""
    return f"{WORDS[side]}ed"
