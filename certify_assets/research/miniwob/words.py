"""Words for what is on a page: the names of elements in actions, and the excerpts that become observations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from certify_assets.research.miniwob.browser import Element

__all__ = ["NAMED_COLOURS", "colour_name", "describe", "name_of", "ordinal", "quoted", "shorten"]

NAMED_COLOURS = {
    "black": (0, 0, 0), "white": (255, 255, 255), "red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0),
    "cyan": (0, 255, 255), "magenta": (255, 0, 255), "purple": (128, 0, 128), "pink": (255, 192, 203), "orange": (255, 165, 0),
    "grey": (128, 128, 128), "olive": (128, 128, 0), "green": (0, 128, 0), "teal": (0, 128, 128), "maroon": (128, 0, 0), "navy": (0, 0, 128),
}  # fmt: skip
_SYNONYMS = {"gray": "grey", "aqua": "cyan", "fuchsia": "magenta"}
_LAYOUT = re.compile(
    r"spacer|ui-resizable|ui-button-icon|email-time|ui-dialog-title|ui-icon-triangle|ui-icon-caret|ui-menu-icon|ql-|hide|CodeMirror"
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
    """Return what stands between double quotes, in order."""
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
    """Return the nearest of a few colour names for a CSS colour, the word itself when it is one, "" when it is none."""
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
        return f"{colour_name(element.colour)} {element.tag}{text} at {element.x:.0f},{element.y:.0f}".strip()
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
        return f"list of {', '.join(element.options)[:90]}; chosen {', '.join(element.chosen) or 'none'}"
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
