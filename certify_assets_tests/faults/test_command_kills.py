"""Every writing command is killed in the middle of its writes: what was stored stays whole, and
the same call once more ends as if nothing had happened."""

import importlib
import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from certify_assets.cli.main import main
from certify_assets.cli.review_server import ReviewServer
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.files import sha256_bytes
from certify_assets.operations.batches import batch_names
from certify_assets.operations.review_session import ReviewSession
from certify_assets.storage import database
from certify_assets.storage import store as storage
from certify_assets.storage.care import collect, rebuild, verify
from certify_assets.storage.database import Database, events, insert, tables
from certify_assets.storage.events import Stored
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects
from certify_assets.storage.store import Store
from certify_assets_tests.cli.review_client import Client, serving
from certify_assets_tests.faults.small import environment, left_parts, results
from certify_assets_tests.services import postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

#: of the points: change it to try others
SEED = 7

#: kills of each command
KILLS = int(os.environ.get("CERTIFY_TEST_KILLS", "2"))
_PROCESSES = multiprocessing.get_context("fork")
#: the data root that it is called on, and a command
_COMMANDS = {
    "import": ("_operated", "corpus import $AWAY/more.jsonl --name other --set rl=false"),
    "replace": ("_operated", "corpus import $AWAY/more.jsonl --name c --replace --set rl=false"),
    "train": ("_operated", "judge train c --judge combined"),
    "score": ("_operated", "judge score c"),
    "deploy": ("_operated", "ops deploy c lexical --draw-seed 5"),
    "rollback": ("in_operation", "ops rollback c"),
    "ingest": ("in_operation", "ops ingest c $AWAY/new.jsonl"),
    "draw": ("waiting", "ops ingest c --draw"),
    "undo": ("waiting", "ops ingest c --undo $BATCH"),
    "close": ("settled", "ops status c"),
    "form": ("in_operation", "review serve c"),
    "recertify": ("in_operation", "ops recertify c --at-least 1 --deploy"),
    "labels": ("in_operation", "review import c $AWAY/labels.csv --reviewer bob"),
    "outcomes": ("in_operation", "ops outcomes c $AWAY/outcomes.csv --source ci"),
    "remove": ("_operated", "corpus rm c --yes"),
    "blank": ("in_operation", "ledger blank c --reviewer ann"),
    "gc": ("in_operation", "gc --older 0 --discard tidy --discard-older 0"),
    "rebuild": ("in_operation", "ledger rebuild"),
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
    pointed(Folder, "delete")
    pointed(storage, "append")
    Database.writing = writing  # type: ignore[method-assign]
    place = environment(world / "root")
    os.environ.clear()
    os.environ.update(place)
    os.chdir(world)
    try:
        if words.startswith("review serve"):
            _label_a_run(world)
        else:
            main(words.split())
    finally:
        Path("points").write_text(str(reached), "utf-8")


def _label_a_run(world: Path) -> None:
    """Send a form to the server, as a reviewer does once more after a kill."""
    session, form = ReviewSession(Store(str(world / "root")), "c"), world / "form"
    server = ReviewServer(session, reviewers=["ann"])
    with serving(server):
        client = Client(server.links["ann"], links=server.links)
        page = client.enter("ann")
        if not form.exists():
            form.write_text(page.text, "utf-8")
        answer = client.label(page._replace(text=form.read_text("utf-8")), 1)
        assert answer.status == HTTPStatus.SEE_OTHER, answer.text


def _call(world: Path, words: str, doom: int = 0) -> int:
    # by a fork: an interpreter of its own would import its libraries for seconds
    Store(str(world / "root")).database.engine.dispose()
    child = _PROCESSES.Process(target=_work, args=(world, words, doom))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """Import before the forks what the commands import when they are called."""
    for module in ("corpus", "judge", "ops", "review", "upkeep"):
        importlib.import_module(f"certify_assets.cli.{module}")
    importlib.import_module("certify_assets.defs.execution")


@pytest.fixture(scope="module")
def _server() -> Iterator[str]:
    pytest.importorskip("psycopg2")
    with postgres_server("certify") as databases:
        yield databases["certify"]


@pytest.fixture(params=["sqlite", "postgresql"])
def copied(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, Path], object]:
    """How a data root is copied; on PostgreSQL each has a database of its own."""
    if request.param == "sqlite":
        return shutil.copytree
    server = request.getfixturevalue("_server")
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

    def name_of(root: str) -> str:
        return f"c{sha256_bytes(root.encode('utf-8'))[:16]}"

    def of(folder: Folder) -> Database:
        url = sa.make_url(server).set(database=name_of(folder.root))
        return database._opened(folder.root, url, os.getpid())

    def copy(base: Path, root: Path) -> None:
        shutil.copytree(base, root)
        (root / database.FILE).unlink()
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name_of(str(root))}"))
        new, url = of(Folder(str(root))), f"sqlite:///{base / database.FILE}"
        with sa.create_engine(url).connect() as old, new.engine.begin() as connection:
            database.register()
            tables.create_all(connection)
            new.guard(connection)
            for table in tables.sorted_tables:
                rows = old.execute(sa.select(table).order_by(*table.primary_key))
                insert(connection, table, map(tuple, rows))

    monkeypatch.setattr(Database, "of", of)
    return copy


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
    print(f"\n{'command':<22}{'places':>8}{'kills':>8}{'faults':>8}")
    for item in found:
        print(f"{item.name:<22}{item.places:8d}{item.kills:8d}{len(item.faults):8d}")
    places, kills = (sum(getattr(item, name) for item in found) for name in ("places", "kills"))
    faults = sum(len(item.faults) for item in found)
    print(f"{'all':<22}{places:8d}{kills:8d}{faults:8d}")


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_killed_command_is_called_again(
    name: str,
    in_operation: Path,
    settled: Path,  # made before the databases change, as all that it is made of
    request: pytest.FixtureRequest,
    table: list[Tried],
    tmp_path: Path,
    copied: Callable[[Path, Path], object],
) -> None:
    base, words = request.getfixturevalue(_COMMANDS[name][0]), _COMMANDS[name][1]
    words = words.replace("$AWAY", str(in_operation.parent))
    whole = tmp_path / "whole"
    copied(base, whole / "root")
    if "$BATCH" in words:
        stored = Corpus(Store(str(whole / "root")), "c")
        words = words.replace("$BATCH", batch_names(stored)[-1])
    assert _call(whole, words) == 0
    count = int((whole / "points").read_text("utf-8"))
    draw, faults, unreached = random.Random(f"{name} {SEED}"), list[str](), list[int]()
    points = sorted(draw.sample(range(1, count + 1), min(KILLS, count)))
    for doom in points:
        world = tmp_path / f"killed-{doom}"
        copied(base, world / "root")
        before = results(world / "root")
        if (code := _call(world, words, doom)) == 0:
            # it wrote less this time, and ended before that point
            unreached.append(doom)
            continue
        assert code == -signal.SIGKILL
        left = results(world / "root")
        try:
            verify(Store(str(world / "root")))
            _require_same_indexes(Store(str(world / "root")))
            assert before.keys() - left.keys() <= before.keys() - results(whole / "root").keys()
            assert _call(world, words) == 0
            _require_same(world / "root", whole / "root")
        except (AssertionError, CertifyError) as error:
            faults.append(f"place {doom}: {error}")
        shutil.rmtree(world)
    kills = len(points) - len(unreached)
    table.append(Tried(request.node.callspec.id, count, kills, faults))
    assert faults == [] and kills >= len(points) / 2


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
