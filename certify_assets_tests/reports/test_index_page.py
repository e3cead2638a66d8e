"""The start page: what decides each corpus, and links to every page, by hand-made entries."""

from pathlib import Path

import pytest

from certify_assets.certificates import Sides
from certify_assets.corpora.corpus import Corpus
from certify_assets.reports import index_page
from certify_assets.reports.index_page import (
    CorpusEntry,
    IndexEntry,
    PageLink,
    render_index,
    write_index,
)
from certify_assets.reports.wording import percent
from certify_assets.storage.store import Store
from certify_assets_tests.pages import HOSTILE, outline, text_of
from certify_assets_tests.reports.conftest import Case

CERTIFICATE = PageLink("Certificate", "judges/lexical/one/page.html")
MONITOR = PageLink("Monitor", "judges/lexical/one/monitor.html")


def test_a_corpus_has_its_deployed_judge_its_alarms_and_its_pages(
    certified: Case, nothing: Case
) -> None:
    first = next(c for c in certified.certificates if c.certified and c.procedure == "pseudo_task")
    audit = next(a for a in certified.audits if a.certificate_sha256 == first.sha256)
    none = Sides.strictest([c for c in nothing.certificates if c.procedure == "pseudo_task"])
    sides = Sides((first,))
    judge = IndexEntry.of(sides, "lexical", [CERTIFICATE, MONITOR], certified.audits)
    one = CorpusEntry(
        "one",
        "certified",
        "lexical decides",
        "deployment 2 of 2026-01-31.",
        sides=sides,
        alarms=("2026-02-01: lexical, reject",),
        pages=(PageLink("Corpus", "corpora/one/page.html"),),
        judges=(judge,),
    )
    other = IndexEntry.of(none, "lexical", [])
    two = CorpusEntry("two", "nothing", "No judge is deployed", judges=(other,))
    html = render_index([one, two], [PageLink("Study", "study/study.html")])
    parsed, text = outline(html), text_of(html)
    assert parsed.addresses == [
        "#verdict",
        "#one",
        "#two",
        "study/study.html",
        "corpora/one/page.html",
        CERTIFICATE.href,
        MONITOR.href,
    ]
    assert {"one", "two"} <= set(parsed.ids)
    for words in (
        "lexical decides",
        "alarm 2026-02-01: lexical, reject",
        percent(audit.realized_error, 2),
        "every run to review",
        "No judge is deployed",
    ):
        assert words in text
    assert text.count(percent(first.coverage)) >= 2


def test_an_empty_data_root_says_what_to_do() -> None:
    assert "No corpus yet. Try certify demo" in text_of(render_index([]))


@pytest.mark.parametrize("words", HOSTILE)
def test_what_is_stored_is_text_on_the_start_page(words: str) -> None:
    entry = CorpusEntry("one", "failed", words, words, alarms=(words,))
    html = render_index([entry])
    shown = " ".join(words.replace("\u202e", "\\u202e").split())
    assert "script" not in outline(html).tags and text_of(html).count(shown) >= 2


def test_a_page_does_not_wait_for_what_others_store_of_another_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    draw, mine, theirs = index_page.corpus_entry, "miniwob_mixed", "corpora/miniwob_weak/page.html"
    asked, index = list[str](), list[str]()

    def entry(corpus: Corpus) -> CorpusEntry:
        found, first = draw(corpus), not asked
        asked.append(corpus.name)
        if first:
            store.write_bytes(theirs, b"<p>")
        return found

    monkeypatch.setattr(index_page, "corpus_entry", entry)
    view = store.now()
    with view.step():
        view.write_bytes(f"corpora/{mine}/page.html", b"<p>")
        view.once_committed(lambda: index.append(write_index(view)))
    shown = outline(Path(index[0]).read_text("utf-8")).addresses
    assert {f"corpora/{mine}/page.html", theirs} <= set(shown)
