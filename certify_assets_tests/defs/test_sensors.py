"""The sensors that import new files, on a real instance with the daemon's own evaluation."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.corpora.config import CorpusConfig, load_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import CORPORA
from certify_assets.defs.resources import DataRoot
from certify_assets.defs.sensors import declared_corpora_sensor
from certify_assets.storage.database import VARIABLE
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.defs.running import PROJECT, SENSORS
from certify_assets_tests.services import postgres_server


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "root"))


def _land(store: Store, name: str, **runs: int) -> Path:
    path = store.local_path("incoming") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write_runs(path, **runs)
    os.utime(path, (1, 1))
    return path


def _tick(
    store: Store, sensor: dg.SensorDefinition, cursor: str | None = None
) -> tuple[list[dg.RunRequest], str | None, str]:
    """Evaluate a tick and do as the daemon does; return requests, cursor, the reason for none."""
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance, cursor=cursor, resources={"data_root": DataRoot(root=store.root)}
        ) as context,
    ):
        result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        if result.skip_reason:
            return [], cursor, str(result.skip_reason.skip_message)
        for request in result.dynamic_partitions_requests or ():
            assert isinstance(request, dg.AddDynamicPartitionsRequest)
            instance.add_dynamic_partitions(
                request.partitions_def_name, list(request.partition_keys)
            )
        assert set(instance.get_dynamic_partitions(CORPORA)) == {
            request.partition_key for request in result.run_requests or ()
        }
        return list(result.run_requests or ()), result.cursor, ""


def _keys(requests: Sequence[dg.RunRequest]) -> list[str | None]:
    return [request.run_key for request in requests]


def test_content_that_comes_back_is_a_run_of_its_own(store: Store) -> None:
    cursor, keys = None, []
    for tasks in (3, 2, 3):
        _land(store, "mine/runs.jsonl", tasks=tasks)
        requests, cursor, _ = _tick(store, SENSORS["new_runs"], cursor)
        if not requests:
            # a file that grew waits for one more look
            requests, cursor, _ = _tick(store, SENSORS["new_runs"], cursor)
        keys += _keys(requests)
    assert len(set(keys)) == 3


def test_a_changed_file_changes_the_imported_table_a_copy_does_not(store: Store) -> None:
    path = _land(store, "mine/runs.jsonl", tasks=3)
    _, cursor, _ = _tick(store, SENSORS["new_runs"])
    first = Corpus(store, "mine").import_trajectories().sha256
    copy = path.with_name("again.jsonl")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, (1, 1))
    requests, cursor, _ = _tick(store, SENSORS["new_runs"], cursor)
    assert [request.partition_key for request in requests] == ["mine"]
    summary = Corpus(store, "mine").import_trajectories()
    assert summary.trajectories == 18 and summary.dropped == {"duplicate": 18}
    copy.unlink()
    _land(store, "mine/runs.jsonl", tasks=2)
    # a change waits for one look
    assert _tick(store, SENSORS["new_runs"], cursor)[0] == []
    assert _tick(store, SENSORS["new_runs"], cursor)[0]
    assert Corpus(store, "mine").import_trajectories().sha256 != first


def test_one_broken_corpus_blocks_no_other_and_is_told(store: Store) -> None:
    _land(store, "fine/runs.jsonl", tasks=2)
    _land(store, "spoilt/runs.jsonl", tasks=2)
    store.write_bytes("corpora/spoilt/corpus.json", b"{")
    requests, cursor, _ = _tick(store, SENSORS["new_runs"])
    assert [request.partition_key for request in requests] == ["fine"]
    reason = _tick(store, SENSORS["new_runs"], cursor)[2]
    assert "spoilt:" in reason
    assert "fine" not in reason


def test_what_lies_in_the_wrong_place_is_told(store: Store) -> None:
    _land(store, "loose.jsonl", tasks=2)
    _land(store, "a\u202eb/runs.jsonl", tasks=2)
    reason = _tick(store, SENSORS["new_runs"])[2]
    assert (
        "loose.jsonl: it is next to the folders of corpora; move it into incoming/<corpus>/"
        in reason
    )
    assert "\u202e" not in reason and "'a\\u202eb': " in reason


@pytest.fixture
def named_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The database that a remote data root needs."""
    with postgres_server("certify") as databases:
        monkeypatch.setenv(VARIABLE, databases["certify"])
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("named_database")
def test_incoming_folder_and_inbox_of_an_object_store_are_watched(
    s3_root: str, tmp_path: Path
) -> None:
    store = Store(s3_root)
    assert "no new runs" in _tick(store, SENSORS["new_runs"])[2]
    runs = write_runs(tmp_path / "runs.jsonl", tasks=2).read_bytes()
    store.folder.write("incoming/mine/day/runs.jsonl", runs)
    store.folder.write("incoming/loose.jsonl", runs)
    reason = _tick(store, SENSORS["new_runs"])[2]
    assert "mine/day/runs.jsonl is new or changed since the last look" in reason
    assert "loose.jsonl: it is next to the folders of corpora" in reason
    requests, cursor, _ = _tick(store, SENSORS["new_runs"])
    assert [request.partition_key for request in requests] == ["mine"]
    assert load_config(store, "mine").paths == (f"{s3_root}/incoming/mine",)
    Corpus(store, "mine").import_trajectories()
    assert list(Corpus(store, "mine").import_summary.files) == ["mine/day/runs.jsonl"]
    assert _tick(store, SENSORS["new_runs"], cursor)[2]
    # other content is another version, which two looks have to find
    store.folder.write(
        "incoming/mine/day/runs.jsonl",
        write_runs(tmp_path / "more.jsonl", tasks=3).read_bytes(),
    )
    assert not _tick(store, SENSORS["new_runs"], cursor)[0]
    (request,), _, _ = _tick(store, SENSORS["new_runs"], cursor)
    assert request.run_key is not None and request.run_key.startswith("mine:2:")
    store.folder.write("inbox/mine/a.jsonl", runs)
    store.folder.write("inbox/stranger/a.jsonl", runs)
    assert "stranger: no corpus has this name" in _tick(store, SENSORS["new_inbox"])[2]
    (request,), _, _ = _tick(store, SENSORS["new_inbox"])
    assert request.partition_key == "mine"


def test_declared_corpora_are_registered_and_run_again_when_settings_or_files_change(
    store: Store, tmp_path: Path
) -> None:
    runs = write_runs(tmp_path / "runs.jsonl", tasks=3)
    os.utime(runs, (1, 1))
    config = CorpusConfig("mine", paths=(str(runs),), seed=7)
    sensor = declared_corpora_sensor(
        PROJECT, "declared", [config, CorpusConfig("gone", paths=(str(tmp_path / "none"),))]
    )
    first, cursor, _ = _tick(store, sensor)
    assert [request.partition_key for request in first] == ["mine"]
    assert load_config(store, "mine") == config
    assert "gone: " in _tick(store, sensor, cursor)[2]
    assert not store.exists("corpora/gone/corpus.json")
    changed = declared_corpora_sensor(
        PROJECT, "declared", [CorpusConfig("mine", paths=config.paths, seed=8)]
    )
    second, cursor, _ = _tick(store, changed, cursor)
    assert second and load_config(store, "mine").seed == 8
    write_runs(runs, tasks=2)
    os.utime(runs, (2, 2))
    # a change waits for one look
    assert _tick(store, changed, cursor)[0] == []
    third, _, _ = _tick(store, changed, cursor)
    assert len({*_keys(first), *_keys(second), *_keys(third)}) == 3
