"""Writers that race: everything that is stored stands on what was current at its place.

Every check is taken out once, to show that the trial sees what it guards against.
"""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from certify_assets.errors import CertifyError, ChangedInputError, IntegrityError, LostDatabaseError
from certify_assets.storage import moment
from certify_assets.storage.care import collect, rebuild, verify
from certify_assets.storage.database import VARIABLE, Database
from certify_assets.storage.events import Payload, Stored, chain
from certify_assets.storage.folder import FoundFile
from certify_assets.storage.objects import MissingObjectError, Objects
from certify_assets.storage.store import Store
from certify_assets_tests.services import postgres_server

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


class Decided(Chosen):
    """A decision by the deployment of its time."""

    kind = "decided_by"


class Said(Payload):
    """A label."""

    kind = "said"
    worker: int


#: what each worker does at least once
_WANTED = (("score", "certify"), ("deploy", "decide"), ("label",))


def _mixed(root: str, worker: int, seconds: float, told: Any) -> None:
    store, draw, seen = Store(root).now(), random.Random(worker), Counter[str]()

    def pause() -> None:
        time.sleep(draw.random() * 0.05)

    def made(key: str, *sources: str) -> None:
        with store.step():
            of = {source: store.sha256(source) for source in sources}
            pause()
            store.write_json(key, {"of": of, "draw": draw.randint(0, 3)})
            pause()

    def choose() -> None:
        with store.step():
            number = 1 + len(store.events("c", Chosen))
            names = {key: store.sha256(key) for key in (SCORES, CERTIFICATE)}
            pause()
            store.append("c", Chosen(number=number, objects=names))

    def decide() -> None:
        with store.step():
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
    # on a machine that is busy the race takes longer; who is alone at the end succeeds
    wanted = _WANTED[worker % len(_WANTED)]
    while time.monotonic() < end or not all(seen[f"{name} done"] for name in wanted):
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
    named = {name for row in rows for name in row.objects.values()}
    there = {item.name for item in store.objects.found()}
    return found + ["an object is gone" for _ in named - there]


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
    return _faults(store)


@pytest.mark.slow
def test_nothing_stands_on_what_was_not_current(store: Store) -> None:
    assert _race(store) == []
    verify(store)
    rebuild(store)
    verify(store)


def _say(said: dict[str, Said], _: Store) -> dict[str, Said]:
    return said


def _fresh() -> dict[str, Any]:
    return {"of": {}, "draw": uuid.uuid4().hex}


def _input_is_replaced(store: Store) -> None:
    view = store.now()
    with suppress(ChangedInputError), view.step():
        of = {RUNS: view.sha256(RUNS)}
        store.write_json(RUNS, _fresh())
        view.write_json(SCORES, {"of": of})


def _object_is_removed(store: Store) -> None:
    view = store.now()
    with suppress(MissingObjectError), view.step():
        view.write_json(SCORES, _fresh())
        collect(store, older_days=-1)


def _object_is_named_while_it_is_removed(store: Store) -> None:
    name, removed, engine = (
        store.objects.put_json({"of": {}}),
        Objects.remove,
        store.database.engine,
    )
    at_once = "PRAGMA busy_timeout=0" if store.database.is_sqlite else "SET lock_timeout='1ms'"

    def prepare(connection: Any, _: object) -> None:
        connection.cursor().execute(at_once)
        connection.commit()

    def remove(objects: Objects, found: FoundFile) -> None:
        with suppress(CertifyError):
            store.point(SCORES, name)
        removed(objects, found)

    # who waits for the collection does not wait for long
    engine.dispose()
    sa.event.listen(engine, "connect", prepare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objects, "remove", remove)
        collect(store, older_days=-1)


@contextmanager
def _not_alone(database: Database, written: Any, read: Any = (), **about: Any) -> Any:
    with database.reading() if about else _WRITING(database, written, read) as connection:
        yield connection


_WRITING = Database.writing
#: what others do in the middle of a step or a collection, and how the check against it is taken out
_CHECKS: dict[str, tuple[Callable[[Store], None], Any, str, Any]] = {
    "compares": (_input_is_replaced, moment, "require_same", lambda *_: None),
    "looks": (_object_is_removed, Objects, "has", lambda *_: True),
    "alone": (_object_is_named_while_it_is_removed, Database, "writing", _not_alone),
}


@pytest.mark.parametrize("check", _CHECKS)
def test_each_check_keeps_off_what_comes_without_it(
    check: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, owner, name, without = _CHECKS[check]
    for key in (RUNS, SCORES):
        store.write_json(key, _fresh())
    trial(store)
    assert _faults(store) == []
    monkeypatch.setattr(owner, name, without)
    trial(store)
    assert len(_faults(store)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "busy"])
def test_no_writer_stops_the_others_for_good(
    stopped: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.database.is_sqlite:
        pytest.skip("SQLite has one writer: the others wait, and are told after 30 seconds")
    store.write_json(RUNS, {"of": {}})
    store.database.engine.dispose()
    # of a stopped one the server ends the transaction; for a busy one nobody waits for long
    shorter = "idle_in_transaction_session_timeout" if stopped else "lock_timeout"
    assert "=60s" in store.database.engine.url.query["options"]
    monkeypatch.setenv(VARIABLE, f"{os.environ[VARIABLE]}?options=-c {shorter}=2s")

    def hold() -> None:
        with Store(store.root).database.writing(["c"]) as connection:
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            connection.execute(sa.text("SELECT pg_sleep(60)"))

    holding = _PROCESSES.Process(target=hold)
    holding.start()
    try:
        time.sleep(1.5)
        started = time.monotonic()
        with nullcontext() if stopped else pytest.raises(LostDatabaseError, match="lock timeout"):
            store.append("c", Said(worker=1))
        assert time.monotonic() - started < 30
    finally:
        os.kill(holding.pid or 0, signal.SIGKILL)
        holding.join()


@pytest.mark.slow
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
                        said = {f"{worker} {number}": Said(worker=worker)}
                        store.now().short("c", partial(_say, said))
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
        # whoever calls first after a restart is answered
        databases.restart()
        store.append("c", Said(worker=3))
        verify(store)
        said = Counter(entry.content.worker for entry in store.events("c", Said))
        assert said == {0: 1, 1: 40, 2: 40, 3: 1}
        print(f"cut off {cut.total()} times")
        store.database.engine.dispose()
