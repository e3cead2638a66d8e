"""The start page of a data root: per corpus what decides, how sure that is, and every page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from certify_assets.corpora import HALF_B
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, ChangedInputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import judges
from certify_assets.operations.audit import load_audits
from certify_assets.operations.certifier import deciding_sides, load_certificates
from certify_assets.operations.comparison import comparison_key
from certify_assets.operations.deployment import Alarm, DeploymentRecord, open_deployment
from certify_assets.operations.history import history_key
from certify_assets.reports.corpus_page import page_key
from certify_assets.reports.page import render, store_page
from certify_assets.reports.wording import AUDIT_WORDS, narrow_percents, percent
from certify_assets.storage.events import Event
from certify_assets.storage.store import Store
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from certify_assets.certificates import Audit, Sides

# others may store something as often while it is drawn
_TRIES = 5
#: pages of the whole data root
_SHARED = (
    ("Judges on all corpora", "study/main_table.html"),
    ("Study", "study/study.html"),
)


@dataclass(frozen=True)
class PageLink:
    """A page in words, with its address relative to the start page."""

    words: str
    href: str


@dataclass(frozen=True)
class IndexEntry:
    """A judge of a corpus: what it may decide, its audit, its pages."""

    judge: str
    pages: tuple[PageLink, ...]
    #: None where they are not valid now
    sides: Sides | None = None
    #: of the certified sides
    audits: tuple[Audit, ...] = ()
    note: str = ""
    is_deployed: bool = False

    @classmethod
    def of(
        cls, sides: Sides, judge: str, pages: Sequence[PageLink], audits: Sequence[Audit] = ()
    ) -> IndexEntry:
        """Return the entry of a judge by its sides, with those audits that are theirs."""
        hashes = {item.sha256 for item in sides.certified}
        mine = tuple(item for item in audits if item.certificate_sha256 in hashes)
        return cls(judge, tuple(pages), sides, mine)

    @property
    def claims(self) -> list[str]:
        """What each certified side promises."""
        from certify_assets.certificates.sides import budget_words

        certified = () if self.sides is None else self.sides.certified
        return [
            f"{WORDS[item.side]} {percent(item.coverage)}, "
            f"{narrow_percents(budget_words(item))}"
            f"{', at most twice that' * (item.promise == 'average')} with "
            f"{percent(1 - item.delta)} confidence"
            for item in certified
        ]

    @property
    def audit(self) -> Audit | None:
        """The audit that says the worst; none where a certified side has none."""
        if self.sides is None or len(self.audits) < len(self.sides.certified):
            return None
        return max(
            self.audits, key=lambda item: list(AUDIT_WORDS).index(item.verdict), default=None
        )


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus on the start page: what decides its new runs, and where everything is."""

    name: str
    state: str  # certified, failed or nothing
    heading: str
    sentence: str = ""
    #: of the deployed certificates; None where none decide
    sides: Sides | None = None
    alarms: tuple[str, ...] = ()
    pages: tuple[PageLink, ...] = ()
    judges: tuple[IndexEntry, ...] = ()


def render_index(corpora: Sequence[CorpusEntry], pages: Sequence[PageLink] = ()) -> str:
    """Render the start page."""
    return render(
        "index.html",
        kind="Start page",
        title="Corpora and judges",
        corpora=corpora,
        pages=pages,
        audit_words=AUDIT_WORDS,
    )


def write_index(store: Store) -> str:
    """Draw the start page of what is stored now; return where it is."""
    view = store.now()
    for _ in range(_TRIES):
        # where another process stores something of a corpus meanwhile, it is drawn again
        with suppress(ChangedInputError), view.step():
            entries = [corpus_entry(Corpus(view, name)) for name in registered_corpora(view)]
            pages = _present(view, _SHARED)
            return store_page(view, "index.html", render_index(entries, pages))
    return store.locate("index.html")


def corpus_entry(corpus: Corpus) -> CorpusEntry:
    """Return what the start page says of a corpus; what cannot be read is said, never raised."""
    name, deployment = corpus.name, open_deployment(corpus)
    record, refusal = deployment.record, deployment.refusal
    if record is None:
        entry = CorpusEntry(name, "nothing", "No judge is deployed", "every run is reviewed.")
    else:
        since = f"deployment {record.number} of {record.time[:10]}, {record.budgets}"
        entry = CorpusEntry(name, "certified", f"{record.judge} decides", f"{since}.")
        if refusal is not None:
            heading = f"{record.judge} is deployed and decides nothing"
            entry = replace(
                entry, state="failed", heading=heading, sentence=f"{since}: {refusal.sentence}"
            )
        elif deployment.certificates:
            entry = replace(entry, sides=deciding_sides(list(deployment.certificates)))
    pages = (
        ("Corpus", page_key(name)),
        ("Judges compared", comparison_key(name, "comparison.html")),
        ("History of operation", history_key(name, "history.html")),
    )
    return replace(
        entry,
        alarms=_alarms(corpus),
        pages=_present(corpus.store, pages),
        judges=_judges(corpus, record),
    )


def _present(store: Store, pages: Sequence[tuple[str, str]]) -> tuple[PageLink, ...]:
    return tuple(PageLink(words, key) for words, key in pages if store.exists(key))


def _alarms(corpus: Corpus) -> tuple[str, ...]:
    return tuple(map(_alarm, reversed(corpus.events(Alarm))))


def _alarm(raised: Event[Alarm]) -> str:
    alarm, day = raised.content, raised.time[:10]
    at = f"{WORDS[alarm.side]} at {percent(alarm.alpha)}"
    return f"{day}: {alarm.judge}, {at}, after {alarm.at:,} labelled tasks"


def _judges(corpus: Corpus, deployed: DeploymentRecord | None) -> tuple[IndexEntry, ...]:
    """Return the entries of the judges that have a page."""
    found = (JudgedCorpus(corpus, name) for name in judges(corpus.store.root))
    return tuple(
        replace(_entry(judge), is_deployed=deployed is not None and deployed.judge == judge.name)
        for judge in found
        if judge.store.exists(judge.key("page.html"))
    )


def _entry(judge: JudgedCorpus) -> IndexEntry:
    pages = _present(
        judge.store,
        [("Certificate", judge.key("page.html")), ("Monitor", judge.key("monitor.html"))],
    )
    try:
        sides = deciding_sides(load_certificates(judge))
        audits, _ = load_audits(judge)
    except CertifyError as error:
        # one judge that waits for its recertification must not keep the others from being listed
        return IndexEntry(judge.name, pages, note=f"Not valid now: {error}")
    half = sides.lead.provenance.get("split") == HALF_B
    note = "Certified on half B of CAL." if half else ""
    return replace(IndexEntry.of(sides, judge.name, pages, audits), note=note)
