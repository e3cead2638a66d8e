"""A real Chromium on one MiniWoB++ page: what an agent sees of it and what its hands can do."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, MissingToolError

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
)
# pages of the package that are not registered as environments: they measure how fast a hand is
UNREGISTERED = frozenset(
    {"button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says"}
)
SETTLE_MS = 400
_TIMEOUT_MS = 20_000
_CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_INSTALL = (
    "install them with `pip install 'certify_assets[miniwob]'` and `apt-get install chromium`"
)


@dataclass(frozen=True, slots=True)
class Element:
    """One visible element of the task, as the agent reads it from the page."""

    ref: int
    tag: str
    kind: str
    cls: str
    id: str
    text: str
    full: str
    x: float
    y: float
    w: float
    h: float
    colour: str
    size: float
    type: str
    index: str
    value: str = ""
    label: str = ""
    editable: bool = True
    checked: bool = False
    options: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()


def find_chromium() -> Path:
    """Return the path of an installed Chromium."""
    for name in _CHROMIUM_NAMES:
        if found := shutil.which(name):
            return Path(found)
    raise MissingToolError(
        f"No Chromium is on the search path, and MiniWoB++ pages need one; {_INSTALL}."
    )


def pages_folder() -> Path:
    """Return the folder of task pages inside the installed miniwob package."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise MissingToolError(
            f"The package miniwob, which holds the task pages, is not installed; {_INSTALL}."
        )
    return Path(spec.origin).parent / "html" / "miniwob"


def require_tools() -> None:
    """Check that Chromium, playwright and the pages are here, before any work begins."""
    if importlib.util.find_spec("playwright") is None:
        raise MissingToolError(
            f"The package playwright, which drives Chromium, is not installed; {_INSTALL}."
        )
    pages_folder()
    find_chromium()


def list_tasks() -> list[str]:
    """Return the registered MiniWoB++ tasks that have a page, sorted (125 in miniwob 1.1.0)."""
    return sorted(
        page.stem for page in pages_folder().glob("*.html") if page.stem not in UNREGISTERED
    )


class Browser:
    """One Chromium process; a context manager that ends it."""

    def __init__(self) -> None:
        require_tools()
        self._tab: Any = None
        self._playwright: Any = None
        self._browser: Any = None

    def __enter__(self) -> Browser:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=str(find_chromium()), headless=True, args=list(CHROMIUM_FLAGS)
            )
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._browser.close()
        finally:
            self._playwright.stop()

    def open(self, task: str, seed: str) -> TaskPage:
        """Load a task's page and start the one episode that the seed names."""
        page = pages_folder() / f"{task}.html"
        if not page.exists():
            raise InputError(
                f"MiniWoB++ has no task {task!r}; list them with `certify research "
                "generate-miniwob --list`."
            )
        if self._tab is None:
            context = self._browser.new_context(
                viewport={"width": 500, "height": 500}, locale="en-US", timezone_id="UTC"
            )
            context.set_default_timeout(_TIMEOUT_MS)
            context.add_init_script(path=str(Path(__file__).with_name("page.js")))
            self._tab = context.new_page()
        # the last episode's mouse must not hover over this one
        self._tab.mouse.move(499, 499)
        self._tab.goto(page.as_uri(), wait_until="load")
        self._tab.evaluate("() => taskImages()")
        for _ in range(50):
            if self._tab.evaluate("() => { taskAdvance(100); return taskReady(); }"):
                return TaskPage(self._tab, seed)
            self._tab.wait_for_timeout(100)
        raise InputError(f"The page of task {task!r} does not become ready; look at {page}.")


class TaskPage:
    """One episode: the instruction, what is visible, and the actions of a mouse and a keyboard."""

    def __init__(self, tab: Any, seed: str) -> None:
        self._tab = tab
        self.ended = False
        self.instruction: str = tab.evaluate("(seed) => taskStart(seed)", seed)

    def look(self, milliseconds: int = SETTLE_MS) -> list[Element]:
        """Move the page's clock on, and return the visible elements in document order."""
        # the clock is still between actions and moves by a fixed amount after each, so that timers,
        # animations and the calendar's "today" are the same in every run
        self.ended, found = self._tab.evaluate("(ms) => taskLook(ms)", milliseconds)
        for item in found:
            item["options"], item["chosen"] = (
                tuple(item.get(name, ())) for name in ("options", "chosen")
            )
        return [Element(**item) for item in found]

    def raw_reward(self) -> float | None:
        """Return the page's verdict without time penalty, None while open; no agent sees it."""
        value = self._tab.evaluate("() => taskRaw()")
        return None if value is None else float(value)

    def point(self, element: Element) -> tuple[float, float]:
        """Scroll an element into view and return the middle of it in the window."""
        x, y = self._tab.evaluate("(ref) => taskPoint(ref)", element.ref)
        return float(x), float(y)

    def click(self, x: float, y: float, *, double: bool = False) -> None:
        """Press and release the left mouse button."""
        # what hovers may change its image, and its size, before the button goes down
        self._tab.mouse.move(x, y)
        self._tab.evaluate("() => taskFrames()")
        self._tab.mouse.click(x, y, click_count=2 if double else 1)

    def hover(self, x: float, y: float) -> None:
        """Move the mouse."""
        self._tab.mouse.move(x, y)

    def drag(self, start: tuple[float, float], end: tuple[float, float], *, steps: int = 6) -> None:
        """Press at the start, move in steps, release at the end."""
        mouse = self._tab.mouse
        mouse.move(*start)
        mouse.down()
        self._tab.evaluate("() => taskAdvance(20)")
        mouse.move(*end, steps=steps)
        self._tab.evaluate("() => taskAdvance(20)")
        mouse.up()

    def write(self, text: str) -> None:
        """Type characters into whatever has the focus."""
        self._tab.keyboard.type(text)

    def press(self, key: str) -> None:
        """Press one key or chord, by playwright's names."""
        self._tab.keyboard.press(key)

    def fill(self, element: Element, value: str) -> None:
        """Give a date or time field its value in the form of the field's own type."""
        self._handle(element).fill(value)

    def choose(self, element: Element, options: list[str]) -> None:
        """Choose options of a list by their text."""
        self._handle(element).select_option(label=options)

    def scroll(self, element: Element, top: bool = False) -> None:
        """Scroll an element's own content to its end, or to its top."""
        self._handle(element).evaluate(
            "(e, top) => { e.scrollTop = top ? 0 : e.scrollHeight; e.dispatchEvent(new "
            "Event('scroll')); }",
            top,
        )

    def _handle(self, element: Element) -> Any:
        return self._tab.evaluate_handle("(ref) => taskElement(ref)", element.ref).as_element()
