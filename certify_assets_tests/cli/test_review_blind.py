"""A reviewer who wants to tell known runs from those of the queue, by all that the server sends."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from certify_assets.cli.review_server import ReviewServer
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Step, Trajectory
from certify_assets.operations.labels import read_gold_labels
from certify_assets.operations.review_session import ReviewSession, read_gold
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, Page, serving
from certify_assets_tests.review_builders import decided, write_batch, write_runs

# runs of all kinds are alike but for their number, as those of one batch may be
WAITING, DECIDED, KNOWN, OTHERS = range(30), range(30, 40), range(50, 65), range(70, 80)
SHARE = 0.4


def name_of(number: int) -> str:
    return f"run-{number:02}/0"


def key_of(number: int) -> str:
    """Return what names a run in forms: whoever knows its id can compute it."""
    return hashlib.sha256(name_of(number).encode()).hexdigest()[:32]


def run_of(number: int) -> Trajectory:
    name, task = name_of(number), name_of(number)[:-2]
    steps = (Step("click('the button')", f"a page of {task}"), Step("claim(done)", ""))
    return Trajectory("c", task, name, "agent-a", 0, f"Do {task}", steps, 1)


@pytest.fixture
def session(tmp_path: Path) -> ReviewSession:
    store = Store(str(tmp_path / "root"))
    rows = [decided(name_of(n), asked="undecided", score=n / 100) for n in WAITING]
    write_batch(store, [*rows, *(decided(name_of(n), score=-3.0) for n in DECIDED)])
    write_runs(store, "corpora/c/trajectories.parquet", [run_of(n) for n in (*KNOWN, *OTHERS)])
    known = tmp_path / "gold.csv"
    lines = [f"{name_of(n)},{n % 2}" for n in KNOWN]
    known.write_text("\n".join(["trajectory_id,outcome", *lines]) + "\n", "utf-8")
    gold, _ = read_gold(Corpus(store, "c"), known, SHARE)
    return ReviewSession(store, "c", gold=gold)


@dataclass
class Suspicious:
    """A reviewer who writes down all that is answered to them."""

    client: Client
    page: Page
    heard: list[tuple[int, dict[str, str], str]] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of the run on the page."""
        found = re.search(r"Do run-(\d\d)", self.page.text)
        assert found is not None, self.page.text[-3000:]
        return int(found[1])

    @property
    def is_known(self) -> bool:
        return self.number in KNOWN

    @property
    def counters(self) -> tuple[int, int]:
        """How many runs the page calls labelled, and how many left."""
        found = re.search(r"<b>(\d+) of (\d+)</b> labelled", self.page.text)
        left = re.search(r">(\d+) runs? left for you", self.page.text)
        assert found is not None and left is not None
        assert int(found[1]) + int(left[1]) == int(found[2])
        return int(found[1]), int(left[1])

    def look(self) -> None:
        self.page = self._note(self.client.ask("GET", "/"))

    def get(self, path: str) -> None:
        self._note(self.client.ask("GET", path))

    def send(self, path: str, **form: object) -> None:
        csrf = self.page.field("csrf")
        self._note(self.client.ask("POST", path, {"csrf": csrf, **form}))

    def _note(self, page: Page) -> Page:
        # when an answer was sent is the reviewer's to know, how long a text is the run's
        varying = ("Date", "Content-Length")
        headers = {name: text for name, text in page.headers.items() if name not in varying}
        self.heard.append((page.status, headers, without_content(page.text)))
        return page


