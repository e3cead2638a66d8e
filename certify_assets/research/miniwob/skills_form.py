"""Skills of typing and choosing: forms, tables, sums, dates, sliders, words of a text."""

from __future__ import annotations

import re

from certify_assets.research.miniwob.browser import Element
from certify_assets.research.miniwob.hands import Hands, Stuck, ordinal, quoted

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def type_quoted(h: Hands, m: re.Match[str]) -> None:
    """Type the quoted text into every field there is, then submit."""
    text = quoted(h.instruction)[0]
    if "upper case" in h.instruction:
        text = text.upper()
    if "lower case" in h.instruction:
        text = text.lower()
    for field in h.all("field"):
        h.type(field, text)
    h.submit()


def login(h: Hands, m: re.Match[str]) -> None:
    """Type a name and a password into the fields with those labels, then log in."""
    for label, text in zip(("Username", "Password"), quoted(h.instruction), strict=False):
        h.type(h.need(label, "field"), text)
    h.submit()


def focus_field(h: Hands, m: re.Match[str]) -> None:
    """Put the cursor into a field."""
    h.click(h.one("field", nth=(ordinal(h.instruction) or 1) - 1))


def enter_date(h: Hands, m: re.Match[str]) -> None:
    """Fill a date field."""
    month, day, year = m.group(1).split("/")
    h.fill(h.one("field"), f"{year}-{month}-{day}")
    h.submit()


def enter_time(h: Hands, m: re.Match[str]) -> None:
    """Fill a time field from a time with AM or PM."""
    hour, minute = int(m.group(1)) % 12 + (12 if m.group(3) == "PM" else 0), m.group(2)
    h.fill(h.one("field"), f"{hour:02d}:{minute}")
    h.submit()


def pick_date(h: Hands, m: re.Match[str]) -> None:
    """Open a calendar, turn back to the month, click the day, submit."""
    month, day, _ = (int(part) for part in m.group(1).split("/"))
    h.click(next((e for e in h.view if e.id == "datepicker"), None) or h.one("field"))
    for _ in range(11):
        if h.find(_MONTHS[month - 1]):
            break
        h.tap(h.one("link", cls="ui-datepicker-prev"), "click(previous month)")
    h.click(h.need(str(day), "link"))
    h.submit()


def copy_text(h: Hands, m: re.Match[str]) -> None:
    """Copy the text of a text area into the input."""
    areas = [e for e in h.all("field") if e.tag == "textarea"]
    source = areas[(ordinal(h.instruction) or 1) - 1]
    h.type(next(e for e in h.all("field") if e.tag == "input"), source.value)
    h.submit()


def find_word(h: Hands, m: re.Match[str]) -> None:
    """Type the n-th word of the paragraph, or the last of the text area."""
    areas = [e for e in h.all("field") if e.tag == "textarea"]
    words = (areas[0].value if areas else h.one("text").text).split()
    number = ordinal(h.instruction) or 0
    word = words[number - 1]
    h.type(next(e for e in h.all("field") if e.tag == "input"), word if areas else word.strip(",."))
    h.submit()


def scroll_area(h: Hands, m: re.Match[str]) -> None:
    """Scroll a text area to one of its ends."""
    h.scroll(h.one("field"), top=m.group(1) == "top")
    h.submit()


def sign_agreement(h: Hands, m: re.Match[str]) -> None:
    """Sign, or cancel, an agreement."""
    said = quoted(h.instruction)
    if len(said) < 2:
        h.click(
            h.need(re.sub(r".*the (\w+) button.*", r"\1", h.instruction).capitalize(), "button")
        )
        return
    h.scroll(next(e for e in h.all("field") if e.tag == "textarea"))
    h.type(next(e for e in h.all("field") if e.tag == "input"), said[0])
    h.click(h.need(said[1], "button"))


def read_table(h: Hands, m: re.Match[str]) -> None:
    """Copy values out of a table of labels into one field or several."""
    cells = [e for e in h.view if e.tag == "td"]
    table = {a.text: b.text for a, b in zip(cells[::2], cells[1::2], strict=False)}
    fields = h.all("field")
    labels = [m.group(1)] if m.group(1) else [f.label.strip(": ") for f in fields]
    for field, label in zip(fields, labels, strict=False):
        if label not in table:
            h.need(label)
        h.type(field, table[label])
    h.submit()


def retype_letters(h: Hands, m: re.Match[str]) -> None:
    """Type the letters shown above the field."""
    h.type(h.one("field"), "".join(e.text for e in h.all("text") if len(e.text) == 1))
    h.submit()


def solve_sum(h: Hands, m: re.Match[str]) -> None:
    """Work out a sum with one operator."""
    text = next((e.text for e in h.view if re.match(r"-?\d+\s*[-+x*/×]\s*-?\d+", e.text)), "")
    parts = re.match(r"(-?\d+)\s*([-+x*/×])\s*(-?\d+)", text)
    if not parts:
        raise Stuck("could not read the problem")
    a, sign, b = int(parts.group(1)), parts.group(2), int(parts.group(3))
    h.type(h.one("field"), str(a + b if sign == "+" else a - b if sign == "-" else a * b))
    h.submit()


def solve_equation(h: Hands, m: re.Match[str]) -> None:
    """Solve a ± x = c or x ± a = c."""
    text = next(
        (e.text for e in h.view if "x" in e.text and "=" in e.text and re.search(r"\d", e.text)), ""
    )
    parts = re.match(r"(x|-?\d+)\s*([-+])\s*(x|-?\d+)\s*=\s*(-?\d+)", text)
    if not parts:
        raise Stuck("could not read the equation")
    left, sign, right, total = parts.group(1), parts.group(2), parts.group(3), int(parts.group(4))
    if left == "x":
        answer = total - int(right) if sign == "+" else total + int(right)
    else:
        answer = total - int(left) if sign == "+" else int(left) - total
    h.type(h.one("field"), str(answer))
    h.submit()


