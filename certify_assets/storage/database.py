"""The database of a data root: the table of events, indexes, and two kinds of transactions."""

# `events` is the only truth: chained by hashes, and never changed. Everything else follows from the
# events and the objects that they name, and `certify ledger rebuild` makes it again.

from __future__ import annotations

import functools
import importlib
import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from certify_assets.errors import InputError, IntegrityError, LostDatabaseError
from certify_assets.files import canonical_json
from certify_assets.storage.folder import Folder

SCHEMA: Final = "1"
VARIABLE: Final = "CERTIFY_DATABASE_URL"
#: lets SQLite lie on a file system that this module takes for one of a network
ANYWHERE: Final = "CERTIFY_SQLITE_ANYWHERE"
FILE: Final = "certify.db"
ROOT_FILE: Final = "root.json"
_BUSY_MILLISECONDS = 30_000
_MOST_VALUES = 500
# so many at once change how a table is best asked
_MANY_ROWS: Final = 10_000
# libpq's: a server that is gone is noticed within two minutes, not after hours
_NOTICED: Final = {
    **{"connect_timeout": "10", "keepalives_idle": "60", "keepalives_count": "6"},
    # one stopped client must not stop the others
    "options": "-c lock_timeout=60s -c idle_in_transaction_session_timeout=60s",
}
_NETWORKS = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "vboxsf",
    "virtiofs",
    "smbfs",
]
_MOST_OPEN = 8

V = TypeVar("V")
_OF_BATCHES: Final = {"decided", "undone", "drawn", "undrawn", "closed"}
#: modules with tables of their own, and the kinds of events that these follow
FOLLOWERS: Final = {
    "certify_assets.operations.batches": {"received", "undone"},
    "certify_assets.operations.review_index": {"labelled", "gold_labelled", "twice_reviewed"}
    | _OF_BATCHES,
    "certify_assets.operations.audit_sample": _OF_BATCHES,
}

tables = sa.MetaData()


def text_column(name: str, **about: Any) -> sa.Column[str]:
    """Return a column of texts, which both databases sort alike in any locale."""
    kind = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    return sa.Column(name, kind, nullable=False, **about)


def number_column(name: str, **about: Any) -> sa.Column[int]:
    """Return a column of whole numbers."""
    return sa.Column(name, sa.BigInteger, nullable=False, autoincrement=False, **about)


properties = sa.Table(
    "properties", tables, text_column("name", primary_key=True), text_column("value")
)
events = sa.Table(
    "events",
    tables,
    text_column("corpus", primary_key=True),
    number_column("sequence", primary_key=True),
    text_column("kind"),
    text_column("subject"),
    # of the request, and of what the request appended, from 0
    text_column("token"),
    number_column("part"),
    text_column("time"),
    # canonical JSON, exactly what is hashed
    text_column("payload"),
    text_column("previous"),
    text_column("sha256"),
    sa.UniqueConstraint("corpus", "token", "part", name="events_token"),
    sa.Index("events_kind", "corpus", "kind", "subject", "sequence"),
    # for the last event of a kind, of any subject
    sa.Index("events_last", "corpus", "kind", "sequence"),
)
#: hashes that payloads had before a name was taken out of them
blanked = sa.Table(
    "blanked",
    tables,
    text_column("corpus", primary_key=True),
    number_column("sequence", primary_key=True),
    text_column("payload_sha256"),
)
#: corpora that have events
chains = sa.Table("chains", tables, text_column("corpus", primary_key=True))
#: objects that must exist as long as the events that name them
uses = sa.Table(
    "uses",
    tables,
    text_column("object", primary_key=True),
    text_column("corpus", primary_key=True),
    number_column("sequence", primary_key=True),
)

