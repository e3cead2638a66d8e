"""Skills of the mouse: shapes, places, drags, games and the few tools that fit nowhere else."""

from __future__ import annotations

import re

from certify_assets.research.miniwob.browser import Element
from certify_assets.research.miniwob.hands import Hands, colour_name, ordinal, quoted

_TAGS = {"rectangle": "rect", "circle": "circle", "triangle": "polygon"}
_GRID = (
    ("top left",),
    ("top", "top center"),
    ("top right",),
    ("left", "center left"),
    ("center",),
    ("right", "center right"),
    ("bottom left",),
    ("bottom", "bottom center"),
    ("bottom right",),
)
_MOVES = {"up": (0, -38), "down": (0, 38), "left": (-38, 0), "right": (38, 0)}


def _fits(e: Element, words: list[str]) -> bool:
    small = e.size < 12 if e.tag == "text" else max(e.w, e.h) < 15
    for word in words:
        kind = _TAGS.get(word)
        if word in ("small", "large"):
            ok = small == (word == "small")
        elif word in ("item", "shape") or kind:
            ok = word == "item" or e.tag == kind or (word == "shape" and e.tag in _TAGS.values())
        elif word == "letter" or word == "digit":
            ok = e.tag == "text" and (e.text.isalpha() if word == "letter" else e.text.isdigit())
        elif len(word) == 1:
            ok = e.text == word
        else:
            ok = colour_name(e.colour) == colour_name(word)
        if not ok:
            return False
    return True


def click_shape(h: Hands, m: re.Match[str]) -> None:
    """Click a shape by size, colour and kind."""
    words = m.group(1).split()
    for e in h.all("shape"):
        if _fits(e, words):
            h.click(e)
            return
    h.need(m.group(1))


def count_shapes(h: Hands, m: re.Match[str]) -> None:
    """Count the shapes that fit and press the button with the number."""
    words = [re.sub(r"s$", "", w) if len(w) > 2 else w for w in m.group(1).split()]
    h.click(h.need(str(sum(_fits(e, words) for e in h.all("shape"))), "button"))


def identify_shape(h: Hands, m: re.Match[str]) -> None:
    """Say what the only shape is."""
    e = h.one("shape")
    names = {"rect": "Rectangle", "circle": "Circle", "polygon": "Triangle"}
    h.click(h.need(names.get(e.tag) or ("Letter" if e.text.isalpha() else "Number"), "button"))


def shades(h: Hands, m: re.Match[str]) -> None:
    """Click every box in which one channel is the strongest, then submit."""
    channel = ("red", "green", "blue").index(m.group(1))
    boxes = [e for e in h.view if e.tag == "span" and e.colour]
    channels = {e.ref: [int(n) for n in re.findall(r"\d+", e.colour)[:3]] for e in boxes}
    for e in h.items(b for b in boxes if channels[b.ref].index(max(channels[b.ref])) == channel):
        h.click(e)
    h.submit()


def ascending(h: Hands, m: re.Match[str]) -> None:
    """Click numbers from small to large."""
    for e in h.items(sorted(h.all("shape"), key=lambda e: int(e.text or 0))):
        h.click_at(e.x, e.y, f"number {e.text}")


def grid_point(h: Hands, m: re.Match[str]) -> None:
    """Click the point of a grid with given coordinates."""
    target = next((e for e in h.view if e.id == m.group(1)), None)
    h.click(target or h.need(m.group(1)))


def circle_center(h: Hands, m: re.Match[str]) -> None:
    """Click the centre of the circle, then submit."""
    e = h.one("shape")
    h.click_at(e.x - 2, e.y - 2, "centre of the circle")
    h.submit()


def midpoint(h: Hands, m: re.Match[str]) -> None:
    """Click halfway between two points, then submit."""
    a, b = h.all("shape")[:2]
    h.click_at((a.x + b.x) / 2 - 2, (a.y + b.y) / 2 - 2, "middle of two points")
    h.submit()


def click_place(h: Hands, m: re.Match[str]) -> None:
    """Click near the points for a right angle, a bisector or a circle: a guess, not geometry."""
    points = [e for e in h.all("shape") if e.tag == "circle"]
    x, y = sum(e.x for e in points) / len(points), sum(e.y for e in points) / len(points)
    h.click_at(x + 20, y + 20, "near the points")
    h.doubts += 1
    h.submit()


def drag_down(h: Hands, m: re.Match[str]) -> None:
    """Drag the only shape in a direction, then submit."""
    e = h.one("shape")
    dx, dy = _MOVES[m.group(1)]
    if h.fault == "wrong":
        dx, dy = dy, dx
    h.drag(e, (e.x + dx, e.y + dy), m.group(1))
    h.submit()


