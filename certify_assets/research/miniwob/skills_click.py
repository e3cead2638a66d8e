"""Skills of finding and clicking: quoted words behind tabs, menus and pages, boxes to tick, lists, posts and mail."""

from __future__ import annotations

import re

from certify_assets.research.miniwob.browser import Element
from certify_assets.research.miniwob.hands import Hands, Stuck
from certify_assets.research.miniwob.words import colour_name, quoted

__all__ = [
    "book_ticket", "choose_from_list", "click_colour", "click_named", "click_tab", "click_widget", "close_dialog", "contact_detail",
    "expand_and_submit", "mail", "menu_path", "order_food", "press_buttons", "search_result", "select_boxes", "social_posts",
]  # fmt: skip

_NOT_NAMES = re.findall(
    r"\w+",
    "Find Locate Look Forward Send Go Please The Give I Navigate Search Get Will Can Open Email Primary Reply Resend Could In",
)
_CLICKABLE = ("button", "link", "tab", "menuitem")


def _openers(h: Hands, used: set[int]) -> list[Element]:
    closed = [
        e
        for e in h.view
        if "ui-accordion-header-collapsed" in e.cls or "expandable-hitarea" in e.cls
    ]
    tabs = [
        e for e in h.all("tab") if "ui-tabs-active" not in e.cls and "ui-accordion" not in e.cls
    ]
    menus = [e for e in h.view if e.kind == "button" and e.text == "Menu"]
    return [e for e in (*closed, *tabs, *menus, *h.all("menuitem")) if e.ref not in used]


def _seek(h: Hands, text: str, *kinds: str) -> Element:
    """Find an element, opening tabs, sections, folders and menus one after another until it shows."""
    used: set[int] = set()
    while True:
        if found := h.find(text, *kinds):
            return found
        openers = _openers(h, used)
        if not openers:
            return h.need(text, *kinds)
        used.add(openers[0].ref)
        fault, h.fault = h.fault, h.fault if h.fault == "stops" else ""
        h.hover(openers[0]) if openers[0].kind == "menuitem" else h.click(openers[0])
        h.fault = fault


def click_named(h: Hands, m: re.Match[str]) -> None:
    """Click what the instruction quotes, wherever it hides."""
    words = quoted(h.instruction)
    if not words:
        raise Stuck("the instruction names no text")
    target = words[-1]
    if target == "x":
        return close_dialog(h, m)
    found = _seek(h, target, *_CLICKABLE, "text") if "icon" not in h.instruction else h.one("icon")
    h.click(found)
    if "pie menu" in h.instruction:
        h.click(h.need(target))
    return None


def close_dialog(h: Hands, m: re.Match[str]) -> None:
    """Close a dialog by its cross."""
    h.click(h.one("button", cls="titlebar-close"))


def press_buttons(h: Hands, m: re.Match[str]) -> None:
    """Press the buttons that the instruction names in capitals, in order, or the only one there is."""
    names = re.findall(r"\b(ONE|TWO|THREE)\b", h.instruction)
    for name in h.items(names):
        h.click(h.need(name, "button"))
    if not names:
        h.click(h.one("button"))


def click_tab(h: Hands, m: re.Match[str]) -> None:
    """Click a tab by its title."""
    h.click(h.need(m.group(1), "link", "tab"))


def click_widget(h: Hands, m: re.Match[str]) -> None:
    """Click any widget of a named type."""
    wanted = m.group(1)
    for e in h.view:
        if wanted in (e.type, e.tag) or (
            wanted == "text" and e.kind == "field" and e.tag == "input"
        ):
            h.click(e)
            return
    h.need(wanted)


def click_colour(h: Hands, m: re.Match[str]) -> None:
    """Click the box of a named colour."""
    for e in h.all(cls="color"):
        if colour_name(e.colour) == colour_name(m.group(1)):
            h.click(e)
            return
    h.need(m.group(1))


def expand_and_submit(h: Hands, m: re.Match[str]) -> None:
    """Open the collapsed section, then submit."""
    h.click(h.one(cls="accordion-header-collapsed"))
    h.submit()


def menu_path(h: Hands, m: re.Match[str]) -> None:
    """Follow a path of menu items."""
    *path, last = [part.strip() for part in m.group(1).split(">")]
    for part in path:
        h.hover(h.need(part, "menuitem"))
    h.click(h.need(last, "menuitem"))


def select_boxes(h: Hands, m: re.Match[str]) -> None:
    """Tick the boxes with the given labels, then submit."""
    names = [] if m.group(1) == "nothing" else m.group(1).split(", ")
    for name in h.items(names):
        h.click(h.need(name, "checkbox", "radio"))
    h.submit()