# an event that does not follow the last one
_STRAY: Final = (
    "NEW.sequence <> 1 + "
    "coalesce((SELECT max(sequence) FROM events WHERE corpus = NEW.corpus), 0) "
    "OR NEW.previous <> coalesce((SELECT sha256 FROM events WHERE corpus = NEW.corpus "
    "AND sequence = NEW.sequence - 1), '')"
)
_SQLITE_TRIGGERS: Final = (
    "CREATE TRIGGER events_update BEFORE UPDATE ON events BEGIN "
    "SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER events_delete BEFORE DELETE ON events BEGIN "
    "SELECT RAISE(ABORT, 'events are never removed'); END",
    # INSERT OR REPLACE removes what is in its way, without the trigger above
    f"CREATE TRIGGER events_insert BEFORE INSERT ON events WHEN {_STRAY} "
    "OR EXISTS (SELECT 1 FROM events WHERE corpus = NEW.corpus AND token = NEW.token "
    "AND part = NEW.part) BEGIN SELECT RAISE(ABORT, 'an event follows the last one'); END",
)
_POSTGRESQL_TRIGGERS: Final = (
    "CREATE FUNCTION events_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF TG_OP = 'INSERT' THEN IF NOT ({_STRAY}) THEN RETURN NEW; END IF; "
    "RAISE EXCEPTION 'an event follows the last one'; END IF; "
    "RAISE EXCEPTION 'events are never changed'; END $$",
    "CREATE TRIGGER events_row BEFORE INSERT OR UPDATE OR DELETE ON events "
    "FOR EACH ROW EXECUTE FUNCTION events_kept()",
    # no trigger of rows sees a TRUNCATE
    "CREATE TRIGGER events_table BEFORE TRUNCATE ON events "
    "FOR EACH STATEMENT EXECUTE FUNCTION events_kept()",
)
_WITHOUT_TRIGGERS: Final = tuple(
    f"DROP TRIGGER events_{name}" for name in ("update", "delete", "insert")
)
_WITHOUT_FUNCTION: Final = ("DROP FUNCTION events_kept CASCADE",)


def register() -> None:
    """Register the tables of all modules, which are imported only when needed."""
    for module in FOLLOWERS:
        importlib.import_module(module)


