"""Pages as a reader and a browser find them: parsed, as text, and opened from disk."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

HOSTILE = [
    "<script>alert(1)</script>",
    "</svg><img src=x onerror=alert(1)>",
    "$x^{2}$ \\frac{1}{0}",
    "\"'&amp;]]>--><!--",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(1)",
    "zero\u200bwidth \u202eright-to-left",
]


class Outline(HTMLParser):
    """Collects tags, ids, addresses and headings, and whether the tags balance."""

    VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in {"href", "src", "action", "data"}:
                self.addresses.append(value)
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def outline(html: str) -> Outline:
    parsed = Outline()
    parsed.feed(html)
    parsed.close()
    assert not parsed.open
    return parsed


def text_of(html: str) -> str:
    body = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"[ \n]+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def assert_stands_alone(html: str) -> Outline:
    """The page is well formed, loads and runs nothing, and its links lead to its own parts."""
    parsed = outline(html)
    assert not {"script", "link", "iframe", "img", "object", "embed", "form"} & set(parsed.tags)
    assert all(address.startswith("#") for address in parsed.addresses) and not parsed.handlers
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\((?!#)", html)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {address[1:] for address in parsed.addresses} <= set(parsed.ids)
    return parsed


def assert_fits(page: Any, width: int) -> None:
    # scripts are off, so the browser is asked from outside the page
    sizes = page.context.new_cdp_session(page).send("Page.getLayoutMetrics")
    assert sizes["cssContentSize"]["width"] <= width, page.url
