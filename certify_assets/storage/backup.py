"""Copies of a whole data root: the database first, then its objects."""

# In this order a copy that is made while others write is whole: its events name objects that were
# there before. Objects first, one of them would be missing.

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from certify_assets.errors import CertifyError, InputError, MissingToolError
from certify_assets.storage.care import rebuild, verify
from certify_assets.storage.database import FILE, ROOT_FILE, uses
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects
from certify_assets.storage.store import Store, publish_all

_DUMP: Final = "certify.dump"
# names the backup that a data root is being made of
_RESTORING: Final = "restoring"
# files next to the database: the name of the data root, and those of users
_PLACED: Final = (ROOT_FILE, "judges.yaml", "notifications.yaml")


def back_up(store: Store, target: str) -> int:
    """Copy a data root into a folder; return the number of objects that were copied now.

    A copy of SQLite is verified at once; a dump of PostgreSQL is verified when it is restored. A
    folder with an earlier copy gets only new objects.
    """
    if not store.database.exists():
        raise InputError(f"{store.root} holds nothing to back up; import a corpus first.")
    folder = Folder(str(Path(target).absolute()))
    Path(folder.root).mkdir(parents=True, exist_ok=True)
    with store.database.reading() as connection:
        # of the moment that is copied: what is discarded since must be there all the same
        named = list(connection.scalars(sa.select(uses.c.object).distinct()))
        copied = folder.path(FILE if store.database.is_sqlite else _DUMP)
        part = copied.with_name(f"{copied.name}.part")
        part.unlink(missing_ok=True)
        if store.database.is_sqlite:
            # a plain copy would miss the write-ahead log
            with closing(sqlite3.connect(part)) as new:
                old: Any = connection.connection.driver_connection
                old.backup(new)
        else:
            # it may take longer than others may wait
            connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            moment = connection.scalar(sa.text("SELECT pg_export_snapshot()"))
            how = ("--format=custom", f"--snapshot={moment}", f"--file={part}")
            _run("pg_dump", *how, address=store.database.engine.url)
        # an earlier copy stays until there is a whole one
        part.replace(copied)
    _copy_placed(store.folder, folder)
    count = sum(Objects(folder).copy_from(store.objects, name) for name in named)
    if store.database.is_sqlite:
        copy = Store(folder.root)
        verify(copy)
        # the copy has no log next to it
        copy.database.engine.dispose()
    return count


def restore(store: Store, source: str) -> int:
    """Make a data root from a backup and verify it; return the number of objects copied now.

    The data root must be empty, or hold an interrupted restore of this backup.
    """
    folder = Folder(str(Path(source).absolute()))
    dump = _DUMP if folder.exists(_DUMP) else FILE
    if not folder.exists(dump):
        raise InputError(f"{source} is not a backup: it has neither {FILE} nor {_DUMP}.")
    if store.database.is_sqlite != (dump == FILE):
        raise InputError(
            f"{source} is a backup of {'SQLite' if dump == FILE else 'PostgreSQL'}; set or unset "
            "CERTIFY_DATABASE_URL accordingly."
        )
    mine = folder.root.encode("utf-8")
    resumed = store.folder.exists(_RESTORING) and store.folder.read(_RESTORING) == mine
    if not resumed and store.database.exists():
        raise InputError(f"{store.root} is in use; give an empty data root to restore into.")
    store.folder.write(_RESTORING, mine)
    backup = Objects(folder)
    copied = sum(
        store.objects.copy_from(backup, found.name) for found in backup.found() if not found.is_part
    )
    _copy_placed(folder, store.folder)
    if store.database.is_sqlite:
        with folder.path(FILE).open("rb") as copy, store.folder.writing(FILE) as stream:
            shutil.copyfileobj(copy, stream)
    else:
        whole = ("--no-owner", "--clean", "--if-exists", "--single-transaction")
        _run("pg_restore", *whole, str(folder.path(_DUMP)), address=store.database.engine.url)
    verify(store)
    rebuild(store)
    publish_all(store)
    store.folder.delete(_RESTORING)
    return copied


def _copy_placed(source: Folder, target: Folder) -> None:
    for name in _PLACED:
        if source.exists(name):
            target.write(name, source.read(name))


def _run(program: str, *arguments: str, address: sa.URL) -> None:
    """Run a program of PostgreSQL, with the password in its environment."""
    # they read no spaces in the settings of an address, and may take longer than others wait
    address = address.difference_update_query(["options"])
    place = address._replace(drivername="postgresql", password=None).render_as_string()
    secret = {"PGPASSWORD": address.password} if address.password else {}
    try:
        done = subprocess.run(
            [program, f"--dbname={place}", *arguments],
            env={**os.environ, **secret},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise MissingToolError(
            f"{program} is not installed here; install the client programs of PostgreSQL."
        ) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CertifyError(f"{program} failed ({said}); correct that and call again.")
