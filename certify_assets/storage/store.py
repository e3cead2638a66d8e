"""The data root: documents and tables by keys, events, pages, and files that users place."""

# What a data root holds:
#
#     certify.db       events of every corpus and their indexes; or PostgreSQL, see `database`
#     root.json        name of the data root, which the database has too
#     objects/         content of documents and tables, named by its SHA-256
#     pages/           copies of what people open, as corpora/<corpus>/page.html
#     judges.yaml      judges that users add
#     inbox/<corpus>/  new runs to decide
#     monitoring/<corpus>/<judge>/   labelled audit samples of users, in the order of names
#     dagster/, mlflow/  their own databases
#
# A document or table has a key:
#
#     corpora/<corpus>/…, judges/<judge>/<corpus>/…, operations/<corpus>/…   of a corpus
#     research/…, study/…   of the data root
#
# Storing one is an event `stored` with its key and the SHA-256 of its content; the newest event of
# a key is what is stored there.

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from certify_assets.errors import InputError
from certify_assets.files import parse_json
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.storage.database import Database
    from certify_assets.storage.events import P, Payload, TypedEvent
    from certify_assets.storage.snapshot import Snapshot

_PASSWORD = re.compile(r"[a-z0-9+.\-]+://[^/@]*:[^/@]*@", re.IGNORECASE)
PAGES: Final = "pages"
#: areas of corpora, and which part of their keys names the corpus
CORPUS_PLACES: Final = {"corpora": 1, "operations": 1, "ledger": 1, "judges": 2}


def default_root() -> str:
    """Return ``CERTIFY_ROOT``, else ``.certify`` in the working directory."""
    return os.environ.get("CERTIFY_ROOT") or str(Path.cwd() / ".certify")


def chain_of(key: str) -> str:
    """Return the corpus whose chain of events has a key; "" for those of the data root."""
    parts = key.split("/")
    place = CORPUS_PLACES.get(parts[0], len(parts))
    return parts[place].partition(".")[0] if place < len(parts) else ""


