"""A data root in the memory of this process: what another storage backend takes."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

from certify_assets.storage.backend import Backend
from certify_assets.storage.backends import BACKENDS


class MemoryBackend(Backend):
    """Files of ``ram://name``, kept until the process ends."""

    roots: ClassVar[defaultdict[str, dict[str, bytes]]] = defaultdict(dict)
    lock: ClassVar = threading.RLock()

    @property
    def files(self) -> dict[str, bytes]:
        """Content by location."""
        return self.roots[self.root]

    def exists(self, key: str) -> bool:
        """Whether a file or a folder with files is stored."""
        return self.locate(key) in self.files or bool(self.names(key))

    def read(self, key: str) -> bytes:
        """Return a file."""
        if (place := self.locate(key)) not in self.files:
            raise FileNotFoundError(place)
        return self.files[place]

    def write(self, key: str, data: bytes) -> None:
        """Store a file."""
        self.files[self.locate(key)] = data

    def delete(self, key: str) -> None:
        """Remove a file."""
        self.files.pop(self.locate(key), None)

    def names(self, folder: str) -> list[str]:
        """Return the names below a folder."""
        prefix = self.locate(folder) + "/"
        below = {place.removeprefix(prefix) for place in self.files if place.startswith(prefix)}
        return sorted({name.partition("/")[0] for name in below})

    def append_line(self, key: str, make: Callable[[bytes], str | None]) -> None:
        """Append a line while no other thread does."""
        with self.lock:
            super().append_line(key, make)


BACKENDS["ram"] = MemoryBackend