def box_in_box(h: Hands, m: re.Match[str]) -> None:
    """Drag the small box into the large one, then submit."""
    small, large = h.need("s"), h.need("L")
    h.drag(small, (large.x, large.y), f"to {large.x:.0f},{large.y:.0f}")
    h.submit()


def drag_shapes(h: Hands, m: re.Match[str]) -> None:
    """Drag shapes into a box, and the rest into another if there are two, then submit."""
    shapes = h.all("shape")
    boxes = sorted((e for e in shapes if e.id == "shape-container"), key=lambda e: e.x)
    words = [w[:-1] if w.endswith("s") else w for w in m.group(1).split() if w != "shapes"]
    for e in h.items(s for s in shapes if s.id != "shape-container"):
        box = boxes[0] if _fits(e, words) else boxes[1] if len(boxes) > 1 else None
        if box is not None:
            h.drag(e, (box.x, box.y), f"to {box.x:.0f},{box.y:.0f}")
    h.submit()


def draw_line(h: Hands, m: re.Match[str]) -> None:
    """Draw a straight line through the dot, then submit."""
    e = h.one("shape")
    dx, dy = (0, 30) if m.group(1) == "vertical" else (30, 0)
    h.act(
        f"draw a {m.group(1)} line through {e.x:.0f},{e.y:.0f}",
        lambda: h.page.drag((e.x - dx, e.y - dy), (e.x + dx, e.y + dy), steps=20),
    )
    h.submit()


def _rows(h: Hands) -> list[Element]:
    return [e for e in h.view if e.tag == "div" and e.text]


def list_position(h: Hands, m: re.Match[str]) -> None:
    """Drag a list item to a position, or by one."""
    rows = _rows(h)
    item = h.need(m.group(1))
    here = next(i for i, e in enumerate(rows) if e.ref == item.ref)
    there = (
        here - 1
        if " up " in h.instruction
        else here + 1
        if " down " in h.instruction
        else (ordinal(h.instruction) or 1) - 1
    )
    there = max(0, min(there, len(rows) - 1))
    nudge = 4 if there > here else -4
    h.drag(item, (rows[there].x, rows[there].y + nudge), f"to place {there + 1}")


def grid_center(h: Hands, m: re.Match[str]) -> None:
    """Drag an item of a grid to a named place."""
    cells = _rows(h)
    place = {name: number for number, names in enumerate(_GRID) for name in names}
    index = place.get(m.group(2).replace("-", " ").strip(), 4)
    h.drag(h.need(m.group(1)), (cells[index].x, cells[index].y), f"to the {m.group(2)}")


def sort_numbers(h: Hands, m: re.Match[str]) -> None:
    """Sort a list by dragging, smallest to the top, then submit."""
    for place in h.items(range(len(_rows(h)) - 1)):
        rows = _rows(h)
        lowest = min(range(place, len(rows)), key=lambda i: int(rows[i].text))
        if lowest != place:
            h.drag(rows[lowest], (rows[place].x, rows[place].y - 4), f"to place {place + 1}")
    h.submit()


def resize_area(h: Hands, m: re.Match[str]) -> None:
    """Drag the corner of the text area, then submit."""
    corner = h.one("icon", cls="ui-resizable-se")
    by = 18 if "larger" in h.instruction else -18
    dx, dy = (by, 0) if "width" in h.instruction else (0, by)
    h.drag(corner, (corner.x + dx, corner.y + dy), f"by {dx},{dy}")
    h.submit()


def find_greatest(h: Hands, m: re.Match[str]) -> None:
    """Turn each card, remember the numbers, turn the greatest again, submit."""
    cards = h.all(cls="card")
    cards = [e for e in cards if e.index]
    numbers = []
    for card in h.items(cards):
        h.click(card)
        shown = [
            e.full
            for e in h.view
            if e.ref == card.ref
            or (e.cls == "card-value" and abs(e.x - card.x) < 20 and abs(e.y - card.y) < 20)
        ]
        numbers.append(max((int(s) for s in shown if s.isdigit()), default=-1))
    h.click(cards[numbers.index(max(numbers))])
    h.submit("Submit")


def odd_or_even(h: Hands, m: re.Match[str]) -> None:
    """Press Odd or Even next to each number, then submit."""
    for number in h.items(h.all(cls="display-number")):
        word = "even" if int(number.text) % 2 == 0 else "odd"
        h.click(min(h.all("button", cls=word), key=lambda e: abs(e.y - number.y)))
    h.submit("Submit")


