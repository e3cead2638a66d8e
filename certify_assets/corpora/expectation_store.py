"""Where Great Expectations stores the project of a corpus: in the data root, by its own rules."""

# The library's backend for folders opens a file and writes; a kill leaves half of it. This one goes
# through `Store`: a file is stored whole or not at all, on a disk or under a URL. It is imported by
# the library, which the project file names it to.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from great_expectations.data_context.store.store_backend import StoreBackend
from great_expectations.exceptions.exceptions import InvalidKeyError

from certify_assets.storage.store import Store

_SUFFIX = ".json"
_Key = tuple[str, ...]


class DataRootBackend(StoreBackend):
    """Objects of a project as JSON files of a data root, by tuples of names."""

    def __init__(
        self,
        base_directory: str,
        root: str = "",
        root_directory: str | None = None,
        store_name: str = "",
        **options: Any,
    ) -> None:
        """`root` is the URL of the project; without one it is the folder of the project file."""
        # of the library's ids of stores, which have no use here
        del options
        super().__init__(suppress_store_backend_id=True, store_name=store_name)
        self._store, self._folder = Store(root or str(root_directory)), base_directory

    def _path(self, key: _Key) -> str:
        return f"{'/'.join((self._folder, *key))}{_SUFFIX}"

    def _get(self, key: _Key) -> str:  # type: ignore[override]
        if not self._has_key(key):
            raise InvalidKeyError(f"{self._store.locate(self._path(key))} does not exist")
        return self._store.read_bytes(self._path(key)).decode("utf-8")

    def _get_all(self) -> list[str]:
        return [self._get(key) for key in self.list_keys()]

    def _set(self, key: _Key, value: str, **options: Any) -> None:
        del options
        data = value.encode("utf-8")
        if not self._has_key(key) or self._store.read_bytes(self._path(key)) != data:
            self._store.write_bytes(self._path(key), data)

    def _move(self, source_key: _Key, dest_key: _Key, **options: Any) -> None:
        self._set(dest_key, self._get(source_key), **options)
        self.remove_key(source_key)

    def _has_key(self, key: _Key) -> bool:
        return self._store.exists(self._path(key))

    def remove_key(self, key: Any) -> None:
        """Remove an object."""
        self._store.delete(self._path(key if isinstance(key, tuple) else key.to_tuple()))

    def list_keys(self, prefix: _Key = ()) -> list[_Key]:
        """Return the keys of all objects, or of those below a prefix."""
        return sorted(self._below(prefix))

    def _below(self, prefix: _Key) -> Iterator[_Key]:
        for name in self._store.names("/".join((self._folder, *prefix))):
            if name.endswith(_SUFFIX):
                yield (*prefix, name.removesuffix(_SUFFIX))
            else:
                yield from self._below((*prefix, name))

    @property
    def config(self) -> dict[str, str]:
        """What the project file says of it."""
        return {"base_directory": self._folder, "class_name": type(self).__name__}
