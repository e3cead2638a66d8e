"""Clocks that jump: no order, key or decision rests on the time of day."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora import arrivals
from certify_assets.corpora.arrivals import read_versions, record_version
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.landing import Arrival, scan_incoming
from certify_assets.definitions import defs
from certify_assets.defs.names import CORPORA
from certify_assets.defs.operations.schedules import weekly_recertification
from certify_assets.defs.resources import DataRoot
from certify_assets.evaluation import ledger
from certify_assets.evaluation.ledger import (
    ledger_entries,
    ledger_violations,
    record_read,
    record_result,
    register,
    require_in_ledger,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.faults.small import land

DAY = 86_400.0
#: forwards, back beyond the start, to the epoch, far ahead
JUMPS = (0.0, 3 * DAY, -400 * DAY, -time.time() + 1, 3650 * DAY, 0.5)


def test_a_folder_is_one_version_whatever_the_clock_says(store: Store) -> None:
    folder, moment = Path(store.root) / "incoming", 1_700_000_000.0
    land(store, "c/a.jsonl", b"{}\n", moment)
    found = []
    for jump in JUMPS:
        # a clock behind the file asks for a second look, a clock at its moment for the files to settle
        for _ in range(2):
            arrivals, _ = scan_incoming(store, folder, now=moment + 100 + jump)
        found += [record_version(store, arrival) for arrival in arrivals]
    assert set(found) == {1}
    assert len(found) >= len(JUMPS) - 1
    assert len(read_versions(Corpus(store, "c"))) == 1


def test_a_file_written_under_a_jumping_clock_is_seen_once_a_content(store: Store) -> None:
    folder, moment, versions = Path(store.root) / "incoming", time.time(), []
    for place, jump in enumerate(JUMPS):
        land(store, "c/a.jsonl", str(place).encode(), moment + jump)
        for _ in range(3):
            arrivals, _ = scan_incoming(store, folder, now=moment + jump + 10)
        versions += [record_version(store, arrival) for arrival in arrivals]
    assert versions == list(range(1, len(JUMPS) + 1))


def _jumping(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> None:
    moments = iter([*(datetime.now(UTC) + timedelta(seconds=jump) for jump in JUMPS)] * 20)
    monkeypatch.setattr(module, name, lambda: next(moments).isoformat(timespec="seconds"))


def test_the_ledger_keeps_its_order_and_its_kinds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _jumping(monkeypatch, ledger, "_now")
    registration = register(Corpus(store, "c"), {"seed": 1}, run_id="cli")
    heads = []
    for _ in range(6):
        read = record_read(
            Corpus(store, "c"),
            judge="j",
            registration=registration,
            configuration={"scores": "1"},
            run_id="cli",
        )
        heads.append(record_result(store, read, "0" * 64))
    entries = ledger_entries(Corpus(store, "c"))
    times = [entry.time for entry in entries]
    assert times != sorted(times), "the clock jumped"
    assert [entry.kind for entry in entries] == [
        "registration",
        "first",
        "result",
        *["replay", "result"] * 5,
    ]
    assert ledger_violations(Corpus(store, "c")) == []
    for head in heads:
        require_in_ledger(Corpus(store, "c"), head)


def test_versions_count_on_when_the_clock_goes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        jump = iter(JUMPS)

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(max(0.0, time.time() + next(cls.jump)), UTC)

    monkeypatch.setattr(arrivals, "datetime", Clock)
    numbers = [
        record_version(store, Arrival("c", "incoming", str(place), {}))
        for place in range(len(JUMPS))
    ]
    assert numbers == list(range(1, len(JUMPS) + 1))
    assert [entry.number for entry in read_versions(Corpus(store, "c"))] == numbers


def test_a_tick_evaluated_again_after_the_clock_went_back_asks_under_the_same_key(
    tmp_path: Path,
) -> None:
    keys = []
    register_runs(Store(str(tmp_path / "root")), "c", write_runs(tmp_path / "c.jsonl", tasks=3))
    given: dict[str, Any] = {
        "repository_def": defs.get_repository_def(),
        "resources": {"data_root": DataRoot(root=str(tmp_path / "root"))},
    }
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions(CORPORA, ["c"])
        for scheduled in (
            datetime(2026, 11, 2, 6, tzinfo=UTC),
            datetime(2026, 11, 9, 6, tzinfo=UTC),
            datetime(2026, 11, 2, 6, tzinfo=UTC),
        ):
            with dg.build_schedule_context(
                instance=instance, scheduled_execution_time=scheduled, **given
            ) as context:
                keys += [
                    item.run_key
                    for item in weekly_recertification(context)
                    if isinstance(item, dg.RunRequest)
                ]
    assert len(keys) == 3 and keys[0] == keys[2] and len(set(keys)) == 2
