"""Every writing command is killed in the middle of its writes: what was stored stays whole, and
the same call once more ends as if nothing had happened."""

import importlib
import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from certify_assets.cli.main import main
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.operations.layout import load_decisions
from certify_assets.storage import snapshot
from certify_assets.storage.care import rebuild, verify
from certify_assets.storage.cleaning import collect
from certify_assets.storage.database import Database, events, tables
from certify_assets.storage.events import Stored
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.conftest import prepared_world
from certify_assets_tests.faults.small import environment, left_parts, results
from certify_assets_tests.operations_builders import certified_corpus, deliver

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

#: of the points: change it to try others
SEED = 7

#: kills of each command
KILLS = int(os.environ.get("CERTIFY_TEST_KILLS", "2"))
_PROCESSES = multiprocessing.get_context("fork")
#: name of a world, and a command in it
_COMMANDS = {
    "import": ("certified", "corpus import more.jsonl --name other --set rl=false"),
    "replace": ("certified", "corpus import more.jsonl --name c --replace --set rl=false"),
    "train": ("certified", "judge train c --judge combined"),
    "score": ("certified", "judge score c"),
    "deploy": ("certified", "ops deploy c lexical --draw-seed 5"),
    "rollback": ("operated", "ops rollback c 1"),
    "ingest": ("operated", "ops ingest c new.jsonl"),
    "recertify": ("operated", "ops recertify c --at-least 1"),
    "labels": ("operated", "review import c more.csv --reviewer bob"),
    "remove": ("certified", "corpus rm c --yes"),
    "blank": ("operated", "ledger blank c --reviewer ann"),
}


#: what depends on the inputs alone, not on places and times
_SAME = (".parquet", ".safetensors", "certificates.json", "manifest.json")
_DATED = ("labels.parquet",)


