"""What scripted agents can do: rules from instruction to skill, and the skills that click."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from certify_assets.research.miniwob import skills_form as form
from certify_assets.research.miniwob import skills_shape as shape
from certify_assets.research.miniwob.browser import Element
from certify_assets.research.miniwob.hands import Hands, Stuck, colour_name, quoted

_NOT_NAMES = re.findall(
    r"\w+",
    "Find Locate Look Forward Send Go Please The Give I Navigate Search Get Will Can Open Email "
    "Primary Reply Resend Could In",
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
    """Find an element, opening tabs, sections, folders and menus in turn until it shows."""
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
    """Press the buttons named in capitals, in order, or the only one there is."""
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
    """Return (sender shown in the list, what to do, text or recipient)."""
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


CLICK = (("blind", 4), ("off", 3), ("wrong", 2), ("lost", 3))
STEPS = (("blind", 3), ("off", 2), ("wrong", 2), ("lost", 3), ("stops", 3))
FORM = (("blind", 3), ("forgets", 2), ("partial", 1), ("typo", 1), ("lost", 2), ("stops", 2))
BOXES = (("blind", 3), ("forgets", 2), ("partial", 2), ("off", 2), ("lost", 2))
DRAG = (("blind", 4), ("off", 2), ("forgets", 1), ("lost", 3))


@dataclass(frozen=True, slots=True)
class Skill:
    """A way of acting: its instructions, level (0 easy to 1 hard), faults with weights."""

    pattern: str
    act: Callable[[Hands, re.Match[str]], None]
    level: float
    faults: tuple[tuple[str, int], ...]


SKILLS: tuple[Skill, ...] = (
    Skill(
        r"For the user (?P<user>@\w+), click on the \"(?P<button>[^\"]+)\" button(?P<count>(?!))?",
        social_posts,
        0.5,
        STEPS,
    ),
    Skill(
        r"Click the \"(?P<button>[^\"]+)\" button on (?P<count>all|\d+) posts? by (?P<user>@\w+)",
        social_posts,
        0.65,
        STEPS,
    ),
    Skill(
        r"Use the textbox to enter \"([^\"]+)\" and press \"Search\", .* the (\d+)",
        search_result,
        0.55,
        STEPS,
    ),
    Skill(r"^Close the dialog", close_dialog, 0.3, CLICK),
    Skill(r"Click on (Tab #\d+)", click_tab, 0.25, CLICK),
    Skill(r"Click on a \"(\w+)\" widget", click_widget, 0.4, CLICK),
    Skill(r"Click on the (\w+) colored box", click_colour, 0.35, CLICK),
    Skill(r"^Click the button that best describes", shape.identify_shape, 0.4, CLICK),
    Skill(r"Click (?:the button\.|button ONE)", press_buttons, 0.1, CLICK),
    Skill(r"Expand the section below and click submit", expand_and_submit, 0.35, FORM),
    Skill(
        r"(?:Scroll to the bottom|Click the cancel button|Click the .* button\.$).*",
        form.sign_agreement,
        0.6,
        FORM,
    ),
    Skill(
        r"(?:Switch between the tabs|Expand the sections|Navigate through the file tree|Click the "
        r"\"Menu\" button)",
        click_named,
        0.6,
        STEPS,
    ),
    Skill(r"Expand the pie menu", click_named, 0.7, CLICK),
    Skill(r"Click (?:on )?the (?:link|button|\").*", click_named, 0.2, CLICK),
    Skill(r"Select ([A-Z][\w-]+(?:>[\w-]+)+)", menu_path, 0.65, STEPS),
    Skill(r"Select all the shades of (red|green|blue)", shape.shades, 0.6, BOXES),
    Skill(r"Select words similar to (.*) and click Submit", shape.improvise, 0.9, BOXES),
    Skill(r"Select (.+) from the (?:scroll )?list", choose_from_list, 0.45, FORM),
    Skill(r"Select (\d\d/\d\d/\d{4}) as the date", form.pick_date, 0.65, STEPS),
    Skill(r"Select (-?\d+) with the slider, click the (\d)", form.slider_and_box, 0.7, BOXES),
    Skill(r"Select (-?\d+) with the slider", form.slide_to, 0.55, FORM),
    Skill(r"Set the sliders to the combination \[([^\]]+)\]", form.slide_to, 0.75, BOXES),
    Skill(r"Select (-?\d+) with the spinner", form.spin, 0.45, FORM),
    Skill(r"Select (?!.*color)(.+) and click Submit", select_boxes, 0.4, BOXES),
    Skill(r"Enter the username", form.login, 0.4, FORM),
    Skill(r"Enter an item that starts", form.autocomplete, 0.6, FORM),
    Skill(
        r"Enter the value of (.+) into the text field|Enter the value that corresponds",
        form.read_table,
        0.5,
        FORM,
    ),
    Skill(r"Enter (\d\d/\d\d/\d{4}) as the date", form.enter_date, 0.45, FORM),
    Skill(r"Enter (\d+):(\d+) (AM|PM) as the time", form.enter_time, 0.5, FORM),
    Skill(r"^(?:Enter|Type) (?:the password )?\"", form.type_quoted, 0.3, FORM),
    Skill(r"^Copy the text", form.copy_text, 0.5, FORM),
    Skill(r"^Find the (?:\d+\w\w|last) word", form.find_word, 0.5, FORM),
    Skill(r"Scroll the textarea to the (top|bottom)", form.scroll_area, 0.5, FORM),
    Skill(r"^Type the text below", form.retype_letters, 0.45, FORM),
    Skill(r"^Type the total number of blocks", form.add_blocks, 0.55, FORM),
    Skill(r"^Solve for x", form.solve_equation, 0.7, FORM),
    Skill(r"^Solve the math problem", form.solve_sum, 0.5, FORM),
    Skill(
        r"Search for (.+) movies directed by (.+) from year (\d+)", form.movie_search, 0.55, FORM
    ),
    Skill(r"^Focus into the", form.focus_field, 0.2, CLICK),
    Skill(
        r"Check the (\d)\w\w radio button and enter the number \"(-?\d+)\" into the (\d)",
        form.radio_and_number,
        0.6,
        BOXES,
    ),
    Skill(
        r"Choose (.+) from the dropdown, then click the button labeled \"(\w+)\"",
        form.dropdown_and_button,
        0.6,
        STEPS,
    ),
    Skill(r"^Generate an? ", form.generate_number, 0.6, FORM),
    Skill(r"^Guess the number", form.guess_number, 0.7, FORM),
    Skill(r"Find (.+) in the contact book and click on their (\w+)", contact_detail, 0.55, STEPS),
    Skill(r"Buy the ticket with the (.+)\.", book_ticket, 0.5, CLICK),
    Skill(r"Order one of each item: (.+)", order_food, 0.6, BOXES),
    Skill(r"Click on an? (.+)$", shape.click_shape, 0.5, CLICK),
    Skill(r"How many (.+) are there", shape.count_shapes, 0.6, CLICK),
    Skill(r"numbers in ascending order", shape.ascending, 0.45, STEPS),
    Skill(r"grid coordinate (\(-?\d,-?\d\))", shape.grid_point, 0.45, CLICK),
    Skill(r"center of the circle", shape.circle_center, 0.5, DRAG),
    Skill(r"mid-point between", shape.midpoint, 0.6, DRAG),
    Skill(r"right angle|bisects the angle|Draw a circle", shape.click_place, 0.85, DRAG),
    Skill(r"Drag the (?:circle|item) (up|down|left|right) then", shape.drag_down, 0.5, DRAG),
    Skill(r"Drag the smaller box", shape.box_in_box, 0.6, DRAG),
    Skill(r"Drag all (.+) into the (?:black|left) box", shape.drag_shapes, 0.75, DRAG),
    Skill(r"Drag ([\w-]+) to the ([a-z][a-z -]+)\.", shape.grid_center, 0.65, DRAG),
    Skill(r"Drag ([\w-]+) (?:to|up|down)", shape.list_position, 0.6, DRAG),
    Skill(r"Sort the numbers in increasing", shape.sort_numbers, 0.75, DRAG),
    Skill(r"Resize the textarea", shape.resize_area, 0.6, DRAG),
    Skill(r"Draw a (vertical|horizontal) line", shape.draw_line, 0.7, DRAG),
    Skill(r"card with the greatest number", shape.find_greatest, 0.6, STEPS),
    Skill(r"Mark the numbers below as odd or even", shape.odd_or_even, 0.6, BOXES),
    Skill(r"tic-tac-toe", shape.tic_tac_toe, 0.75, STEPS),
    Skill(r"HOT area", shape.hot_spot, 0.75, STEPS),
    Skill(r"Buy \w+ stock when the price is less than \$([\d.]+\d)", shape.buy_stock, 0.65, STEPS),
    Skill(
        r"delete a file (?:ending with the extension \.(\w+)|that has)",
        shape.delete_file,
        0.7,
        STEPS,
    ),
    Skill(r"^Highlight the text", shape.highlight, 0.6, FORM),
    Skill(
        r"Using the text editor, (?:give .+?|make everything) the (?:style|color) (\w+)",
        shape.style_text,
        0.8,
        STEPS,
    ),
    Skill(r"(?i)\b(?:e?mails?|message|information)\b", mail, 0.6, STEPS),
)
FALLBACK = Skill(r"", shape.improvise, 0.9, STEPS)


def find_skill(instruction: str) -> tuple[Skill, re.Match[str]]:
    """Return the first skill whose pattern fits, and the match; improvisation fits everything."""
    for skill in SKILLS:
        if found := re.search(skill.pattern, instruction):
            return skill, found
    found = re.match("", instruction)
    assert found is not None
    return FALLBACK, found