class Database:
    """The database of a data root: SQLite in its folder, or PostgreSQL.

    Parameters
    ----------
    url : sqlalchemy.URL
        Address.
    folder : Folder
        Data root.
    """

    def __init__(self, url: sa.URL, folder: Folder) -> None:
        self.folder = folder
        self.is_sqlite = url.drivername == "sqlite"
        # a connection that a server closed is noticed before it is used
        self.engine = sa.create_engine(url, pool_pre_ping=not self.is_sqlite)
        if self.is_sqlite:
            _require_local_disk(Path(os.path.realpath(folder.root)))
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            # the driver's own transactions begin too late: not before a SELECT
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        self._whole = False

    @classmethod
    def of(cls, folder: Folder) -> Database:
        """Return the database of a data root, opened once for each process."""
        if named := os.environ.get(VARIABLE):
            url = _named(named)
        elif folder.is_local:
            # not a text, in which '?' and '%' mean something
            url = sa.URL.create("sqlite", database=os.path.realpath(folder.path(FILE)))
        else:
            raise InputError(
                f"the data root {folder.root} is remote and needs a database; set {VARIABLE} to "
                "the address of a PostgreSQL database."
            )
        return _opened(folder.root, url, os.getpid())

    def exists(self) -> bool:
        """Whether there is a database; refuse a lost or foreign one, or an earlier version's."""
        there = not self.is_sqlite or self.folder.exists(FILE)
        if self._whole and there:
            return True
        # before the database: another process may make both between the two looks
        named, root = self._root(), b""
        if there:
            with self._transaction("read") as connection:
                root = self._identity(connection)
        if named and not root:
            # a new one would forget what was claimed
            raise IntegrityError(
                f"the database of {self.folder.root} is gone or empty; restore a backup, or "
                f"correct {VARIABLE}."
            )
        # tables alone are those of a call that was killed before the first event
        self._whole = bool(root and self._root())
        corpora = () if self._whole else self.folder.names("corpora")
        if any(self.folder.exists(f"corpora/{name}/corpus.json") for name in corpora):
            raise InputError(
                f"{self.folder.root} is a data root of an earlier version, which kept its state in "
                "files; name another folder, and import the corpora again."
            )
        return self._whole

    def create(self) -> None:
        """Make missing tables; refuse those of another schema or data root."""
        # opening waits for nobody: only the first one writes
        if self.exists():
            return
        if self.is_sqlite:
            self.folder.path(FILE).parent.mkdir(parents=True, exist_ok=True)
        with self._transaction("write") as connection:
            if not self.is_sqlite:
                _lock(connection, "", shared=False)
            if not (root := self._identity(connection)):
                register()
                tables.create_all(connection)
                self.guard(connection)
                name = uuid.uuid4().hex
                insert(connection, properties, [("schema", SCHEMA), ("root", name)])
                root = canonical_json({"root": name})
        self.folder.write(ROOT_FILE, root)
        self._whole = True

    def guard(self, connection: sa.Connection) -> None:
        """Make the triggers that keep events unchanged."""
        for statement in _SQLITE_TRIGGERS if self.is_sqlite else _POSTGRESQL_TRIGGERS:
            connection.execute(sa.text(statement))

    def unguard(self, connection: sa.Connection) -> None:
        """Drop the triggers that keep events unchanged, for erasures that the law requires."""
        for statement in _WITHOUT_TRIGGERS if self.is_sqlite else _WITHOUT_FUNCTION:
            connection.execute(sa.text(statement))

    def _root(self) -> bytes:
        return self.folder.read(ROOT_FILE) if self.folder.exists(ROOT_FILE) else b""

    def _identity(self, connection: sa.Connection) -> bytes:
        """Return the name of the data root that the database belongs to; b"" without tables."""
        if not sa.inspect(connection).has_table("properties"):
            return b""
        found = {row.name: row.value for row in connection.execute(sa.select(properties))}
        if found.get("schema") != SCHEMA:
            raise IntegrityError(
                f"the database of {self.folder.root} has schema {found.get('schema')}, and this "
                f"version reads {SCHEMA}; use the version that made it."
            )
        root = canonical_json({"root": found["root"]})
        # before the file: who begins a data root writes it before the first event
        begun = connection.execute(sa.select(chains).limit(1)).first() is not None
        named = self._root()
        if named != root and (named or begun):
            raise IntegrityError(
                f"the database is that of another data root than {self.folder.root}, or "
                f"{ROOT_FILE} is damaged or gone there; restore its own, or correct {VARIABLE}."
            )
        return root

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give one state of all rows, or no rows without a database; end it before computing."""
        if not self.exists():
            with _nothing().connect() as connection:
                # of all modules that were imported meanwhile
                tables.create_all(connection)
                yield connection
            return
        with self._transaction("read") as connection:
            yield connection

    @contextmanager
    def writing(
        self, written: Iterable[str], read: Iterable[str] = (), *, sole: bool = False
    ) -> Iterator[sa.Connection]:
        """Give a transaction with exclusive access to the corpora that it writes.

        With `sole` it has exclusive access to the whole database.
        """
        self.create()
        with self._transaction("write") as connection:
            if not self.is_sqlite:
                # the statements after these see what was committed before them
                _lock(connection, "", shared=not sole)
                shared = {**dict.fromkeys(read, True), **dict.fromkeys(written, False)}
                for corpus in sorted(shared):
                    _lock(connection, f"corpus {corpus}", shared=shared[corpus])
            yield connection

    @contextmanager
    def _transaction(self, purpose: str) -> Iterator[sa.Connection]:
        if self.is_sqlite:
            about: dict[str, Any] = {"certify": purpose}
        elif purpose == "read":
            about = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        else:
            about = {"isolation_level": "READ COMMITTED"}
        try:
            with self.engine.connect().execution_options(**about) as connection, connection.begin():
                yield connection
        except sa.exc.DBAPIError as error:
            # without the address, which the lines after the first may have
            said = "".join(str(error.orig).strip().splitlines()[:1])
            # not one of its subclasses: calling again does not help
            if type(error.orig) is sqlite3.DatabaseError:
                raise IntegrityError(
                    f"The database of {self.folder.root} is damaged ({said}). Restore a backup."
                ) from error
            # SQLite writes where it is read alone, too
            what = "you may write there" if self.is_sqlite else "the database runs"
            raise LostDatabaseError(
                f"The database of {self.folder.root} cannot be used ({said}). Check that {what} "
                "and the disk has space, then call again."
            ) from error


@functools.lru_cache(maxsize=_MOST_OPEN)
def _opened(root: str, url: sa.URL, process: int) -> Database:
    # a pool does not survive a fork
    del process
    return Database(url, Folder(root))


@functools.cache
def _nothing() -> sa.Engine:
    """Return a database in memory without rows."""
    return sa.create_engine(
        "sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False}
    )


def parts(values: Sequence[V], most: int = _MOST_VALUES) -> Iterator[Sequence[V]]:
    """Iterate over values in parts, by default as many as one statement may have."""
    for start in range(0, len(values), most):
        yield values[start : start + most]


def insert(connection: sa.Connection, table: sa.Table, rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows with a value for every column, many rows in one call of the driver."""
    names, every = table.columns.keys(), list(rows)
    if not every:
        return
    if connection.dialect.name == "sqlite":
        # a third of the time of the same by SQLAlchemy
        marks = ", ".join("?" * len(names))
        connection.exec_driver_sql(f"INSERT INTO {table.name} VALUES ({marks})", every)
        return
    connection.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in every])
    if len(every) > _MANY_ROWS:
        # the next questions are planned for a table of its size, not for one that is empty
        connection.execute(sa.text(f"ANALYZE {table.name}"))


