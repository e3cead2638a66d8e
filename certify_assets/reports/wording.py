"""Numbers, short words, Markdown blocks and templates that every page shares."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets._version import __version__
from certify_assets.files import sha256_bytes
from certify_assets.words import WORDS

if TYPE_CHECKING:
    import jinja2

    from certify_assets.storage.store import Store

DASH = "\N{EN DASH}"
#: longest block that Dagster shows inline on the page of an asset
INLINE = 1000
_MINUS = "\N{MINUS SIGN}"
# where the footer of a printed page says what it is, until the page is complete
_STAMP = "@@stamp@@"
# a percent sign stands off its number by a space that neither breaks nor gapes
_PERCENT = "\N{NARROW NO-BREAK SPACE}%"
# they change the order in which the text after them is shown
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")


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
    return f"{value / 10**exponent:.1f}\N{MULTIPLICATION SIGN}10{superscript(exponent)}"


def superscript(exponent: int) -> str:
    """Write a whole number as an exponent."""
    return str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


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


def in_order(page: str) -> str:
    r"""Write characters that reorder text as \u escapes; names in a page are untrusted."""
    return _REORDERING.sub(lambda found: f"\\u{ord(found[0]):04x}", page)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the environment of the templates next to this file."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared = (percent, count, counted, rate, compact, small)
    made.globals |= {function.__name__: function for function in shared}
    # what only some pages have: the way back to the start page, a date, a line below the title
    made.globals |= {"version": __version__, "home": "", "date": "", "about": "", "stamp": _STAMP}
    return made


def render(template: str, **values: object) -> str:
    """Fill a template; its footer in print has the date and a hash, by default that of the page."""
    page = in_order(environment().get_template(template).render(**values))
    what = values.get("hashed") or f"page {sha256_bytes(page.encode('utf-8'))[:16]}"
    parts = (f"certify_assets {__version__}", str(values.get("date", "")), f"SHA-256 of the {what}")
    # the first place is that of the style sheet, before any text of the data
    return page.replace(_STAMP, " · ".join(part for part in parts if part), 1)


def home_of(key: str, corpus: str = "") -> str:
    """Return the address of the start page, or of a corpus on it, from the page with this key."""
    return "../" * key.count("/") + "index.html" + (f"#{corpus}" if corpus else "")


def store_page(store: Store, key: str, page: str) -> str:
    """Store a page; return where it is."""
    store.write_bytes(key, page.encode("utf-8"))
    return store.locate(key)


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, tight: bool = False
) -> list[str]:
    """Return the lines of a Markdown table, without blanks around the cells where it is tight."""
    blank, rule = ("", "-|") if tight else (" ", "---|")
    head, *lines = (
        f"|{blank}{f'{blank}|{blank}'.join(cells)}{blank}|" for cells in (columns, *rows)
    )
    return [head, "|" + rule * len(columns), *lines]


def inline_block(lines: Iterable[str], what: str = "verdict block") -> str:
    """Join the lines of a block; one that Dagster would not show inline is a mistake of ours."""
    block = "\n".join(lines) + "\n"
    if len(block) >= INLINE:
        raise RuntimeError(
            f"the {what} has {len(block)} characters; it must stay under {INLINE} to be shown "
            "inline"
        )
    return block
