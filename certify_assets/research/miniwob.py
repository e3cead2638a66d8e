"""Runs of a language model on MiniWoB++ pages in a real Chromium, as JSON Lines to import."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, MissingToolError

MAX_TURNS = 12
SYSTEM = """You act on a small web page. \
Each turn you get the task and the numbered elements that are visible. Answer with one line:
click N
type N "text"
choose N "option"
claim "what you did and whether it is done"
Nothing else. Use claim as the last answer."""
# a small model answers in form where it is shown how, not where it is described to it
EXAMPLES = (
    (
        'Task: Enter "Joe" and press Submit.\nLast: \n0. textbox\n1. button "Submit"',
        'type 0 "Joe"',
    ),
    (
        'Task: Enter "Joe" and press Submit.\nLast: now: textbox: Joe\n'
        '0. textbox: Joe\n1. button "Submit"',
        "click 1",
    ),
    (
        'Task: Enter "Joe" and press Submit.\nLast: the page ended\n',
        'claim "entered Joe and pressed Submit"',
    ),
)
_REPLY = re.compile(
    r'^\s*(click|type|choose|claim)\b\s*(\d+)?\s*(?:"(.*)")?\s*$', re.IGNORECASE | re.MULTILINE
)
# these pages measure reaction times
_UNREGISTERED = {"button-delay", "chase-circle", "hover-shape", "moving-items", "simon-says"}
_INSTALL = (
    "install them with `pip install 'certify_assets[miniwob]'` and `apt-get install chromium`"
)
_SETTLE_MS, _TIMEOUT_MS, _SHOWN = 400, 20_000, 300
_READY = "() => typeof core !== 'undefined' && WOB_TASK_READY && core.cover_div !== null"
_START = """(seed) => {
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = 3600000;
  core.startEpisodeReal();
  const told = core.getUtterance();
  return typeof told === 'string' ? told : told.utterance;
}"""
_ENDED, _REWARD = "() => WOB_DONE_GLOBAL", "() => WOB_RAW_REWARD_GLOBAL"
# what is around the task: its rewards, its cover, and the instruction that is given apart
_HARNESS = "#reward-display, #sync-task-cover, #click-canvas, #query { display: none !important }"
_ROLE = re.compile(r"\w+")

Messages = list[dict[str, str]]
Ask = Callable[[Messages], str]


def list_tasks() -> list[str]:
    """Return the registered MiniWoB++ tasks that have a page, sorted."""
    return sorted(page.stem for page in _pages().glob("*.html") if page.stem not in _UNREGISTERED)


def require_tools() -> Path:
    """Return the path of an installed Chromium; refuse a machine without pages or playwright."""
    _pages()
    if importlib.util.find_spec("playwright") is None:
        raise MissingToolError(f"The package playwright is not installed; {_INSTALL}.")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return Path(found)
    raise MissingToolError(f"No Chromium is on the search path; {_INSTALL}.")


def _pages() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise MissingToolError(f"The package miniwob is not installed; {_INSTALL}.")
    return Path(spec.origin).parent / "html" / "miniwob"


class ModelAgent:
    """A model behind an OpenAI-compatible server, called at temperature 0."""

    def __init__(self, url: str, model: str, key: str = "") -> None:
        from openai import OpenAI

        self.model = model
        # the client asks for a key also where the server does not
        self._api = OpenAI(base_url=url, api_key=key or "none")

    @classmethod
    def from_environment(cls) -> ModelAgent:
        """Return the model that CERTIFY_MODEL_URL, _NAME and _KEY name."""
        url, model, key = (
            os.environ.get(f"CERTIFY_MODEL_{name}", "") for name in ("URL", "NAME", "KEY")
        )
        if not url or not model:
            raise InputError(
                "A model agent needs CERTIFY_MODEL_URL (an OpenAI-compatible base URL) and "
                "CERTIFY_MODEL_NAME; set both."
            )
        return cls(url, model, key)

    def ask(self, messages: Any) -> str:
        """Return the server's answer to a conversation."""
        from openai import OpenAIError

        try:
            answer = self._api.chat.completions.create(
                model=self.model, messages=messages, temperature=0
            )
        except OpenAIError as error:
            raise InputError(
                f"The model {self.model} did not answer ({error}); check CERTIFY_MODEL_URL, _NAME "
                "and _KEY."
            ) from None
        return answer.choices[0].message.content or ""


def parse_reply(text: str) -> tuple[str, int, str]:
    """Return verb, element number (-1 for none) and text; an unreadable reply claims a failure."""
    found = _REPLY.search(text)
    if not found:
        return "claim", -1, "not done: no readable action"
    return found[1].lower(), int(found[2] or -1), found[3] or ""