@dataclass(frozen=True)
class Store:
    """A data root: a folder, or a URL such as ``s3://…``."""

    root: str

    def __post_init__(self) -> None:
        if _PASSWORD.match(self.root):
            # not repeated here: pages, metadata and messages name the root
            raise InputError(
                "the data root's URL holds a password, which would be shown wherever the root is "
                "named; give it to fsspec by its configuration (such as FSSPEC_SFTP_PASSWORD) "
                "and take it out of the URL."
            )

    @property
    def folder(self) -> Folder:
        """Files of the data root: those that users place, and pages."""
        return Folder(self.root)

    @property
    def objects(self) -> Objects:
        """Content of documents and tables."""
        return Objects(self.folder)

    @property
    def database(self) -> Database:
        """Events and indexes."""
        # SQLAlchemy costs a quarter of a second, and many commands need no data root
        from certify_assets.storage.database import Database

        return Database.of(self.folder)

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return self.folder.is_local

    def now(self) -> Snapshot:
        """Return the data root as it is at this moment."""
        # by its name: a snapshot is a store, so its module needs this one
        module = import_module("certify_assets.storage.snapshot")
        view: Snapshot = module.Snapshot(self.root)
        return view

    def locate(self, key: str) -> str:
        """Return where the copy of a page lies: a path, or a URL on a remote root."""
        return self.folder.locate(f"{PAGES}/{key}")

    def local_path(self, key: str) -> Path:
        """Return the path of a file of the data root; refuse a remote one, which has none."""
        return self.folder.path(key)

    def scratch(self, key: str) -> Path:
        """Return a folder of this machine for what long work keeps to resume; nothing reads it."""
        # outside of the data root, which may be remote, and which backups copy
        from certify_assets.files import sha256_bytes

        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        root = os.path.realpath(self.folder.root) if self.is_local else self.root
        folder = sha256_bytes(root.encode("utf-8"))[:16]
        path = cache.joinpath("certify_assets", folder, *key.split("/"))
        path.mkdir(parents=True, exist_ok=True)
        return path

    def forget_work(self, older_days: float) -> None:
        """Remove what killed processes left to resume, where nobody came back for so long."""
        import shutil

        for path in self.scratch("judges").parent.glob("*/*/*"):
            if time.time() - path.stat().st_mtime > 86_400 * older_days:
                shutil.rmtree(path, ignore_errors=True)

    def keeps_work(self, key: str) -> bool:
        """Whether a killed process left something to resume."""
        return any(not path.name.startswith(".") for path in self.scratch(key).iterdir())

    # What is stored under keys, and what happened; a snapshot has the first five of its own

    def current(self, key: str) -> str:
        """Return the SHA-256 of what is stored under a key; "" where nothing is."""
        return self.now().current(key)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder."""
        return self.now().names(folder)

    def corpora(self) -> list[str]:
        """Return the sorted names of all corpora that have events."""
        return self.now().corpora()

    def point(self, key: str, sha256: str) -> None:
        """Let a key name an object that is stored; "" lets it name none."""
        self.now().point(key, sha256)

    def append(self, corpus: str, *payloads: Payload, token: str = "") -> None:
        """Append events to the chain of a corpus, unless those of the token are there."""
        self.now().append(corpus, *payloads, token=token)

    def events(
        self,
        corpus: str,
        kind: type[P],
        subject: str | None = None,
        *,
        after: int = 0,
        watched: bool = True,
    ) -> list[TypedEvent[P]]:
        """Return the events of a kind, of one subject or of all, the oldest first.

        A step that reads them commits even if others follow, unless they are watched. With `after`
        those with a higher number alone.
        """
        rows = self.now().rows(corpus, kind.kind, subject, after=after, watched=watched)
        return [kind.typed(row) for row in rows]

    def last(
        self, corpus: str, kind: type[P], subject: str | None = None, *, watched: bool = True
    ) -> TypedEvent[P] | None:
        """Return the last event of a kind, of one subject or of all; None where there is none."""
        rows = self.now().rows(corpus, kind.kind, subject, last=1, watched=watched)
        return kind.typed(rows[-1]) if rows else None

    def exists(self, key: str) -> bool:
        """Whether a document or table, or a folder with some, is stored under the key."""
        return bool(self.current(key)) or bool(self.names(key))

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of what is stored under the key; else name the step that writes it."""
        found = self.current(key)
        if not found:
            raise InputError(f"{self.root} has no {key}; {_remedy(key)} first.")
        return found

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key."""
        return self.objects.get(self.sha256(key), key)

    def as_file(self, key: str) -> AbstractContextManager[Path]:
        """Give what is stored under the key as a file of this machine, which must not change."""
        return self.objects.as_file(self.sha256(key), key)

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key; return their SHA-256."""
        return self._named(key, self.objects.put(data))

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream; return its SHA-256."""
        return self._named(key, self.objects.put_stream(write))

    def _named(self, key: str, sha256: str) -> str:
        # a corpus name or a trajectory can never lead outside of the pages
        self.locate(key)
        self.point(key, sha256)
        return sha256

    def delete(self, key: str) -> None:
        """Let nothing be stored under the key any more."""
        self.point(key, "")

    def remove_tree(self, key: str) -> None:
        """Let nothing be stored under the key, nor below it."""
        for name in self.names(key):
            self.remove_tree(f"{key}/{name}")
        self.delete(key)

    def read_json(self, key: str) -> Any:
        """Return the JSON document under the key."""
        with self._parsing(key):
            return parse_json(self.read_bytes(key).decode("utf-8"))

    def write_json(self, key: str, value: Any) -> str:
        """Store a JSON document, indented for readers; return its SHA-256."""
        return self._named(key, self.objects.put_json(value))

    def read_table(self, key: str) -> pd.DataFrame:
        """Return the Parquet table under the key."""
        with self._parsing(key):
            return self.objects.get_table(self.sha256(key), key=key)

    @contextmanager
    def _parsing(self, key: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:
            raise InputError(
                f"{key} of {self.root} cannot be read ({type(error).__name__}); {_remedy(key)} "
                "again."
            ) from None

    def write_table(self, key: str, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index; return its SHA-256."""
        return self._named(key, self.objects.put_table(frame))

    def read_settings(self, key: str, variable: str) -> tuple[str, str | None]:
        """Return where users write settings and their text, None where there are none.

        They are in the file that a variable of the environment names, else under the key.
        """
        named, folder = os.environ.get(variable), self.folder
        where = named or folder.locate(key)
        try:
            if named:
                return where, Path(named).read_text(encoding="utf-8")
            return where, folder.read(key).decode("utf-8") if folder.exists(key) else None
        except UnicodeDecodeError:
            raise InputError(f"{where} is not UTF-8 text; save it so.") from None
        except OSError as error:
            raise InputError(
                f"{where} cannot be read ({error.strerror or type(error).__name__}); correct "
                f"{variable} or the file."
            ) from None

    @contextmanager
    def as_folder(self, key: str) -> Iterator[Path]:
        """Give the files directly below a key as a folder of this machine, for reading alone."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder, ExitStack() as files:
            for name in self.names(key):
                path = files.enter_context(self.as_file(f"{key}/{name}"))
                Path(folder, name).symlink_to(path.resolve())
            yield Path(folder)


def _remedy(key: str) -> str:
    """Name the command that writes a key."""
    parts = key.split("/")
    if len(parts) > 2 and parts[0] == "corpora":
        return f"run `certify run {parts[1]}`"
    if len(parts) > 2 and parts[0] == "judges":
        return f"run `certify run {parts[2]} --judge {parts[1]}`"
    return "run the command, or materialize the asset, that writes it"
