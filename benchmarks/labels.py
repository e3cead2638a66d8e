"""What a label on the review page and the next page cost, with few and with many labels stored.

    python benchmarks/labels.py [--quick]

The figure that counts is a ratio of CPU in one run: the disk decides how long a label takes. The same
number of runs waits each time. The last lines are of twenty reviewers who label at once through
`certify review serve`.
"""

from __future__ import annotations

import argparse
import html
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.receiving import receive
from certify_assets.operations.review_index import ReviewState
from certify_assets.operations.review_session import ReviewSession
from certify_assets.reports.review_page import Reviewer, render_review
from certify_assets.storage.store import Store

CORPUS, BATCH, REPEATS, REVIEWERS, EACH = "bench", 1000, 40, 20, 6


def deliver(store: Store, folder: Path, batches: int, number: int) -> None:
    """Decide further batches without a judge, so that reviewers are asked about every run."""
    corpus = Corpus(store, CORPUS)
    for batch in range(number, number + batches):
        path = folder / f"{batch}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for place in range(BATCH):
                name = f"run-{batch}-{place}"
                steps = [{"action": f"look({name})", "observation": "a page"}]
                run: dict[str, object] = {
                    "task_id": f"task-{batch}-{place // 4}",
                    "trajectory_id": name,
                }
                run |= {"agent": "agent-a", "attempt": place % 4, "instruction": f"Do {name}"}
                file.write(json.dumps({**run, "steps": steps}) + "\n")
        receive(corpus, [str(path)])
        decide_ready(corpus)


def label_until(store: Store, wanted: int, stored: int) -> None:
    """Import labels of the runs that wait, the first of the queue first."""
    corpus = Corpus(store, CORPUS)
    names = ReviewState(corpus).next_runs("", wanted - stored)
    said = [Label(name, n % 2, f"r{n % 20}", "file", f"f:{name}") for n, name in enumerate(names)]
    started = time.process_time()
    append_labels(corpus, said)
    if len(said) > BATCH:
        spent = (time.process_time() - started) / len(said)
        print(f"import of {len(said)} labels: {1e3 * spent:.2f} ms of CPU each")


def label_and_page(store: Store) -> tuple[float, float]:
    """Return seconds of CPU and of the clock of a label with the page after it, the medians."""
    session, spent = ReviewSession(store, CORPUS), []
    for number in range(REPEATS):
        shown = session.shown("ann")
        assert shown is not None
        begun = time.process_time(), time.perf_counter()
        session.say("ann", shown.key, number % 2, shown.number)
        shown, said = session.shown("ann"), session.last("ann")
        assert shown is not None
        render_review(shown, said, CORPUS, Reviewer("ann", ""), news=session.news())
        spent.append((time.process_time() - begun[0], time.perf_counter() - begun[1]))
    cpu, clock = zip(*spent, strict=True)
    return statistics.median(cpu), statistics.median(clock)


class Person(threading.Thread):
    """A reviewer with a browser who labels some runs."""

    def __init__(self, link: str) -> None:
        super().__init__()
        self.where, self.cookies = urlsplit(link), dict[str, str]()
        self.answered: list[float] = []

    def run(self) -> None:
        self._ask("GET", f"{self.where.path}?{self.where.query}")
        page = self._ask("GET", "/")
        for _ in range(EACH):
            form = {name: _field(page, name) for name in ("csrf", "run", "number")}
            started = time.perf_counter()
            self._ask("POST", "/label", {**form, "outcome": "1", "comment": ""})
            page = self._ask("GET", "/")
            self.answered.append(time.perf_counter() - started)

    def _ask(self, method: str, path: str, form: dict[str, str] | None = None) -> str:
        connection = http.client.HTTPConnection(str(self.where.hostname), self.where.port or 80)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body=urlencode(form) if form else None, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status}")
        connection.close()
        return text


def _field(page: str, name: str) -> str:
    found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)">', page)
    assert found is not None, page[:500]
    return html.unescape(found[1])


def reviewers_at_once(store: Store) -> str:
    """Let reviewers label at once; say how many of their labels were answered, and how fast."""
    command = [sys.executable, "-m", "certify_assets.cli", "review", "serve", CORPUS, "--json"]
    command += ["--port", "0", "--root", store.root]
    command += [word for n in range(REVIEWERS) for word in ("--reviewer", f"person {n}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            said += process.stdout.readline()
        people = [Person(link) for link in json.loads(said)["links"].values()]
        for person in people:
            person.start()
        for person in people:
            person.join()
        process.terminate()
    times = sorted(seconds for person in people for seconds in person.answered)
    middle, late = (1e3 * times[int(len(times) * share)] for share in (0.5, 0.95))
    return (
        f"{len(times)} of {REVIEWERS * EACH} answered, median {middle:.0f} ms, 95 % within "
        f"{late:.0f} ms, the last {1e3 * times[-1]:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    few, some, many = (100, 1000, 3000) if parser.parse_args().quick else (100, 20_000, 50_000)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/root")
        save_config(store, CorpusConfig(CORPUS, format="table", paths=(folder,)))
        costs, stored, batches = {}, 0, 0
        for wanted in (few, some, many):
            needed = wanted // BATCH + 2 - batches
            deliver(store, Path(folder), needed, batches)
            batches += needed
            label_until(store, wanted, stored)
            stored = wanted
            if wanted == some:
                print(f"{some} labels stored, {REVIEWERS} reviewers: {reviewers_at_once(store)}")
                stored += REVIEWERS * EACH
                continue
            costs[wanted], clock = label_and_page(store)
            print(
                f"{wanted} labels stored: a label and the next page take "
                f"{1e3 * costs[wanted]:.1f} ms of CPU, {1e3 * clock:.1f} ms"
            )
            stored += REPEATS
        print(f"CPU at {many} labels over that at {few}: {costs[many] / costs[few]:.2f}")


if __name__ == "__main__":
    main()
