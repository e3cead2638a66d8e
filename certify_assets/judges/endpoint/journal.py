"""What a server answered, one line an answer, so that a scoring killed at any moment goes on where it stood.

Every line carries its own hash and that of the line before it: a line that was changed, added or taken out is refused, not scored.
Who rewrites the whole file changes its last hash, which the report of the scoring names. Lines are JSON; nothing is unpickled.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.storage.locks import lock_file

__all__ = ["Journal"]

_GENESIS = sha256_bytes(b"certify_assets/endpoint-journal/1")
_FLUSH_SECONDS = 1.0


class Journal:
    """An open journal; it belongs to one process at a time.

    Parameters
    ----------
    path : Path, optional
        File, made where it does not exist; without one the answers are kept in memory alone.

    Raises
    ------
    InputError
        If another scoring has it open, or it cannot be read.
    IntegrityError
        If a line was changed, added or taken out.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self._flushed = time.monotonic()
        self.head = _GENESIS
        self._handle = -1
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise InputError(
                    f"{path} cannot be opened ({error.strerror}); give another file for the answers."
                ) from None
            try:
                self._lock()
                self._load(path.read_bytes())
            except BaseException:
                os.close(self._handle)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Any:
        """Return what was kept under a key, or None."""
        return self._known.get(key)

    def put(self, key: str, answer: Any) -> None:
        """Keep an answer: it outlives the process at once, and a power cut after a second."""
        line = _line(key, answer, self.head)
        if self._handle >= 0:
            data = canonical_json(line)
            while data:
                data = data[os.write(self._handle, data) :]
            if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
                os.fsync(self._handle)
                self._flushed = time.monotonic()
        self._known[key] = answer
        self.head = line["sha256"]

    def _lock(self) -> None:
        if not lock_file(self._handle, wait=False):
            raise InputError(
                f"{self._path} is in use by another scoring; wait for it, or give another file for the answers."
            )

    def _load(self, data: bytes) -> None:
        *lines, torn = data.split(b"\n")
        if torn:
            # a kill in the middle of a write leaves a part of a line, which was never an answer
            os.ftruncate(self._handle, len(data) - len(torn))
        for number, raw in enumerate(lines, start=1):
            try:
                line = parse_json(raw.decode("utf-8"))
                intact = line == _line(line["key"], line["answer"], self.head)
            except (ValueError, KeyError, TypeError):
                intact = False
            if not intact:
                raise IntegrityError(
                    f"{self._path}, line {number}: the answer was changed, added or taken out after it was written; "
                    "delete the file and ask the server again."
                )
            self._known[line["key"]] = line["answer"]
            self.head = line["sha256"]


def _line(key: str, answer: Any, previous: str) -> dict[str, Any]:
    body = {"key": key, "answer": answer, "previous": previous}
    return {**body, "sha256": sha256_bytes(canonical_json(body))}
