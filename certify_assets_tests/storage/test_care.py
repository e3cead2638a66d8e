"""Looking after a data root: unused objects, backups, and copies of different ages."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.storage.backup import back_up, restore
from certify_assets.storage.care import blank, verify
from certify_assets.storage.cleaning import collect, discard
from certify_assets.storage.events import Discarded, Stored
from certify_assets.storage.store import Store

A, B = "corpora/c/a.json", "judges/lexical/c/b.json"


def test_only_what_nothing_names_is_removed(store: Store) -> None:
    store.write_json(A, 1)
    loose = store.objects.put(b"left by a killed step")
    assert collect(store).objects == 0 and store.objects.has(loose)
    assert collect(store, older_days=-1) == (1, 21)
    assert not store.objects.has(loose) and store.read_json(A) == 1


def test_earlier_versions_go_with_a_reason_and_the_ledger_still_holds(store: Store) -> None:
    first, named, last = (store.write_json(A, number) for number in (1, 2, 3))
    store.append("c", Stored(key="operations/c/kept.json", objects={"content": named}))
    store.write_json("corpora/other/a.json", 1)
    with pytest.raises(InputError, match="give one"):
        discard(store, reason=" ")
    assert discard(store, reason="space", older_days=30) == 0
    assert discard(store, reason="space", older_days=-1) == 1
    # another corpus has the first one still
    assert collect(store, older_days=-1).objects == 0
    store.delete("corpora/other/a.json")
    assert discard(store, reason="space", older_days=-1) == 1
    assert collect(store, older_days=-1).objects == 1
    assert [store.objects.has(name) for name in (first, named, last)] == [False, True, True]
    verify(store)


def test_nothing_is_removed_where_the_database_is_older_than_the_objects(store: Store) -> None:
    if not store.database.is_sqlite:
        pytest.skip("the copy of a database is that of SQLite")
    store.write_json(A, 1)
    back_up(store, f"{store.root}-copy")
    store.write_json(B, {"ledger": store.now().ledger("c")})
    store.write_json(A, 2)
    store.write_json(B, {"ledger": store.now().ledger("c")})
    store.database.engine.dispose()
    for name in ("certify.db-wal", "certify.db-shm"):
        Path(store.root, name).unlink(missing_ok=True)
    shutil.copy(f"{store.root}-copy/certify.db", f"{store.root}/certify.db")
    with pytest.raises(IntegrityError, match="restore the newer one"):
        collect(store, older_days=-1)


def test_an_event_can_be_blanked_and_later_changes_are_still_refused(store: Store) -> None:
    for reason in ("Ann said so", "space"):
        store.append("c", Discarded(discarded=(), reason=reason))
    changed = blank(
        store, "c", lambda _, said: {**said, "reason": ""} if "Ann" in said["reason"] else None
    )
    verify(store)
    assert changed == 1
    assert [entry.content.reason for entry in store.events("c", Discarded)] == ["", "space"]
    with pytest.raises(CertifyError, match="never changed"), store.database.writing(["c"]) as rows:
        rows.execute(sa.text("UPDATE events SET payload = '{}'"))


def test_a_backup_made_while_others_write_is_whole(
    store: Store, new_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.folder.write("judges.yaml", b"judges: []\n")
    store.write_json(A, 0)
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            store.write_json(A, number)
            store.write_json(B, {"a": number})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            back_up(store, str(tmp_path / "copy"))
    finally:
        ended.set()
        writer.join()
    other = new_store("restored")

    # killed with the database there and no name of the root, and with all there but pages
    for place in ("ROOT_FILE", "publish_all"):
        with monkeypatch.context() as patch, pytest.raises((AttributeError, TypeError)):
            patch.setattr(f"certify_assets.storage.backup.{place}", None)
            restore(other, str(tmp_path / "copy"))
    restore(other, str(tmp_path / "copy"))
    verify(other)
    assert other.exists(A) and other.folder.read("judges.yaml") == b"judges: []\n"
    with pytest.raises(InputError, match="is in use"):
        restore(other, str(tmp_path / "copy"))
    with pytest.raises(InputError, match="is no backup"):
        restore(Store(str(tmp_path / "empty")), str(tmp_path))
