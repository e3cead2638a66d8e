"""A snapshot: one version of every file, every answer once."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from certify_assets.errors import ChangedInputError
from certify_assets.storage.snapshot import Snapshot, remembered
from certify_assets.storage.store import Store
from certify_assets_tests.storage import memory

CALLS: list[str] = []


@dataclass(frozen=True)
class Thing:
    store: Snapshot
    identity: tuple[str, ...] = ("thing",)


@remembered
def inner(thing: Thing) -> list[int]:
    CALLS.append("inner")
    return list(thing.store.read_json("things/a.json"))


@remembered
def outer(thing: Thing, factor: int = 1) -> int:
    CALLS.append("outer")
    return factor * sum(inner(thing)) + len(thing.store.names("things"))


@pytest.fixture(params=["{folder}", "ram://{name}"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    assert "ram" in memory.BACKENDS
    CALLS.clear()
    found = Store(request.param.format(folder=tmp_path, name=tmp_path.name))
    found.write_json("things/a.json", [1, 2])
    return found


def test_an_answer_is_computed_once_and_copies_are_handed_out(store: Store) -> None:
    thing = Thing(Snapshot(store))
    inner(thing).append(100)
    assert inner(thing) == [1, 2] and outer(thing) == 4 and outer(thing, 2) == 7
    assert CALLS == ["inner", "outer", "outer"]


def test_a_write_drops_what_came_from_the_key_and_nothing_else(store: Store) -> None:
    thing = Thing(Snapshot(store))
    outer(thing)
    thing.store.write_json("other/b.json", [])
    outer(thing)
    assert CALLS == ["outer", "inner"]
    # an answer that was only taken over depends on the key as well
    thing.store.write_json("things/a.json", [5])
    assert outer(thing) == 6
    # so does a listing on a new name
    thing.store.write_json("things/c.json", [])
    assert outer(thing) == 7 and CALLS.count("inner") == 2


@pytest.mark.parametrize("again", ["read_bytes", "sha256", "as_file"])
def test_a_file_that_another_process_replaces_ends_the_operation(store: Store, again: str) -> None:
    snapshot = Snapshot(store)
    snapshot.read_json("things/a.json")
    store.write_json("things/a.json", [9])
    if again == "sha256":
        # the version that was read, whatever is there now
        assert snapshot.sha256("things/a.json") != store.sha256("things/a.json")
        return
    with pytest.raises(ChangedInputError, match=r"a\.json was replaced while it was in use"):
        if again == "as_file":
            with snapshot.as_file("things/a.json"):
                store.write_json("things/a.json", [10])
        else:
            snapshot.read_bytes("things/a.json")
    snapshot.refresh()
    assert snapshot.read_json("things/a.json") in ([9], [10])


def test_a_refresh_forgets_what_others_wrote_and_keeps_the_rest(store: Store) -> None:
    thing = Thing(Snapshot(store))
    assert outer(thing) == 4
    calls = list(CALLS)
    thing.store.refresh()
    assert outer(thing) == 4
    # what was in the place of a file cannot be told on a remote root
    assert calls == CALLS or not store.is_local
    store.write_json("things/a.json", [2, 1])
    thing.store.refresh()
    assert inner(thing) == [2, 1] and CALLS.count("inner") > calls.count("inner")
    # a new name below a folder that was listed, and one that was looked for
    assert not thing.store.remember("there", lambda: thing.store.exists("things/b.json"))
    store.write_json("things/b.json", [])
    thing.store.refresh()
    assert outer(thing) == 5
    assert thing.store.remember("there", lambda: thing.store.exists("things/b.json"))
    # its own writes in between are no other's
    thing.store.write_json("things/a.json", [4])
    thing.store.refresh()
    store.write_json("things/a.json", [5])
    assert inner(thing) == [5]


def test_what_was_read_as_a_file_is_what_its_hash_names(store: Store) -> None:
    snapshot = Snapshot(store)
    before = store.sha256("things/a.json")
    with snapshot.as_file("things/a.json") as path:
        assert path.read_bytes() == store.read_bytes("things/a.json")
    store.write_json("things/a.json", [9])
    assert snapshot.sha256("things/a.json") == before
    with (
        pytest.raises(ChangedInputError, match="was replaced while it was in use"),
        snapshot.as_file("things/a.json"),
    ):
        raise AssertionError("another version was handed out")


def test_an_error_is_no_answer_and_another_process_starts_anew(store: Store) -> None:
    snapshot = Snapshot(store)

    def fails() -> int:
        CALLS.append("fails")
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            snapshot.remember("fails", fails)
    assert CALLS == ["fails", "fails"]
    inner(Thing(snapshot))
    copy = pickle.loads(pickle.dumps(snapshot))  # noqa: S301 - what multiprocessing does
    store.write_json("things/a.json", [7])
    assert inner(Thing(copy)) == [7]
