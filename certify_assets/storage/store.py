"""The data root: one tree of tables and documents, local, in an object store or elsewhere."""

# Layout (<corpus> and <judge> are names of letters, digits, '_', '-' and '.'):
#
#     corpora/<corpus>/corpus.json          configuration and split rules
#     corpora/<corpus>/trajectories.parquet
#     corpora/<corpus>/import.json          files with hashes, what was dropped and why
#     corpora/<corpus>/splits/manifest.json, sft.parquet, rl.parquet, cal.parquet, test.parquet
#     corpora/<corpus>/profile.json, controls.json, page.html, data_docs/index.html
#     corpora/<corpus>/versions.jsonl       versions that the sensors saw land
#     corpora/<corpus>/landed_….json        last look of the sensors, which saves hashing again
#     judges/<judge>/<corpus>/adapter/…, adapter.json, scores.parquet, scores.json
#     judges/<judge>/<corpus>/certificates.json, audits.json, test_scores.parquet, page.html
#     judges/<judge>/<corpus>/monitor.json, monitor.html
#     judges/<judge>/<corpus>/agents.json   every agent left out of certificates and training
#     judges/<judge>/<corpus>/folds/…       judges that never saw some of the training tasks
#     judges/<judge>/<corpus>/arms/<arm>/…  adapters and scores of a candidate of GRPO
#     judges/<judge>/<corpus>/answers.jsonl
#     judges.yaml                           judges that users add
#     monitoring/<corpus>/<judge>/…         labelled audit samples of users, in the order of names
#     ledger/<corpus>.jsonl                 every read of a TEST split
#     inbox/<corpus>/…                      new runs to decide
#     operations/<corpus>/…                 deployments, batches, labels: see `operations`

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import parse_json, sha256_bytes, sha256_file
from certify_assets.storage.backend import Backend
from certify_assets.storage.backends import backend_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_PASSWORD = re.compile(r"[a-z0-9+.\-]+://[^/@]*:[^/@]*@", re.IGNORECASE)


def default_root() -> str:
    """Return ``CERTIFY_ROOT``, else ``.certify`` in the working directory."""
    return os.environ.get("CERTIFY_ROOT") or str(Path.cwd() / ".certify")


@dataclass(frozen=True)
class Store:
    """Documents, tables and journals below one root: a folder, or a URL such as ``s3://…``."""

    # keys are relative and made of safe segments, so that a corpus name or a trajectory can never
    # lead outside the root; a file is stored whole or not at all

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
    def backend(self) -> Backend:
        """Where the files are stored."""
        return backend_of(self.root)

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return self.backend.local

    def locate(self, key: str) -> str:
        """Return where a key is stored: a path, or a URL on a remote root."""
        return self.backend.locate(key)

    def local_path(self, key: str) -> Path:
        """Return the path of a key on a local root; refuse a remote one, which has none."""
        path = self.backend.path(key)
        if path is None:
            raise InputError(
                f"{key} is needed as a file, but the data root {self.root} is remote; copy it to "
                "a local folder first."
            )
        return path

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        return self.backend.exists(key)

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key; else name the step that writes it."""
        try:
            return self.backend.read(key)
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(self._missing(key)) from None

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key, whole or not at all; return their SHA-256."""
        self.backend.write(key, data)
        return sha256_bytes(data)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream, whole or not at all; return its SHA-256."""
        return self.backend.write_stream(key, write)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give what is stored under the key as a file of this machine, a copy of a remote one."""
        self._require(key)
        with self.backend.as_file(key) as path:
            yield path

    def copy(self, key: str, target: str) -> None:
        """Store what is stored under a key under another one as well, whole or not at all."""
        self._require(key)
        self.backend.copy(key, target)

    def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        self.backend.delete(key)

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder; object stores have none."""
        self.backend.remove_folder(folder)

    def remove_tree(self, key: str) -> None:
        """Remove a file, or a folder with all that is in it; one half removed by a kill too."""
        names = self.names(key)
        for name in names:
            self.remove_tree(f"{key}/{name}")
        if names or not self.is_file(key):
            self.remove_folder(key)
        else:
            self.delete(key)

    def is_file(self, key: str) -> bool:
        """Whether a key without names below it is a file, and no empty folder."""
        return not self.is_local or self.local_path(key).is_file()

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder, hidden ones left out."""
        return self.backend.names(folder)

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append to a journal the line that `make` returns for its whole lines, None for none."""
        # on a local root no other process appends between the two, and the disk has the line; an
        # object store may call `make` again, where another process appended first
        self.backend.append_line(key, make)

    def sha256(self, key: str) -> str:
        """Return the SHA-256 of what is stored under the key."""
        with self.as_file(key) as path:
            return sha256_file(path)

    def read_json(self, key: str) -> Any:
        """Return the JSON document under the key."""
        try:
            return parse_json(self.read_bytes(key).decode("utf-8"))
        except ValueError as error:
            raise InputError(
                f"{self.locate(key)} is not a JSON document ({error}); {_remedy(key)} again."
            ) from None

    def read_settings(self, key: str, variable: str) -> tuple[str, str | None]:
        """Return where users write settings and their text, None where there are none.

        They are in the file that a variable of the environment names, else under the key.
        """
        named = os.environ.get(variable)
        where = named or self.locate(key)
        try:
            if named:
                return where, Path(named).read_text(encoding="utf-8")
            return where, self.read_bytes(key).decode("utf-8") if self.exists(key) else None
        except UnicodeDecodeError:
            raise InputError(f"{where} is not UTF-8 text; save it so.") from None
        except OSError as error:
            raise InputError(
                f"{where} cannot be read ({error.strerror or type(error).__name__}); correct "
                f"{variable} or the file."
            ) from None

    def write_json(self, key: str, value: Any) -> str:
        """Store a JSON document, indented for readers; return its SHA-256."""
        return self.write_bytes(
            key,
            json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8")
            + b"\n",
        )

    def read_table(self, key: str) -> pd.DataFrame:
        """Return the Parquet table under the key."""
        table: pd.DataFrame = self.read_arrow(key).to_pandas()
        return table

    def read_arrow(self, key: str) -> pa.Table:
        """Return the Parquet table under the key as it is stored."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = self.read_bytes(key)
        try:
            # half the time of `pandas.read_parquet`, which opens a file as a dataset
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                return file.read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.locate(key)} is not a readable table ({type(error).__name__}); "
                f"{_remedy(key)} again."
            ) from None

    def write_table(self, key: str, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index; return its SHA-256."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        return self.write_bytes(key, buffer.getvalue())

    def require_exclusive(self, what: str) -> None:
        """Refuse something on a data root whose journals could lose lines to another writer."""
        if not self.backend.is_exclusive():
            raise InputError(
                f"{what} needs a data root that refuses a write when another came first, which "
                f"{self.root} does not; use a folder, or an object store with conditional writes "
                "(S3 If-Match and If-None-Match)."
            )

    def _require(self, key: str) -> None:
        if not self.exists(key):
            raise InputError(self._missing(key))

    def _missing(self, key: str) -> str:
        return f"{self.locate(key)} does not exist; {_remedy(key)} first."


def _remedy(key: str) -> str:
    """Name the command that writes a key."""
    parts = key.split("/")
    if len(parts) > 2 and parts[0] == "corpora":
        return f"run `certify run {parts[1]}`"
    if len(parts) > 2 and parts[0] == "judges":
        return f"run `certify run {parts[2]} --judge {parts[1]}`"
    return "run the command, or materialize the asset, that writes it"
