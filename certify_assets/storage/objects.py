"""Objects: content that never changes, named by its SHA-256."""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from certify_assets.errors import IntegrityError
from certify_assets.files import parse_json, sha256_bytes, sha256_file
from certify_assets.storage.folder import Folder, FoundFile

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FOLDER: Final = "objects"
_NAME: Final = re.compile(r"[0-9a-f]{64}|\.certify\..*")
# identity of the files whose hash this process knows: a large one is hashed once
_VERIFIED: dict[Path, tuple[int, int, int]] = {}


class MissingObjectError(IntegrityError):
    """An object that an event names is gone."""


@dataclass(frozen=True)
class Objects:
    """The objects of a data root."""

    folder: Folder

    def put(self, data: bytes) -> str:
        """Store an object durably and return its hash; an existing one gets the present time."""
        name = sha256_bytes(data)
        if not self.folder.renew(_key(name), len(data)):
            self.folder.write(_key(name), data)
        return name

    def put_stream(self, write: Callable[[IO[bytes]], None]) -> str:
        """Store the data that `write` puts into a stream, without holding all of it in memory."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            with path.open("wb") as stream:
                write(stream)
            name = sha256_file(path)
            if not self.folder.renew(_key(name), path.stat().st_size):
                self._copy(name, path)
        return name

    def copy_from(self, other: Objects, name: str) -> bool:
        """Store an object of another data root; return whether it was missing or altered here."""
        with suppress(IntegrityError):
            self.require(name)
            return False
        with other.as_file(name) as path:
            self._copy(name, path)
        return True

    def _copy(self, name: str, path: Path) -> None:
        with path.open("rb") as source, self.folder.writing(_key(name)) as stream:
            shutil.copyfileobj(source, stream)

    def put_json(self, value: Any) -> str:
        """Store a JSON document, indented for readers."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        return self.put(text.encode("utf-8") + b"\n")

    def put_table(self, frame: pd.DataFrame) -> str:
        """Store a table as Parquet (zstd), without its index."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False, compression="zstd")
        return self.put(buffer.getvalue())

    def get(self, name: str, key: str = "") -> bytes:
        """Return an object; refuse one whose hash is not its name."""
        with self._present(name, key):
            data = self.folder.read(_key(name))
        self._require_same(sha256_bytes(data), name, key)
        return data

    def get_json(self, name: str) -> Any:
        """Return a JSON document."""
        return parse_json(self.get(name).decode("utf-8"))

    def get_arrow(
        self, name: str, columns: Sequence[str] | None = None, *, key: str = ""
    ) -> pa.Table:
        """Return a Parquet table, or some of its columns."""
        import pyarrow.parquet as pq

        with self.as_file(name, key) as path, pq.ParquetFile(path) as file:
            # half the time of `pandas.read_parquet`, which opens a file as a dataset
            return file.read(columns=columns, use_threads=False)

    def get_table(
        self, name: str, columns: Sequence[str] | None = None, *, key: str = ""
    ) -> pd.DataFrame:
        """Return a Parquet table, or some of its columns, as a frame."""
        table: pd.DataFrame = self.get_arrow(name, columns, key=key).to_pandas()
        return table

    def require(self, name: str, key: str = "") -> None:
        """Refuse an object that is gone or altered; a file is hashed once for each process."""
        if not self.folder.is_local:
            self.get(name, key)
            return
        path = self.path(name)
        with self._present(name, key):
            found = path.stat()
        identity = found.st_ino, found.st_size, found.st_mtime_ns
        if _VERIFIED.get(path) != identity:
            self._require_same(sha256_file(path), name, key)
            _VERIFIED[path] = identity

    @contextmanager
    def as_file(self, name: str, key: str = "") -> Iterator[Path]:
        """Give an object as a local file, which must not be changed."""
        if self.folder.is_local:
            self.require(name, key)
            yield self.path(name)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "content"
            path.write_bytes(self.get(name, key))
            yield path

    def path(self, name: str) -> Path:
        """Return the path of an object on a local root."""
        return self.folder.path(_key(name))

    def has(self, name: str) -> bool:
        """Whether an object is there."""
        return self.folder.exists(_key(name))

    def found(self) -> Iterator[FoundFile]:
        """Iterate over all objects and rests of interrupted writes; other files are ignored."""
        return (file for file in self.folder.files(FOLDER) if _NAME.fullmatch(file.name))

    def remove(self, found: FoundFile) -> None:
        """Remove an object, or the rest of an interrupted write."""
        self.folder.delete(found.key)

    @contextmanager
    def _present(self, name: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            named = self._named(name, key)
            raise MissingObjectError(f"{named} is gone; restore it from a backup.") from None

    def _require_same(self, sha256: str, name: str, key: str) -> None:
        if sha256 != name:
            named = self._named(name, key)
            raise IntegrityError(f"{named} was altered; restore it from a backup.")

    def _named(self, name: str, key: str) -> str:
        return f"the object {name[:12]} of {self.folder.root}{key and f' ({key})'}"


def _key(name: str) -> str:
    return f"{FOLDER}/{name[:2]}/{name}"
