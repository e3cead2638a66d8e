"""Looking after a data root: unused objects, backups, and copies of different ages."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from certify_assets.errors import CertifyError, InputError, IntegrityError
from certify_assets.storage import backup, care
from certify_assets.storage.backup import back_up, restore
from certify_assets.storage.care import blank, collect, discard, rebuild, verify
from certify_assets.storage.database import tables
from certify_assets.storage.events import Discarded, Stored
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects
from certify_assets.storage.store import Store

A, B = "corpora/c/a.json", "judges/lexical/c/b.json"


def test_only_what_nothing_names_is_removed(store: Store) -> None:
    store.write_json(A, 1)
    loose = store.objects.put(b"left by a killed step")
    assert collect(store).objects == 0 and store.objects.has(loose)
    assert collect(store, older_days=-1) == (1, 21)
    assert not store.objects.has(loose) and store.read_json(A) == 1
    again = store.objects.path(store.objects.put(b"stored again"))
    for content in (b"stored again", b"cut off"):
        again.write_bytes(content)
        os.utime(again, (0, 0))
        store.objects.put(b"stored again")
        assert collect(store).objects == 0 and again.read_bytes() == b"stored again"
    part = again.with_name(".certify.written.part")
    part.touch()
    collect(store, older_days=-1)
    assert part.exists()
    os.utime(part, (0, 0))
    collect(store, older_days=-1)
    assert not part.exists()


def test_an_object_that_is_named_meanwhile_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = store.objects.put_json(1)
    stored = Stored(key=A, objects={"content": name})
    # the last that is asked before objects are removed
    monkeypatch.setattr(care, "_is_ahead", lambda *_: store.append("c", stored))
    assert collect(store, older_days=-1).objects == 0 and store.read_json(A) == 1


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
    store.objects.path(named).write_bytes(b"altered")
    with pytest.raises(IntegrityError, match=r"\(operations/c/kept.json\) was altered"):
        verify(store)


def test_what_came_back_stays_when_indexes_are_made_again(store: Store) -> None:
    for text in "ABAB":
        store.write_json(A, text)
        discard(store, reason="space", older_days=-1)

    def indexes() -> list[list[sa.Row[Any]]]:
        with store.database.reading() as connection:
            return [
                list(connection.execute(sa.select(table).order_by(*table.columns)))
                for table in tables.sorted_tables
            ]

    before = indexes()
    rebuild(store)
    assert indexes() == before
    collect(store, older_days=-1)
    verify(store)


@pytest.mark.parametrize(
    "content",
    [
        b'{"ledger": 1}\n{"b": 2}\n',
        b'{"certificates": null, "ledger": {"corpus": "c", "sequence": 1}}',
    ],
)
def test_what_others_put_stops_no_collection(store: Store, content: bytes) -> None:
    store.write_json(A, 1)
    store.objects.put(content)
    for name in (".DS_Store", "README"):
        Path(store.root, "objects", name).write_text("mine", "utf-8")
    assert collect(store, older_days=-1) == (1, len(content))
    assert Path(store.root, "objects", "README").exists()


@pytest.mark.parametrize("is_within", [False, True])
def test_nothing_is_removed_where_the_database_is_older_than_the_objects(
    store: Store, is_within: bool
) -> None:
    if not store.database.is_sqlite:
        pytest.skip("the copy of a database is that of SQLite")
    store.write_json(A, 1)
    back_up(store, f"{store.root}-copy")
    store.write_json(B, {"ledger": store.now().ledger("c")})
    store.write_json(A, 2)
    document = {"ledger": store.now().ledger("c")}
    store.write_json(B, {"certificates": [document]} if is_within else document)
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
    again = blank(store, "c", lambda _, said: None if said["reason"] else {**said, "reason": ""})
    verify(store)
    assert changed == again == 1
    if store.database.is_sqlite:
        store.database.engine.dispose()
        assert b"Ann said so" not in Path(store.root, "certify.db").read_bytes()
    assert [entry.content.reason for entry in store.events("c", Discarded)] == ["", "space"]
    with pytest.raises(CertifyError, match="never changed"), store.database.writing(["c"]) as rows:
        rows.execute(sa.text("UPDATE events SET payload = '{}'"))


def test_a_data_root_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "corpora" / "retail" / "corpus.json"
    corpus.parent.mkdir(parents=True)
    corpus.write_text("{}", encoding="utf-8")
    store = Store(str(tmp_path))
    for use in (lambda: store.now().corpora(), lambda: store.write_json(A, 1)):
        with pytest.raises(InputError, match="earlier version"):
            use()
    assert not (tmp_path / "certify.db").exists()


def test_a_backup_is_mended_by_the_next_and_files_of_others_stop_neither(tmp_path: Path) -> None:
    store, copy = Store(str(tmp_path / "root")), tmp_path / "copy"
    name = store.write_json(A, 1)
    store.folder.write("judges.yaml", b"judges: []\n")
    (store.folder.path("objects") / ".DS_Store").touch()
    back_up(store, str(copy))
    (copy / "objects" / name[:2] / name).write_text("altered", "utf-8")
    (copy / "objects" / name[:2] / ".certify.killed.part").touch()
    (copy / "certify.db.part").write_bytes(b"half of a copy that was killed" * 100)
    assert back_up(store, str(copy)) == 1
    with Store(str(copy)).database.writing(["c"]) as connection:
        connection.execute(tables.tables["uses"].delete())
    Store(str(copy)).database.engine.dispose()
    other = Store(str(tmp_path / "restored"))
    restore(other, str(copy))
    assert other.read_json(A) == 1 and other.folder.read("judges.yaml") == b"judges: []\n"
    # indexes are those of the events, whatever the copy had
    assert collect(other, older_days=-1).objects == 0 and other.read_json(A) == 1


def test_a_backup_has_all_that_its_database_names(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, placed = store.write_json(A, 1), backup._copy_placed

    def meanwhile(source: Folder, target: Folder) -> None:
        placed(source, target)
        store.write_json(A, 2)
        discard(store, reason="space", older_days=-1)

    monkeypatch.setattr(backup, "_copy_placed", meanwhile)
    copy = tmp_path / "copy"
    back_up(store, str(copy))
    assert Objects(Folder(str(copy))).has(first) and not list(copy.glob("*-wal"))


def test_a_program_that_fails_had_the_address_and_leaves_the_earlier_copy(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.database.is_sqlite:
        return
    store.write_json(A, 1)
    back_up(store, str(tmp_path))
    before = (tmp_path / "certify.dump").read_bytes()
    program = tmp_path / "pg_dump"
    program.write_text(
        '#!/bin/sh\necho half > "${4#--file=}"\necho "$1 $PGPASSWORD" 1>&2\nexit 1\n', "utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    address = store.database.engine.url.set(password="p@ss", query={"application_name": "a/b"})
    monkeypatch.setattr(store.database.engine, "url", address)
    with pytest.raises(CertifyError, match=r"application_name=a%2Fb p@ss"):
        back_up(store, str(tmp_path))
    assert (tmp_path / "certify.dump").read_bytes() == before


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

    # killed before the database is there, with it unverified, and with all there but pages
    program = "shutil" if store.database.is_sqlite else "subprocess"
    for place in (program, "verify", "publish_all"):
        with monkeypatch.context() as patch, pytest.raises((AttributeError, TypeError)):
            patch.setattr(f"certify_assets.storage.backup.{place}", None)
            restore(other, str(tmp_path / "copy"))
    shutil.copytree(tmp_path / "copy", tmp_path / "another")
    with pytest.raises(InputError, match="is in use"):
        restore(other, str(tmp_path / "another"))
    restore(other, str(tmp_path / "copy"))
    verify(other)
    assert other.exists(A) and other.folder.read("judges.yaml") == b"judges: []\n"
    with pytest.raises(InputError, match="is in use"):
        restore(other, str(tmp_path / "copy"))
    with pytest.raises(InputError, match="is not a backup"):
        restore(Store(str(tmp_path / "empty")), str(tmp_path))
    (tmp_path / ("certify.dump" if store.database.is_sqlite else "certify.db")).touch()
    with pytest.raises(InputError, match="is a backup of"):
        restore(Store(str(tmp_path / "empty")), str(tmp_path))
    with pytest.raises(InputError, match="holds nothing to back up"):
        back_up(new_store("empty"), str(tmp_path / "copy"))
