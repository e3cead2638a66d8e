"""The data root: one tree of tables and documents, local or on any fsspec file system, written atomically.

Layout (``<corpus>`` and ``<judge>`` are names of letters, digits, '_', '-' and '.')::

    corpora/<corpus>/corpus.json          what the corpus is and how it is split
    corpora/<corpus>/trajectories.parquet
    corpora/<corpus>/import.json          files with hashes, what was dropped and why
    corpora/<corpus>/splits/manifest.json, sft.parquet, rl.parquet, cal.parquet, test.parquet
    corpora/<corpus>/profile.json, controls.json, page.html, data_docs/index.html
    corpora/<corpus>/versions.jsonl       what the sensors saw land: number, time, hash and files of every version
    corpora/<corpus>/landed_….json        what their last look saw, which saves hashing it again
    judges/<judge>/<corpus>/adapter/…, adapter.json, scores.parquet, scores.json, certificates.json, audits.json, page.html
    judges/<judge>/<corpus>/monitor.json, monitor.html
    judges/<judge>/<corpus>/arms/<arm>/…  an arm of GRPO: its steps' adapters and scores; arms_audit.json beside them is its reading on TEST
    judges/<judge>/<corpus>/answers.jsonl, parity.json, recalibration.json
    judges.yaml                           judges that users add
    monitoring/<corpus>/<judge>/…         labelled audit samples that users put there, read in the order of names
    ledger/<corpus>.jsonl                 every read of a TEST split
    inbox/<corpus>/…                      new runs to decide
    operations/<corpus>/…                 deployments, batches, labels: see `operations`
    tracking/waiting/…                    records that MLflow did not take, until it takes them
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from certify_assets.errors import InputError, MissingToolError
from certify_assets.files import parse_json, replacing, sha256_bytes, sha256_file, write_atomic

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Store", "default_root"]

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_PASSWORD = re.compile(r"[a-z0-9+.\-]+://[^/@]*:[^/@]*@", re.IGNORECASE)


def default_root() -> str:
    """Return the data root of this process: ``CERTIFY_ROOT``, else ``.certify`` in the working directory."""
    return os.environ.get("CERTIFY_ROOT") or str(Path.cwd() / ".certify")


@dataclass(frozen=True)
class Store:
    """Reads and writes below one root.

    Parameters
    ----------
    root : str
        A folder, or an fsspec URL such as ``s3://bucket/prefix`` or ``memory://name``.

    Notes
    -----
    Keys are relative and made of safe segments, so that a corpus name or a trajectory can never lead outside the root. On a local
    disk a write takes its name by rename; object stores put an object whole.
    """

    root: str

    def __post_init__(self) -> None:
        if _PASSWORD.match(self.root):
            # not repeated here: pages, metadata and messages name the root
            raise InputError(
                "the data root's URL holds a password, which would be shown wherever the root is named; give it to fsspec by its configuration "
                "(such as FSSPEC_SFTP_PASSWORD) and take it out of the URL."
            )

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return "://" not in self.root or self.root.startswith("file://")

    def locate(self, key: str) -> str:
        """Return where a key lives: a path, or a URL on a remote root."""
        parts = key.split("/")
        bad = next((part for part in parts if not _SEGMENT.fullmatch(part)), None)
        if bad is not None:
            raise InputError(
                f"{bad!r} in {key!r} cannot be a file name of the data root; use letters, digits, '_', '-' and '.'."
            )
        return "/".join([self.root.rstrip("/"), *parts])

    def local_path(self, key: str) -> Path:
        """Return the path of a key on a local root.

        Raises
        ------
        InputError
            If the root is remote: what needs a file on disk cannot run there.
        """
        if not self.is_local:
            raise InputError(
                f"{key} is needed as a file, but the data root {self.root} is remote; copy it to a local folder first."
            )
        return Path(self.locate(key).removeprefix("file://"))

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        if self.is_local:
            return self.local_path(key).exists()
        filesystem, path = self._remote(key)
        return bool(filesystem.exists(path))

    def read_bytes(self, key: str) -> bytes:
        """Return what is stored under the key.

        Raises
        ------
        InputError
            If nothing is: the sentence says that the step before has to run.
        """
        if not self.exists(key):
            raise InputError(f"{self.locate(key)} does not exist; {_remedy(key)} first.")
        if self.is_local:
            return self.local_path(key).read_bytes()
        filesystem, path = self._remote(key)
        return bytes(filesystem.cat_file(path))

    def write_bytes(self, key: str, data: bytes) -> str:
        """Store bytes under the key, whole or not at all; return their SHA-256."""
        if self.is_local:
            write_atomic(self.local_path(key), data)
            return sha256_bytes(data)
        filesystem, path = self._remote(key)
        staged = f"{path}.{uuid.uuid4().hex}.part"
        filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        filesystem.pipe_file(staged, data)
        filesystem.mv(staged, path)
        return sha256_bytes(data)

    def write_stream(self, key: str, write: Callable[[IO[bytes]], None]) -> str:
        """Store what `write` puts into a stream, whole or not at all and never all of it in memory; return its SHA-256."""
        if self.is_local:
            path = Path(os.path.realpath(self.local_path(key)))
            with replacing(path) as stream:
                write(stream)
            return sha256_file(path)
        filesystem, remote = self._remote(key)
        staged = f"{remote}.{uuid.uuid4().hex}.part"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "staged"
            with path.open("wb") as stream:
                write(stream)
            filesystem.makedirs(remote.rsplit("/", 1)[0], exist_ok=True)
            filesystem.put_file(str(path), staged)
            filesystem.mv(staged, remote)
            return sha256_file(path)

    @contextmanager
    def as_file(self, key: str) -> Iterator[Path]:
        """Give what is stored under the key as a file of this machine, a copy where the root is remote.

        Raises
        ------
        InputError
            If nothing is stored there.
        """
        if self.is_local and self.exists(key):
            yield self.local_path(key)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            path.write_bytes(self.read_bytes(key))
            yield path

    def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        if self.is_local:
            self.local_path(key).unlink(missing_ok=True)
        elif self.exists(key):
            filesystem, path = self._remote(key)
            filesystem.rm_file(path)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder in which nothing is left; object stores have none."""
        if self.is_local:
            with suppress(OSError):
                self.local_path(folder).rmdir()

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

    def write_json(self, key: str, value: Any) -> str:
        """Store a JSON document, indented for readers; return its SHA-256."""
        return self.write_bytes(
            key,
            json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8")
            + b"\n",
        )

    def read_table(self, key: str) -> pd.DataFrame:
        """Return the Parquet table under the key."""
        import pandas as pd
        import pyarrow as pa

        data = self.read_bytes(key)
        try:
            return pd.read_parquet(io.BytesIO(data))
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{self.locate(key)} is not a readable table ({type(error).__name__}); {_remedy(key)} again."
            ) from None

    def write_table(self, key: str, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index; return its SHA-256."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        return self.write_bytes(key, buffer.getvalue())

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append one line to a journal and flush it to the disk.

        Parameters
        ----------
        key : str
            The journal.
        make : callable
            Gets what the journal holds, whole lines only, and returns the line to add, or None for none. On a local root nobody else
            appends between the two; a remote root has no lock, so let one process at a time write there.

        Notes
        -----
        A last line without its end is the trace of a kill in the middle of a write: nothing was confirmed, and it is cut off.
        """
        if not self.is_local:
            old = _whole_lines(self.read_bytes(key) if self.exists(key) else b"")
            line = make(old)
            if line is not None:
                self.write_bytes(key, old + line.encode("utf-8") + b"\n")
            return
        path = self.local_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # without a buffer, which closing the file would write once more after an error
        with path.open("a+b", buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(0)
            old = _whole_lines(stream.readall())
            line = make(old)
            if line is None:
                return
            stream.truncate(len(old))
            try:
                _write_all(stream, line.encode("utf-8") + b"\n")
                os.fsync(stream.fileno())
            except OSError:
                # of several lines the first may be on the disk already, and none was confirmed
                with suppress(OSError):
                    stream.truncate(len(old))
                raise

    def names(self, folder: str) -> list[str]:
        """Return the sorted names directly below a folder, hidden ones left out; empty where there is no folder."""
        if self.is_local:
            path = self.local_path(folder)
            return (
                sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
                if path.is_dir()
                else []
            )
        filesystem, remote = self._remote(folder)
        if not filesystem.isdir(remote):
            return []
        return sorted(
            str(entry).rstrip("/").rsplit("/", 1)[-1]
            for entry in filesystem.ls(remote, detail=False)
        )

    def _remote(self, key: str) -> tuple[Any, str]:
        """Return the file system of a remote root and a key's path on it.

        Raises
        ------
        MissingToolError
            If the package of the URL's scheme is not installed.
        InputError
            If there is no such scheme.
        """
        import fsspec

        try:
            filesystem, path = fsspec.core.url_to_fs(self.locate(key))
        except ImportError as error:
            raise MissingToolError(
                f"the data root {self.root} needs a package that is not installed ({error})."
            ) from None
        except ValueError as error:
            raise InputError(
                f"the data root {self.root} cannot be opened ({error}); give a folder or a URL that fsspec knows."
            ) from None
        return filesystem, path


def _remedy(key: str) -> str:
    """Say what writes a key: to whoever works with assets, and to whoever works with commands."""
    parts = key.split("/")
    if len(parts) > 2 and parts[0] in ("corpora", "judges"):
        corpus = parts[1] if parts[0] == "corpora" else parts[2]
        what = "" if parts[0] == "corpora" else f" of {parts[1]}"
        return f"materialize the asset{what} that writes it, or run `certify study {corpus}`,"
    return "materialize the asset, or run the command, that writes it"


def _write_all(stream: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _whole_lines(data: bytes) -> bytes:
    return data[: data.rfind(b"\n") + 1]
