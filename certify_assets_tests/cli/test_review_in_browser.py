"""The review page in a browser: keys, no scripts, a phone, hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Served, served
from certify_assets_tests.review_builders import decided, labels_of, session_batch, write_batch

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = (
    "<script>document.title = 'owned'</script>",
    "\"><svg onload=document.title='owned'></svg>",
    (
        "'></pre></details></section><form action=//evil.example/><button autofocus "
        "accesskey=s>Success</button></form>"
    ),
    "<style>@import '//evil.example/x.css'; * { display: none }</style>{{ 7 * 7 }}",
)


def press(page: Any, letter: str) -> None:
    """Press Alt with a letter; the library's press leaves out what access keys need."""
    session = page.context.new_cdp_session(page)
    key = {
        "modifiers": 1,
        "key": letter,
        "code": f"Key{letter.upper()}",
        "unmodifiedText": letter,
        "windowsVirtualKeyCode": ord(letter.upper()),
    }
    for kind in ("keyDown", "keyUp"):
        session.send("Input.dispatchKeyEvent", {"type": kind, **key})


def fits(page: Any, width: int) -> bool:
    sizes = page.context.new_cdp_session(page).send("Page.getLayoutMetrics")
    return bool(sizes["cssContentSize"]["width"] <= width)


def enter(page: Any, server: Served, name: str) -> None:
    page.goto(server.links[name])
    page.locator("h1:focus").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Did this run").wait_for()


def focused(page: Any) -> str:
    text: str = page.locator(":focus").inner_text()
    return text.split()[0] if text.strip() else ""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


@pytest.fixture
def server(store: Store) -> Iterator[Served]:
    session_batch(store)
    with served(store) as one:
        yield one


@pytest.mark.smoke
def test_labelling_by_keyboard_alone_and_without_scripts(
    browser: Any, server: Served, store: Store
) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    enter(page, server, "Ann")
    assert server.token not in page.url, "the address bar is no place for the token"
    order = []
    for _ in range(4):
        page.keyboard.press("Tab")
        order.append(focused(page))
    assert order == ["Success", "Failure", "Skip", "Add"]
    for _ in range(2):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.get_by_text("a failure, a run of task audit-0").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("a success, a run of task audit-0").wait_for()
    press(page, "u")
    page.get_by_text("a failure, a run of task audit-0").wait_for()
    press(page, "s")
    page.locator("input[name=line][value='6']").wait_for(state="attached")
    press(page, "x")
    page.locator("input[name=line][value='7']").wait_for(state="attached")
    first = page.locator("input[name=run]").first.get_attribute("value")
    press(page, "k")
    page.locator(f"input[name=run]:not([value='{first}'])").first.wait_for(state="attached")
    assert [label.outcome for label in labels_of(store)] == [0, 1, None, 1, 0]
    assert {label.reviewer for label in labels_of(store)} == {"Ann"}
    # a comment: Enter in it is a new line and sends nothing
    for key in ("Tab", "Tab", "Tab", "Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    page.keyboard.type("two\nlines <b>")
    assert len(labels_of(store)) == 5
    press(page, "x")
    page.locator("input[name=line][value='8']").wait_for(state="attached")
    assert labels_of(store)[-1].comment.split() == ["two", "lines", "<b>"]


@pytest.mark.smoke
def test_hostile_text_is_shown_and_never_obeyed(browser: Any, store: Store, tmp_path: Path) -> None:
    runs = [
        Trajectory(
            "c",
            f"task {n} {bad}",
            f"run {n}\n{bad}",
            f"agent {bad}",
            0,
            f"Do {bad}",
            (Step(f"act {bad}", bad * 40), Step("", bad)),
            None,
        )
        for n, bad in enumerate(HOSTILE)
    ]
    write_batch(
        store,
        [
            decided(run.trajectory_id, task_id=run.task_id, asked="undecided", reason=HOSTILE[0])
            for run in runs
        ],
        runs,
    )
    name = "<b onclick=document.title='owned'>Ann</b>"
    with served(store, "--reviewer", name) as server:
        context = browser.new_context()
        page, asked, troubles = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("popup", lambda popup: troubles.append(popup.url))
        enter(page, server, name)
        for line in range(3, len(HOSTILE) + 3):
            page.locator("details summary").first.wait_for()
            for summary in page.locator("main details summary").all():
                summary.click()
            task = page.locator("dd").nth(1).inner_text()
            assert any(bad in task for bad in HOSTILE)
            assert (
                HOSTILE[int(task.split()[1])] in page.locator(".instruction pre").first.inner_text()
            )
            assert (
                page.locator(
                    "main script, img, svg, iframe, base, link, .page meta, .page style, "
                    "form[action*=evil]"
                ).count()
                == 0
            )
            assert page.locator("script").count() == 1, "that of the keys"
            assert page.evaluate("document.title") == "Review of c"
            press(page, "s")
            page.locator(f"input[name=line][value='{line}']").wait_for(state="attached")
        page.goto(server.url.partition("?")[0] + "queue")
        assert page.evaluate("document.title") == "Review queue of c"
        base = server.url.partition("?")[0]
        assert troubles == [] and {url.partition("?")[0] for url in asked} <= {
            base,
            f"{base}label",
            f"{base}queue",
        }
        # and were a page to let markup through, the policy would still keep it from running and
        # loading
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(f"{request.url} {request.failure}"))
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=/owned><b "
            'onclick="document.title=1">b</b>\')'
        )
        page.evaluate(
            "s = document.createElement('script'); s.text = 'document.title = 2'; "
            "document.body.append(s)"
        )
        page.evaluate("document.body.lastElementChild.previousElementSibling.click()")
        page.wait_for_timeout(200)
        assert page.evaluate("document.title") == "Review queue of c" and failed == [
            f"{base}owned csp"
        ]
    assert {label.trajectory_id for label in labels_of(store)} == {
        run.trajectory_id for run in runs
    }


def label(page: Any, key: str) -> None:
    """Press a key and wait until the next run is there."""
    run = page.locator("input[name=run]").first.get_attribute("value")
    page.keyboard.press(key)
    page.locator(f"input[name=run]:not([value='{run}'])").first.wait_for(state="attached")


def test_labels_by_plain_keys_on_a_phone(browser: Any, store: Store) -> None:
    rows = [decided(f"r{n}", task_id=f"retail/{1000 + n}", asked="undecided") for n in range(14)]
    write_batch(store, rows)
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda line: troubles.append(line.text))
    with served(store, "--reviewer", "Ann") as server:
        enter(page, server, "Ann")
        for n in range(12):
            label(page, "sxaf"[n % 4])
            assert page.locator(".said b + *, .said p").first.inner_text().startswith("Saved:")
            assert fits(page, 390)
        label(page, "u")
        label(page, "f")
        assert page.locator("progress").get_attribute("value") == "12"
        assert "12 of 14 labelled" in page.locator(".top").inner_text()
    assert [one.outcome for one in labels_of(store)] == [1, 0, 1, 0] * 3 + [None, 0]
    assert troubles == []
