"""One frame for every page: a banner, sections of figures and tables, and one class of tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from certify_assets._version import __version__
from certify_assets.files import sha256_bytes
from certify_assets.reports.wording import compact, count, counted, percent, rate, small
from certify_assets.storage.urls import is_web_address

if TYPE_CHECKING:
    import jinja2

    from certify_assets.storage.store import Store

#: longest block that Dagster shows inline on the page of an asset
INLINE = 1000
# where the footer of a printed page says what it is, until the page is complete
_STAMP = "@@stamp@@"
# they change the order in which the text after them is shown
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")


class PageCell(str):
    """A cell that a page shows with more than its text; a terminal shows the text.

    `tag` adds an icon (PASS, WARN, ERROR, NONE, yes or no), `note` a small line below, and `look`
    is a class of the style sheet. `href` is where the text leads, an address on the web.
    """

    __slots__ = ("href", "look", "note", "tag")
    tag: str
    note: str
    look: str
    href: str

    def __new__(
        cls, text: str, *, tag: str = "", note: str = "", look: str = "", href: str = ""
    ) -> PageCell:
        """Return the text with its looks; an address that is not of the web is left out."""
        made = super().__new__(cls, text)
        made.tag, made.note, made.look = tag, note, look
        made.href = href if is_web_address(href) else ""
        return made

    @classmethod
    def of(cls, text: str) -> PageCell:
        """Return a cell as it is, and any other text as a plain one."""
        return text if isinstance(text, cls) else cls(text)


class PageTable(NamedTuple):
    """A table for pages, terminals, Markdown and CSV; the first cell of a row names it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    #: of its CSV file
    name: str = ""
    #: class of the style sheet
    look: str = ""
    #: places of the rows that stand out
    marked: Collection[int] = ()

    def csv(self) -> str:
        """Return it as CSV in which no spreadsheet runs a name as a formula."""
        from certify_assets.tables.writing import csv_text, defused

        # nothing joins these tables, and one name must not keep a stored page from being made
        rows = [[defused(cell) for cell in row] for row in self.rows]
        return csv_text([defused(name) for name in self.columns], list(zip(*rows, strict=True)))


class Panel(NamedTuple):
    """One figure with heading and caption; `layout` is ``half``, ``lead`` or ``wide``."""

    name: str
    heading: str
    markup: str
    caption: str
    layout: str = "half"


class Remark(NamedTuple):
    """A sentence with its code, and what it is about."""

    message: str
    code: str = ""
    about: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page: folded, or a card where it has no `id`."""

    heading: str
    id: str = ""
    gist: str = ""
    texts: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    panels: Sequence[Panel] = ()
    tables: Sequence[PageTable] = ()
    findings: Sequence[Remark] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Banner:
    """The verdict of a page: certified, warn, failed or nothing."""

    state: str
    heading: str
    sentences: Sequence[str] = ()
    #: label, value and what it rests on
    facts: Sequence[tuple[str, str, str]] = ()
    #: shares of runs and their counts, by decision
    shares: Mapping[str, float] | None = None
    counts: Mapping[str, str] | None = None


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
    made.globals |= {"version": __version__, "stamp": _STAMP, "cell": PageCell.of}
    # what only some pages have: the way back, a date, a line below the title, a verdict
    made.globals |= dict.fromkeys(("home", "date", "about", "sources", "banner"), "")
    return made


def render(template: str, **values: object) -> str:
    """Fill a template; its footer in print has the date and a hash, by default that of the page."""
    page = in_order(environment().get_template(template).render(**values))
    what = values.get("hashed") or f"page {sha256_bytes(page.encode('utf-8'))[:16]}"
    parts = (f"certify_assets {__version__}", str(values.get("date", "")), f"SHA-256 of the {what}")
    # the first place is that of the style sheet, before any text of the data
    return page.replace(_STAMP, " · ".join(part for part in parts if part), 1)


def in_order(page: str) -> str:
    r"""Write characters that reorder text as \u escapes; names in a page are untrusted."""
    return _REORDERING.sub(lambda found: f"\\u{ord(found[0]):04x}", page)


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
    """Return the lines of a Markdown table."""
    blank, rule = ("", "-|") if tight else (" ", "---|")
    head, *lines = (
        f"|{blank}{f'{blank}|{blank}'.join(cells)}{blank}|" for cells in (columns, *rows)
    )
    return [head, "|" + rule * len(columns), *lines]


def inline_block(lines: Iterable[str]) -> str:
    """Join the lines of a block; RuntimeError if Dagster would not show it inline."""
    block = "\n".join(lines) + "\n"
    if len(block) >= INLINE:
        raise RuntimeError(f"a block of {len(block)} characters is too long to be shown inline")
    return block