def choose_from_list(h: Hands, m: re.Match[str]) -> None:
    """Choose the named options of a list, then submit."""
    h.choose(h.one("list"), h.items(m.group(1).split(", ")))
    h.submit()


def search_result(h: Hands, m: re.Match[str]) -> None:
    """Search for a word and click the n-th result, three a page."""
    h.type(h.one("field"), m.group(1))
    h.submit("Search")
    number = int(m.group(2)) - 1
    if number >= 3:
        h.click(h.need(str(number // 3 + 1), "link"))
    h.click(h.one("link", cls="search-title", nth=number % 3))


def contact_detail(h: Hands, m: re.Match[str]) -> None:
    """Turn the pages of a contact book to a name and click one of its details."""
    name, detail = m.group(1), m.group(2).split()[0]
    while h.find(name) is None:
        following = h.find(">", "link")
        if following is None or h.tap(following, "click(next page)") == "nothing visible changed":
            h.need(name)
    h.click(h.one("link", cls=detail))


def book_ticket(h: Hands, m: re.Match[str]) -> None:
    """Buy the ticket with the lowest or highest price or duration."""

    def minutes(text: str) -> int:
        hours, rest = re.findall(r"\d+", text)[:2]
        return 60 * int(hours) + int(rest)

    buttons = h.all("button", cls="buy-ticket")
    if "cost" in m.group(1):
        values = [int(re.sub(r"\D", "", b.text)) for b in buttons]
    else:
        values = [minutes(e.text) for e in h.all(cls="time-duration")]
    best = max if re.search("most|longest", m.group(1)) else min
    h.click(buttons[values.index(best(values))])


def order_food(h: Hands, m: re.Match[str]) -> None:
    """Order dishes by name."""
    for name in h.items(m.group(1).split(", ")):
        dish = h.need(name)
        plus = [e for e in h.all(cls="add") if abs(e.y - dish.y) < 30]
        if not plus:
            h.need("+ of " + name)
        h.click(min(plus, key=lambda e: abs(e.y - dish.y)))
    h.submit("Order!")


def _below(h: Hands, owner: Element, cls: str) -> Element | None:
    found = [e for e in h.all(cls=cls) if e.y > owner.y and cls in e.cls.split()]
    return min(found, key=lambda e: e.y, default=None)


def social_posts(h: Hands, m: re.Match[str]) -> None:
    """Press a button of posts by a user: of one, of some, or of all."""
    button = m.group("button").split()[0].lower()
    posts = [e for e in h.all(cls="username") if e.text == m.group("user")]
    said = m.group("count")
    count = 1 if said is None else len(posts) if said == "all" else int(said)
    if not posts:
        h.need(m.group("user"))
    for post in h.items(posts[:count]):
        post = h.again(post)
        target = _below(h, post, button)
        if target is None and (more := _below(h, post, "more")):
            h.click(more)
            target = _below(h, post, button)
        if target is None:
            target = h.need(m.group("button"))
        h.click(target)
    if "Submit" in h.instruction:
        h.submit()


def _mail_parts(h: Hands) -> tuple[str, str, str]:
    """Return (sender, what to do, text or recipient): the sender is the name that shows in the list, the recipient the other."""
    text = h.instruction
    said = quoted(text)
    names = [
        re.sub(r"'s$", "", word)
        for word in re.findall(
            r"\b[A-Z][a-z]+(?:-[A-Z][a-z]+)?(?:'s)?", re.sub(r'"[^"]*"', "", text)
        )
    ]
    name = next((n for n in names if h.find(n, "text")), "")
    if re.search("delete|trash|remove|get rid", text, re.IGNORECASE):
        what = "delete"
    elif re.search("star|important", text, re.IGNORECASE):
        what = "star"
    else:
        what = "reply" if said else "forward"
    others = [n for n in names if n not in (name, *_NOT_NAMES)]
    return name, what, said[0] if what == "reply" else others[-1] if others else ""


def mail(h: Hands, m: re.Match[str]) -> None:
    """Find a mail by its sender, then star, delete, answer or forward it."""
    name, what, rest = _mail_parts(h)
    sender = h.need(name, "text") if name else h.need("the sender")
    if what in ("star", "delete"):
        word = "star" if what == "star" else "trash"
        h.click(min(h.all("icon", cls=word), key=lambda e: abs(e.y - sender.y)))
        return
    h.tap(sender, f'click(mail of "{name}")')
    if what == "reply":
        h.click(h.need("Reply"))
        h.type(h.one("field"), rest)
        send = "send-reply"
    else:
        h.click(h.need("Forward"))
        h.type(h.one("field", cls="forward-sender"), rest)
        send = "send-forward"
    if h.fault != "forgets":
        icon = next((e for e in h.view if e.id == send), None) or h.need(send)
        h.tap(icon, "click(send)")
