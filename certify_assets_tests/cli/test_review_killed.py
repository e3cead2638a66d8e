"""The review server killed while reviewers label: confirmed labels are in the journal."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import read_labels
from certify_assets.operations.review_queue import load_queue
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, Page, serve
from certify_assets_tests.review_builders import session_batch

KILLS = int(os.environ.get("CERTIFY_TEST_KILLS", "8"))


class Person(threading.Thread):
    """Labels until the server is gone; keeps confirmed labels and the unanswered form."""

    def __init__(self, name: str, client: Client, sent: tuple[Page, int] | None) -> None:
        super().__init__()
        self.client, self.person, self.open = client, name, sent
        self.confirmed: list[tuple[str, int]] = []

    def run(self) -> None:
        try:
            page = self.client.enter(self.person)
            if self.open is not None:
                # the form that the killed server left unanswered, with the field of the new one
                old, outcome = self.open
                self._send(old, outcome, page.field("csrf"), again=True)
                page = self.client.ask("GET", "/")
            while "Nothing is left" not in page.text:
                self._send(page, int(page.field("run"), 16) % 2, page.field("csrf"))
                page = self.client.ask("GET", "/")
        except (OSError, http.client.HTTPException):
            return

    def _send(self, page: Page, outcome: int, csrf: str, *, again: bool = False) -> None:
        self.open = (page, outcome)
        answer = self.client.label(page, outcome, csrf=csrf)
        self.open = None
        # this server may have shown the run to the other reviewer, who labels it then
        if again and answer.status == 409:
            assert "was not shown to" in answer.text
            return
        assert answer.status == 303, answer.text
        self.confirmed.append((page.field("run"), outcome))


def sessions(store: Store, delays: Sequence[float]) -> dict[str, list[tuple[str, int]]]:
    """Let two reviewers label, and kill the server after each delay; return what was confirmed."""
    confirmed: dict[str, list[tuple[str, int]]] = {"ann": [], "bob": []}
    unanswered: dict[str, tuple[Page, int] | None] = {"ann": None, "bob": None}
    for delay in [*delays, None]:
        server = serve(store, *(word for name in confirmed for word in ("--reviewer", name)))
        people = [Person(name, Client(server.links[name]), unanswered[name]) for name in confirmed]
        for person in people:
            person.start()
        if delay is None:
            for person in people:
                person.join()
        else:
            time.sleep(delay)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.communicate()
        for person in people:
            person.join()
            confirmed[person.person] += person.confirmed
            unanswered[person.person] = person.open
    return confirmed


def survived(
    store: Store, kills: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> tuple[int, int]:
    """Return how many confirmed labels survived that many kills, and how many were lost."""
    session_batch(store, audits=5, undecided=30 * kills)
    draw = random.Random(seed)
    confirmed = sessions(store, [draw.uniform(0.1, 0.5) for _ in range(kills)])
    labels = read_labels(Corpus(store, "c"))
    written = {
        (
            label.reviewer,
            hashlib.sha256(label.trajectory_id.encode()).hexdigest()[:32],
            label.outcome,
        )
        for label in labels
    }
    told = [(name, *one) for name, ones in confirmed.items() for one in ones]
    lost = sum(one not in written for one in told)
    with capsys.disabled():
        print(
            f"\nreview server killed {kills} times: {len(told) - lost} confirmed labels "
            f"survived, {lost} lost"
        )
    assert len(written) == len(labels), "a form sent again to the next server is one line"
    assert load_queue(Corpus(store, "c")).frame.empty, "the last server took the queue to its end"
    return len(told) - lost, lost


@pytest.mark.slow
def test_a_killed_server_loses_nothing_that_it_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, lost = survived(Store(str(tmp_path)), KILLS, 11, capsys)
    assert lost == 0 and kept >= 25 * KILLS