def without_content(text: str) -> str:
    """Take out what differs from run to run by its content, and counters, which are compared."""
    text = re.sub(r"run-\d\d", "RUN", text)
    text = re.sub(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", "KEY", text)
    text = re.sub(r'name="line" value="\d+"', "LINE", text)
    text = re.sub(r"<progress.*?</b> labelled", "PROGRESS", text)
    return re.sub(r">\d+ runs? left for you, about [^<]*?(?=\. You are)", "LEFT", text)


@pytest.fixture
def ann(session: ReviewSession) -> Iterator[Suspicious]:
    server = ReviewServer(session, reviewers=["ann"])
    with serving(server):
        client = Client(server.links["ann"], links=server.links)
        yield Suspicious(client, client.enter("ann"))


def test_all_that_is_answered_about_a_known_run_is_answered_about_any(
    ann: Suspicious, session: ReviewSession
) -> None:
    heard: dict[bool, list[list[tuple[int, dict[str, str], str]]]] = {True: [], False: []}
    labelled, left = ann.counters
    # as the last label of each run below
    ann.send("/label", run=ann.page.field("run"), number=0, outcome=0)
    ann.look()
    for place in range(1, 16):
        assert ann.counters == (labelled + place, left - place)
        known, run, ann.heard = ann.is_known, ann.page.field("run"), []
        ann.look()
        ann.get(f"/text?run={run}")
        ann.send("/label", run=run, number=7, outcome=1)
        ann.send("/label", run=run, number=0, outcome=1, comment="yes")
        ann.send("/label", run=run, number=0, outcome=1, comment="yes")
        ann.send("/label", run=run, number=0, outcome=0)
        ann.send("/skip", run=run)
        ann.look()
        line = ann.page.field("line")
        assert ann.counters == (labelled + place + 1, left - place - 1)
        ann.send("/undo", line=line)
        ann.send("/undo", line=line)
        ann.look()
        assert ann.page.field("run") == run and ann.counters == (labelled + place, left - place)
        ann.send("/skip", run=run)
        ann.look()
        assert ann.page.field("run") != run and ann.counters == (labelled + place, left - place)
        ann.send("/again")
        ann.send("/label", run=run, number=2, outcome=0)
        ann.send("/label", run=run, number=0, outcome=0)
        ann.get("/queue")
        ann.look()
        heard[known].append(ann.heard)
    assert len(heard[True]) >= 4 and len(heard[False]) >= 4
    assert len(read_gold_labels(Corpus(session.store, "c"))) == 3 * len(heard[True])
    first = heard[False][0]
    assert [status for status, *_ in first].count(303) == 8
    for transcript in (*heard[True], *heard[False]):
        for number, (answer, other) in enumerate(zip(transcript, first, strict=True)):
            differing = set(answer[2].splitlines()) ^ set(other[2].splitlines())
            assert answer == other, f"answer {number} differs: {sorted(differing)}"


def test_skipping_brings_known_runs_as_often_and_back_in_the_order_of_skipping(
    ann: Suspicious,
) -> None:
    seen = list[int]()
    for place in range(1, 21):
        seen.append(ann.number)
        assert abs(sum(one in KNOWN for one in seen) - place * SHARE) <= 1, (
            "whoever skips a run would know that the next one is no known one"
        )
        ann.send("/skip", run=ann.page.field("run"))
        ann.look()
    beyond, left = ann.number, ann.counters
    ann.send("/again")
    again = list[int]()
    for place in range(21):
        ann.look()
        again.append(ann.number)
        assert ann.counters == (left[0] + place, left[1] - place)
        ann.send("/label", run=ann.page.field("run"), number=0, outcome=1)
    assert len(set(seen)) == 20 and sorted(again) == sorted([*seen, beyond])
    assert [one for one in again if one != beyond] == seen


def test_nothing_is_said_of_a_run_that_was_not_shown(ann: Suspicious) -> None:
    text = ann.page.text
    answers = dict[int, object]()
    for number in (*WAITING, *DECIDED, *KNOWN, *OTHERS, 99):
        if number == ann.number:
            continue
        ann.heard = []
        ann.send("/label", run=key_of(number), number=0, outcome=1)
        ann.send("/label", run=key_of(number), number=1, outcome=1)
        ann.send("/skip", run=key_of(number))
        ann.get(f"/text?run={key_of(number)}")
        ann.look()
        assert ann.page.text == text
        answers[number] = ann.heard
    assert len(answers) == 65
    for number, answer in answers.items():
        assert answer == answers[99], f"what is answered of run {number}"
