"""No text of a run, and no name, becomes markup on any page: parsed, and opened in a browser with scripts on."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, score_as_base
from certify_assets_tests.security.hostile import CANARY, MARKUP, write_hostile_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CORPUS = "hostile"
# what a page of ours is made of; a new element is added here by somebody who looked at it
ACTIVE = {
    "script",
    "iframe",
    "object",
    "embed",
    "form",
    "base",
    "link",
    "img",
    "input",
    "button",
    "audio",
    "video",
    "foreignobject",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with every page that a corpus and a quick judge have, of runs whose every text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    store = Store(str(folder / "root"))
    source = write_hostile_runs(folder / f"<img src=x onerror=window.{CANARY}=1>.jsonl")
    register_runs(
        store,
        CORPUS,
        source,
        rl=False,
        accept_structural_leak=MARKUP[0],
        options={"agent": MARKUP[1]},
    )
    _certify(store)
    _draw(store)
    return folder / "root"


def _certify(store: Store) -> None:
    from certify_assets.operations import certifier
    from certify_assets.operations.audit import audit_judge
    from certify_assets.operations.monitoring import monitor_judge

    Corpus(store, CORPUS).prepare()
    judged(store, CORPUS).train()
    judged(store, CORPUS).score()
    certifier.certify_judge(judged(store, CORPUS))
    audit_judge(judged(store, CORPUS))
    score_as_base(store, CORPUS)
    monitor_judge(judged(store, CORPUS))


def _draw(store: Store) -> None:
    from certify_assets.corpora import report as corpus_report
    from certify_assets.operations import comparison
    from certify_assets.operations.comparison import write_main_table
    from certify_assets.reports import (
        comparison_page,
        corpus_page,
        index_page,
        judge_page,
        monitor_page,
    )
    from certify_assets.research.tables import write_study

    judge_page.write_page(judged(store, CORPUS))
    index_page.write_index(store)
    monitor_page.write_monitor_page(judged(store, CORPUS))
    report = corpus_report.gather_report(Corpus(store, CORPUS))
    corpus_page.write_corpus_page(store, report)
    document = comparison.write_comparison(Corpus(store, CORPUS))
    comparison_page.write_comparison_page(store, [document], corpus=CORPUS)
    table = write_main_table(store)
    comparison_page.write_comparison_page(store, table["corpora"], table["left_out"])
    write_study(store)


class Page(HTMLParser):
    """What a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.active += [tag] if tag in ACTIVE else []
        for name, value in attrs:
            text = (value or "").strip().lower()
            outward = (
                name in {"href", "src", "xlink:href", "action", "data", "formaction"}
                and ":" in text.split("#")[0].split("?")[0]
            )
            if (
                name.startswith("on")
                or name == "srcdoc"
                or outward
                or (
                    name == "style"
                    and ("url(" in text.replace("url(#", "") or CANARY.lower() in text)
                )
            ):
                self.active.append(f"{tag} {name}={text[:60]}")


def _pages(root: Path) -> list[Path]:
    return sorted((root / "pages").rglob("*.html"))


@pytest.mark.slow
def test_every_kind_of_page_is_there(root: Path) -> None:
    names = {path.relative_to(root / "pages").as_posix() for path in _pages(root)}
    assert names >= {
        "index.html",
        f"judges/lexical/{CORPUS}/page.html",
        f"judges/lexical/{CORPUS}/monitor.html",
        f"corpora/{CORPUS}/page.html",
        f"comparison/{CORPUS}/comparison.html",
        "study/study.html",
    }
    written = "".join(path.read_text("utf-8") for path in _pages(root))
    # the payloads are shown, so their escaping is what keeps them from running
    assert f"&lt;script&gt;window.{CANARY}=1" in written and "{{ 7*7 }}" in written


def test_nothing_of_a_run_is_markup(root: Path) -> None:
    for path in _pages(root):
        page = Page()
        page.feed(path.read_text("utf-8"))
        assert page.active == [], path.name


def test_nothing_was_written_outside_the_data_root(root: Path) -> None:
    # trajectory ids that climb, a file name that is markup
    assert {path.name for path in root.parent.iterdir()} == {
        "root",
        f"<img src=x onerror=window.{CANARY}=1>.jsonl",
    }
    assert not [path for path in root.rglob("*") if CANARY in path.name]


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.browser
def test_nothing_of_a_run_is_executed_in_a_browser(root: Path, browser: Browser) -> None:
    page = browser.new_page()
    dialogs: list[str] = []
    asked: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    for path in _pages(root):
        asked.clear()
        page.goto(path.as_uri())
        for address in page.locator("a").all():
            assert not (address.get_attribute("href") or "").lower().startswith("javascript:")
        assert page.evaluate(f"typeof window.{CANARY}") == "undefined", path
        assert asked == [path.as_uri()] and dialogs == [], path
    page.close()
