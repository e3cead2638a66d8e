"""MiniWoB++ demonstrations by two workers: gzip, keys in two orders, one run without events."""

import gzip
import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=5, tasks=2, successes=3, dropped={"no_label": 1, "no_trajectory": 1})


def node(
    tag: str, top: float = 0, text: str | None = None, *children: dict[str, Any], **more: Any
) -> dict[str, Any]:
    box = {"left": 0, "top": top, "width": 100, "height": 20 if text is not None else 200}
    return (
        {"tag": tag}
        | box
        | {"children": list(children), "id": "", "ref": 1}
        | ({} if text is None else {"text": text})
        | more
    )


def page(value: str = "", *more: dict[str, Any]) -> dict[str, Any]:
    """A page with a field and a button below it."""
    return node(
        "BODY", 0, None, node("INPUT_text", 0, "", value=value), node("BUTTON", 30, "Send"), *more
    )


def event(
    kind: str, dom: dict[str, Any], y: float = 40, timing: int = 1, **more: Any
) -> dict[str, Any]:
    return {
        "time": 1,
        "action": {"type": kind, "x": 10, "y": y, "timing": timing} | more,
        "dom": dom,
    }


def click(
    dom: dict[str, Any], after: dict[str, Any] | None = None, y: float = 40
) -> list[dict[str, Any]]:
    """A click as browsers report it, every event twice; the page changes when it is done."""
    return [
        event(kind, after or dom if (kind, timing) == ("click", 3) else dom, y, timing)
        for kind in ("mousedown", "mouseup", "click")
        for timing in (1, 3)
    ]


def demo(
    states: list[Any] | None = None, reward: Any = 1, canary: str | None = None, **changes: Any
) -> dict[str, Any]:
    """A demonstration, written by hand."""
    opening = [{"time": 0, "action": None, "dom": page()}]
    return {
        "taskName": "send-text",
        "utterance": "Press Send.",
        "states": opening + (click(page()) if states is None else states),
        "reward": canary or 0.7,
        "rawReward": reward,
        "fields": {"goal": canary},
    } | changes


def write(root: Path, canary: str | None = None) -> None:
    for number, reward in enumerate((1, 0.5, -1, 1)):
        task = "send-text" if number < 2 else "press-send"
        put(
            root / "first" / f"{task}_3ABC{number % 2}_d{number}.json.gz",
            demo(reward=reward, canary=canary),
        )
    put(root / "second" / "press-send_3ABC1_d7.json.gz", dict(sorted(demo(canary=canary).items())))
    put(root / "second" / "press-send_3ABC1_d8.json.gz", demo(reward=None, canary=canary))
    put(root / "second" / "press-send_3ABC1_d9.json.gz", demo(canary=canary) | {"states": []})


def put(path: Path, record: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