def add_blocks(h: Hands, m: re.Match[str]) -> None:
    """Count the blocks."""
    h.type(h.one("field"), str(len(h.all(cls="addition-block"))))
    h.submit()


def movie_search(h: Hands, m: re.Match[str]) -> None:
    """Fill a search form by the meaning of its labels, whatever its layout."""
    meanings = (("genre", m.group(1)), ("director", m.group(2)), ("year|date", m.group(3)))
    for meaning, text in meanings:
        field = next(
            (f for f in h.all("field") if re.search(meaning, f.label, re.IGNORECASE)), None
        )
        if field is None:
            field = _above_label(h, meaning)
        h.type(field, text)
    h.submit()


def _above_label(h: Hands, meaning: str) -> Element:
    label = next((e for e in h.view if re.search(meaning, e.text, re.IGNORECASE)), None)
    if label is None:
        return h.need(meaning.split("|")[0])
    return min(h.all("field"), key=lambda e: abs(e.y - label.y) + abs(e.x - label.x) / 4)


def autocomplete(h: Hands, m: re.Match[str]) -> None:
    """Type the beginning, read the suggestions, choose the one with the right end, submit."""
    said = quoted(h.instruction)
    field = h.one("field")
    h.type(field, said[0])
    end = said[1] if len(said) > 1 else ""
    options = [
        e
        for e in h.all("menuitem") + h.all("text", cls="ui-menu-item-wrapper")
        if e.text.endswith(end)
    ]
    if not options:
        h.need(f"{said[0]}…{end}")
    h.click(options[0])
    h.submit()


def dropdown_and_button(h: Hands, m: re.Match[str]) -> None:
    """Choose from a styled dropdown, then press the named button."""
    opener = h.one(cls="button")
    h.tap(opener, "click(dropdown)")
    h.click(h.need(m.group(1)))
    h.submit(m.group(2))


def radio_and_number(h: Hands, m: re.Match[str]) -> None:
    """Check a radio button and type a number, each by its place."""
    h.click(h.one("radio", nth=int(m.group(1)) - 1))
    h.type(h.one("field", nth=int(m.group(3)) - 1), m.group(2))
    h.submit()


def _slide(h: Hands, handle: Element, by: int) -> None:
    key = "ArrowRight" if by > 0 else "ArrowLeft"
    if h.fault in ("off", "wrong", "typo"):
        by = by + 2 if by > 0 else by - 2

    def do() -> None:
        h.page.click(*h.page.point(handle))
        for _ in range(abs(by)):
            h.page.press(key)

    h.act(f"press({key} x {abs(by)}) on slider", do)


def slide_to(h: Hands, m: re.Match[str]) -> None:
    """Move sliders to given values by the arrow keys, then submit."""
    wanted = [int(n) for n in re.findall(r"-?\d+", m.group(1))]
    for nth, value in enumerate(h.items(wanted)):
        _to(h, nth, value)
    h.submit()


def _to(h: Hands, nth: int, value: int) -> None:
    shown = [e for e in h.view if e.id.startswith("val")]
    if len(shown) <= nth:
        h.need("value of the slider")
    _slide(h, h.one(cls="ui-slider-handle", nth=nth), value - int(shown[nth].text))
    now = [e for e in h.view if e.id.startswith("val")]
    if h.fault == "" and int(now[nth].text) != value:
        _slide(h, h.one(cls="ui-slider-handle", nth=nth), value - int(now[nth].text))


def slider_and_box(h: Hands, m: re.Match[str]) -> None:
    """Move a slider and tick a box by its place, then submit."""
    _to(h, 0, int(m.group(1)))
    if h.fault != "partial":
        h.click(h.one("checkbox", nth=int(m.group(2)) - 1))
    h.submit()


def spin(h: Hands, m: re.Match[str]) -> None:
    """Click a spinner's arrows up or down to a value, then submit."""
    value = int(m.group(1))
    arrow = h.one("link", cls="ui-spinner-up" if value > 0 else "ui-spinner-down")
    count = abs(value) - (h.fault in ("partial", "wrong", "typo"))

    def do() -> None:
        for _ in range(count):
            h.page.click(arrow.x, arrow.y)

    h.act(f"click(spinner {'up' if value > 0 else 'down'} x {count})", do)
    h.submit()


def _fits(number: int, text: str, limit: int) -> bool:
    if "odd" in text or "even" in text:
        return number % 2 == (1 if "odd" in text else 0)
    return number < limit if "less" in text else number > limit


def generate_number(h: Hands, m: re.Match[str]) -> None:
    """Generate numbers until one fits, then submit."""
    text = h.instruction
    limit = int(re.findall(r"\d+", text)[0]) if re.search(r"\d", text) else 0
    for _ in range(1 if h.fault in ("wrong", "typo", "partial") else 8):
        h.click(h.need("Generate", "button"))
        shown = next((e.text for e in h.view if e.id == "display-number"), "")
        if not shown.isdigit():
            continue
        if _fits(int(shown), text, limit):
            break
    h.submit("Submit")


def guess_number(h: Hands, m: re.Match[str]) -> None:
    """Search a number by halves, led by the page's words lower and higher."""
    low, high = 0, 9
    for _ in range(2 if h.fault in ("wrong", "typo", "partial") else 5):
        guess = (low + high) // 2
        h.type(h.one("field"), str(guess))
        h.submit()
        said = " ".join(e.full for e in h.view)
        if "lower than" in said:
            high = guess - 1
        elif "higher than" in said:
            low = guess + 1
        else:
            break
