"""Writers that race: everything that is stored stands on what was current at its place.

Every check is taken out once, to show that the trial sees what it guards against.
"""

import json
import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from certify_assets.errors import CertifyError, ChangedInputError, IntegrityError
from certify_assets.storage import snapshot
from certify_assets.storage.care import rebuild, verify
from certify_assets.storage.cleaning import collect
from certify_assets.storage.database import VARIABLE, Database
from certify_assets.storage.events import Payload, Stored, chain, objects_of
from certify_assets.storage.folder import FoundFile
from certify_assets.storage.objects import MissingObjectError, Objects
from certify_assets.storage.store import Store
from certify_assets_tests.services import postgres_server

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("CERTIFY_TEST_SECONDS", "6"))
RUNS, SCORES, CERTIFICATE = (
    "corpora/c/runs.json",
    "judges/lexical/c/scores.json",
    "judges/lexical/c/certificate.json",
)
_PROCESSES = multiprocessing.get_context("fork")


class Chosen(Payload):
    """A deployment: it names what it decides by."""

    kind = "chosen"
    number: int


class Decided(Payload):
    """A decision by the deployment of its time."""

    kind = "decided_by"
    number: int


class Said(Payload):
    """A label."""

    kind = "said"
    worker: int


def _mixed(root: str, worker: int, seconds: float, told: Any) -> None:
    store, draw, seen = Store(root).now(), random.Random(worker), Counter[str]()

    def pause() -> None:
        time.sleep(draw.random() * 0.05)

    def made(key: str, *sources: str) -> None:
        with store.step("c"):
            of = {source: store.sha256(source) for source in sources}
            pause()
            store.write_json(key, {"of": of, "draw": draw.randint(0, 3)})
            pause()

    def choose() -> None:
        with store.step("c"):
            number = 1 + len(store.events("c", Chosen))
            names = {key: store.sha256(key) for key in (SCORES, CERTIFICATE)}
            pause()
            store.append("c", Chosen(number=number, objects=names))

    def decide() -> None:
        with store.step("c"):
            entry = store.events("c", Chosen)[-1]
            pause()
            number = entry.content.number
            store.append("c", Decided(number=number, objects=entry.content.objects))

    work: dict[str, Callable[[], object]] = {
        "import": lambda: made(RUNS),
        "score": lambda: made(SCORES, RUNS),
        "certify": lambda: made(CERTIFICATE, SCORES, RUNS),
        "deploy": choose,
        "decide": decide,
        "label": lambda: store.append("c", Said(worker=worker)),
        "gc": lambda: collect(Store(root), older_days=draw.choice([-1.0, 2e-6])),
    }
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        name = draw.choice(list(work))
        try:
            work[name]()
            seen[f"{name} done"] += 1
        except (ChangedInputError, MissingObjectError) as error:
            seen[f"{name} {type(error).__name__}"] += 1
        except IntegrityError as error:
            seen[f"{name} {error}"] += 1
    told.put(seen)


def _faults(store: Store) -> list[str]:
    """Return what stands on something else than what was current, and which objects are gone."""
    current: dict[str, str] = {}
    chosen, found = (0, dict[str, str]()), []
    with store.database.reading() as connection:
        rows = list(chain(connection, "c"))
    for row in rows:
        about = json.loads(row.payload)
        objects = about["objects"]
        if row.kind == Stored.kind:
            try:
                sources = json.loads(store.objects.get(objects["content"]))["of"]
            except MissingObjectError:
                sources = {}
            found += [
                f"{row.subject} of an earlier {key}"
                for key, sha256 in sources.items()
                if current.get(key) != sha256
            ]
            current[row.subject] = objects["content"]
        elif row.kind == Chosen.kind:
            if objects != {key: current[key] for key in (SCORES, CERTIFICATE)}:
                found.append("a deployment of something else")
            if about["number"] != chosen[0] + 1:
                found.append("a number twice")
            chosen = about["number"], objects
        elif row.kind == Decided.kind and (about["number"], objects) != chosen:
            found.append("a decision by another deployment")
    named = {name for row in rows for name in objects_of(row.payload)}
    return found + ["an object is gone" for name in named if not store.objects.has(name)]