def _named(address: str) -> sa.URL:
    try:
        url = sa.make_url(address)
        url.get_dialect()
        if url.get_backend_name() != "postgresql":
            raise ValueError
    except (sa.exc.ArgumentError, ValueError):
        # the address is not repeated: it may hold a password
        raise InputError(
            f"{VARIABLE} is not the address of a PostgreSQL database; give one such as "
            "postgresql+psycopg2://user:password@host/certify."
        ) from None
    return url.set(query={**_NOTICED, **url.query})


def _lock(connection: sa.Connection, name: str, *, shared: bool) -> None:
    kind = "_shared" if shared else ""
    statement = sa.text(f"SELECT pg_advisory_xact_lock{kind}(hashtextextended(:name, 0))")
    connection.execute(statement, {"name": f"certify {name}"})


def _prepare_sqlite(connection: Any, record: object) -> None:
    del record
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
    if _write_ahead(connection) != "wal" and ANYWHERE not in os.environ:
        raise InputError(
            f"SQLite cannot use its write-ahead log here; set {VARIABLE} to the address of a "
            "PostgreSQL database."
        )
    # what is blanked is overwritten in the file, too
    for setting in ("synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {setting}")


def _write_ahead(connection: Any) -> str:
    """Ask for the write-ahead log; return the mode that SQLite uses."""
    end = time.monotonic() + _BUSY_MILLISECONDS / 1000
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # of processes that begin a database at once SQLite lets none wait here
            busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # a transaction that reads first and writes then fails at once when another has written
    write = connection.get_execution_options().get("certify") != "read"
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _require_local_disk(folder: Path) -> None:
    """Refuse a network file system, where the locks of SQLite are not reliable."""
    if ANYWHERE in os.environ:
        return
    kind = _file_system(folder)
    if kind in _NETWORKS or kind.startswith("fuse."):
        raise InputError(
            f"{folder} lies on {kind}, where SQLite is not safe; set {VARIABLE} to the address of "
            f"a PostgreSQL database, or {ANYWHERE}=1 if only this machine writes there."
        )


def _file_system(path: Path) -> str:
    """Return the type of the file system with the longest mount point above a path."""
    import psutil

    kinds = dict[str, str]()
    # a container may have no table of mounts
    with suppress(OSError):
        kinds = {disk.mountpoint: str(disk.fstype) for disk in psutil.disk_partitions(all=True)}
    return kinds.get(max(filter(path.is_relative_to, kinds), key=len, default=""), "")