def tic_tac_toe(h: Hands, m: re.Match[str]) -> None:
    """Win or block where two of three are set, else take the middle, a corner, or what is left."""
    lines = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
    for _ in range(5):
        cells = {int(e.index): e for e in h.view if e.id.startswith("ttt-")}
        marks = {
            i: "X" if "mark-x" in e.cls else "O" if "mark-o" in e.cls else ""
            for i, e in cells.items()
        }
        free = [i for i in (4, 0, 2, 6, 8, 1, 3, 5, 7) if marks.get(i) == ""]
        if not free:
            return
        move = free[-1] if h.fault in ("wrong", "typo", "partial") else free[0]
        for mark in () if h.fault in ("wrong", "typo", "partial") else ("O", "X"):
            for line in lines:
                row = [marks.get(i) for i in line]
                if row.count(mark) == 2 and row.count("") == 1:
                    move = line[row.index("")]
        if h.tap(cells[move], f"click(square {move + 1})") == "nothing visible changed":
            return


def hot_spot(h: Hands, m: re.Match[str]) -> None:
    """Move the mouse over the area until the page says hot, then click there."""
    area = next((e for e in h.view if e.id == "touch-area"), None) or h.one("icon")
    best = (area.x, area.y)
    for row in h.items(range(3)):
        for column in range(3):
            x, y = (
                area.x - area.w / 2 + (column + 0.5) * area.w / 3,
                area.y - area.h / 2 + (row + 0.5) * area.h / 3,
            )
            said = h.hover_at(x, y)
            if "HOT" in said:
                best = (x, y)
                break
    h.click_at(*best, "hottest place")


def buy_stock(h: Hands, m: re.Match[str]) -> None:
    """Watch the price and buy when it is below the limit."""
    limit = float(m.group(1))
    for _ in range(2 if h.fault in ("wrong", "partial", "typo") else 14):
        h.act("wait", lambda: None, wait=700)
        shown = next((e.text for e in h.view if e.id == "stock-price"), "")
        if shown.startswith("$") and float(shown[1:]) < limit:
            break
    h.submit("Buy")


def delete_file(h: Hands, m: re.Match[str]) -> None:
    """List the files in a terminal and delete the one with the extension."""
    h.click(next((e for e in h.view if e.id == "terminal-contents"), None) or h.view[0])
    h.enter_line("ls")
    said = " ".join(e.full for e in h.all(cls="output"))
    wanted = rf"\b([\w-]+\.{m.group(1)})\b" if m.group(1) else r"(?<![\w.])([a-z]\w+)(?![\w.])"
    found = re.findall(wanted, said.split("commands.")[-1])
    if not found:
        h.need(f"file ending with .{m.group(1)}")
    name = found[-1] if h.fault != "wrong" else "notes"
    h.enter_line(f"rm {name}")


def highlight(h: Hands, m: re.Match[str]) -> None:
    """Select a paragraph by dragging over it, then submit."""
    number = ordinal(h.instruction) or 1
    paragraphs = [e for e in h.view if e.tag in ("p", "div") and len(e.text) > 12]
    e = paragraphs[min(number, len(paragraphs)) - 1]
    left, top, right, bottom = e.x - e.w / 2, e.y - e.h / 2, e.x + e.w / 2, e.y + e.h / 2
    if h.fault in ("wrong", "partial", "off", "typo"):
        bottom, right = e.y, e.x
    h.act(
        f'select("{e.text[:30]}")',
        lambda: h.page.drag((left + 1, top + 3), (right - 1, bottom - 3), steps=10),
    )
    h.submit()


def style_text(h: Hands, m: re.Match[str]) -> None:
    """Select all of the editor and press the button of the style."""
    editor = next((e for e in h.view if e.tag == "p"), None) or h.need("the editor")
    h.click(editor)
    h.press("Control+a")
    button = next((e for e in h.view if f"ql-{m.group(1)[:4]}" in e.cls), None)
    h.click(button or h.need(m.group(1)))
    h.submit()


def improvise(h: Hands, m: re.Match[str]) -> None:
    """Without a skill: type what is quoted, click what shares a word, submit."""
    h.say("think(no rule for this instruction, trying what looks closest)", "")
    h.doubts += 1
    said = quoted(h.instruction)
    fields = h.all("field")
    if fields and said:
        h.type(fields[0], said[0])
    words = set(re.findall(r"\w{3,}", h.instruction.casefold()))
    near = [
        e
        for e in h.view
        if words & set(re.findall(r"\w{3,}", e.text.casefold())) and e.kind not in ("field", "list")
    ]
    for e in near[:2]:
        h.click(e)
    h.submit()