def _race(store: Store, workers: int = 4) -> list[str]:
    for key in (RUNS, SCORES, CERTIFICATE):
        store.write_json(key, {"of": {}})
    view = store.now()
    names = {key: view.sha256(key) for key in (SCORES, CERTIFICATE)}
    store.append("c", Chosen(number=1, objects=names))
    store.database.engine.dispose()
    told = _PROCESSES.Queue()
    started = [
        _PROCESSES.Process(target=_mixed, args=(store.root, number, SECONDS, told))
        for number in range(workers)
    ]
    for process in started:
        process.start()
    seen = sum((told.get(timeout=300) for _ in started), Counter[str]())
    for process in started:
        process.join()
    print(dict(sorted(seen.items())))
    assert all(seen[f"{name} done"] for name in ("score", "certify", "deploy", "decide", "label"))
    return _faults(store)


def test_nothing_stands_on_what_was_not_current(store: Store) -> None:
    assert _race(store) == []
    verify(store)
    rebuild(store)
    verify(store)


def test_the_trial_sees_a_step_that_does_not_compare(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "require_same", lambda *_: None)
    assert [fault for fault in _race(store) if "object" not in fault]


def test_the_trial_sees_a_commit_that_does_not_look_for_its_objects(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = Objects.has
    monkeypatch.setattr(Objects, "has", lambda *_: True)
    faults = _race(store)
    monkeypatch.setattr(Objects, "has", has)
    assert "an object is gone" in faults or "an object is gone" in _faults(store)


def test_the_trial_sees_a_collection_that_is_not_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Database.writing

    @contextmanager
    def writing(
        self: Database, written: Any, read: Any = (), *, sole: bool = False
    ) -> Iterator[sa.Connection]:
        with self.reading() if sole else inner(self, written, read) as connection:
            yield connection

    def remove(self: Objects, found: FoundFile) -> None:
        # what it has read is old when it removes
        time.sleep(0.05)
        removed(self, found)

    store.append("c", Said(worker=0))
    removed = Objects.remove
    monkeypatch.setattr(Objects, "remove", remove)
    monkeypatch.setattr(Database, "writing", writing)
    assert "an object is gone" in _race(store)


def test_a_stopped_writer_stops_nobody_for_good(store: Store) -> None:
    import signal

    store.write_json(RUNS, {"of": {}})
    if store.database.is_sqlite:
        pytest.skip("SQLite has one writer: the others wait, and are told after 30 seconds")
    url = store.database.url
    store.database.engine.dispose()

    def stop() -> None:
        with Store(store.root).database.writing(["c"]) as connection:
            connection.execute(sa.text("SET idle_in_transaction_session_timeout='2s'"))
            os.kill(os.getpid(), signal.SIGSTOP)

    stopped = _PROCESSES.Process(target=stop)
    stopped.start()
    try:
        time.sleep(2)
        started = time.monotonic()
        store.append("c", Said(worker=1))
        assert time.monotonic() - started < 30 and url
    finally:
        os.kill(stopped.pid or 0, signal.SIGKILL)
        stopped.join()


def test_a_restart_of_the_server_loses_nothing_and_adds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres_server("rows") as databases:
        monkeypatch.setenv(VARIABLE, databases["rows"])
        store = Store(str(tmp_path / "root"))
        store.append("c", Said(worker=0))
        cut, ended = Counter[int](), threading.Event()

        def write(worker: int) -> None:
            for number in range(40):
                while True:
                    try:
                        # the same request is sent again until it is answered
                        store.append("c", Said(worker=worker), token=f"{worker} {number}")
                        break
                    except (CertifyError, ChangedInputError):
                        cut[worker] += 1
                        time.sleep(0.05)

        def restart() -> None:
            while not ended.wait(1):
                databases.restart()

        threads = [threading.Thread(target=write, args=(worker,)) for worker in (1, 2)]
        restarting = threading.Thread(target=restart)
        for thread in (*threads, restarting):
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        restarting.join()
        verify(store)
        said = Counter(entry.content.worker for entry in store.events("c", Said))
        assert said == {0: 1, 1: 40, 2: 40}
        print(f"cut off {cut.total()} times")
        store.database.engine.dispose()
