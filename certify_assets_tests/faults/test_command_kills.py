"""Every writing command is killed in the middle of its writes: what was stored stays whole, and
the same call once more ends as if nothing had happened."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.layout import load_decisions
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.conftest import prepared_world
from certify_assets_tests.faults.small import environment, is_whole
from certify_assets_tests.operations_builders import certified_corpus, deliver
from certify_assets_tests.paths import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

#: calls a command, and dies before the write of that number; 0 is never
_CHILD = """
import os, signal, sys
from pathlib import Path
from certify_assets.cli.main import main
from certify_assets.storage.backends import LocalBackend

doom, written = int(sys.argv[1]), 0

def counted(name):
    method = getattr(LocalBackend, name)
    def write(self, *arguments):
        global written
        written += not arguments[0].startswith("leases/")
        if written == doom > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *arguments)
    setattr(LocalBackend, name, write)

for name in ("write", "write_stream", "append_line", "copy", "delete"):
    counted(name)
try:
    main(sys.argv[2:])
finally:
    Path("writes").write_text(str(written))
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
_BESIDE = ("dagster", "mlflow", "tracking", "ledger", "leases")
#: whose bytes do not depend on the moment
_SAME = (".parquet", ".safetensors", "certificates.json", "manifest.json")


def _call(world: Path, words: str, doom: int = 0) -> int:
    command = [sys.executable, "-c", _CHILD, str(doom), *words.split()]
    place = {**environment(world / "root"), "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=world, env=place, check=False).returncode


def _stored(root: Path) -> dict[str, bytes]:
    """Return every stored document by its key, without databases, ledgers and leases."""
    found = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {
        key.as_posix(): path.read_bytes()
        for key, path in found.items()
        # scores of a part of a batch, which a kill may leave and nothing reads
        if key.parts[0] not in _BESIDE and "shares" not in key.parts and key.name[0] != "."
    }


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
    wanted, writes = _stored(whole / "root"), int((whole / "writes").read_text("utf-8"))
    for doom in sorted({1 + writes // 2, writes}):
        world = shutil.copytree(worlds[base], tmp_path / f"killed-{doom}")
        before = _stored(world / "root")
        assert _call(world, words, doom) < 0
        left = _stored(world / "root")
        documents = [place for place in left if place.endswith((".json", ".html"))]
        assert all(is_whole(place, left[place]) for place in documents)
        assert before.keys() - left.keys() <= before.keys() - wanted.keys()
        assert _call(world, words) == code
        found = _stored(world / "root")
        assert found.keys() == wanted.keys()
        assert [
            place
            for place, data in wanted.items()
            # labels have the time of their making
            if place.endswith(_SAME) and "labels" not in place and found[place] != data
        ] == []
        for place in (place for place in wanted if place.endswith(".jsonl")):
            assert found[place].count(b"\n") == wanted[place].count(b"\n"), place
        assert list((world / "root").rglob(".certify.*.part")) == []
