"""The hands of an agent: actions on a page, the words for its elements, and what is observed."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from certify_assets.research.miniwob.browser import Element, TaskPage

NAMED_COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (255, 0, 0),
    "lime": (0, 255, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "purple": (128, 0, 128),
    "pink": (255, 192, 203),
    "orange": (255, 165, 0),
    "grey": (128, 128, 128),
    "olive": (128, 128, 0),
    "green": (0, 128, 0),
    "teal": (0, 128, 128),
    "maroon": (128, 0, 0),
    "navy": (0, 0, 128),
}
_SYNONYMS = {"gray": "grey", "aqua": "cyan", "fuchsia": "magenta"}
_LAYOUT = re.compile(
    r"spacer|ui-resizable|ui-button-icon|email-time|ui-dialog-title"
    r"|ui-icon-triangle|ui-icon-caret|ui-menu-icon|ql-|hide|CodeMirror"
)
_STATES = (
    ("clicked", "marked"),
    ("selected", "selected"),
    ("ui-state-active", "open"),
    ("active", "active"),
    ("mark-x", "X"),
    ("mark-o", "O"),
)
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": 0}


def quoted(text: str) -> list[str]:
    """Return what is between double quotes, in order."""
    return [part for part in re.findall(r'"([^"]*)"', text) if part]


def ordinal(text: str) -> int | None:
    """Return the number of the first ordinal in a sentence (1st, third, …), None without one."""
    if found := re.search(r"\b(\d+)(st|nd|rd|th)\b", text):
        return int(found.group(1))
    for word, number in _ORDINALS.items():
        if re.search(rf"\b{word}\b", text, re.IGNORECASE):
            return number
    return None


def colour_name(value: str) -> str:
    """Return the nearest of a few colour names for a CSS colour, "" for what is none."""
    word = value.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in NAMED_COLOURS:
        return word
    numbers = [int(n) for n in re.findall(r"\d+", value)[:3]]
    if len(numbers) != 3:
        return ""
    return min(
        NAMED_COLOURS,
        key=lambda name: sum(
            (a - b) ** 2 for a, b in zip(NAMED_COLOURS[name], numbers, strict=True)
        ),
    )


def _state(element: Element) -> str:
    for word, meaning in _STATES:
        if word in element.cls.split():
            return f" {meaning}"
    return ""


def name_of(element: Element) -> str:
    """Return the short name of an element as an action mentions it."""
    if element.kind in ("checkbox", "radio"):
        return f'{element.kind} "{element.label or element.text}"'
    if element.kind == "field":
        return f'field "{element.label}"' if element.label else "field"
    if element.kind == "shape":
        text = f' "{element.text}"' if element.text else ""
        return (
            f"{colour_name(element.colour)} {element.tag}{text} at {element.x:.0f},{element.y:.0f}"
        ).strip()
    if element.kind == "icon":
        return f"icon {element.cls.split()[0] if element.cls else element.id or element.index}"
    text = element.text or element.full
    return (
        f'{element.kind} "{text[:40]}"' if text else f"{element.kind} {element.cls[-24:]}".strip()
    )


def _line(element: Element) -> str:
    kind = element.kind
    if kind == "field":
        holds = f'holds "{element.value[:60]}"' if element.value else "is empty"
        return f"{name_of(element)} {holds}"
    if kind in ("checkbox", "radio"):
        return f"{name_of(element)} {'on' if element.checked else 'off'}"
    if kind == "list":
        return (
            f"list of {', '.join(element.options)[:90]}; chosen "
            f"{', '.join(element.chosen) or 'none'}"
        )
    if kind == "shape":
        return name_of(element) + _state(element)
    if kind == "icon":
        return "" if _LAYOUT.search(element.cls) else name_of(element) + _state(element)
    if kind == "text":
        if element.text:
            return f'"{element.text[:70]}"' + _state(element)
        small = 6 <= element.w <= 70 and 6 <= element.h <= 70
        return (
            f"{colour_name(element.colour)} box at {element.x:.0f},{element.y:.0f}{_state(element)}"
            if small and element.colour
            else ""
        )
    return name_of(element) + _state(element)


def describe(view: Sequence[Element]) -> list[str]:
    """Return one line for each element worth a word."""
    return [line for line in map(_line, view) if line]


def shorten(lines: Sequence[str], characters: int) -> str:
    """Join lines until the budget is spent, and say how many are left out."""
    kept: list[str] = []
    spent = 0
    for line in lines:
        spent += len(line) + 2
        if kept and spent > characters:
            break
        kept.append(line[:characters])
    left = len(lines) - len(kept)
    return "; ".join(kept) + (f" (+{left} more)" if left else "")


MAX_STEPS = 22
WAIT_MS = 400
FIRST_LOOK_CHARS = 300
CHANGE_CHARS = 170
SUBMIT_WORDS = re.compile(
    r"^(submit|ok|login|log in|go!?|search|send|done|order!?|sign in|create|apply|enter)$",
    re.IGNORECASE,
)
_T = TypeVar("_T")


class Stuck(Exception):  # noqa: N818 - a state of the agent, not an error of the program
    """The agent knows no way on."""


def observe_change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return what appeared, moved or went away between two descriptions, shortened."""
    new = list((Counter(after) - Counter(before)).elements())
    gone = list((Counter(before) - Counter(after)).elements())
    if new:
        return "now: " + shorten(new, CHANGE_CHARS)
    if gone:
        return "gone: " + shorten(gone, CHANGE_CHARS // 2)
    if list(before) != list(after):
        return "order now: " + shorten(list(after), CHANGE_CHARS)
    return "nothing visible changed"


class Hands:
    """The agent's hold on one episode."""

    def __init__(self, page: TaskPage, *, fault: str, rng: random.Random | None = None) -> None:
        self.page = page
        self.instruction = page.instruction
        self.fault = fault
        self.rng = rng or random.Random(0)
        self.steps: list[tuple[str, str]] = []
        self.doubts = 0
        self._acts = 0
        self._slipped = False
        self._typed = 0
        self._misses = self.rng.randint(2, 3)
        self._patience = self.rng.randint(1, 2)
        self.view = page.look()
        self._lines = describe(self.view)
        self.steps.append(("open the page", shorten(self._lines, FIRST_LOOK_CHARS)))

    # looking

    def find(self, text: str, *kinds: str) -> Element | None:
        """Return the visible element with this text, of these kinds if any is given; no step."""
        wanted = text.strip().casefold()
        pool = [e for e in self.view if not kinds or e.kind in kinds]
        for column in ("text", "full", "label"):
            for element in pool:
                if str(getattr(element, column)).strip().casefold() == wanted:
                    return element
        return None

    def need(self, text: str, *kinds: str) -> Element:
        """Return the element with this text; when there is none, say so in a step and give up."""
        found = self.find(text, *kinds)
        if found is None:
            self.say(f'find("{text}")', "no element matches")
            raise Stuck(f'could not find "{text}"')
        return found

    def all(self, *kinds: str, cls: str = "") -> list[Element]:
        """Return the visible elements of these kinds whose class contains the given word."""
        return [e for e in self.view if (not kinds or e.kind in kinds) and cls in e.cls]

    def one(self, *kinds: str, cls: str = "", nth: int = 0) -> Element:
        """Return the n-th visible element of these kinds, or say so in a step and give up."""
        found = self.all(*kinds, cls=cls)
        if len(found) <= nth:
            self.say(
                f"find({' or '.join(kinds) or 'element'} {cls} {nth + 1})".replace("  ", " "),
                "no element matches",
            )
            raise Stuck(f"could not find {' or '.join(kinds) or cls}")
        return found[nth]

    def again(self, element: Element) -> Element:
        """Return the element as it is now (it may have moved), or as it was when it is gone."""
        return next((e for e in self.view if e.ref == element.ref), element)

    def say(self, action: str, observation: str) -> None:
        """Note a step that touches nothing."""
        if len(self.steps) >= MAX_STEPS:
            raise Stuck("too many steps")
        self.steps.append((action, observation))

    def look_again(self, action: str = "look again", *, wait: int = WAIT_MS) -> str:
        """Read the page once more and note what has changed."""
        before = self._lines
        if not self.page.ended:
            view = self.page.look(wait)
            # the page may have ended just now: what was last seen stays
            if not self.page.ended:
                self.view, self._lines = view, describe(view)
        change = observe_change(before, self._lines)
        self.say(action, change)
        return change

    # acting

    def act(self, action: str, do: Callable[[], object], *, wait: int = WAIT_MS) -> str:
        """Do one thing on the page, let it settle, and note what changed."""
        if self.fault == "stops" and self._acts >= self._patience:
            raise Stuck("this is getting long, stopping here")
        self._acts += 1
        if not self.page.ended:
            do()
        return self.look_again(action, wait=wait)

    def click(self, element: Element, *, double: bool = False) -> str:
        """Click an element, or what the agent takes for it."""
        if self.fault == "off":
            return self._miss(element)
        target = self._mistake(element)
        return self.act(
            f"click({name_of(target)})",
            lambda: self.page.click(*self.page.point(target), double=double),
        )

    def tap(self, element: Element, action: str) -> str:
        """Click an element on the way to another: a step in which no fault shows."""
        return self.act(action, lambda: self.page.click(*self.page.point(element)))

    def hover_at(self, x: float, y: float) -> str:
        """Move the mouse over a place."""
        return self.act(f"hover at {x:.0f},{y:.0f}", lambda: self.page.hover(x, y))

    def enter_line(self, text: str) -> str:
        """Type a line into whatever has the focus, and end it."""

        def do() -> None:
            self.page.write(text)
            self.page.press("Enter")

        return self.act(f'type("{text}")', do)

    def click_at(self, x: float, y: float, what: str) -> str:
        """Click a place rather than an element."""
        if self.fault in ("off", "wrong"):
            x, y = x + self.rng.choice((-31, 27)), y + self.rng.choice((-23, 29))
        return self.act(f"click at {x:.0f},{y:.0f} ({what})", lambda: self.page.click(x, y))

    def hover(self, element: Element) -> str:
        """Move the mouse over an element."""
        return self.act(
            f"hover({name_of(element)})", lambda: self.page.hover(*self.page.point(element))
        )

    def type(self, element: Element, text: str) -> str:
        """Replace a field's content by typing."""
        self._typed += 1
        text = self._mistype(text)

        def do() -> None:
            self.page.click(*self.page.point(element))
            self.page.press("Control+a")
            self.page.write(text)

        if self.fault == "partial" and self._typed > 1:
            return ""
        change = self.act(f'type({name_of(element)}, "{text}")', do)
        self.doubts += change == "nothing visible changed" and element.value != text
        return change

    def fill(self, element: Element, value: str) -> str:
        """Give a date or time field its value."""
        value = self._mistype(value, digits=True)
        return self.act(
            f'fill({name_of(element)}, "{value}")', lambda: self.page.fill(element, value)
        )

    def choose(self, element: Element, options: Sequence[str]) -> str:
        """Choose options of a list."""
        known = [option for option in options if option in element.options]
        if len(known) < len(options):
            self.say(
                f'find("{next(o for o in options if o not in element.options)}")',
                "no option matches",
            )
            raise Stuck("an option is not in the list")
        if self.fault == "wrong":
            known = [
                self.rng.choice([o for o in element.options if o and o not in options] or known)
            ]
        return self.act(f"choose({', '.join(known)})", lambda: self.page.choose(element, known))

    def drag(self, element: Element, to: tuple[float, float], what: str) -> str:
        """Drag an element to a place."""
        x, y = to
        if self.fault in ("off", "wrong"):
            x, y = x + self.rng.choice((-47, 41)), y + self.rng.choice((-37, 43))
        return self.act(
            f"drag({name_of(element)}, {what})",
            lambda: self.page.drag(self.page.point(element), (x, y)),
        )

    def press(self, key: str) -> str:
        """Press a key."""
        return self.act(f"press({key})", lambda: self.page.press(key))

    def scroll(self, element: Element, *, top: bool = False) -> str:
        """Scroll an element's content to its end or its top."""
        where = "top" if top else "end"
        return self.act(
            f"scroll({name_of(element)}, {where})", lambda: self.page.scroll(element, top)
        )

    def submit(self, text: str = "") -> str:
        """Press the button that hands the answer in, unless the agent is one that forgets."""
        if self.fault == "forgets":
            return ""
        buttons = [e for e in self.all("button") if SUBMIT_WORDS.match(e.text)]
        button = self.find(text, "button") if text else None
        if button is None and not buttons:
            self.say('find("submit button")', "no element matches")
            raise Stuck("could not find a button to submit")
        button = button or buttons[-1]
        return self.act(
            f"click({name_of(button)})", lambda: self.page.click(*self.page.point(button))
        )

    def items(self, values: Iterable[_T]) -> list[_T]:
        """Return the things to work through, or half of them for an agent that does half."""
        everything = list(values)
        if self.fault == "partial" and len(everything) > 1:
            return everything[: len(everything) // 2]
        return everything

    # what goes wrong

    def _miss(self, element: Element) -> str:
        def do() -> None:
            x, y = self.page.point(element)
            self.page.click(x + element.w / 2 + 9, y + element.h / 2 + 7)

        change = ""
        for _ in range(self._misses):
            change = self.act(f"click({name_of(element)})", do)
        self.doubts += 1
        return change

    def _mistake(self, element: Element) -> Element:
        if self.fault != "wrong" or self._slipped:
            return element
        others = [
            e
            for e in self.view
            if e.kind == element.kind
            and e.ref != element.ref
            and (e.text != element.text or not e.text)
        ]
        if element.kind == "icon":
            others = [e for e in others if e.cls == element.cls and e.y != element.y] or others
        if not others:
            return element
        self._slipped = True
        return min(others, key=lambda e: (abs(e.y - element.y) + abs(e.x - element.x), e.ref))

    def _mistype(self, text: str, *, digits: bool = False) -> str:
        if (
            self.fault == "partial"
            and self._typed == 1
            and len(text) > 3
            and self.rng.random() < 0.5
        ):
            return text[: len(text) // 2]
        if self.fault not in ("typo", "wrong") or not text or self._slipped:
            return text
        self._slipped = True
        place = len(text) - 1
        if digits or text[place].isdigit():
            day = "1" if text[place] != "1" else "2"
            return text[:place] + day
        return (
            text[: place - 1] + text[place] + text[place - 1]
            if len(set(text[-2:])) > 1
            else text + text[place]
        )
