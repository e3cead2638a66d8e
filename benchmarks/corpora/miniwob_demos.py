"""Convert MiniWoB++ demonstrations by people (one JSON object a run) to a table of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from converting import Row, convert

from certify_assets.corpora.formats.files import FileSet

_KEYS = {8: "Backspace", 9: "Tab", 13: "Enter", 27: "Escape"}
_KEYS |= {37: "Left", 38: "Up", 39: "Right", 40: "Down", 46: "Delete"}
_CONTROLS = ("INPUT", "BUTTON", "A", "TEXTAREA", "SELECT")
# pixels from press to release that are a drag; characters of a page
_DRAG, _PAGE = 5, 1_200


def rows(files: FileSet) -> Iterator[Row]:
    """Go through the demonstrations in which a page was recorded; rewards are no column."""
    for file in files:
        demo, name = json.loads(file.read()), file.path.stem
        task, person, _ = name.rsplit("_", 2)
        if pairs := steps(demo["states"]):
            yield {
                "task_id": task,
                "trajectory_id": name,
                "agent": person,
                "instruction": demo["utterance"],
                "steps": pairs,
                "outcome": int(abs(demo["rawReward"] - 1) <= 1e-6),
            }


def steps(states: list[Row]) -> list[tuple[str, str]]:
    """Turn states into what was done and the page that it left; first the page as it was."""
    done: list[tuple[str, Row]] = []
    for action, before, typed in actions(states):
        if done:
            done[-1] = done[-1][0], before
        else:
            done.append(("", before))
        if typed and done[-1][0].startswith("type "):
            done[-1] = done[-1][0] + action, before
        elif action:
            done.append((f"type {action}" if typed else action, before))
    pages = [page_text(page) for _, page in done]
    if len(done) == 1 and not pages[0]:
        return []
    shown = [
        "the page did not change" if page == before else page
        for before, page in zip([None, *pages], pages, strict=False)
    ]
    return [(action, page) for (action, _), page in zip(done, shown, strict=True)]


def actions(states: list[Row]) -> Iterator[tuple[str, Row, bool]]:
    """Give every action with the page before it, and whether it was a key; at last the page."""
    page: Row = {}
    pressed, origin = "", Row()
    for state in states:
        event, page = state["action"] or {}, page or state["dom"]
        kind, key = event.get("type"), ""
        # events come twice, when they reach the page and when they leave it (timing 3)
        if event.get("timing") == 3:
            kind = None
        done = ""
        if kind == "mousedown":
            done, pressed, origin = pressed, f"press {target(page, event)}", event
        elif kind == "mouseup" and moved(origin, event) > _DRAG:
            done = f"drag {target(page, origin)} to {target(page, event)}"
        elif kind in ("click", "dblclick"):
            done = f"{'click' if kind == 'click' else 'double-click'} {target(page, event)}"
        elif kind == "scroll":
            done = "scroll"
        elif kind == "keypress" and event["charCode"] >= ord(" "):
            key = chr(event["charCode"])
        elif kind == "keydown" and event["keyCode"] in _KEYS:
            key = f"[{_KEYS[event['keyCode']]}]"
        if done.startswith(("click", "drag")):
            pressed = ""
        if done or key:
            yield done or key, page, bool(key)
        page = state["dom"] or page
    if pressed:
        yield pressed, page, False
    yield "", page, False


def moved(origin: Row, event: Row) -> float:
    """Return how far the mouse moved between two events."""
    if "x" not in origin:
        return 0
    return max(abs(origin["x"] - event["x"]), abs(origin["y"] - event["y"]))


def target(page: Row, event: Row) -> str:
    """Name the innermost element with content at the place of an event."""
    x, y = event["x"], event["y"]
    hit = [
        node
        for node in nodes(page)
        if 0 <= x - node["left"] <= node["width"] and 0 <= y - node["top"] <= node["height"]
    ]
    if named := [text for node in hit if (text := node_text(node))]:
        return f"{named[-1]!r} at ({x:g}, {y:g})"
    return f"{hit[-1]['tag'].lower() if hit else 'page'} at ({x:g}, {y:g})"


def nodes(page: Row) -> Iterator[Row]:
    """Go through a page in its order."""
    if page:
        yield page
        for child in page.get("children", ()):
            yield from nodes(child)


def node_text(node: Row) -> str:
    """Return the text and the value of an element."""
    tag, value = node["tag"], node.get("value")
    kind = tag.lower() if tag.startswith(_CONTROLS) and tag != "ARTICLE" else ""
    filled = "" if value in (None, "") else f"= {value}"
    return " ".join(filter(None, (kind, (node.get("text") or "").strip(), filled)))


def page_text(page: Row) -> str:
    """Return the texts and values of a page."""
    text = "\n".join(filter(None, map(node_text, nodes(page))))
    half = _PAGE // 2
    if len(text) <= _PAGE:
        return text
    return f"{text[:half]} [{len(text) - 2 * half} characters cut] {text[-half:]}"


if __name__ == "__main__":
    convert(rows, (".json",), __doc__)