class TaskPage:
    """One episode of a task in a tab: its view for an agent, and the actions.

    It sees the accessibility tree, a line for each element; icons and shapes have none.
    """

    def __init__(self, tab: Any, task: str, seed: str) -> None:
        self._tab, self._lines = tab, list[str]()
        tab.goto((_pages() / f"{task}.html").as_uri(), wait_until="load")
        tab.wait_for_function(_READY)
        self.instruction: str = tab.evaluate(_START, seed)
        tab.add_style_tag(content=_HARNESS)

    def look(self) -> tuple[bool, list[str]]:
        """Wait for the page to settle; return whether it ended, and a line for each visible
        element.
        """
        self._tab.wait_for_timeout(_SETTLE_MS)
        if self.ended:
            return True, []
        tree = self._tab.locator("body").aria_snapshot().splitlines()
        self._lines = [line.strip().removeprefix("- ") for line in tree]
        return False, self._lines

    def act(self, verb: str, number: int, text: str) -> str:
        """Act on an element of the last look; return why that is impossible, or ""."""
        from playwright.sync_api import Error

        roles = [_ROLE.match(line) for line in self._lines]
        names = ["" if role is None else role[0] for role in roles]
        if not 0 <= number < len(names) or names[number] in ("", "text"):
            return "no element matches"
        # tree and locator list the visible elements of a role in one order
        element = self._tab.get_by_role(names[number]).nth(names[:number].count(names[number]))
        try:
            if verb == "click":
                element.click(timeout=2000)
            elif verb == "type":
                element.fill(text, timeout=2000)
            else:
                element.select_option(label=text, timeout=2000)
        except Error:
            return f"this element does not accept the action {verb}"
        return ""

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return bool(self._tab.evaluate(_ENDED))

    def succeeded(self) -> bool:
        """Whether the page's raw reward, which no agent sees, is exactly 1."""
        return self.ended and bool(self._tab.evaluate(_REWARD) == 1)


def attempt(page: TaskPage, ask: Ask) -> Iterator[tuple[str, str]]:
    """Let a model act until it claims or turns run out; yield (action, seen)."""
    ended, lines = page.look()
    yield "open the page", "; ".join(lines)[:_SHOWN]
    messages = [{"role": "system", "content": SYSTEM}]
    for asked, answer in EXAMPLES:
        messages += _turn(asked, answer)
    seen = ""
    for _ in range(MAX_TURNS):
        listing = "\n".join(f"{place}. {line}" for place, line in enumerate(lines))
        asked = f"Task: {page.instruction}\nLast: {seen}\n{listing}"
        answer = ask([*messages, {"role": "user", "content": asked}])
        messages += _turn(asked, answer)
        verb, number, text = parse_reply(answer)
        if verb == "claim":
            yield f'claim("{text}")', ""
            return
        action = f"{verb} {lines[number]}" if 0 <= number < len(lines) else f"{verb} {number}"
        seen = "the page ended" if ended else page.act(verb, number, text)
        if not seen:
            before = lines
            ended, lines = page.look()
            new = "; ".join(line for line in lines if line not in before)
            seen = f"now: {new}"[:_SHOWN] if new else "nothing new is visible"
            seen = "the page ended" if ended else seen
        yield f'{action} "{text}"' if text else action, seen
    yield 'claim("not done: out of turns")', ""


def _turn(asked: str, answer: str) -> Messages:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


@contextmanager
def browser_tab() -> Iterator[Any]:
    """Give a tab of a headless Chromium, which ends with the block."""
    chromium = require_tools()
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=flags)
        try:
            tab = browser.new_page(viewport={"width": 500, "height": 500}, locale="en-US")
            tab.set_default_timeout(_TIMEOUT_MS)
            yield tab
        finally:
            browser.close()


def generate(
    path: Path,
    agent: ModelAgent,
    *,
    tasks: Sequence[str] = (),
    attempts: int = 4,
    seed: int = 42,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Append every run that the file lacks, as a JSON line; return how many were added.

    An interrupted generation resumes where it stopped. `certify corpus import` reads the file.
    """
    known = list_tasks()
    if unknown := sorted(set(tasks) - set(known)):
        raise InputError(f"MiniWoB++ has no task {unknown[0]!r}; give some of {', '.join(known)}.")
    wanted = [(task, number) for task in sorted(set(tasks)) or known for number in range(attempts)]
    name = f"model:{agent.model}"
    done = _finished(path)
    missing = [one for one in wanted if _run_id(name, *one) not in done]
    if not missing:
        return 0
    with browser_tab() as tab, path.open("a", encoding="utf-8") as stream:
        for count, (task, number) in enumerate(missing, 1):
            # no two runs share an instance of a task
            instance = hashlib.sha256(f"{seed}|{task}|{name}|{number}".encode()).hexdigest()[:16]
            page = TaskPage(tab, task, instance)
            steps = list(attempt(page, agent.ask))
            row = {
                "task_id": task,
                "trajectory_id": _run_id(name, task, number),
                "agent": name,
                "attempt": number,
                "instruction": page.instruction,
                "steps": steps,
                "outcome": int(page.succeeded()),
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            say(f"{count} of {len(missing)} runs")
    return len(missing)


def _run_id(agent: str, task: str, number: int) -> str:
    return f"{task}/{agent}/{number}"


def _finished(path: Path) -> set[str]:
    """Return the runs of a file; an incomplete last line is cut off."""
    if not path.exists():
        return set()
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    try:
        rows: list[Mapping[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        return {str(row["trajectory_id"]) for row in rows}
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path} holds no runs of a model; choose another file.") from None
