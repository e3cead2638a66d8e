"""No name leads out of the data root: corpora, judges, keys, partitions, ids, and what lies in folders that others write."""

import contextlib
import json
from pathlib import Path

import pytest

from certify_assets.corpora.config import CorpusConfig, load_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.inbox import scan_incoming
from certify_assets.errors import InputError
from certify_assets.judges.specs import judges
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.security.hostile import NAMES

SHOWN = [name.encode("unicode_escape").decode()[:24] or "empty" for name in NAMES]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "data" / "root"))


def _tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("name", NAMES, ids=SHOWN)
def test_no_key_leads_out_of_the_root(store: Store, name: str) -> None:
    for key in (name, f"corpora/{name}/x.json", f"{name}/x.json"):
        try:
            path = Path(store.locate(key)).resolve()
        except InputError as error:
            assert len(str(error)) > 20
            continue
        # long names, and '%2e' where it is only text, stay below
        assert Path(store.root).resolve() in path.parents


@pytest.mark.parametrize("name", NAMES, ids=SHOWN)
def test_no_such_name_is_a_corpus(store: Store, name: str) -> None:
    with pytest.raises(InputError, match=r"name of corpus\.json is"):
        CorpusConfig(name)
    with pytest.raises(InputError):
        load_config(store, name)


@pytest.mark.parametrize("name", ["..", "../x", "/etc/passwd", "a/b", "a\nb", "", "$(id)"])
def test_the_command_says_so_and_touches_nothing(tmp_path: Path, call: Call, name: str) -> None:  # noqa: F811
    runs, root = write_runs(tmp_path / "runs.jsonl", tasks=3), tmp_path / "root"
    before = _tree(tmp_path)
    for command in (
        ("corpus", "import", runs, "--name", name),
        ("run", name),
        ("corpus", "rm", name, "--yes"),
        ("judge", "compare", name),
        ("research", "harvest", name),
        ("judge", "train", name, "--judge", "lexical"),
    ):
        answer = call(*command, "--root", root)
        assert answer.code == 2 and answer.err.strip(), command
    assert [
        path for path in _tree(tmp_path) if path not in before and not path.startswith("root")
    ] == []


def test_ids_that_climb_are_text(store: Store, tmp_path: Path) -> None:
    records = [
        {
            "task_id": f"../../{task}",
            "trajectory_id": f"/etc/{task}/{attempt}",
            "agent": "../a",
            "outcome": attempt % 2,
            "text": "x",
        }
        for task in range(12)
        for attempt in range(4)
    ]
    source = tmp_path / "runs.jsonl"
    source.write_text("\n".join(map(json.dumps, records)) + "\n", "utf-8")
    register_runs(store, "c", source, rl=False)
    Corpus(store, "c").prepare_splits()
    assert {path.split("/")[0] for path in _tree(tmp_path)} == {"data", "runs.jsonl"}
    assert _tree(tmp_path / "data")[0] == "root"
    assert all("etc" not in path for path in _tree(tmp_path))


def test_folders_in_incoming_with_such_names_wait_and_are_told(store: Store) -> None:
    incoming = Path(store.root) / "incoming"
    names = [
        name
        for name in NAMES
        if name and "/" not in name and "\0" not in name and name != ".." and len(name) < 200
    ]
    for name in names:
        (incoming / name).mkdir(parents=True)
        (incoming / name / "runs.jsonl").write_text("{}", "utf-8")
    arrivals, waiting = scan_incoming(store, incoming, now=4e9)
    assert arrivals == [] and set(waiting) == {name for name in names if not name.startswith(".")}
    assert {path.split("/")[0] for path in _tree(Path(store.root))} == {"incoming"}


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    target = tmp_path / "made"
    (tmp_path / "judges.yaml").write_text(
        f"judges: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.PosixPath [{target}]]\n"
    )
    with contextlib.suppress(InputError):
        judges(str(tmp_path))
    assert not target.exists()
