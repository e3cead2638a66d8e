"""The location of a data root: its files, objects and database, without their keys."""

# What a data root holds:
#
#     certify.db       events of every corpus and their indexes; or PostgreSQL, see `database`
#     root.json        name of the data root, which the database has too
#     objects/         content of documents and tables, named by its SHA-256
#     pages/           copies of what people open, as corpora/<corpus>/page.html
#     judges.yaml      judges that users add
#     inbox/<corpus>/  new runs to decide
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from certify_assets.errors import InputError
from certify_assets.storage.folder import Folder
from certify_assets.storage.objects import Objects

if TYPE_CHECKING:
    from certify_assets.storage.database import Database

_PASSWORD = re.compile(r"[a-z0-9+.\-]+://[^/@]*:[^/@]*@", re.IGNORECASE)
PAGES: Final = "pages"
#: areas of corpora, and which part of their keys names the corpus
_CORPUS_PLACES: Final = {"corpora": 1, "operations": 1, "ledger": 1, "judges": 2}


def default_root() -> str:
    """Return ``CERTIFY_ROOT``, else ``.certify`` in the working directory."""
    return os.environ.get("CERTIFY_ROOT") or str(Path.cwd() / ".certify")


def chain_of(key: str) -> str:
    """Return the corpus whose chain records a key; "" for the chain of the data root."""
    parts = key.split("/")
    place = _CORPUS_PLACES.get(parts[0], len(parts))
    return parts[place].partition(".")[0] if place < len(parts) else ""


@dataclass(frozen=True)
class Root:
    """The location of a data root: a folder, or a URL such as ``s3://…``."""

    root: str

    def __post_init__(self) -> None:
        if _PASSWORD.match(self.root):
            # not repeated here: pages, metadata and messages name the root
            raise InputError(
                "the data root's URL holds a password, which pages and messages would show. "
                "Remove it, and give it to fsspec by its configuration (such as "
                "FSSPEC_SFTP_PASSWORD)."
            )
        if self.is_local and Path(self.folder.root).is_file():
            raise InputError(
                f"the data root {self.root} is a file. Name a folder with --root or CERTIFY_ROOT."
            )

    @property
    def folder(self) -> Folder:
        """Files of the data root: files that users place, and pages."""
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
        """Whether the root is a local folder."""
        return self.folder.is_local

    def locate(self, key: str) -> str:
        """Return the location of a page's copy: a path, or a URL on a remote root."""
        return self.folder.locate(f"{PAGES}/{key}")

    def local_path(self, key: str) -> Path:
        """Return the path of a file of the data root; refuse a remote root."""
        return self.folder.path(key)

    def scratch(self, key: str) -> Path:
        """Return a local folder in which long work keeps checkpoints; nothing else reads it."""
        # outside of the data root, which may be remote, and which backups copy
        from certify_assets.files import sha256_bytes

        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        root = os.path.realpath(self.folder.root) if self.is_local else self.root
        folder = sha256_bytes(root.encode("utf-8"))[:16]
        path = cache.joinpath("certify_assets", folder, *key.split("/"))
        path.mkdir(parents=True, exist_ok=True)
        return path

    def forget_work(self, older_days: float) -> None:
        """Remove checkpoints of interrupted processes that are older than this many days."""
        import shutil

        for path in self.scratch("judges").parent.glob("*/*/*"):
            if time.time() - path.stat().st_mtime > 86_400 * older_days:
                shutil.rmtree(path, ignore_errors=True)

    def keeps_work(self, key: str) -> bool:
        """Whether an interrupted process left a checkpoint."""
        return any(not path.name.startswith(".") for path in self.scratch(key).iterdir())

    def read_settings(self, key: str, variable: str) -> tuple[str, str | None]:
        """Return the location and text of users' settings, or None.

        They are in the file that an environment variable names, or else under the key.
        """
        named, folder = os.environ.get(variable), self.folder
        where = named or folder.locate(key)
        try:
            if named:
                return where, Path(named).read_text(encoding="utf-8")
            return where, folder.read(key).decode("utf-8") if folder.exists(key) else None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{where} cannot be read as UTF-8 text ({type(error).__name__}); correct "
                f"{variable} or the file."
            ) from None