def _work(world: Path, words: str, doom: int) -> None:
    """Call a command, and die at the point of that number; 0 is never.

    Points are before and after objects, events without their indexes, a transaction before and
    after its end, and pages.
    """
    reached = 0

    def point() -> None:
        nonlocal reached
        reached += 1
        if reached == doom:
            os.kill(os.getpid(), signal.SIGKILL)

    def pointed(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:
            point()
            found = function(*arguments, **named)
            point()
            return found

        setattr(owner, name, called)

    inner = Database.writing

    @contextmanager
    def writing(*arguments: Any, **named: Any) -> Iterator[sa.Connection]:
        with inner(*arguments, **named) as connection:
            yield connection
            point()
        point()

    pointed(Objects, "put")
    pointed(Objects, "put_stream")
    pointed(Folder, "write")
    pointed(snapshot, "append")
    Database.writing = writing  # type: ignore[method-assign]
    place = environment(world / "root")
    os.environ.clear()
    os.environ.update(place)
    os.chdir(world)
    try:
        main(words.split())
    finally:
        Path("points").write_text(str(reached), "utf-8")


def _call(world: Path, words: str, doom: int = 0) -> int:
    # by a fork: an interpreter of its own would import its libraries for seconds
    Store(str(world / "root")).database.engine.dispose()
    child = _PROCESSES.Process(target=_work, args=(world, words, doom))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def _certified(world: Path) -> None:
    world.mkdir()
    certified_corpus(world / "root")
    write_runs(world / "more.jsonl", tasks=120, attempts=4, seed=9)
    deliver(world / "first.jsonl", tasks=40, seed=2)
    deliver(world / "new.jsonl", tasks=20)


def _operated(world: Path, certified: Path) -> None:
    shutil.copytree(certified, world)
    sampled = "ops deploy c lexical --audit-rate .5 --spot-rate .2 --draw-seed"
    for words in (f"{sampled} 5", "ops ingest c first.jsonl", f"{sampled} 6"):
        assert _call(world, words) == 0
    rows = load_decisions(Corpus(Store(str(world / "root")), "c"))
    for kind, name in (("audit_sample", "labels.csv"), ("spot_check", "more.csv")):
        asked = rows.loc[rows["asked"] == kind, "trajectory_id"]
        lines = [f"{run},{place % 2}" for place, run in enumerate(asked)]
        (world / name).write_text("\n".join(["trajectory_id,outcome", *lines]), "utf-8")
    assert _call(world, "review import c labels.csv --reviewer ann") == 0


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A certified corpus, and the same in operation, with the files of a user beside it."""
    for module in ("corpus", "judge", "ledger", "ops", "review"):
        importlib.import_module(f"certify_assets.cli.{module}")
    importlib.import_module("certify_assets.defs.execution")
    certified = prepared_world(tmp_path_factory, "kills-certified", _certified)
    operated = prepared_world(
        tmp_path_factory, "kills-operated", lambda world: _operated(world, certified)
    )
    return {"certified": certified, "operated": operated}


class Tried(NamedTuple):
    """A command that was killed, and what was found afterwards."""

    name: str
    places: int
    kills: int
    faults: list[str]


@pytest.fixture(scope="module")
def table() -> Iterator[list[Tried]]:
    found: list[Tried] = []
    yield found
    print(f"\n{'command':<10}{'places':>8}{'kills':>8}{'faults':>8}")
    for item in found:
        print(f"{item.name:<10}{item.places:8d}{item.kills:8d}{len(item.faults):8d}")
    places, kills = (sum(getattr(item, name) for item in found) for name in ("places", "kills"))
    faults = sum(len(item.faults) for item in found)
    print(f"{'all':<10}{places:8d}{kills:8d}{faults:8d}")


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_killed_command_is_called_again(
    name: str, worlds: dict[str, Path], table: list[Tried], tmp_path: Path
) -> None:
    base, words = _COMMANDS[name]
    whole = shutil.copytree(worlds[base], tmp_path / "whole")
    code = _call(whole, words)
    assert code in (0, 3)
    count = int((whole / "points").read_text("utf-8"))
    draw, faults = random.Random(f"{name} {SEED}"), list[str]()
    points = sorted(draw.sample(range(1, count + 1), min(KILLS, count)))
    for doom in points:
        world = shutil.copytree(worlds[base], tmp_path / f"killed-{doom}")
        before = results(world / "root")
        assert _call(world, words, doom) == -signal.SIGKILL
        left = results(world / "root")
        try:
            verify(Store(str(world / "root")))
            _require_same_indexes(Store(str(world / "root")))
            assert before.keys() - left.keys() <= before.keys() - results(whole / "root").keys()
            assert _call(world, words) == code
            _require_same(world / "root", whole / "root")
        except (AssertionError, CertifyError) as error:
            faults.append(f"place {doom}: {error}")
        shutil.rmtree(world)
    table.append(Tried(name, count, len(points), faults))
    assert faults == []


def _require_same(root: Path, whole: Path) -> None:
    """Refuse a data root that is not as if no call had been killed."""
    found, wanted = results(root), results(whole)
    assert found.keys() == wanted.keys()
    same = (key for key in wanted if key.endswith(_SAME) and not key.endswith(_DATED))
    assert [key for key in same if found[key] != wanted[key]] == []
    # nothing is there twice: as many events of every kind as without the kill
    assert _kinds(root) == _kinds(whole)
    collect(Store(str(root)), older_days=-1)
    verify(Store(str(root)))
    assert left_parts(root) == []


def _kinds(root: Path) -> dict[str, int]:
    """Return how many events of each kind there are, without documents and tables."""
    with Store(str(root)).database.reading() as connection:
        query = sa.select(events.c.kind, sa.func.count()).group_by(events.c.kind)
        return {kind: count for kind, count in connection.execute(query) if kind != Stored.kind}


def _require_same_indexes(store: Store) -> None:
    def rows() -> dict[str, list[tuple[object, ...]]]:
        with store.database.reading() as connection:
            return {
                table.name: sorted(map(tuple, connection.execute(sa.select(table))))
                for table in tables.sorted_tables
                if table.name not in ("events", "properties")
            }

    before = rows()
    rebuild(store)
    assert rows() == before
