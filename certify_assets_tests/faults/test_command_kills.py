"""Every writing command is killed in the middle of its writes: what was stored stays whole, and
the same call once more ends as if nothing had happened."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.layout import load_decisions
from certify_assets.storage.care import rebuild, verify
from certify_assets.storage.cleaning import collect
from certify_assets.storage.database import events, tables
from certify_assets.storage.events import Stored
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.conftest import prepared_world
from certify_assets_tests.faults.small import environment, left_parts, results
from certify_assets_tests.operations_builders import certified_corpus, deliver
from certify_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

#: of the points: change it to try others
SEED = 7

#: kills of each command
KILLS = int(os.environ.get("CERTIFY_TEST_KILLS", "2"))
#: calls a command, and dies at the point of that number; 0 is never. Points are before and after
#: objects, events without their indexes, a transaction before and after its end, and pages
_CHILD = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from certify_assets.cli.main import main
from certify_assets.storage import snapshot
from certify_assets.storage.database import Database
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects

doom, reached = int(sys.argv[1]), 0

def point():
    global reached
    reached += 1
    if reached == doom:
        os.kill(os.getpid(), signal.SIGKILL)

def pointed(owner, name):
    function = getattr(owner, name)
    def called(*arguments, **named):
        point()
        found = function(*arguments, **named)
        point()
        return found
    setattr(owner, name, called)

for owner, name in (
    (Objects, "put"), (Objects, "put_stream"), (Folder, "write"), (snapshot, "append"),
):
    pointed(owner, name)
inner = Database.writing

@contextmanager
def writing(self, *arguments, **named):
    with inner(self, *arguments, **named) as connection:
        yield connection
        point()
    point()

Database.writing = writing
try:
    main(sys.argv[2:])
finally:
    Path("points").write_text(str(reached))
"""
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
}


#: what depends on the inputs alone, not on places and times
_SAME = (".parquet", ".safetensors", "certificates.json", "manifest.json")
_DATED = ("labels.parquet",)


def _call(world: Path, words: str, doom: int = 0) -> int:
    command = [sys.executable, "-c", _CHILD, str(doom), *words.split()]
    place = {**environment(world / "root"), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=world, env=place, check=False).returncode


def _certified(world: Path) -> None:
    world.mkdir()
    certified_corpus(world / "root")
    write_runs(world / "more.jsonl", tasks=120, attempts=4, seed=9)
    deliver(world / "first.jsonl", tasks=40, seed=2)
    deliver(world / "new.jsonl", tasks=20)


def _operated(world: Path, certified: Path) -> None:
    shutil.copytree(certified, world)
    sampled = "ops deploy c lexical --audit-rate .5 --spot-rate .2 --draw-seed 5"
    for words in (sampled, "ops ingest c first.jsonl", sampled):
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
    certified = prepared_world(tmp_path_factory, "kills-certified", _certified)
    operated = prepared_world(
        tmp_path_factory, "kills-operated", lambda world: _operated(world, certified)
    )
    return {"certified": certified, "operated": operated}


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_killed_command_is_called_again(
    name: str, worlds: dict[str, Path], tmp_path: Path
) -> None:
    base, words = _COMMANDS[name]
    whole = shutil.copytree(worlds[base], tmp_path / "whole")
    code = _call(whole, words)
    assert code in (0, 3)
    wanted, count = results(whole / "root"), int((whole / "points").read_text("utf-8"))
    kinds = _kinds(whole / "root")
    draw = random.Random(f"{name} {SEED}")
    for doom in sorted(draw.sample(range(1, count + 1), min(KILLS, count))):
        world = shutil.copytree(worlds[base], tmp_path / f"killed-{doom}")
        before = results(world / "root")
        assert _call(world, words, doom) < 0
        verify(Store(str(world / "root")))
        _require_same_indexes(Store(str(world / "root")))
        assert before.keys() - results(world / "root").keys() <= before.keys() - wanted.keys()
        assert _call(world, words) == code
        found = results(world / "root")
        assert found.keys() == wanted.keys()
        same = (key for key in wanted if key.endswith(_SAME) and not key.endswith(_DATED))
        assert [key for key in same if found[key] != wanted[key]] == []
        # nothing is there twice: as many events of every kind as without the kill
        assert _kinds(world / "root") == kinds
        collect(Store(str(world / "root")), older_days=-1)
        verify(Store(str(world / "root")))
        assert left_parts(world / "root") == []
        shutil.rmtree(world)


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
