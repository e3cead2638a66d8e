"""A task page without a browser: elements that react a little, and a record of what was done to
them.
"""

import dataclasses
from typing import Any

from certify_assets.research.miniwob.browser import Element


def element(ref: int, kind: str, text: str = "", **changes: Any) -> Element:
    values: dict[str, Any] = {
        "ref": ref,
        "tag": {"field": "input", "button": "button", "shape": "rect"}.get(kind, "div"),
        "kind": kind,
        "cls": "",
        "id": "",
        "text": text,
        "full": text,
        "x": 50.0,
        "y": 60.0 + 20 * ref,
        "w": 40.0,
        "h": 14.0,
        "colour": "",
        "size": 10.0,
        "type": "",
        "index": "",
    }
    return Element(**(values | changes))


class FakePage:
    """Fields take what is typed, boxes toggle, and a click on Submit ends the episode."""

    def __init__(self, instruction: str, elements: list[Element]) -> None:
        self.instruction = instruction
        self.elements = elements
        self.ended = False
        self.done: list[tuple[Any, ...]] = []
        self._focus: int | None = None

    def look(self, milliseconds: int = 0) -> list[Element]:
        return [] if self.ended else list(self.elements)

    def point(self, element: Element) -> tuple[float, float]:
        return element.x, element.y

    def click(self, x: float, y: float, *, double: bool = False) -> None:
        self.done.append(("click", x, y))
        for place, e in enumerate(self.elements):
            if abs(e.x - x) <= e.w / 2 and abs(e.y - y) <= e.h / 2:
                self._focus = place if e.kind == "field" else None
                if e.kind in ("checkbox", "radio"):
                    self.elements[place] = dataclasses.replace(e, checked=not e.checked)
                if e.text == "Submit":
                    self.ended = True

    def write(self, text: str) -> None:
        self.done.append(("write", text))
        if self._focus is not None:
            self.elements[self._focus] = dataclasses.replace(self.elements[self._focus], value=text)

    def hover(self, x: float, y: float) -> None:
        self.done.append(("hover", x, y))

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, steps: int = 6) -> None:
        self.done.append(("drag", start, end))

    def press(self, key: str) -> None:
        self.done.append(("press", key))

    def fill(self, element: Element, value: str) -> None:
        self.done.append(("fill", value))

    def choose(self, element: Element, options: list[str]) -> None:
        self.done.append(("choose", *options))

    def scroll(self, element: Element, top: bool = False) -> None:
        self.done.append(("scroll", top))


def login_page() -> FakePage:
    return FakePage(
        'Enter the username "keli" and the password "3hI" into the text fields and press login.',
        [
            element(0, "field", label="Username"),
            element(1, "field", label="Password"),
            element(2, "button", "Submit"),
        ],
    )


def boxes_page() -> FakePage:
    boxes = [
        element(i, "checkbox", label=name) for i, name in enumerate(("VkEp", "YM2l8", "PThT", "UI"))
    ]
    return FakePage("Select YM2l8, UI and click Submit.", [*boxes, element(9, "button", "Submit")])
