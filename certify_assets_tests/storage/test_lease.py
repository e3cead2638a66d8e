"""Leases: one owner at a time, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from certify_assets.storage import lease
from certify_assets.storage.lease import Clock, Held, Lease
from certify_assets.storage.store import Store
from certify_assets_tests.paths import REPOSITORY

KEY = "leases/retail.json"


class _FakeClock(Clock):
    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty data root."""
    return Store(str(tmp_path / "root"))


def _lease(store: Store, owner: str, clock: Clock = lease.CLOCK, **more: Any) -> Lease:
    return Lease(store, "retail", owner=owner, what="a test", clock=clock, **more)


def _never(held: Held, seconds: float) -> None:
    raise AssertionError((held, seconds))


def _foreign(store: Store, **changed: object) -> None:
    """Change the stored holders."""
    document = json.loads(store.read_bytes(KEY))
    document["holders"] = [{**item, **changed} for item in document["holders"]]
    store.write_bytes(KEY, json.dumps(document).encode())


def test_another_owner_is_refused_until_the_lease_is_given_back(store: Store) -> None:
    first, second = _lease(store, "run a"), _lease(store, "run b")
    assert first.take() is None
    held = second.take()
    assert held is not None and held.owner == "run a"
    said = held.describe("retail")
    assert said.startswith("run a is at work on retail (a test) since 2")
    assert f"as process {os.getpid()} on " in said and "unless it is renewed" in said
    assert not second.leave() and store.exists(KEY)
    assert first.leave() and not store.exists(KEY)
    assert second.take() is None


def test_a_lease_that_is_not_renewed_ends_and_its_holder_learns_it(store: Store) -> None:
    clock = _FakeClock()
    first, second = _lease(store, "run a", clock, ttl=60.0), _lease(store, "run b", clock)
    assert first.take() is None
    clock.time += 50
    assert first.renew() and second.take() is not None
    clock.time += 59
    assert second.take() is not None
    clock.time += 2
    # late, but nobody came
    assert first.renew() and second.take() is not None
    clock.time += 61
    assert second.take() is None and first.take() is not None
    assert not first.renew() and not first.leave() and second.leave()


def test_the_place_of_a_process_that_is_gone_is_free_at_once_on_its_machine(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    first, second = _lease(store, "run a"), _lease(store, "run b")
    assert first.take() is None
    _foreign(store, pid=ended.pid, machine="another")
    assert second.take() is not None
    _foreign(store, machine=lease._machine())
    assert second.take() is None and not first.renew()


def test_one_of_several_takes_over_what_a_killed_process_left(store: Store) -> None:
    assert _lease(store, "run a").take() is None
    _foreign(store, expires=0.0)
    barrier, winners = threading.Barrier(6), []

    def contend(number: int) -> None:
        mine = _lease(store, f"run {number}")
        barrier.wait()
        if mine.take() is None:
            winners.append(mine)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = winners
    assert winner.renew() and winner.leave() and store.names("leases") == []


def test_what_a_killed_holder_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    parts = [
        tmp_path / folder / ".certify.begun.part"
        for folder in (
            "corpora/retail",
            "judges/lexical/retail/adapter",
            "corpora/other",
            "judges/retail/other",
        )
    ]
    for part in parts:
        part.parent.mkdir(parents=True)
        part.write_bytes(b"begun")
    # another step of the same run may be writing
    with _lease(store, "run a").hold(_never), _lease(store, "run a").hold(_never):
        assert all(part.exists() for part in parts)
    with _lease(store, "run b").hold(_never):
        assert all(part.exists() for part in parts)
    assert _lease(store, "run a").take() is None
    _foreign(store, expires=0.0)
    with _lease(store, "run b").hold(_never):
        assert [part.exists() for part in parts] == [False, False, True, True]


_HOLD = """
import sys, time
from certify_assets.storage.lease import Lease
from certify_assets.storage.store import Store
with Lease(Store(sys.argv[1]), "retail", owner="run a", what="a test").hold(lambda *_: None):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_after_a_kill_the_next_process_proceeds(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    command = [sys.executable, "-c", _HOLD, store.root]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None and victim.stdout.readline() == "held\n"
        held = _lease(store, "run b").take()
        assert held is not None and held.holders[0].pid == victim.pid
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    with _lease(store, "run b").hold(_never):
        assert json.loads(store.read_bytes(KEY))["owner"] == "run b"
