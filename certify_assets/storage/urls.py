"""Files behind URLs: what is there, and copies of them within limits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from certify_assets.errors import InputError, MissingToolError
from certify_assets.files import sha256_bytes

#: most files, and bytes in all, that one call copies
FILES = 100_000
TOTAL_BYTES = 8 << 30
# what file systems say of a file that changes with its content, each by its own name
_STAMPS: Final = (
    *("e_tag", "ETag", "etag", "version"),
    *("mtime", "LastModified", "Last-Modified", "created"),
)


def is_url(place: str | Path) -> bool:
    """Whether a place is a URL and no path of this machine."""
    return "://" in str(place)


def absolute(place: str) -> str:
    """Return a URL as it is, a path from the root of the file system."""
    return place if is_url(place) else str(Path(place).absolute())


def shown_url(place: str) -> str:
    """Return a path or URL as it may be logged: without name, password and query of a URL."""
    if not is_url(place):
        return place
    parts = urlsplit(place)
    # urlunsplit makes scheme://tmp/file of scheme:////tmp/file
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def file_system(url: str, **options: object) -> tuple[Any, str]:
    """Return the file system of fsspec that a URL is on, and the path there."""
    shown = shown_url(url)
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise MissingToolError(
            f"{shown} needs a package that is not installed ({error}); object stores need "
            "certify_assets[s3] or certify_assets[gcs]."
        ) from None
    except (ValueError, OSError) as error:
        raise InputError(
            f"{shown} cannot be opened ({type(error).__name__}); give a path or a URL that "
            "fsspec knows."
        ) from None
    return system, str(path).rstrip("/")


@contextmanager
def local_copies(places: Sequence[str]) -> Iterator[list[Path]]:
    """Yield local paths for paths and URLs, those of URLs as copies while the block lasts.

    Sentences on a copy name its URL.
    """
    if not any(map(is_url, places)):
        yield [Path(place) for place in places]
        return
    with tempfile.TemporaryDirectory(prefix="certify-incoming-") as folder:
        found = {
            place: RemoteFiles.of(place).copied(Path(folder) / str(number))
            for number, place in enumerate(places)
            if is_url(place)
        }
        try:
            yield [found.get(place, Path(place)) for place in places]
        except InputError as error:
            sentence = str(error)
            for place, root in found.items():
                sentence = sentence.replace(str(root), shown_url(place))
            if sentence == str(error):
                raise
            raise type(error)(sentence) from None


@dataclass(frozen=True)
class RemoteFiles:
    """A file or folder behind a URL."""

    shown: str  # the URL without secrets
    filesystem: Any
    root: str

    @classmethod
    def of(cls, url: str) -> RemoteFiles:
        """Open a URL; raise an InputError where it cannot be."""
        shown, scheme = shown_url(url), urlsplit(url).scheme
        if scheme.partition("+")[0] == "mlflow":
            # the records of MLflow are kept in a data root, whose place may be a URL
            from certify_assets.storage.traces import MlflowExperiment

            experiment = MlflowExperiment.of(url)
            return cls(shown, experiment, experiment.name)
        return cls(shown, *file_system(url))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file by its path below the root; "" is the root itself."""
        return {place: int(info.get("size") or 0) for place, info in self._found().items()}

    def stamps(self) -> dict[str, str]:
        """Return for every file what differs once its content does, without reading any."""
        return {
            place: sha256_bytes(
                repr([info.get("size"), *(str(info.get(name)) for name in _STAMPS)]).encode("utf-8")
            )
            for place, info in self._found().items()
        }

    def copied(self, folder: Path) -> Path:
        """Copy the file or folder into a folder, within limits; return the copy."""
        sizes = self.sizes()
        if not sizes:
            raise InputError(f"there is no file in {self.shown}; check the address.")
        self._require_few(len(sizes), sum(sizes.values()))
        target = folder / (PurePosixPath(self.root).name or "runs")
        copied = 0
        for place in sorted(sizes):
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._asking():
                self.filesystem.get_file(f"{self.root}/{place}".rstrip("/"), str(path))
            copied += path.stat().st_size
            # not every service says how large its files are
            self._require_few(len(sizes), copied)
        return target

    def _require_few(self, files: int, size: int) -> None:
        if files > FILES or size > TOTAL_BYTES:
            raise InputError(
                f"{self.shown} holds more than {FILES:,} files or {TOTAL_BYTES:,} bytes, which is "
                "the most that is copied at once; give less."
            )

    def _found(self) -> dict[str, Any]:
        with self._asking():
            self.filesystem.invalidate_cache()
            if self.filesystem.isfile(self.root):
                return {"": self.filesystem.info(self.root)}
            found = self.filesystem.find(self.root, detail=True)
        return {_inside(str(name), self.root, self.shown): info for name, info in found.items()}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            # what a server answers may repeat an address that is signed
            raise InputError(
                f"{self.shown} cannot be read ({type(error).__name__}); check the address and the "
                "right to read it."
            ) from None


def _inside(name: str, root: str, shown: str) -> str:
    """Return the place of a remote file below its root; the other side chose its name."""
    relative = PurePosixPath(name.removeprefix(root).lstrip("/"))
    if relative.is_absolute() or not relative.parts or ".." in relative.parts or "\0" in name:
        raise InputError(
            f"{shown} names a file {name!a} that would lie outside of it; it is not read."
        )
    return str(relative)
